import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.AuthInfo;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;

/** What the framework offers below the recipes, and operations of ZooKeeper's own client that no recipe uses. */
final class Basics {
    static void addTo(Map<String, Main.Scenario> s) {
        s.put("framework", Basics::framework);
        s.put("background", Basics::background);
        s.put("transactions", Basics::transactions);
        s.put("acls", Basics::acls);
        s.put("java-client", Basics::javaClient);
    }

    static void framework(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(2);
        CuratorFramework a = clients.get(0);
        CuratorFramework b = clients.get(1);
        Stat stat = new Stat();
        a.create().storingStatIn(stat).creatingParentsIfNeeded().forPath("/x/y/z", World.bytes("12"));
        World.same(stat, b.checkExists().forPath("/x/y/z"), "stat of the create");
        World.same(stat.getDataLength(), 2, "length");
        a.create().orSetData().forPath("/x/y/z", World.bytes("345"));
        World.same(World.text(b.getData().storingStatIn(stat).forPath("/x/y/z")), "345", "data");
        World.same(stat.getVersion(), 1, "version");
        World.refused(KeeperException.NodeExistsException.class, () -> a.create().forPath("/x"));
        World.refused(KeeperException.NoNodeException.class, () -> a.create().forPath("/no/parent"));
        World.refused(KeeperException.BadVersionException.class, () -> a.setData().withVersion(7).forPath("/x", new byte[0]));
        World.refused(KeeperException.NotEmptyException.class, () -> a.delete().forPath("/x"));
        World.refused(KeeperException.NoNodeException.class, () -> a.getChildren().forPath("/nowhere"));
        a.create().idempotent().forPath("/i", World.bytes("1"));
        a.create().idempotent().forPath("/i", World.bytes("1"));
        a.setData().idempotent().withVersion(0).forPath("/i", World.bytes("2"));
        a.setData().idempotent().withVersion(0).forPath("/i", World.bytes("2"));
        a.create().compressed().forPath("/packed", World.bytes("abc".repeat(1000)));
        World.same(World.text(b.getData().decompressed().forPath("/packed")), "abc".repeat(1000), "data");
        String own = a.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/own-");
        World.check(own.endsWith("own-0000000003"), own);
        World.refused(KeeperException.NoChildrenForEphemeralsException.class, () -> b.create().forPath(own + "/child"));
        a.sync().forPath("/");
        a.delete().guaranteed().deletingChildrenIfNeeded().forPath("/x");
        a.delete().quietly().forPath("/x");
        World.same(new TreeSet<>(b.getChildren().storingStatIn(stat).forPath("/")),
            new TreeSet<>(Arrays.asList("i", "packed", own.substring(1))), "children");
        World.same(stat.getNumChildren(), 3, "children in the stat");
        byte[] big = new byte[1_000_000];
        Arrays.fill(big, (byte) 7);
        a.create().forPath("/big", big);
        World.check(Arrays.equals(b.getData().forPath("/big"), big), "a big node");
        World.check(a.getConfig().forEnsemble() != null, "the ensemble's configuration can be read");
    }

