package lockkeeper;

import static java.util.stream.Collectors.toUnmodifiableList;

import java.time.Duration;
import java.util.*;

/** Others hold the lock, and the time for waiting is over. */
public final class NotAcquired extends RuntimeException {
    /** The name of the lock; of several with commas between. */
    public final String lock;
    /** Those who held the lock when the gateway saw them last; may be empty. */
    public final transient List<Holder> holders;
    /** How many waited for the lock. */
    public final long queueLength;
    /** The least time after which the answer can change; zero when it is not known. */
    public final Duration retryAfter;

    NotAcquired(String lock, Json seen, long retryAfter) {
        super(lock + " is held, and " + seen.number("queue_length") + " wait for it");
        this.lock = lock;
        holders = seen.objects("holders").map(Holder::new).collect(toUnmodifiableList());
        queueLength = seen.number("queue_length");
        this.retryAfter = Duration.ofMillis(retryAfter);
    }

    /** One of those who hold a lock. */
    public static final class Holder {
        /** A label for people; the holder's lease, which is empty for a program that locks in ZooKeeper itself. */
        public final String owner, leaseId;
        /** The fencing token; 0 when the holder has none. */
        public final long fencingToken;

        private Holder(Json holder) {
            owner = holder.text("owner");
            leaseId = holder.text("lease_id");
            fencingToken = holder.number("fencing_token");
        }
    }
}
