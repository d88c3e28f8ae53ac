import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;

/** LeaderLatch and LeaderSelector. */
final class Leaders {
    static void addTo(Map<String, Main.Scenario> s) {
        s.put("leader-latch", Leaders::latch);
        s.put("leader-selector", Leaders::selector);
        s.put("leader-selector-killed-leader", Leaders::selectorKilledLeader);
    }

    static void latch(World w) throws Exception {
        Weather weather = w.weather();
        List<CuratorFramework> clients = new ArrayList<>();
        clients.add(w.client(World.BRIEF_SESSION, weather));
        clients.addAll(w.clients(2));
        List<String> told = Collections.synchronizedList(new ArrayList<>());
        List<LeaderLatch> latches = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            String id = "" + i;
            LeaderLatch latch = new LeaderLatch(clients.get(i), "/latch", id);
            latch.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    told.add("+" + id);
                }

                @Override
                public void notLeader() {
                    told.add("-" + id);
                }
            });
            latch.start();
            int n = i + 1;
            World.eventually(() -> latch.getParticipants().size() == n, "candidate " + id);
            latches.add(latch);
        }
        World.check(latches.get(0).await(World.PATIENCE, TimeUnit.SECONDS), "the first candidate leads");
        World.same(latches.get(2).getLeader().getId(), "0", "leader");
        World.check(!latches.get(1).hasLeadership() && !latches.get(2).hasLeadership(), "one leader");

        weather.order("cut"); // the leader dies
        World.eventually(() -> !latches.get(0).hasLeadership(), "a leader without connection leads no more");
        World.check(latches.get(1).await(World.PATIENCE, TimeUnit.SECONDS), "the next one leads");
        World.eventually(() -> latches.get(2).getLeader().getId().equals("1"), "the others see it");
        World.check(!latches.get(2).hasLeadership(), "one leader");

        weather.order("heal"); // it comes back, behind the others
        World.eventually(() -> latches.get(2).getParticipants().size() == 3, "it is a candidate again");
        World.check(!latches.get(0).hasLeadership(), "one leader");
        latches.get(1).close();
        World.check(latches.get(2).await(World.PATIENCE, TimeUnit.SECONDS), "the third one leads");
        latches.get(2).close();
        World.check(latches.get(0).await(World.PATIENCE, TimeUnit.SECONDS), "the first one leads again");
        World.eventually(() -> told.contains("-0") && told.lastIndexOf("+0") > told.indexOf("-0"), "listeners: " + told);
        latches.get(0).close();
        World.eventually(() -> Nodes.children(clients.get(1), "/latch").isEmpty(), "no candidates left");
    }

    /** Three take turns: each leads several times, one at a time. */
    static void selector(World w) throws Exception {
        List<CuratorFramework> clients = w.clients(3);
        Tally tally = new Tally(clients.get(0), 1);
        Map<CuratorFramework, AtomicInteger> led = new ConcurrentHashMap<>();
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        List<LeaderSelector> selectors = new ArrayList<>();
        for (CuratorFramework c : clients) {
            led.put(c, new AtomicInteger());
            LeaderSelector s = new LeaderSelector(c, "/leader", new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    try {
                        tally.add(c);
                        led.get(c).incrementAndGet();
                    } catch (InterruptedException e) {
                        throw e; // closed
                    } catch (Throwable e) {
                        failures.add(e);
                    }
                }
            });
            s.autoRequeue();
            s.setId("one of three");
            s.start();
            selectors.add(s);
        }
        World.eventually(() -> led.values().stream().allMatch(n -> n.get() >= 4 * w.rounds), "each leads in turn");
        World.eventually(() -> selectors.get(0).getParticipants().size() == 3, "three candidates");
        for (LeaderSelector s : selectors) {
            s.close();
        }
        World.check(failures.isEmpty(), "in leadership: " + failures);
        int turns = led.values().stream().mapToInt(AtomicInteger::get).sum();
        World.check(tally.value(clients.get(0)) >= turns, "no turn was lost: " + turns);
    }

    static void selectorKilledLeader(World w) throws Exception {
        Weather weather = w.weather();
        List<CuratorFramework> clients = new ArrayList<>();
        clients.add(w.client(World.BRIEF_SESSION, weather));
        clients.add(w.client());
        CountDownLatch[] leads = {new CountDownLatch(1), new CountDownLatch(1)};
        CountDownLatch interrupted = new CountDownLatch(1);
        List<LeaderSelector> selectors = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            int me = i;
            LeaderSelector s = new LeaderSelector(clients.get(i), "/leader", new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    leads[me].countDown();
                    try {
                        new CountDownLatch(1).await();
                    } catch (InterruptedException e) {
                        if (me == 0) {
                            interrupted.countDown();
                        }
                        throw e;
                    }
                }
            });
            s.setId("" + i);
            s.start();
            selectors.add(s);
            if (i == 0) {
                World.check(leads[0].await(World.PATIENCE, TimeUnit.SECONDS), "the first one leads");
            }
        }
        World.eventually(() -> selectors.get(1).getParticipants().size() == 2, "two candidates");
        World.same(selectors.get(1).getLeader().getId(), "0", "leader");
        weather.order("cut");
        World.check(interrupted.await(World.PATIENCE, TimeUnit.SECONDS), "a leader without connection stops");
        World.check(leads[1].await(World.PATIENCE, TimeUnit.SECONDS), "the next one leads");
        World.check(selectors.get(1).hasLeadership() && !selectors.get(0).hasLeadership(), "one leader");
        selectors.get(1).interruptLeadership();
        World.eventually(() -> !selectors.get(1).hasLeadership(), "interrupted");
        weather.order("heal");
        for (LeaderSelector s : selectors) {
            s.close();
        }
    }
}
