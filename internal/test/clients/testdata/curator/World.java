import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.imps.CuratorFrameworkState;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.KeeperException;

/** One scenario's world: a part of the tree that no other scenario uses, and clients that are closed with it. */
final class World implements AutoCloseable {
    static final int PATIENCE = 40; // seconds: a bound for a loaded machine, not an expectation
    static final int SESSION = 20; // seconds: for sessions that shall survive the scenario
    static final int BRIEF_SESSION = 5; // seconds: for sessions that shall end in it
    static final int LEAST_SESSION_MS = 400; // the bounds that the test gives the server
    static final int GREATEST_SESSION_MS = 60_000;

    final String addr;
    final String root;
    final int rounds;
    private final String control;
    private final List<CuratorFramework> clients = Collections.synchronizedList(new ArrayList<>());
    private final List<Weather> weathers = Collections.synchronizedList(new ArrayList<>());

    World(String name, String addr, String control, int rounds) {
        this.addr = addr;
        this.control = control;
        this.rounds = rounds;
        this.root = "curator-" + name + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    CuratorFramework client() throws Exception {
        return client(builder(SESSION, null));
    }

    CuratorFramework client(int session, Weather weather) throws Exception {
        return client(builder(session, weather));
    }

    /** A started, connected client whose "/" is the scenario's own. */
    CuratorFramework client(CuratorFrameworkFactory.Builder builder) throws Exception {
        CuratorFramework c = builder.build();
        clients.add(c);
        c.start();
        check(c.blockUntilConnected(PATIENCE, TimeUnit.SECONDS), "connected within " + PATIENCE + " s");
        try {
            c.usingNamespace(null).create().forPath("/" + root); // Curator would make a container, which may go at any time
        } catch (KeeperException.NodeExistsException e) {
            return c; // not the first client
        }
        return c;
    }

    CuratorFrameworkFactory.Builder builder(int session, Weather weather) {
        return CuratorFrameworkFactory.builder()
            .connectString(weather == null ? addr : weather.addr)
            .namespace(root)
            .sessionTimeoutMs(session * 1000)
            .connectionTimeoutMs(PATIENCE * 1000)
            .retryPolicy(new RetryNTimes(400, 50));
    }

    List<CuratorFramework> clients(int n) throws Exception {
        List<CuratorFramework> all = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            all.add(client());
        }
        return all;
    }

    Weather weather() throws Exception {
        Weather w = new Weather(control);
        weathers.add(w);
        return w;
    }

    @Override
    public void close() throws Exception {
        // First the weather: a client whose network is gone would wait for it.
        for (Weather w : weathers) {
            w.order("heal");
        }
        for (CuratorFramework c : clients) {
            if (c.getState() == CuratorFrameworkState.STARTED) {
                c.close();
            }
        }
        for (Weather w : weathers) {
            w.close();
        }
    }

    /** The connection states that c goes through from now on. */
    static List<ConnectionState> states(CuratorFramework c) {
        List<ConnectionState> seen = Collections.synchronizedList(new ArrayList<>());
        c.getConnectionStateListenable().addListener((client, state) -> seen.add(state));
        return seen;
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] b) {
        return new String(b, StandardCharsets.UTF_8);
    }

    static void check(boolean good, String what) {
        if (!good) {
            throw new AssertionError(what);
        }
    }

    static void same(Object got, Object want, String what) {
        check(want.equals(got), what + ": got " + got + ", want " + want);
    }

    /** Fails unless body throws an exception of that kind. */
    static void refused(Class<? extends Exception> kind, Callable<?> body) throws Exception {
        try {
            body.call();
        } catch (Exception e) {
            if (kind.isInstance(e)) {
                return;
            }
            throw e;
        }
        throw new AssertionError(kind.getSimpleName() + " was expected");
    }

    /** Waits until cond is true. */
    static void eventually(Callable<Boolean> cond, String what) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE);
        while (!cond.call()) {
            check(System.nanoTime() < end, "not within " + PATIENCE + " s: " + what);
            Thread.sleep(10);
        }
    }

    interface Body {
        void run() throws Exception;
    }

    /** A body in a thread of its own whose result is asked for later. */
    static final class Later<T> {
        private final FutureTask<T> task;

        Later(Callable<T> body) {
            task = new FutureTask<>(body);
            Thread t = new Thread(task, "later");
            t.setDaemon(true);
            t.start();
        }

        boolean running() {
            return !task.isDone();
        }

        T get() throws Exception {
            try {
                return task.get(PATIENCE, TimeUnit.SECONDS);
            } catch (ExecutionException e) {
                throw new Exception("in another thread", e.getCause());
            } catch (TimeoutException e) {
                throw new AssertionError("still running after " + PATIENCE + " s");
            }
        }
    }

    static Later<Void> later(Body body) {
        return new Later<>(() -> {
            body.run();
            return null;
        });
    }

    /** Runs all bodies, each in a thread of its own, and waits for them. */
    static void together(List<Body> bodies) throws Exception {
        List<Later<Void>> all = new ArrayList<>();
        for (Body b : bodies) {
            all.add(later(b));
        }
        for (Later<Void> l : all) {
            l.get();
        }
    }
}
