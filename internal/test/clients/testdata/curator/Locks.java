import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;

/** InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, InterProcessSemaphoreMutex, InterProcessMultiLock. */
final class Locks {
    static void addTo(Map<String, Main.Scenario> s) {
        s.put("mutex", Locks::mutex);
        s.put("mutex-order", Locks::mutexOrder);
        s.put("mutex-killed-holder", Locks::mutexKilledHolder);
        s.put("mutex-lost-reply", Locks::mutexLostReply);
        s.put("mutex-revoked", Locks::mutexRevoked);
        s.put("semaphore-mutex", Locks::semaphoreMutex);
        s.put("read-write-lock", Locks::readWriteLock);
        s.put("semaphore", Locks::semaphore);
        s.put("semaphore-killed-holder", Locks::semaphoreKilledHolder);
        s.put("multi-lock", Locks::multiLock);
    }

    static boolean acquire(InterProcessLock lock) throws Exception {
        return lock.acquire(World.PATIENCE, TimeUnit.SECONDS);
    }

    static boolean tryAcquire(InterProcessLock lock) throws Exception {
        return lock.acquire(100, TimeUnit.MILLISECONDS);
    }

    /** Two threads of each of three clients; the threads of one client share its lock object. */
    static void mutex(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        Tally tally = new Tally(clients.get(0), 1);
        int rounds = 5 * w.rounds;
        List<World.Body> bodies = new ArrayList<>();
        for (CuratorFramework c : clients) {
            InterProcessMutex lock = new InterProcessMutex(c, "/lock");
            for (int thread = 0; thread < 2; thread++) {
                bodies.add(() -> {
                    for (int i = 0; i < rounds; i++) {
                        World.check(acquire(lock), "acquired");
                        World.check(acquire(lock), "reentrant");
                        tally.add(c);
                        lock.release();
                        World.check(lock.isOwnedByCurrentThread(), "released once, acquired twice");
                        lock.release();
                    }
                });
            }
        }
        World.together(bodies);
        World.same(tally.value(clients.get(0)), 6 * rounds, "rounds");
        List<String> left = Nodes.children(clients.get(0), "/lock");
        World.check(left.isEmpty(), "left behind: " + left);
    }

    static void mutexOrder(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(4);
        InterProcessMutex held = new InterProcessMutex(clients.get(0), "/lock");
        World.check(acquire(held), "acquired");
        World.check(!tryAcquire(new InterProcessMutex(clients.get(1), "/lock")), "two holders");
        World.eventually(() -> held.getParticipantNodes().size() == 1, "who gave up has left the queue");
        List<Integer> got = Collections.synchronizedList(new ArrayList<>());
        List<World.Later<Void>> waiting = new ArrayList<>();
        for (int i = 1; i < 4; i++) {
            int me = i;
            InterProcessMutex lock = new InterProcessMutex(clients.get(i), "/lock");
            waiting.add(World.later(() -> {
                World.check(acquire(lock), "acquired");
                got.add(me);
                lock.release();
            }));
            World.eventually(() -> held.getParticipantNodes().size() == me + 1, "waiter " + me + " in the queue");
        }
        World.check(got.isEmpty(), "acquired before the release: " + got);
        held.release();
        for (World.Later<Void> l : waiting) {
            l.get();
        }
        World.same(got, Arrays.asList(1, 2, 3), "order");
    }

    static void mutexKilledHolder(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework doomed = w.client(World.BRIEF_SESSION, weather);
        CuratorFramework heir = w.client();
        List<ConnectionState> states = World.states(doomed);
        InterProcessMutex lost = new InterProcessMutex(doomed, "/lock");
        InterProcessMutex won = new InterProcessMutex(heir, "/lock");
        World.check(acquire(lost), "acquired");
        World.Later<Boolean> waiting = new World.Later<>(() -> acquire(won));
        World.eventually(() -> lost.getParticipantNodes().size() == 2, "the heir in the queue");
        weather.order("cut");
        World.check(waiting.running(), "the holder's session has not ended yet");
        World.check(waiting.get(), "the heir has it");
        World.same(won.getParticipantNodes().size(), 1, "the dead one's node is gone; nodes");
        weather.order("heal");
        World.eventually(() -> states.contains(ConnectionState.LOST), "the dead one hears of its end");
        World.eventually(() -> states.get(states.size() - 1) == ConnectionState.RECONNECTED, "it comes back");
        lost.release(); // its node is gone: no error
    }

