package lockkeeper;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;

/** What LockClient.asLock gives. Each thread that locks has a lease of its own. */
final class LeaseLock implements Lock {
    private final LockClient client;
    private final LockRequest request;
    private final Consumer<LeaseLost> onLost;
    private final ThreadLocal<Lease> mine = new ThreadLocal<>();

    LeaseLock(LockClient client, LockRequest request, Consumer<LeaseLost> onLost) {
        this.client = client;
        this.request = request;
        this.onLost = onLost;
    }

    private void take(Long wait, boolean interruptible) {
        if (mine.get() != null) {
            throw new IllegalStateException("this thread has locked " + request.name() + " already, and the lock is not reentrant");
        }
        mine.set(client.acquire(request, wait, interruptible, onLost));
    }

    @Override
    public void lock() {
        take(request.wait, false);
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        try {
            take(request.wait, true);
        } catch (Limit.Interrupted e) {
            throw new InterruptedException();
        }
    }

    @Override
    public boolean tryLock() {
        try {
            take(0L, false);
            return true;
        } catch (NotAcquired e) {
            return false;
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        try {
            take(Math.max(0, unit.toMillis(time)), true);
            return true;
        } catch (NotAcquired e) {
            return false;
        } catch (Limit.Interrupted e) {
            throw new InterruptedException();
        }
    }

    @Override
    public void unlock() {
        Lease lease = mine.get();
        if (lease == null) {
            throw new IllegalMonitorStateException("this thread has not locked " + request.name());
        }
        mine.remove();
        lease.close();
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock of Lockkeeper has no conditions");
    }
}
