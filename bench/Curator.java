import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/**
 * Clients of Curator's InterProcessMutex, each a thread.
 *
 * Arguments: the servers, and how many connections of their own there are. It connects, prints "ready", and reads lines
 * "shared|own hot|own CLIENTS MILLISECONDS". It prints "prepared", and begins with the next line. In the end it prints
 * "CYCLES P50 P99 P50 P99": the cycles that ended in time, and the nanoseconds that acquire and release took; or "error: ...".
 */
final class Curator {
    private static CuratorFramework shared;
    private static CuratorFramework[] own;

    public static void main(String[] args) throws Exception {
        shared = connect(args[0]);
        own = new CuratorFramework[Integer.parseInt(args[1])];
        for (int i = 0; i < own.length; i++) {
            own[i] = connect(args[0]);
        }
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split(" ");
            System.out.println(turn(in, w[0].equals("own"), w[1].equals("hot"), Integer.parseInt(w[2]), Long.parseLong(w[3])));
        }
        System.exit(0);
    }

    private static CuratorFramework connect(String servers) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.builder().connectString(servers).sessionTimeoutMs(30_000)
            .connectionTimeoutMs(15_000).retryPolicy(new RetryNTimes(3, 100)).build();
        c.start();
        c.blockUntilConnected();
        return c;
    }

    private static String turn(BufferedReader in, boolean ownConnections, boolean hot, int clients, long millis)
            throws Exception {
        AtomicInteger holders = new AtomicInteger();
        AtomicReference<Throwable> failed = new AtomicReference<>();
        CountDownLatch start = new CountDownLatch(1);
        Client[] all = new Client[clients];
        for (int i = 0; i < clients; i++) {
            CuratorFramework c = ownConnections ? own[i] : shared;
            all[i] = new Client(new InterProcessMutex(c, "/curator/" + (hot ? "hot" : "own-" + i)), hot, holders, failed, start);
            all[i].start();
        }
        System.out.println("prepared");
        in.readLine();
        long until = System.nanoTime() + millis * 1_000_000;
        for (Client c : all) {
            c.until = until;
        }
        start.countDown();
        for (Client c : all) {
            c.join();
        }
        if (failed.get() != null) {
            failed.get().printStackTrace();
            return "error: " + failed.get();
        }
        long[] acquires = all(all, true);
        long[] releases = all(all, false);
        return acquires.length + " " + quantiles(acquires) + " " + quantiles(releases);
    }

    private static long[] all(Client[] clients, boolean acquires) {
        int n = 0;
        for (Client c : clients) {
            n += c.done;
        }
        long[] all = new long[n];
        n = 0;
        for (Client c : clients) {
            System.arraycopy(acquires ? c.acquires : c.releases, 0, all, n, c.done);
            n += c.done;
        }
        Arrays.sort(all);
        return all;
    }

    /** The values that 50 and 99 percent do not exceed. */
    private static String quantiles(long[] sorted) {
        if (sorted.length == 0) {
            return "0 0";
        }
        return sorted[(sorted.length * 50 + 99) / 100 - 1] + " " + sorted[(int) ((sorted.length * 99L + 99) / 100) - 1];
    }

    private static final class Client extends Thread {
        private final InterProcessMutex mutex;
        private final boolean hot;
        private final AtomicInteger holders;
        private final AtomicReference<Throwable> failed;
        private final CountDownLatch start;
        private volatile long until;
        private int done;
        private long[] acquires = new long[1024];
        private long[] releases = new long[1024];

        Client(InterProcessMutex mutex, boolean hot, AtomicInteger holders, AtomicReference<Throwable> failed, CountDownLatch start) {
            this.mutex = mutex;
            this.hot = hot;
            this.holders = holders;
            this.failed = failed;
            this.start = start;
        }

        @Override
        public void run() {
            try {
                start.await();
                while (failed.get() == null && System.nanoTime() < until) {
                    cycle();
                }
            } catch (Throwable e) {
                failed.compareAndSet(null, e);
            }
        }

        private void cycle() throws Exception {
            long sent = System.nanoTime();
            mutex.acquire();
            long held = System.nanoTime();
            if (hot) {
                if (holders.incrementAndGet() != 1) {
                    throw new IllegalStateException("two clients held one lock at once");
                }
                Thread.yield(); // another that holds the lock as well gets a chance to be seen
                holders.decrementAndGet();
            }
            mutex.release();
            long left = System.nanoTime();
            if (left > until) {
                return;
            }
            if (done == acquires.length) {
                acquires = Arrays.copyOf(acquires, 2 * done);
                releases = Arrays.copyOf(releases, 2 * done);
            }
            acquires[done] = held - sent;
            releases[done++] = left - held;
        }
    }
}