    /** The create is done, its reply is lost: protection finds the node again and does not queue behind itself. */
    static void mutexLostReply(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework a = w.client(World.SESSION, weather);
        CuratorFramework b = w.client();
        InterProcessMutex mine = new InterProcessMutex(a, "/lock");
        a.create().forPath("/lock");
        weather.order("fail-reply 15");
        World.check(acquire(mine), "acquired");
        World.same(Nodes.children(b, "/lock").size(), 1, "nodes");
        World.check(!tryAcquire(new InterProcessMutex(b, "/lock")), "two holders");
        mine.release();
        World.same(Nodes.children(b, "/lock").size(), 0, "nodes");
    }

    static void mutexRevoked(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(2);
        InterProcessMutex held = new InterProcessMutex(clients.get(0), "/lock");
        InterProcessMutex wanted = new InterProcessMutex(clients.get(1), "/lock");
        CountDownLatch asked = new CountDownLatch(1);
        held.makeRevocable(lock -> asked.countDown());
        World.check(acquire(held), "acquired");
        Revoker.attemptRevoke(clients.get(1), wanted.getParticipantNodes().iterator().next());
        World.check(asked.await(World.PATIENCE, TimeUnit.SECONDS), "asked to give it up");
        held.release();
        World.check(acquire(wanted), "acquired");
        wanted.release();
    }

    static void semaphoreMutex(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        Tally tally = new Tally(clients.get(0), 1);
        List<World.Body> bodies = new ArrayList<>();
        for (CuratorFramework c : clients) {
            InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(c, "/lock");
            bodies.add(() -> {
                for (int i = 0; i < 4 * w.rounds; i++) {
                    World.check(acquire(lock), "acquired");
                    tally.add(c);
                    lock.release();
                }
            });
        }
        World.together(bodies);
        World.same(tally.value(clients.get(0)), 12 * w.rounds, "rounds");
    }

    static void readWriteLock(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(5);
        Tally tally = new Tally(clients.get(0), 1);
        clients.get(0).create().forPath("/copy", World.bytes("0"));
        AtomicInteger reading = new AtomicInteger();
        int rounds = 4 * w.rounds;
        List<World.Body> bodies = new ArrayList<>();
        for (CuratorFramework c : clients.subList(0, 2)) {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(c, "/lock");
            bodies.add(() -> {
                for (int i = 0; i < rounds; i++) {
                    World.check(acquire(lock.writeLock()), "acquired");
                    World.same(reading.get(), 0, "readers while a writer writes");
                    tally.add(c);
                    c.setData().forPath("/copy", c.getData().forPath("/tally"));
                    lock.writeLock().release();
                }
            });
        }
        for (CuratorFramework c : clients.subList(2, 5)) {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(c, "/lock");
            bodies.add(() -> {
                for (int i = 0; i < rounds; i++) {
                    World.check(acquire(lock.readLock()), "acquired");
                    reading.incrementAndGet();
                    World.same(tally.inside.get(), 0, "writers while a reader reads");
                    World.same(World.text(c.getData().forPath("/copy")), World.text(c.getData().forPath("/tally")), "both writes");
                    reading.decrementAndGet();
                    lock.readLock().release();
                }
            });
        }
        World.together(bodies);
        World.same(tally.value(clients.get(0)), 2 * rounds, "rounds of writers");

        // Readers share, for certain: all are inside before any leaves. A writer may become a reader.
        CyclicBarrier inside = new CyclicBarrier(3);
        List<World.Body> sharing = new ArrayList<>();
        for (CuratorFramework c : clients.subList(2, 5)) {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(c, "/lock");
            sharing.add(() -> {
                World.check(acquire(lock.readLock()), "acquired");
                inside.await(World.PATIENCE, TimeUnit.SECONDS);
                lock.readLock().release();
            });
        }
        World.together(sharing);
        InterProcessReadWriteLock first = new InterProcessReadWriteLock(clients.get(0), "/lock");
        InterProcessReadWriteLock second = new InterProcessReadWriteLock(clients.get(1), "/lock");
        World.check(acquire(first.writeLock()) && acquire(first.readLock()), "a writer reads");
        World.check(!tryAcquire(second.readLock()), "a reader beside a writer");
        first.writeLock().release();
        World.check(acquire(second.readLock()), "two readers");
        World.check(!tryAcquire(second.writeLock()), "a writer beside readers");
    }