    /** Many requests at once, answered in order; a watch's event among the replies. */
    static void background(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(2);
        CuratorFramework a = clients.get(0);
        int n = 500 * w.rounds;
        List<String> answered = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(n);
        for (int i = 0; i < n; i++) {
            a.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).inBackground((c, event) -> {
                answered.add(event.getName());
                all.countDown();
            }).forPath("/n-", World.bytes("" + i));
        }
        World.check(all.await(World.PATIENCE, TimeUnit.SECONDS), "all answered");
        for (int i = 0; i < n; i++) {
            World.same(answered.get(i), String.format("/n-%010d", i), "in order");
        }
        World.same(clients.get(1).getChildren().forPath("/").size(), n, "nodes");
    }

    static void transactions(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(2);
        CuratorFramework a = clients.get(0);
        CuratorFramework b = clients.get(1);
        List<CuratorTransactionResult> results = a.transaction().forOperations(
            a.transactionOp().create().forPath("/n", World.bytes("1")),
            a.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/n/s-"),
            a.transactionOp().create().withMode(CreateMode.EPHEMERAL).forPath("/n/e"),
            a.transactionOp().create().withMode(CreateMode.CONTAINER).forPath("/n/c"),
            a.transactionOp().create().withTtl(3_600_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/n/t"),
            a.transactionOp().setData().withVersion(0).forPath("/n", World.bytes("2")),
            a.transactionOp().check().withVersion(1).forPath("/n"),
            a.transactionOp().create().forPath("/gone"),
            a.transactionOp().delete().forPath("/gone"));
        World.same(results.size(), 9, "results");
        World.same(results.get(1).getResultPath(), "/n/s-0000000000", "sequential");
        World.same(results.get(5).getResultStat().getVersion(), 1, "version");
        Stat n = b.checkExists().forPath("/n");
        World.same(n.getCzxid(), n.getMzxid(), "one zxid for all");
        World.same(n.getNumChildren(), 4, "children");
        World.check(!Nodes.exists(b, "/gone"), "created and deleted");

        KeeperException failed = null;
        try {
            a.transaction().forOperations(
                a.transactionOp().create().forPath("/m"),
                a.transactionOp().setData().withVersion(9).forPath("/n"),
                a.transactionOp().delete().forPath("/n/c"));
        } catch (KeeperException e) {
            failed = e;
        }
        World.check(failed instanceof KeeperException.BadVersionException, "bad version: " + failed);
        List<Integer> codes = new ArrayList<>();
        for (OpResult r : failed.getResults()) {
            codes.add(((OpResult.ErrorResult) r).getErr());
        }
        World.same(codes, Arrays.asList(0, -103, -2), "codes");
        World.check(!Nodes.exists(b, "/m") && Nodes.exists(b, "/n/c"), "nothing was done");

        // Money moves, none is made: each transfer checks both versions.
        a.create().forPath("/x", World.bytes("100"));
        a.create().forPath("/y", World.bytes("100"));
        List<World.Body> bodies = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            CuratorFramework c = clients.get(i);
            int amount = i + 1;
            bodies.add(() -> {
                for (int done = 0; done < 5 * w.rounds; ) {
                    Stat sx = new Stat();
                    Stat sy = new Stat();
                    int x = Integer.parseInt(World.text(c.getData().storingStatIn(sx).forPath("/x")));
                    int y = Integer.parseInt(World.text(c.getData().storingStatIn(sy).forPath("/y")));
                    try {
                        c.transaction().forOperations(
                            c.transactionOp().setData().withVersion(sx.getVersion()).forPath("/x", World.bytes("" + (x - amount))),
                            c.transactionOp().setData().withVersion(sy.getVersion()).forPath("/y", World.bytes("" + (y + amount))));
                        done++;
                    } catch (KeeperException.BadVersionException e) {
                        continue; // the other one was quicker
                    }
                }
            });
        }
        World.together(bodies);
        World.same(World.text(a.getData().forPath("/x")), "" + (100 - 15 * w.rounds), "x");
        World.same(World.text(a.getData().forPath("/y")), "" + (100 + 15 * w.rounds), "y");
    }

    static void acls(World w) throws Exception {
        CuratorFramework nobody = w.client();
        CuratorFramework owner = w.client(w.builder(World.SESSION, null).authorization("digest", World.bytes("owner:secret")));
        CuratorFramework other = w.client(w.builder(World.SESSION, null)
            .authorization(Arrays.asList(new AuthInfo("digest", World.bytes("x:y")), new AuthInfo("digest", World.bytes("other:secret")))));
        owner.create().withACL(Ids.CREATOR_ALL_ACL).forPath("/mine", World.bytes("1"));
        String id = DigestAuthenticationProvider.generateDigest("owner:secret");
        List<ACL> acl = owner.getACL().forPath("/mine");
        World.same(acl, Arrays.asList(new ACL(ZooDefs.Perms.ALL, new org.apache.zookeeper.data.Id("digest", id))), "acl");
        for (CuratorFramework c : Arrays.asList(nobody, other)) {
            World.refused(KeeperException.NoAuthException.class, () -> c.getData().forPath("/mine"));
            World.refused(KeeperException.NoAuthException.class, () -> c.setData().forPath("/mine", new byte[0]));
            World.refused(KeeperException.NoAuthException.class, () -> c.getChildren().forPath("/mine"));
            World.refused(KeeperException.NoAuthException.class, () -> c.create().forPath("/mine/child"));
            World.refused(KeeperException.NoAuthException.class, () -> c.setACL().withACL(Ids.OPEN_ACL_UNSAFE).forPath("/mine"));
            World.check(Nodes.exists(c, "/mine"), "existence is no secret");
        }
        owner.setACL().withVersion(0).withACL(Arrays.asList(
            new ACL(ZooDefs.Perms.ALL, new org.apache.zookeeper.data.Id("digest", id)),
            new ACL(ZooDefs.Perms.READ,
                new org.apache.zookeeper.data.Id("digest", DigestAuthenticationProvider.generateDigest("other:secret"))))).forPath("/mine");
        World.same(World.text(other.getData().forPath("/mine")), "1", "data");
        World.refused(KeeperException.NoAuthException.class, () -> nobody.getData().forPath("/mine"));
        World.refused(KeeperException.BadVersionException.class,
            () -> owner.setACL().withVersion(0).withACL(Ids.OPEN_ACL_UNSAFE).forPath("/mine"));
        World.refused(KeeperException.InvalidACLException.class,
            () -> nobody.create().withACL(Ids.CREATOR_ALL_ACL).forPath("/creator"));
        // A transaction is refused for one operation that its client may not do.
        World.refused(KeeperException.NoAuthException.class, () -> nobody.transaction().forOperations(
            nobody.transactionOp().create().forPath("/beside"), nobody.transactionOp().setData().forPath("/mine", new byte[0])));
        World.check(!Nodes.exists(nobody, "/beside"), "nothing was done");
    }

    /** Operations that only ZooKeeper's own client has a call for. */
    static void javaClient(World w) throws Exception {
        CuratorFramework a = w.client();
        ZooKeeper zk = a.getZookeeperClient().getZooKeeper();
        String root = "/" + w.root + "/";
        a.create().creatingParentsIfNeeded().forPath("/a/b/c", World.bytes("C"));
        a.create().withMode(CreateMode.EPHEMERAL).forPath("/a/e1");
        a.create().withMode(CreateMode.EPHEMERAL).forPath("/a/b/e2");
        World.same(zk.getAllChildrenNumber(root + "a"), 4, "all below");
        World.same(new TreeSet<>(zk.getEphemerals()), new TreeSet<>(Arrays.asList(root + "a/e1", root + "a/b/e2")), "ephemerals");
        World.same(zk.getEphemerals(root + "a/b"), Arrays.asList(root + "a/b/e2"), "ephemerals below");
        World.same(zk.whoAmI().get(0).getAuthScheme(), "ip", "who am I");

        List<OpResult> reads = zk.multi(Arrays.asList(
            Op.getData(root + "a/b/c"), Op.getChildren(root + "a"), Op.getData(root + "nowhere"), Op.getChildren(root + "a/b/c")));
        World.same(World.text(((OpResult.GetDataResult) reads.get(0)).getData()), "C", "data");
        World.same(new TreeSet<>(((OpResult.GetChildrenResult) reads.get(1)).getChildren()), new TreeSet<>(Arrays.asList("b", "e1")), "children");
        World.same(((OpResult.ErrorResult) reads.get(2)).getErr(), -101, "code");
        World.same(((OpResult.GetChildrenResult) reads.get(3)).getChildren().size(), 0, "children");

        // All requests of a client are answered in the order in which they were asked, whatever their kind.
        AtomicInteger next = new AtomicInteger();
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(200);
        for (int i = 0; i < 100; i++) {
            int set = next.getAndIncrement();
            int get = next.getAndIncrement();
            zk.setData(root + "a", World.bytes("" + i), -1, (rc, path, ctx, stat) -> {
                order.add(set);
                all.countDown();
            }, null);
            zk.getData(root + "a", false, (rc, path, ctx, data, stat) -> {
                order.add(get);
                all.countDown();
            }, null);
        }
        World.check(all.await(World.PATIENCE, TimeUnit.SECONDS), "all answered");
        for (int i = 0; i < 200; i++) {
            World.same(order.get(i), i, "place");
        }
    }
}
