package lockkeeper;

import java.time.Instant;

/**
 * The work of a period is done already ({@link LockRequest#oncePer}), so there is no lease. It is no failure: {@link
 * LockClient#withLock(LockRequest, LockClient.Work)} returns, and tells {@link LockRequest#onDone}. What would have to give
 * a lease or a result throws it.
 */
public final class Done extends RuntimeException {
    /** The name of the lock; the name of the period; the owner that did the work, empty where the gateway does not tell. */
    public final String lock, period, by;
    /** When the period became done. */
    public final Instant at;

    Done(String lock, Json answer) {
        super(lock + " is done in this period by " + answer.text("by") + " at " + answer.text("at"));
        this.lock = lock;
        period = answer.text("period");
        by = answer.text("by");
        at = Instant.parse(answer.text("at"));
    }
}