    static void semaphore(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(4);
        Tally tally = new Tally(clients.get(0), 2);
        CyclicBarrier pair = new CyclicBarrier(2);
        List<World.Body> bodies = new ArrayList<>();
        for (CuratorFramework c : clients) {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(c, "/semaphore", 2);
            semaphore.setNodeData(World.bytes("mine"));
            bodies.add(() -> {
                for (int i = 0; i < 4 * w.rounds; i++) {
                    try (Lease lease = semaphore.acquire(World.PATIENCE, TimeUnit.SECONDS)) {
                        World.check(lease != null, "acquired");
                        tally.enter();
                        World.same(World.text(lease.getData()), "mine", "data of the lease");
                        if (i == 0) {
                            pair.await(World.PATIENCE, TimeUnit.SECONDS); // two at once, for certain
                        }
                        tally.leave();
                    }
                }
            });
        }
        World.together(bodies);
        World.same(tally.peak.get(), 2, "at once");

        InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(clients.get(0), "/semaphore", 2);
        InterProcessSemaphoreV2 second = new InterProcessSemaphoreV2(clients.get(1), "/semaphore", 2);
        java.util.Collection<Lease> both = first.acquire(2, World.PATIENCE, TimeUnit.SECONDS);
        World.same(both.size(), 2, "leases");
        World.same(second.getParticipantNodes().size(), 2, "nodes");
        World.check(second.acquire(100, TimeUnit.MILLISECONDS) == null, "a third lease of two");
        first.returnAll(both);
        World.check(second.acquire(World.PATIENCE, TimeUnit.SECONDS) != null, "returned");
    }

    static void semaphoreKilledHolder(World w) throws Exception {
        Weather weather = w.weather();
        CuratorFramework doomed = w.client(World.BRIEF_SESSION, weather);
        CuratorFramework heir = w.client();
        InterProcessSemaphoreV2 lost = new InterProcessSemaphoreV2(doomed, "/semaphore", 1);
        InterProcessSemaphoreV2 won = new InterProcessSemaphoreV2(heir, "/semaphore", 1);
        World.check(lost.acquire(World.PATIENCE, TimeUnit.SECONDS) != null, "acquired");
        World.Later<Lease> waiting = new World.Later<>(() -> won.acquire(World.PATIENCE, TimeUnit.SECONDS));
        World.eventually(() -> Nodes.children(heir, "/semaphore/leases").size() == 2, "the heir waits");
        weather.order("cut");
        World.check(waiting.get() != null, "the heir has it");
    }

    static void multiLock(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        Tally tally = new Tally(clients.get(0), 1);
        List<World.Body> bodies = new ArrayList<>();
        for (CuratorFramework c : clients) {
            InterProcessMultiLock locks = new InterProcessMultiLock(c, Arrays.asList("/a", "/b", "/c"));
            bodies.add(() -> {
                for (int i = 0; i < 3 * w.rounds; i++) {
                    World.check(acquire(locks), "acquired");
                    tally.add(c);
                    locks.release();
                }
            });
        }
        World.together(bodies);
        World.same(tally.value(clients.get(0)), 9 * w.rounds, "rounds");
        InterProcessMutex last = new InterProcessMutex(clients.get(0), "/c");
        World.check(acquire(last), "acquired");
        World.check(!tryAcquire(new InterProcessMultiLock(clients.get(1), Arrays.asList("/a", "/b", "/c"))), "all or none");
        World.check(acquire(new InterProcessMutex(clients.get(2), "/a")), "those it had were released");
    }
}
