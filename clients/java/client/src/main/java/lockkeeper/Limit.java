package lockkeeper;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** For how long a call tries, and whether an interrupt of its thread ends it. Where it does not, the thread is interrupted afterwards. */
final class Limit {
    /** An interrupt has ended the call: what the public methods turn into an InterruptedException. */
    static final class Interrupted extends RuntimeException {}

    private final long begun = System.nanoTime(), nanos;
    private final boolean interruptible;

    private Limit(long nanos, boolean interruptible) {
        this.nanos = nanos;
        this.interruptible = interruptible;
    }

    static Limit of(long millis, boolean interruptible) {
        return new Limit(TimeUnit.MILLISECONDS.toNanos(millis), interruptible);
    }

    static Limit none(boolean interruptible) {
        return new Limit(Long.MAX_VALUE, interruptible);
    }

    /** Another limit, which an interrupt ends as it does this one. */
    Limit or(long millis) {
        return of(millis, interruptible);
    }

    /** The time that is left, in milliseconds; 0 when it is over. */
    long left() {
        long left = nanos - (System.nanoTime() - begun);
        return left <= 0 ? 0 : left / 1_000_000 + 1;
    }

    /** Waits for the future, whose own timeout bounds it. It throws what the future did. */
    <T> T await(CompletableFuture<T> future) {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return future.get();
                } catch (InterruptedException e) {
                    if (interruptible) {
                        future.cancel(true);
                        throw new Interrupted();
                    }
                    interrupted = true;
                }
            }
        } catch (ExecutionException | CancellationException e) {
            throw failure(e);
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Sleeps, and no longer than this limit. */
    void sleep(long millis) {
        CompletableFuture<Void> awake = new CompletableFuture<>();
        await(awake.completeOnTimeout(null, Math.min(millis, left()), TimeUnit.MILLISECONDS));
    }

    /** What made a future fail, as it is thrown. */
    static RuntimeException failure(Throwable e) {
        while ((e instanceof ExecutionException || e instanceof CompletionException) && e.getCause() != null) {
            e = e.getCause();
        }
        return e instanceof RuntimeException ? (RuntimeException) e.fillInStackTrace() : new Gateways.NoAnswer(e);
    }
}
