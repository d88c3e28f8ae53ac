package lockkeeper;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import lockkeeper.shedlock.LockkeeperLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

/** Tests of the provider for ShedLock, with the stand-ins beside this file. */
final class ShedLockTests {
    public static void main(String[] args) throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            LockProvider provider = new LockkeeperLockProvider(gateway.client());
            LockConfiguration brief = configuration(3000, 0), least = configuration(3000, 1500);

            SimpleLock lock = provider.lock(brief).orElseThrow();
            Tests.check(gateway.count("POST /v1/locks/job/leases {\"ttl\":\"3000ms\",\"async\":false}") == 1, gateway.requests.toString());
            lock.unlock();
            Tests.check(gateway.count("DELETE") == 1, "it was not unlocked at once");
            refused(lock::unlock);

            // The gateway keeps lockAtLeastFor.
            lock = provider.lock(least).orElseThrow();
            Tests.check(gateway.count("POST /v1/locks/job/leases {\"ttl\":\"3000ms\",\"at_least\":\"1500ms\",") == 1, gateway.requests.toString());
            lock.unlock();
            Tests.check(gateway.count("DELETE") == 2, "it was not unlocked at once");

            // It does not know of that of an extension.
            lock = provider.lock(brief).orElseThrow();
            long begun = System.nanoTime();
            lock.extend(Duration.ofSeconds(3), Duration.ofMillis(1500)).orElseThrow().unlock();
            Tests.check(gateway.count("DELETE") == 2, "it was unlocked before lockAtLeastFor");
            while (gateway.count("DELETE") < 3) {
                Tests.check(System.nanoTime() - begun < 10_000_000_000L, "it was not unlocked after lockAtLeastFor");
                Thread.sleep(20);
            }
            Tests.check(System.nanoTime() - begun >= 1_490_000_000L, "it was unlocked before lockAtLeastFor");

            gateway.taken = true;
            Tests.check(provider.lock(brief).isEmpty(), "it locked what others hold");
            gateway.taken = false;

            lock = provider.lock(brief).orElseThrow();
            begun = System.nanoTime();
            try {
                Thread.sleep(20_000);
                throw new AssertionError("the task was not interrupted");
            } catch (InterruptedException e) {
                Tests.check(System.nanoTime() - begun < 3_000_000_000L, "the task ran on after lockAtMostFor");
            }
            Tests.check(gateway.count("POST /v1/leases/self/heartbeat") == 1, "heartbeats prolonged the lock");
            lost(lock);

            lock = provider.lock(brief).orElseThrow();
            Thread.sleep(1000);
            gateway.ttl = 9000;
            Optional<SimpleLock> longer = lock.extend(Duration.ofSeconds(9), Duration.ZERO);
            Tests.check(gateway.count("POST /v1/leases/self/heartbeat {\"ttl\":\"9000ms\"}") == 1, gateway.requests.toString());
            refused(lock::unlock);
            Thread.sleep(2500); // beyond the first lockAtMostFor
            longer.orElseThrow().unlock();

            gateway.ttl = 3000;
            lock = provider.lock(brief).orElseThrow();
            gateway.breakLease();
            try {
                Thread.sleep(20_000);
                throw new AssertionError("the task was not interrupted");
            } catch (InterruptedException e) { // as it must be
            }
            Tests.check(lock.extend(Duration.ofSeconds(9), Duration.ZERO).isEmpty(), "a broken lock was extended");
        }
        System.out.println("ShedLock works");
    }

    private static LockConfiguration configuration(long atMost, long atLeast) {
        return new LockConfiguration(Instant.now(), "job", Duration.ofMillis(atMost), Duration.ofMillis(atLeast));
    }

    private static void refused(Runnable call) {
        try {
            call.run();
        } catch (IllegalStateException e) {
            return;
        }
        throw new AssertionError("a lock was used after its end");
    }

    private static void lost(SimpleLock lock) {
        try {
            lock.unlock();
        } catch (LeaseLost e) {
            return;
        }
        throw new AssertionError("the loss was not told");
    }
}
