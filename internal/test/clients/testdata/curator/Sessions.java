import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/** Connections that break and sessions that end. */
final class Sessions {
    static void addTo(Map<String, Main.Scenario> s) {
        s.put("reconnect", Sessions::reconnect);
        s.put("storm", Sessions::storm);
        s.put("expiry-by-silence", Sessions::expiryBySilence);
        s.put("expiry-from-elsewhere", Sessions::expiryFromElsewhere);
        s.put("timeout-bounds", Sessions::timeoutBounds);
        s.put("restart-of-the-server", Sessions::restartOfTheServer);
    }

    static boolean last(List<ConnectionState> states, ConnectionState want) {
        synchronized (states) {
            return !states.isEmpty() && states.get(states.size() - 1) == want;
        }
    }

    static long id(CuratorFramework c) throws Exception {
        return c.getZookeeperClient().getZooKeeper().getSessionId();
    }

    /** ZooKeeper's client sets its watches again, and the server tells at once what happened meanwhile. */
    static void reconnect(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework b = w.client();
        List<ConnectionState> states = World.states(a);
        Watches.Heard heard = new Watches.Heard();
        Watches.Heard deep = new Watches.Heard();
        a.create().withMode(CreateMode.EPHEMERAL).forPath("/mine");
        for (String name : Arrays.asList("changed", "deleted", "quiet", "parent", "gone-parent", "recreated", "deep")) {
            a.create().forPath("/" + name);
            if (!name.endsWith("parent") && !name.equals("deep")) {
                a.getData().usingWatcher(heard).forPath("/" + name);
            }
        }
        a.getChildren().usingWatcher(heard).forPath("/parent");
        a.getChildren().usingWatcher(heard).forPath("/gone-parent");
        a.checkExists().usingWatcher(heard).forPath("/created");
        a.checkExists().usingWatcher(heard).forPath("/never");
        a.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(deep).forPath("/deep");
        long session = id(a);

        weather.order("cut");
        World.eventually(() -> last(states, ConnectionState.SUSPENDED), "suspended");
        b.setData().forPath("/changed");
        b.delete().forPath("/deleted");
        b.create().forPath("/parent/child");
        b.delete().forPath("/gone-parent");
        b.delete().forPath("/recreated");
        b.create().forPath("/recreated");
        b.create().forPath("/created");
        b.create().forPath("/deep/missed");
        World.check(Nodes.exists(b, "/mine"), "the ephemeral node outlives the connection");
        World.check(heard.events.isEmpty(), "heard without a connection: " + heard.events);
        weather.order("heal");

        World.eventually(() -> last(states, ConnectionState.RECONNECTED), "connected again");
        World.same(id(a), session, "session");
        List<String> want = Arrays.asList("DataChanged /changed", "Deleted /deleted", "ChildrenChanged /parent",
            "Deleted /gone-parent", "DataChanged /recreated", "Created /created");
        World.eventually(() -> heard.events.size() >= want.size(), "told what happened meanwhile: " + heard.events);
        World.same(new TreeSet<>(heard.events), new TreeSet<>(want), "events");
        World.same(heard.events.size(), want.size(), "events");
        heard.events.clear();
        b.setData().forPath("/quiet");
        b.create().forPath("/never");
        heard.is("DataChanged /quiet", "Created /never");
        b.setData().forPath("/deep/missed");
        deep.is("DataChanged /deep/missed"); // what a recursive watch missed is not told
    }

    /** The connection breaks again and again in the middle of work: the session stays, and every change is done once. */
    static void storm(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework b = w.client();
        a.create().withMode(CreateMode.EPHEMERAL).forPath("/mine");
        a.create().forPath("/items");
        long session = id(a);
        for (int i = 0; i < 20 * w.rounds; i++) {
            String order = i % 10 == 9 ? "reset" : "heal";
            World.Later<Void> breaking = World.later(() -> weather.order(order)); // before, while or after it is asked
            a.create().withProtection().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/items/n-", World.bytes("" + i));
            breaking.get();
        }
        World.same(b.getChildren().forPath("/items").size(), 20 * w.rounds, "items");
        World.same(id(a), session, "session");
        World.check(Nodes.exists(b, "/mine"), "the ephemeral node");
    }

