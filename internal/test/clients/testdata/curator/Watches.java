import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/** Plain, persistent and recursive watches, and their removal. */
final class Watches {
    static void addTo(Map<String, Main.Scenario> s) {
        s.put("persistent-watcher", Watches::persistentWatcher);
        s.put("remove-watches", Watches::removeWatches);
        s.put("event-before-reply", Watches::eventBeforeReply);
    }

    /** What a watcher was told: "NodeCreated /path", without what it heard of its connection. */
    static final class Heard implements Watcher {
        final List<String> events = Collections.synchronizedList(new ArrayList<>());

        @Override
        public void process(WatchedEvent e) {
            if (e.getType() != Event.EventType.None) {
                events.add(e.getType().name().replaceFirst("^Node", "") + " " + e.getPath());
            }
        }

        void is(String... want) throws Exception {
            World.eventually(() -> events.size() >= want.length, "events " + Arrays.toString(want) + "; heard " + events);
            World.same(new ArrayList<>(events), Arrays.asList(want), "events");
            events.clear();
        }
    }

    static void persistentWatcher(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework b = w.client();
        b.create().forPath("/p");
        Heard deep = new Heard();
        try (PersistentWatcher recursive = new PersistentWatcher(a, "/p", true)) {
            CountDownLatch set = new CountDownLatch(1);
            recursive.getListenable().addListener(deep);
            recursive.getResetListenable().addListener(set::countDown);
            recursive.start();
            World.check(set.await(World.PATIENCE, TimeUnit.SECONDS), "the watch is set");
            for (int i = 0; i < 3; i++) {
                b.create().forPath("/p/a");
                b.create().forPath("/p/a/b");
                b.setData().forPath("/p/a/b", World.bytes("1"));
                b.setData().forPath("/p/a/b", World.bytes("2"));
                b.setData().forPath("/p");
                b.delete().forPath("/p/a/b");
                b.delete().forPath("/p/a");
                deep.is("Created /p/a", "Created /p/a/b", "DataChanged /p/a/b", "DataChanged /p/a/b", "DataChanged /p",
                    "Deleted /p/a/b", "Deleted /p/a");
            }
            b.transaction().forOperations(
                b.transactionOp().create().forPath("/p/t"), b.transactionOp().setData().forPath("/p/t"), b.transactionOp().delete().forPath("/p/t"));
            deep.is("Created /p/t", "DataChanged /p/t", "Deleted /p/t");
            weather.order("reset"); // the client sets its watches again by itself
            b.create().forPath("/p/after");
            World.eventually(() -> {
                b.setData().forPath("/p/after");
                return deep.events.contains("DataChanged /p/after");
            }, "events after the connection broke");
        }
        CuratorFramework c = w.client();
        b.create().forPath("/q");
        Heard persistent = new Heard();
        c.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(persistent).forPath("/q");
        for (int i = 0; i < 2; i++) {
            b.create().forPath("/q/a");
            b.create().forPath("/q/a/b");
            b.setData().forPath("/q");
            b.delete().deletingChildrenIfNeeded().forPath("/q/a");
            persistent.is("ChildrenChanged /q", "DataChanged /q", "ChildrenChanged /q");
        }
        b.delete().forPath("/q");
        b.create().forPath("/q");
        persistent.is("Deleted /q", "Created /q");
    }

    static void removeWatches(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(2);
        CuratorFramework a = clients.get(0);
        CuratorFramework b = clients.get(1);
        b.create().forPath("/n");
        Heard data = new Heard();
        Heard children = new Heard();
        a.getData().usingWatcher(data).forPath("/n");
        a.getChildren().usingWatcher(children).forPath("/n");
        a.watchers().remove(data).forPath("/n");
        data.is("DataWatchRemoved /n");
        b.setData().forPath("/n");
        b.create().forPath("/n/child");
        children.is("ChildrenChanged /n");
        World.check(data.events.isEmpty(), "a watch that was removed: " + data.events);

        ZooKeeper zk = a.getZookeeperClient().getZooKeeper();
        String path = "/" + w.root + "/n";
        World.refused(KeeperException.NoWatcherException.class, () -> {
            zk.removeWatches(path, data, Watcher.WatcherType.Any, false);
            return null;
        });
        Heard deep = new Heard();
        zk.addWatch(path, deep, AddWatchMode.PERSISTENT_RECURSIVE);
        b.setData().forPath("/n/child");
        deep.is("DataChanged " + path + "/child");
        zk.removeAllWatches(path, Watcher.WatcherType.Any, false);
        deep.is("PersistentWatchRemoved " + path);
        b.setData().forPath("/n/child");
        Heard end = new Heard();
        zk.exists("/" + w.root + "/end", end);
        b.create().forPath("/end");
        end.is("Created /" + w.root + "/end");
        World.check(deep.events.isEmpty(), "a watch that was removed: " + deep.events);
    }

    /** The event of a change comes before any reply that shows it: both are handed on by one thread of ZooKeeper's client. */
    static void eventBeforeReply(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(2);
        ZooKeeper zk = clients.get(0).getZookeeperClient().getZooKeeper();
        CuratorFramework b = clients.get(1);
        for (int i = 0; i < 20 * w.rounds; i++) {
            String path = "/n" + i;
            String full = "/" + w.root + path;
            AtomicBoolean event = new AtomicBoolean();
            zk.exists(full, e -> event.set(true));
            World.Later<Void> create = World.later(() -> b.create().forPath(path));
            while (true) {
                AtomicBoolean shown = new AtomicBoolean();
                AtomicBoolean early = new AtomicBoolean();
                CountDownLatch answered = new CountDownLatch(1);
                zk.exists(full, false, (rc, p, ctx, stat) -> {
                    shown.set(stat != null);
                    early.set(event.get());
                    answered.countDown();
                }, null);
                World.check(answered.await(World.PATIENCE, TimeUnit.SECONDS), "answered");
                if (shown.get()) {
                    World.check(early.get(), "the reply that shows the node came before the event");
                    break;
                }
            }
            create.get();
        }
    }
}
