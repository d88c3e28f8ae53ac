import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;

/**
 * A counter in ZooKeeper that only mutual exclusion keeps right: it is read, and later set to one more, whatever it is then.
 * How many are in the section at once is counted beside it.
 */
final class Tally {
    final AtomicInteger inside = new AtomicInteger();
    final AtomicInteger peak = new AtomicInteger();
    private final int most;

    Tally(CuratorFramework c, int most) throws Exception {
        this.most = most;
        c.create().forPath("/tally", World.bytes("0"));
    }

    void enter() {
        int n = inside.incrementAndGet();
        peak.accumulateAndGet(n, Math::max);
        World.check(n <= most, n + " inside, at most " + most + " may be");
    }

    void leave() {
        inside.decrementAndGet();
    }

    void add(CuratorFramework c) throws Exception {
        enter();
        try {
            c.setData().forPath("/tally", World.bytes(String.valueOf(value(c) + 1)));
        } finally {
            leave();
        }
    }

    int value(CuratorFramework c) throws Exception {
        return Integer.parseInt(World.text(c.getData().forPath("/tally")));
    }
}
