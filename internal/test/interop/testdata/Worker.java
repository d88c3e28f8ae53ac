import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.io.StringWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListener;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/**
 * Curator's locks, and the WriteLock of ZooKeeper's own recipes: java Worker HOST:PORT SESSION_MS. What it is told on stdin
 * and what it says is in doc.go.
 */
final class Worker {
    interface Section {
        void run() throws Exception;
    }

    /** One acquire, the section, one release. */
    interface Client {
        void with(Section section) throws Exception;

        default void close() {
        }
    }

    private static CuratorFramework curator;
    private static final Map<String, Semaphore> stops = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        curator = CuratorFrameworkFactory.builder().connectString(args[0]).sessionTimeoutMs(Integer.parseInt(args[1]))
            .connectionTimeoutMs(Integer.parseInt(args[1])).retryPolicy(new RetryNTimes(400, 50)).build();
        curator.start();
        if (!curator.blockUntilConnected(40, TimeUnit.SECONDS)) {
            System.exit(1);
        }
        say("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split(" ");
            if (w[0].equals("stop")) {
                stops.get(w[1]).release();
                continue;
            }
            Semaphore stop = new Semaphore(0);
            stops.put(w[1], stop);
            Thread t = new Thread(() -> job(w, stop), w[1]);
            t.setDaemon(true);
            t.start();
        }
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** "loop JOB KIND PATH COUNTER PAUSE_US" or "hold JOB KIND PATH". */
    private static void job(String[] w, Semaphore stop) {
        try {
            Client c = client(w[2], w[3]);
            if (w[0].equals("hold")) {
                c.with(() -> {
                    say("held " + w[1] + " " + System.nanoTime());
                    stop.acquire();
                });
            } else {
                try (RandomAccessFile counter = new RandomAccessFile(w[4], "rw")) {
                    long pause = Long.parseLong(w[5]);
                    while (!stop.tryAcquire()) {
                        c.with(() -> {
                            long begin = System.nanoTime();
                            count(counter, pause);
                            say("section " + w[1] + " " + begin + " " + System.nanoTime());
                        });
                    }
                }
            }
            c.close();
            say("done " + w[1]);
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            say("fail " + w[1] + " " + trace.toString().replace("\n", " | "));
        }
    }

    /** Reads, waits, writes: what comes in between is lost. */
    private static void count(RandomAccessFile counter, long pauseMicros) throws Exception {
        byte[] digits = new byte[12];
        counter.seek(0);
        counter.readFully(digits);
        long n = Long.parseLong(new String(digits, StandardCharsets.US_ASCII));
        LockSupport.parkNanos(pauseMicros * 1000);
        counter.seek(0);
        counter.write(String.format("%012d", n + 1).getBytes(StandardCharsets.US_ASCII));
    }

    private static Client client(String kind, String path) throws Exception {
        switch (kind) {
            case "curator-mutex":
                return of(new InterProcessMutex(curator, path));
            case "curator-write":
                return of(new InterProcessReadWriteLock(curator, path).writeLock());
            case "curator-read":
                return of(new InterProcessReadWriteLock(curator, path).readLock());
            case "curator-leader":
                return new Leader(path);
            case "curator-semaphore": {
                InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(curator, path, 1);
                return section -> {
                    Lease lease = semaphore.acquire();
                    try {
                        section.run();
                    } finally {
                        semaphore.returnLease(lease);
                    }
                };
            }
            case "curator-latch":
                return section -> {
                    LeaderLatch latch = new LeaderLatch(curator, path, "participant-7");
                    latch.start(); // which queues
                    try {
                        latch.await();
                        section.run();
                    } finally {
                        latch.close();
                    }
                };
            case "curator-selector":
                return new Leader(path, "participant-8");
            case "zookeeper-writelock":
                return new Write(path);
            case "curator-revoker":
                return section -> {
                    Revoker.attemptRevoke(curator, path); // path is that of the contender
                    section.run();
                };
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static Client of(InterProcessLock lock) {
        return section -> {
            lock.acquire();
            try {
                section.run();
            } finally {
                lock.release();
            }
        };
    }

    /** A LeaderSelector that leads for one section, again and again. */
    private static final class Leader implements Client {
        private final LeaderSelector selector;
        private final Semaphore led = new Semaphore(0);
        private volatile Section section;
        private volatile Exception failure;

        Leader(String path) {
            this(path, "");
        }

        Leader(String path, String id) {
            LeaderSelectorListener listener = new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework c) {
                    try {
                        section.run();
                    } catch (Exception e) {
                        failure = e;
                    } finally {
                        led.release();
                    }
                }
            };
            selector = new LeaderSelector(curator, path, listener);
            if (!id.isEmpty()) {
                selector.setId(id);
            }
        }

        @Override
        public void with(Section s) throws Exception {
            boolean first = section == null;
            section = s;
            if (first) {
                selector.start(); // which queues
            }
            while (!first && !selector.requeue()) { // the last turn is not quite over
                Thread.sleep(1);
            }
            led.acquire();
            if (failure != null) {
                throw failure;
            }
        }

        @Override
        public void close() {
            selector.close();
        }
    }

    /** The WriteLock of ZooKeeper's recipes. Its listener is told; lock() tells only of a lock that is free. */
    private static final class Write implements Client {
        private final Semaphore acquired = new Semaphore(0);
        private final WriteLock lock;

        Write(String path) throws Exception {
            lock = new WriteLock(curator.getZookeeperClient().getZooKeeper(), path, ZooDefs.Ids.OPEN_ACL_UNSAFE, new LockListener() {
                @Override
                public void lockAcquired() {
                    acquired.release();
                }

                @Override
                public void lockReleased() {
                }
            });
        }

        @Override
        public void with(Section section) throws Exception {
            // Once is not enough: when the one that it waits for leaves between its list and its watch, it is not told and
            // does not look again ("Could not find the stats for less than me"). None passes it then.
            do {
                lock.lock();
            } while (!acquired.tryAcquire(100, TimeUnit.MILLISECONDS));
            try {
                section.run();
            } finally {
                lock.unlock();
                acquired.drainPermits(); // it may have told twice
            }
        }
    }
}
