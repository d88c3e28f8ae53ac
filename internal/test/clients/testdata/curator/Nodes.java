import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** PersistentNode, PersistentTtlNode, GroupMember, containers and nodes with a time to live. */
final class Nodes {
    static void addTo(Map<String, Main.Scenario> s) {
        s.put("persistent-node", Nodes::persistentNode);
        s.put("persistent-ttl-node", Nodes::persistentTtlNode);
        s.put("group-member", Nodes::groupMember);
        s.put("containers", Nodes::containers);
        s.put("ttl", Nodes::ttl);
    }

    static boolean exists(CuratorFramework c, String path) throws Exception {
        return c.checkExists().forPath(path) != null;
    }

    /** The children of a directory that may be a container: when they have gone, it may have gone too. */
    static List<String> children(CuratorFramework c, String path) throws Exception {
        try {
            return c.getChildren().forPath(path);
        } catch (KeeperException.NoNodeException e) {
            return List.of();
        }
    }

    static void persistentNode(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.BRIEF_SESSION, weather);
        CuratorFramework b = w.client();
        AtomicInteger created = new AtomicInteger();
        try (PersistentNode node = new PersistentNode(a, CreateMode.EPHEMERAL, false, "/group/node", World.bytes("1"))) {
            node.getListenable().addListener(path -> created.incrementAndGet());
            node.start();
            World.check(node.waitForInitialCreate(World.PATIENCE, TimeUnit.SECONDS), "created");
            World.eventually(() -> created.get() == 1, "told");
            World.same(b.checkExists().forPath("/group/node").getEphemeralOwner(),
                a.getZookeeperClient().getZooKeeper().getSessionId(), "owner");
            for (int i = 2; i < 4; i++) {
                int n = i;
                b.delete().forPath("/group/node");
                World.eventually(() -> exists(b, "/group/node") && created.get() == n, "created again after it was deleted");
            }
            node.setData(World.bytes("2"));
            World.eventually(() -> World.text(b.getData().forPath("/group/node")).equals("2"), "its data");
            weather.order("cut");
            World.eventually(() -> !exists(b, "/group/node"), "gone with its session");
            weather.order("heal");
            World.eventually(() -> exists(b, "/group/node"), "there again in a new session");
            World.same(World.text(b.getData().forPath("/group/node")), "2", "data");
            World.eventually(() -> created.get() > 3, "told, too"); // before that it may still be creating
        }
        World.eventually(() -> !exists(b, "/group/node"), "gone once it is closed");
    }

    static void persistentTtlNode(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(2);
        CuratorFramework a = clients.get(0);
        CuratorFramework b = clients.get(1);
        PersistentTtlNode node = new PersistentTtlNode(a, "/service", 2000, World.bytes("here"));
        node.start();
        World.check(node.waitForInitialCreate(World.PATIENCE, TimeUnit.SECONDS), "created");
        String child = "/service/" + PersistentTtlNode.DEFAULT_CHILD_NODE_NAME;
        World.eventually(() -> exists(b, child), "its child with a time to live");
        World.eventually(() -> {
            Stat stat = b.checkExists().forPath(child);
            return stat != null && stat.getMtime() >= stat.getCtime() + 3000;
        }, "touched, longer than it lives");
        World.same(World.text(b.getData().forPath("/service")), "here", "data");
        node.close();
        World.eventually(() -> !exists(b, child), "the child's time is over");
        World.eventually(() -> !exists(b, "/service"), "the container goes after its child");
    }

    static void groupMember(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework doomed = w.client(World.BRIEF_SESSION, weather);
        List<CuratorFramework> others = w.clients(2);
        try (GroupMember dead = new GroupMember(doomed, "/group", "doomed");
                GroupMember a = new GroupMember(others.get(0), "/group", "a", World.bytes("A"));
                GroupMember b = new GroupMember(others.get(1), "/group", "b")) {
            for (GroupMember m : Arrays.asList(dead, a, b)) {
                m.start();
            }
            World.eventually(() -> b.getCurrentMembers().size() == 3, "three members");
            World.same(World.text(b.getCurrentMembers().get("a")), "A", "data of a member");
            weather.order("cut");
            World.eventually(() -> b.getCurrentMembers().size() == 2 && !b.getCurrentMembers().containsKey("doomed"), "it has left");
            weather.order("heal");
            World.eventually(() -> a.getCurrentMembers().size() == 3 && dead.getCurrentMembers().size() == 3, "it is back");
        }
    }

    /** The directory that a lock leaves behind goes by itself; one that never had a child stays. */
    static void containers(World w) throws Exception {
        CuratorFramework a = w.client();
        InterProcessMutex lock = new InterProcessMutex(a, "/locks/lock");
        World.check(Locks.acquire(lock), "acquired");
        a.create().withMode(CreateMode.CONTAINER).forPath("/unused");
        lock.release();
        World.eventually(() -> !exists(a, "/locks"), "the lock's directory and the one above it are gone");
        World.check(Locks.acquire(lock), "acquired where the directory was");
        lock.release();
        World.check(exists(a, "/unused"), "one that never had a child stays");
    }

    static void ttl(World w) throws Exception {
        CuratorFramework a = w.client();
        Stat stat = new Stat();
        a.create().withTtl(600).storingStatIn(stat).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/ttl");
        a.create().withTtl(4000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/parent");
        a.create().forPath("/parent/child");
        String sequential = a.create().withTtl(600).withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL).forPath("/ttl-");
        World.check(sequential.matches("/ttl-\\d{10}"), sequential);
        World.same(stat.getEphemeralOwner(), 0L, "owner that is shown");
        World.eventually(() -> !exists(a, "/ttl") && !exists(a, sequential), "their time is over");
        World.check(exists(a, "/parent"), "one with children stays");
        a.delete().forPath("/parent/child");
        World.eventually(() -> !exists(a, "/parent"), "and goes after them");
    }
}
