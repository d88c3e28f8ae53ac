import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** DistributedAtomicLong, SharedCount, DistributedBarrier, DistributedDoubleBarrier, queues. */
final class Shared {
    static void addTo(Map<String, Main.Scenario> s) {
        s.put("atomic-long", Shared::atomicLong);
        s.put("shared-count", Shared::sharedCount);
        s.put("barrier", Shared::barrier);
        s.put("double-barrier", Shared::doubleBarrier);
        s.put("simple-queue", Shared::simpleQueue);
        s.put("queue", Shared::queue);
    }

    /** Two clients that only try, one that takes a lock when trying has failed. */
    static void atomicLong(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        int rounds = 8 * w.rounds;
        PromotedToLock promoted = PromotedToLock.builder()
            .lockPath("/locks/counter").timeout(World.PATIENCE, TimeUnit.SECONDS).retryPolicy(new RetryNTimes(2, 5)).build();
        List<World.Body> bodies = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            RetryNTimes tries = new RetryNTimes(i == 2 ? 1 : 100_000, 3);
            DistributedAtomicLong n = new DistributedAtomicLong(clients.get(i), "/counter", tries, i == 2 ? promoted : null);
            bodies.add(() -> {
                for (int done = 0; done < rounds; ) {
                    AtomicValue<Long> v = n.increment();
                    if (v.succeeded()) {
                        World.same(v.postValue(), v.preValue() + 1, "value");
                        done++;
                    }
                }
            });
        }
        World.together(bodies);
        DistributedAtomicLong n = new DistributedAtomicLong(clients.get(0), "/counter", new RetryNTimes(10, 10));
        World.same(n.get().postValue(), 3L * rounds, "value");
        World.check(!n.compareAndSet(1L, 2L).succeeded(), "compared with another value");
        World.check(n.compareAndSet(3L * rounds, 7L).succeeded(), "compared with its value");
        World.check(!n.initialize(1L), "initialized twice");
    }

    static void sharedCount(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        List<SharedCount> counts = new ArrayList<>();
        List<Integer> seen = Collections.synchronizedList(new ArrayList<>());
        for (CuratorFramework c : clients) {
            SharedCount n = new SharedCount(c, "/count", 0);
            n.start();
            counts.add(n);
        }
        counts.get(2).addListener(new SharedCountListener() {
            @Override
            public void countHasChanged(SharedCountReader count, int now) {
                seen.add(now);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {
            }
        });
        int rounds = 10 * w.rounds;
        List<World.Body> bodies = new ArrayList<>();
        for (SharedCount n : counts.subList(0, 2)) {
            bodies.add(() -> {
                for (int i = 0; i < rounds; i++) {
                    while (true) {
                        org.apache.curator.framework.recipes.shared.VersionedValue<Integer> v = n.getVersionedValue();
                        if (n.trySetCount(v, v.getValue() + 1)) {
                            break;
                        }
                    }
                }
            });
        }
        World.together(bodies);
        World.eventually(() -> counts.get(2).getCount() == 2 * rounds, "the third one sees the sum");
        World.eventually(() -> seen.contains(2 * rounds), "and is told of it");
        World.same(seen, new ArrayList<>(new TreeSet<>(seen)), "each value at most once, in order");
        for (SharedCount n : counts) {
            n.close();
        }
    }

    static void barrier(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        DistributedBarrier barrier = new DistributedBarrier(clients.get(0), "/barrier");
        barrier.setBarrier();
        World.check(!new DistributedBarrier(clients.get(1), "/barrier").waitOnBarrier(100, TimeUnit.MILLISECONDS), "through a barrier");
        List<World.Later<Boolean>> waiting = new ArrayList<>();
        for (CuratorFramework c : clients) {
            waiting.add(new World.Later<>(() -> new DistributedBarrier(c, "/barrier").waitOnBarrier(World.PATIENCE, TimeUnit.SECONDS)));
        }
        for (World.Later<Boolean> l : waiting) {
            World.check(l.running(), "through a barrier");
        }
        barrier.removeBarrier();
        for (World.Later<Boolean> l : waiting) {
            World.check(l.get(), "the barrier is gone");
        }
    }

    static void doubleBarrier(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        for (int round = 0; round < 2 * w.rounds; round++) {
            String path = "/barrier" + round;
            AtomicInteger entered = new AtomicInteger();
            AtomicInteger left = new AtomicInteger();
            List<World.Body> bodies = new ArrayList<>();
            for (CuratorFramework c : clients) {
                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(c, path, 3);
                bodies.add(() -> {
                    entered.incrementAndGet();
                    World.check(barrier.enter(World.PATIENCE, TimeUnit.SECONDS), "entered");
                    World.same(entered.get(), 3, "entered");
                    left.incrementAndGet();
                    World.check(barrier.leave(World.PATIENCE, TimeUnit.SECONDS), "left");
                    // Curator waits until at most one is still there, which need not have asked yet.
                    World.check(left.get() >= 2, "left alone");
                });
            }
            World.together(bodies);
        }
    }

    static void simpleQueue(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(4);
        int each = 15 * w.rounds;
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        List<World.Body> bodies = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            SimpleDistributedQueue in = new SimpleDistributedQueue(clients.get(i), "/queue");
            SimpleDistributedQueue out = new SimpleDistributedQueue(clients.get(2 + i), "/queue");
            String name = "" + i;
            bodies.add(() -> {
                for (int n = 0; n < each; n++) {
                    World.check(in.offer(World.bytes(name + "-" + n)), "offered");
                }
            });
            bodies.add(() -> {
                for (int n = 0; n < each; n++) {
                    got.add(World.text(out.take()));
                }
            });
        }
        World.together(bodies);
        World.same(got.size(), 2 * each, "taken");
        World.same(new TreeSet<>(got).size(), 2 * each, "each once; different ones");
        SimpleDistributedQueue queue = new SimpleDistributedQueue(clients.get(0), "/queue");
        World.check(queue.peek() == null && queue.poll(100, TimeUnit.MILLISECONDS) == null, "empty");
    }

    static void queue(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        int items = 20 * w.rounds;
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(items);
        QueueSerializer<String> serializer = new QueueSerializer<>() {
            @Override
            public byte[] serialize(String s) {
                return World.bytes(s);
            }

            @Override
            public String deserialize(byte[] b) {
                return World.text(b);
            }
        };
        List<DistributedQueue<String>> queues = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            QueueConsumer<String> consumer = i == 0 ? null : new QueueConsumer<>() {
                @Override
                public void consumeMessage(String message) {
                    got.add(message);
                    all.countDown();
                }

                @Override
                public void stateChanged(CuratorFramework client, ConnectionState state) {
                }
            };
            // With a lock path an item is consumed under a lock and deleted afterwards.
            DistributedQueue<String> q = QueueBuilder.builder(clients.get(i), consumer, serializer, "/queue").lockPath("/locks").buildQueue();
            q.start();
            queues.add(q);
        }
        for (int i = 0; i < items; i++) {
            queues.get(0).put("item " + i);
        }
        World.check(all.await(World.PATIENCE, TimeUnit.SECONDS), "all consumed; got " + got.size());
        World.same(new TreeSet<>(got).size(), items, "different items");
        World.same(got.size(), items, "items");
        for (DistributedQueue<String> q : queues) {
            q.close();
        }
    }
}