    static void expiryBySilence(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.BRIEF_SESSION, weather);
        CuratorFramework b = w.client();
        List<ConnectionState> states = World.states(a);
        a.create().withMode(CreateMode.EPHEMERAL).forPath("/mine");
        long session = id(a);
        weather.order("stall");
        World.check(Nodes.exists(b, "/mine"), "there for a while");
        World.eventually(() -> !Nodes.exists(b, "/mine"), "gone after the timeout");
        weather.order("heal");
        World.eventually(() -> states.contains(ConnectionState.LOST) && last(states, ConnectionState.RECONNECTED), "lost, and back: " + states);
        World.check(id(a) != session, "a new session");
        a.create().withMode(CreateMode.EPHEMERAL).forPath("/mine");
    }

    /** Another client takes the session over by its id and password, and closes it. */
    static void expiryFromElsewhere(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework b = w.client();
        List<ConnectionState> states = World.states(a);
        a.create().withMode(CreateMode.EPHEMERAL).forPath("/mine");
        ZooKeeper owner = a.getZookeeperClient().getZooKeeper();
        weather.order("cut");
        World.eventually(() -> last(states, ConnectionState.SUSPENDED), "suspended");

        List<Watcher.Event.KeeperState> strangers = Collections.synchronizedList(new ArrayList<>());
        ZooKeeper stranger = new ZooKeeper(w.addr, 10_000, e -> strangers.add(e.getState()), owner.getSessionId(), new byte[16]);
        World.eventually(() -> strangers.contains(Watcher.Event.KeeperState.Expired), "a wrong password expires");
        stranger.close();
        World.check(Nodes.exists(b, "/mine"), "and harms no other session");

        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper thief = new ZooKeeper(w.addr, 10_000, e -> {
            if (e.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        }, owner.getSessionId(), owner.getSessionPasswd());
        World.check(connected.await(World.PATIENCE, TimeUnit.SECONDS), "connected");
        World.same(thief.getSessionId(), owner.getSessionId(), "session");
        World.check(Nodes.exists(b, "/mine"), "the session lives on in another connection");
        thief.close();
        World.check(!Nodes.exists(b, "/mine"), "closed, its nodes gone");
        weather.order("heal");
        World.eventually(() -> states.contains(ConnectionState.LOST) && last(states, ConnectionState.RECONNECTED), "lost, and back: " + states);
        World.check(id(a) != owner.getSessionId(), "a new session");
    }

    static void timeoutBounds(World w) throws Exception {
        for (int[] bound : new int[][] {{300, World.LEAST_SESSION_MS}, {900_000, World.GREATEST_SESSION_MS}, {7001, 7001}}) {
            CountDownLatch connected = new CountDownLatch(1);
            try (ZooKeeper zk = new ZooKeeper(w.addr, bound[0], e -> connected.countDown())) {
                World.check(connected.await(World.PATIENCE, TimeUnit.SECONDS), "connected");
                World.same(zk.getSessionTimeout(), bound[1], "negotiated for " + bound[0] + " ms");
            }
        }
    }

    /** Runs alone. Sessions, locks, leaders and caches go on, and so do watches of every kind. */
    static void restartOfTheServer(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework b = w.client(World.SESSION, weather);
        List<ConnectionState> states = World.states(b);
        InterProcessMutex held = new InterProcessMutex(a, "/lock");
        InterProcessMutex wanted = new InterProcessMutex(b, "/lock");
        World.check(Locks.acquire(held), "acquired");
        World.Later<Boolean> waiting = new World.Later<>(() -> Locks.acquire(wanted));
        World.eventually(() -> held.getParticipantNodes().size() == 2, "the other one waits");
        a.create().forPath("/tree", World.bytes("0"));
        Watches.Heard heard = new Watches.Heard();
        b.getData().usingWatcher(heard).forPath("/tree");
        b.checkExists().usingWatcher(heard).forPath("/later");
        long zxid = a.checkExists().forPath("/tree").getCzxid();
        long[] sessions = {id(a), id(b)};
        try (CuratorCache cache = CuratorCache.build(b, "/tree"); LeaderLatch latch = new LeaderLatch(a, "/latch")) {
            cache.start();
            latch.start();
            World.check(latch.await(World.PATIENCE, TimeUnit.SECONDS), "leads");
            World.eventually(() -> cache.get("/tree").isPresent(), "cached");

            // No client connects meanwhile: a ZooKeeper that is just starting may take a connection and never answer on it.
            for (String order : List.of("cut", "restart", "heal")) {
                weather.order(order);
            }

            World.eventually(() -> last(states, ConnectionState.RECONNECTED), "connected again");
            World.check(!states.contains(ConnectionState.LOST), "the session goes on");
            World.check(heard.events.isEmpty(), "nothing has happened: " + heard.events);
            a.setData().forPath("/tree", World.bytes("1"));
            a.create().forPath("/tree/n", World.bytes("2"));
            a.create().forPath("/later");
            World.check(Arrays.equals(new long[] {id(a), id(b)}, sessions), "the same sessions");
            World.check(b.checkExists().forPath("/later").getCzxid() > zxid, "zxids go on");
            heard.is("DataChanged /tree", "Created /later");
            World.eventually(() -> cache.get("/tree/n").isPresent() && World.text(cache.get("/tree").get().getData()).equals("1"), "cached");
            World.eventually(latch::hasLeadership, "leads, or leads again");
            World.check(waiting.running(), "the lock is held");
            held.release();
            World.check(waiting.get(), "acquired");
        }
    }
}
