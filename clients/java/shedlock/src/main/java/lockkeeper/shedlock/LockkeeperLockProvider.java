package lockkeeper.shedlock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.*;
import java.util.function.UnaryOperator;
import lockkeeper.*;
import net.javacrumbs.shedlock.core.*;

/**
 * Locks ShedLock's tasks at Lockkeeper gateways.
 *
 * <p>{@code lockAtMostFor} is the TTL of a lease that no heartbeat prolongs: the lock is free after it, also when the
 * task's node has died or the task hangs. ShedLock has no way to cancel a task, so the task's thread is interrupted: a
 * second before {@code lockAtMostFor} is over, and when an administrator breaks the lease. A task that does not end
 * then runs beside the next one, as with every provider. For tasks whose length is not known, wrap this provider in
 * ShedLock's KeepAliveLockProvider: it extends the lease while its node lives.
 *
 * <p>{@code lockAtLeastFor}: the gateway keeps the lock from others for so long, also when the task's process ends before.
 * An extension that asks for a later time releases the lock then, by this process.
 */
public final class LockkeeperLockProvider implements ExtensibleLockProvider {
    private static final Duration LEAST = Duration.ofSeconds(1); // what a gateway takes as a TTL

    private final LockClient client;
    private final UnaryOperator<LockRequest> options;
    private final ScheduledThreadPoolExecutor later = new ScheduledThreadPoolExecutor(1, work -> {
        Thread thread = new Thread(work, "lockkeeper-shedlock");
        thread.setDaemon(true);
        return thread;
    });

    /**
     * Locks in the default namespace, and interrupts tasks whose lease is lost.
     *
     * @param client asks the gateways
     */
    public LockkeeperLockProvider(LockClient client) { this(client, request -> request); }

    /**
     * Locks with further options.
     *
     * @param client asks the gateways
     * @param options are set for each lock, such as {@code request -> request.namespace("jobs").interrupts(false)}
     */
    public LockkeeperLockProvider(LockClient client, UnaryOperator<LockRequest> options) {
        this.client = client;
        this.options = options;
        later.setKeepAliveTime(1, TimeUnit.SECONDS);
        later.allowCoreThreadTimeOut(true);
    }

    /**
     * Takes the lock if it is free.
     *
     * @return the lock; empty when others hold it
     * @throws Problem if the gateway refuses the request, or none answers for 30 s: ShedLock does not run the task then
     */
    @Override public Optional<SimpleLock> lock(LockConfiguration wanted) {
        Duration least = wanted.getLockAtLeastFor();
        LockRequest request = LockRequest.of(wanted.getName()).ttl(ttl(wanted.getLockAtMostFor()))
                .waitAtMost(Duration.ZERO).keepAlive(false);
        if (!least.isZero() && !least.isNegative()) { request.atLeast(least); }
        try {
            return Optional.of(new Held(client.acquire(options.apply(request)), System.nanoTime(), Duration.ZERO));
        } catch (NotAcquired e) {
            return Optional.empty();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    private static Duration ttl(Duration atMost) { return atMost.compareTo(LEAST) < 0 ? LEAST : atMost; }

    private final class Held implements SimpleLock {
        private final Lease lease;
        private final long from;
        private final Duration atLeast;
        private boolean over; // unlocked or extended: ShedLock forbids all else after it

        Held(Lease lease, long from, Duration atLeast) {
            this.lease = lease;
            this.from = from;
            this.atLeast = atLeast;
        }

        private synchronized void use() {
            if (over) { throw new IllegalStateException("the lock must not be used after it was unlocked or extended"); }
            over = true;
        }

        /** Throws LeaseLost when the lease had ended before: the task may have run beside another one. */
        @Override public void unlock() {
            use();
            long rest = atLeast.toNanos() - (System.nanoTime() - from);
            if (rest <= 0) {
                lease.close();
                return;
            }
            lease.unguard();
            lease.checkHeld();
            later.schedule(lease::close, rest, TimeUnit.NANOSECONDS);
        }

        @Override public Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
            use();
            long now = System.nanoTime();
            try {
                lease.renew(ttl(lockAtMostFor));
                return Optional.of(new Held(lease, now, lockAtLeastFor));
            } catch (LeaseLost e) {
                return Optional.empty();
            }
        }
    }
}
