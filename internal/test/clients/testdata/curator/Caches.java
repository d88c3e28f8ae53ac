import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.zookeeper.KeeperException;

/** CuratorCache, TreeCache, PathChildrenCache, NodeCache: after any changes and any weather the cache is as the tree. */
@SuppressWarnings("deprecation") // the older caches are what is in use
final class Caches {
    static void addTo(Map<String, Main.Scenario> s) {
        s.put("curator-cache", Caches::curatorCache);
        s.put("curator-cache-events", Caches::curatorCacheEvents);
        s.put("tree-cache", Caches::treeCache);
        s.put("path-children-cache", Caches::pathChildrenCache);
        s.put("node-cache", Caches::nodeCache);
    }

    /** Random changes below /tree by two clients at once; neither minds what the other has deleted. */
    static void churn(World w, List<CuratorFramework> clients, long seed, int steps) throws Exception {
        List<World.Body> bodies = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            CuratorFramework c = clients.get(i);
            Random rng = new Random(seed + i);
            bodies.add(() -> {
                for (int step = 0; step < steps * w.rounds; step++) {
                    String path = "/tree/" + "abc".charAt(rng.nextInt(3));
                    if (rng.nextBoolean()) {
                        path += "/" + "de".charAt(rng.nextInt(2));
                    }
                    try {
                        if (rng.nextInt(4) == 0) {
                            c.delete().deletingChildrenIfNeeded().forPath(path);
                        } else {
                            c.create().orSetData().creatingParentsIfNeeded().forPath(path, World.bytes(seed + ":" + step));
                        }
                    } catch (KeeperException.NoNodeException | KeeperException.NodeExistsException e) {
                        continue; // the other one was quicker
                    }
                }
            });
        }
        World.together(bodies);
    }

    /** The nodes below path, with version and data. */
    static Map<String, String> tree(CuratorFramework c, String path, int depth) throws Exception {
        Map<String, String> all = new TreeMap<>();
        org.apache.zookeeper.data.Stat stat = new org.apache.zookeeper.data.Stat();
        byte[] data = c.getData().storingStatIn(stat).forPath(path);
        all.put(path, stat.getMzxid() + " " + World.text(data));
        if (depth > 0) {
            for (String child : c.getChildren().forPath(path)) {
                all.putAll(tree(c, path + "/" + child, depth - 1));
            }
        }
        return all;
    }

    static Map<String, String> cached(Iterable<ChildData> nodes) {
        Map<String, String> all = new TreeMap<>();
        for (ChildData n : nodes) {
            all.put(n.getPath(), n.getStat().getMzxid() + " " + World.text(n.getData()));
        }
        return all;
    }

    /** Changes in good weather, while the cache's connection is cut, while it breaks again and again, and in good weather. */
    static void weathered(World w, Weather weather, CuratorFramework direct, Callable<Map<String, String>> cache, int depth,
            Callable<Boolean> relist) throws Exception {
        List<CuratorFramework> changers = w.clients(2);
        churn(w, changers, 1, 20);
        Callable<Boolean> equal = () -> tree(direct, "/tree", depth).equals(cache.call());
        World.eventually(equal, "the cache is as the tree");
        weather.order("cut");
        churn(w, changers, 100, 20);
        weather.order("heal");
        for (int i = 0; i < 3; i++) {
            churn(w, changers, 200 + 10 * i, 5);
            weather.order("reset");
        }
        churn(w, changers, 300, 10);
        int[] looks = {0};
        World.eventually(() -> equal.call() || ++looks[0] % 100 == 0 && relist.call(), "the cache is as the tree, after bad weather");
    }

    /**
     * Changes the cversion of each directory. CuratorCache lists a directory again only if that differs, and one that was deleted
     * and made again while the connection was away may have the one that it had.
     */
    static boolean relist(CuratorFramework c) throws Exception {
        List<String> directories = new ArrayList<>(c.getChildren().forPath("/tree"));
        directories.replaceAll(name -> "/tree/" + name);
        directories.add("/tree");
        for (String directory : directories) {
            c.create().forPath(directory + "/relist");
            c.delete().forPath(directory + "/relist");
        }
        return false;
    }

    static void curatorCache(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework direct = w.client();
        direct.create().forPath("/tree");
        try (CuratorCache cache = CuratorCache.build(a, "/tree")) {
            cache.start();
            weathered(w, weather, direct, () -> cached(cache.stream()::iterator), 3, () -> relist(direct));
        }
    }

    static void curatorCacheEvents(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(2);
        CuratorFramework b = clients.get(1);
        b.create().creatingParentsIfNeeded().forPath("/tree/old", World.bytes("0"));
        List<String> told = java.util.Collections.synchronizedList(new ArrayList<>());
        CountDownLatch initialized = new CountDownLatch(1);
        try (CuratorCache cache = CuratorCache.build(clients.get(0), "/tree")) {
            cache.listenable().addListener(CuratorCacheListener.builder()
                .forInitialized(initialized::countDown)
                .forCreates(n -> told.add("+" + n.getPath()))
                .forChanges((before, now) -> told.add(World.text(before.getData()) + ">" + World.text(now.getData())))
                .forDeletes(n -> told.add("-" + n.getPath()))
                .afterInitialized().build());
            cache.listenable().addListener(CuratorCacheListener.builder().forInitialized(initialized::countDown).build());
            cache.start();
            World.check(initialized.await(World.PATIENCE, TimeUnit.SECONDS), "initialized");
            String[] steps = {"+/tree/n", "0>1", "1>2", "-/tree/old", "-/tree/n"};
            for (int i = 0; i < steps.length; i++) {
                switch (i) {
                    case 0: b.create().forPath("/tree/n", World.bytes("new")); break;
                    case 1: b.setData().forPath("/tree/old", World.bytes("1")); break;
                    case 2: b.setData().forPath("/tree/old", World.bytes("2")); break;
                    case 3: b.delete().forPath("/tree/old"); break;
                    default: b.delete().forPath("/tree/n");
                }
                int n = i + 1;
                World.eventually(() -> told.size() >= n, "event " + n + "; told " + told);
            }
            World.same(told, java.util.Arrays.asList(steps), "events");
        }
    }

    static void treeCache(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework direct = w.client();
        direct.create().forPath("/tree");
        try (TreeCache cache = new TreeCache(a, "/tree")) {
            cache.start();
            weathered(w, weather, direct, () -> below(cache, "/tree"), 3, () -> false);
        }
    }

    /** Not by the cache's own iterator: that fails when a node's last child goes while it is on its way there. */
    static Map<String, String> below(TreeCache cache, String path) {
        Map<String, String> all = new TreeMap<>();
        ChildData here = cache.getCurrentData(path);
        Map<String, ChildData> children = cache.getCurrentChildren(path);
        if (here != null) {
            all.putAll(cached(List.of(here)));
        }
        if (children != null) {
            for (String child : children.keySet()) {
                all.putAll(below(cache, path + "/" + child));
            }
        }
        return all;
    }

    static void pathChildrenCache(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework direct = w.client();
        direct.create().forPath("/tree");
        try (PathChildrenCache cache = new PathChildrenCache(a, "/tree", true)) {
            cache.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
            weathered(w, weather, direct, () -> {
                Map<String, String> all = cached(cache.getCurrentData());
                all.put("/tree", tree(direct, "/tree", 0).get("/tree")); // it holds children only
                return all;
            }, 1, () -> false);
        }
    }

    static void nodeCache(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework b = w.client();
        try (NodeCache cache = new NodeCache(a, "/node")) {
            cache.start(true);
            World.check(cache.getCurrentData() == null, "no node yet");
            for (int i = 0; i < 3; i++) {
                b.create().forPath("/node", World.bytes("new"));
                for (int j = 0; j < 10; j++) {
                    b.setData().forPath("/node", World.bytes("" + j));
                }
                World.eventually(() -> cache.getCurrentData() != null && World.text(cache.getCurrentData().getData()).equals("9"), "9");
                weather.order("cut");
                b.setData().forPath("/node", World.bytes("cut"));
                weather.order("heal");
                World.eventually(() -> World.text(cache.getCurrentData().getData()).equals("cut"), "changed while it was cut off");
                b.delete().forPath("/node");
                World.eventually(() -> cache.getCurrentData() == null, "deleted");
            }
        }
    }
}
