package lockkeeper;

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;

/** Tests of what the suite cannot see: threads, interrupts, the clock, and the types that Java gives. Each method is one, some seconds long. */
final class Tests {
    public static void main(String[] args) {
        try {
            runAll(args.length == 0 ? ".*" : args[0]);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1); // what a failed test has left behind may go on
        }
    }

    private static void runAll(String names) throws Exception {
        List<String> failed = Collections.synchronizedList(new ArrayList<>());
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Callable<Void>> tests = new ArrayList<>();
        for (Method test : Tests.class.getDeclaredMethods()) {
            if (test.getParameterCount() == 0 && !test.getName().equals("ours") && !test.isSynthetic() && test.getName().matches(names)) {
                tests.add(() -> {
                    try {
                        test.invoke(null);
                    } catch (Throwable e) {
                        (e.getCause() == null ? e : e.getCause()).printStackTrace();
                        failed.add(test.getName());
                    }
                    return null;
                });
            }
        }
        threads.invokeAll(tests, 90, TimeUnit.SECONDS).forEach(f -> check(!f.isCancelled(), "a test took more than 90 s"));
        threads.shutdown();
        // The threads of leases end with them.
        long end = System.nanoTime() + 5_000_000_000L;
        while (ours() > 0 && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        check(ours() == 0, ours() + " threads are left");
        check(failed.isEmpty(), "failed: " + failed);
        System.out.println(tests.size() + " tests");
    }

    private static long ours() {
        return Thread.getAllStackTraces().keySet().stream().filter(t -> t.getName().equals("lockkeeper")).count();
    }

    static void check(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    private static <X extends Throwable> X thrown(Class<X> type, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (Throwable e) {
            if (e.getCause() instanceof AssertionError) { // of work whose lease was lost: it is the cause of the LeaseLost
                throw (AssertionError) e.getCause();
            } else if (type.isInstance(e)) {
                return type.cast(e);
            }
            throw e;
        }
        throw new AssertionError("no " + type);
    }

    /** Runs something in a thread of its own, whose interrupts are its own, and waits for its end. */
    private static void inThread(Callable<?> call) throws Exception {
        FutureTask<?> task = new FutureTask<>(call);
        new Thread(task).start();
        task.get(60, TimeUnit.SECONDS);
    }

    static void anInterruptNeitherLeaksOutNorIsLost() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            LockClient client = gateway.client();
            ScheduledExecutorService timer = Executors.newScheduledThreadPool(2);
            Random random = new Random(1);
            int lost = 0, interrupted = 0, i = 0;
            for (; i < 400 || i < 2000 && (lost <= 40 || interrupted <= 10); i++) {
                // Microseconds, about the same time. On a busy machine the news takes longer, so longer work follows.
                long breakAt = random.nextInt(4000), workFor = random.nextInt(4000 << Math.min(i / 400, 3));
                boolean[] sawInterrupt = {false};
                boolean heeds = random.nextBoolean();
                try {
                    client.withLock("x", lease -> {
                        timer.schedule(gateway::breakLease, breakAt, TimeUnit.MICROSECONDS);
                        long end = System.nanoTime() + workFor * 1000;
                        while (System.nanoTime() < end) {
                            if (heeds && Thread.interrupted()) {
                                sawInterrupt[0] = true;
                                return;
                            }
                        }
                    });
                } catch (LeaseLost e) {
                    lost++;
                    check(e.reason.equals("revoked") && e.by.equals("alice") && e.detail.equals("why"), e.toString());
                }
                interrupted += sawInterrupt[0] ? 1 : 0;
                for (long end = System.nanoTime() + 500_000; System.nanoTime() < end;) {
                    check(!Thread.currentThread().isInterrupted(), "an interrupt leaked out of round " + i);
                }
            }
            timer.shutdownNow();
            check(lost > 40 && i - lost > 40 && interrupted > 10, lost + " of " + i + " lost, " + interrupted + " interrupted");
        }
    }

    static void workThatWaitsIsInterruptedAndReported() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            long[] brokenAt = {0};
            LeaseLost lost = thrown(LeaseLost.class, () -> {
                gateway.client().withLock("x", lease -> {
                    Thread.sleep(100);
                    brokenAt[0] = System.nanoTime();
                    gateway.breakLease();
                    Thread.sleep(10_000);
                });
                return null;
            });
            check(System.nanoTime() - brokenAt[0] < 500_000_000L, "the work was stopped late");
            check(lost.getCause() instanceof InterruptedException, "the cause is " + lost.getCause());
            check(gateway.count("DELETE") == 0, "a lost lease was released");
        }
    }

    static void workWithoutAGatewayIsInterruptedBeforeTheDeadline() throws Exception {
        FakeGateway gateway = new FakeGateway();
        gateway.ttl = 2000;
        long[] begun = {0};
        LeaseLost lost = thrown(LeaseLost.class, () -> gateway.client().callWithLock(LockRequest.of("x"), lease -> {
            begun[0] = System.nanoTime(); // the acquire was sent before
            gateway.server.stop(0);
            new CountDownLatch(1).await();
            return null;
        }));
        long took = (System.nanoTime() - begun[0]) / 1_000_000;
        gateway.close();
        check(lost.reason.equals("deadline") && took < 2000, lost + " after " + took + " ms");
    }

    static void anInterruptOfOthersStays() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            inThread(() -> {
                Thread worker = Thread.currentThread();
                thrown(LeaseLost.class, () -> gateway.client().callWithLock(LockRequest.of("x"), lease -> {
                    worker.interrupt(); // by others, before the loss
                    gateway.breakLease();
                    while (lease.held()) {
                        Thread.onSpinWait();
                    }
                    return null;
                }));
                check(Thread.interrupted(), "the interrupt of others was lost");
                thrown(LeaseLost.class, () -> gateway.client().callWithLock(LockRequest.of("x"), lease -> {
                    worker.interrupt();
                    gateway.breakLease();
                    while (lease.held()) {
                        Thread.onSpinWait();
                    }
                    check(Thread.interrupted(), "the interrupt of others was lost");
                    Thread.sleep(5000); // the lease's own interrupt comes once that one was taken
                    throw new AssertionError("the interrupt of the loss was lost");
                }));
                check(!Thread.interrupted(), "the interrupt of the loss leaked out");
                return null;
            });
        }
    }

    static void anInnerLeaseDoesNotTakeTheInterruptOfAnOuterOne() throws Exception {
        try (FakeGateway outer = new FakeGateway(); FakeGateway inner = new FakeGateway()) {
            inThread(() -> {
                thrown(LeaseLost.class, () -> outer.client().callWithLock(LockRequest.of("x"), a -> {
                    thrown(LeaseLost.class, () -> inner.client().callWithLock(LockRequest.of("y"), b -> {
                        inner.breakLease();
                        while (!Thread.interrupted()) {
                            Thread.onSpinWait();
                        }
                        outer.breakLease();
                        while (a.held() || !Thread.currentThread().isInterrupted()) {
                            Thread.onSpinWait();
                        }
                        return null;
                    }));
                    check(Thread.currentThread().isInterrupted(), "the outer lease's interrupt was lost");
                    return null;
                }));
                check(!Thread.interrupted(), "an interrupt leaked out");
                return null;
            });
        }
    }

    static void anInterruptWhileWaitingLeavesTheQueueAtOnce() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            gateway.queued = true;
            Thread worker = Thread.currentThread();
            gateway.ttl = 60_000;
            inThread(() -> {
                Thread self = Thread.currentThread();
                LockRequest request = LockRequest.of("x").onQueued(position -> self.interrupt());
                thrown(InterruptedException.class, () -> gateway.client().acquire(request));
                check(gateway.count("DELETE") == 1, "the place in the queue was kept");
                check(!Thread.interrupted(), "the interrupt was told twice");
                return null;
            });
            check(!worker.isInterrupted(), "another thread was interrupted");
        }
    }

    static void aFullCommonPoolCostsNoLease() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            gateway.ttl = 4000;
            CountDownLatch end = new CountDownLatch(1);
            for (int i = 0; i < 2 * ForkJoinPool.commonPool().getParallelism() + 2; i++) {
                ForkJoinPool.commonPool().execute(() -> {
                    try {
                        end.await();
                    } catch (InterruptedException e) { // the end
                    }
                });
            }
            try {
                gateway.client().withLock("x", lease -> Thread.sleep(5000));
            } finally {
                end.countDown();
            }
        }
    }

    static void connectionsAreUsedAgain() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            LockClient client = gateway.client();
            for (int i = 0; i < 30; i++) {
                client.withLock("x", lease -> Thread.sleep(5));
            }
            check(gateway.connections.size() <= 6, gateway.connections.size() + " connections for 30 leases");
        }
    }

    static void anAnswerThatDoesNotEndIsGivenUp() throws Exception {
        try (FakeGateway stuck = new FakeGateway(); FakeGateway gateway = new FakeGateway()) {
            stuck.bodyWithoutEnd = true;
            LockClient client = new LockClient(stuck.url() + "," + gateway.url(), () -> "", null);
            client.withLock("x", lease -> check(lease.fence() == 7, "fence"));
            check(stuck.left.await(10, TimeUnit.SECONDS), "the client reads on after it has given up");
        }
    }

    static void refusalsAreExceptions() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            gateway.taken = true;
            NotAcquired e = thrown(NotAcquired.class, () -> gateway.client().acquire(LockRequest.of("x").waitAtMost(Duration.ZERO)));
            check(e.lock.equals("x") && e.queueLength == 4 && e.holders.get(0).owner.equals("other") && e.holders.get(0).fencingToken == 9, e.toString());
            for (String url : List.of("unix:/x", "ftp://x", "http://u:p@x", "http://x?y", "x", "")) {
                thrown(IllegalArgumentException.class, () -> new LockClient(url, () -> "", null));
            }
            LockClient unreadable = new LockClient(gateway.url(), () -> { throw new java.io.FileNotFoundException("gone"); }, null);
            thrown(IllegalArgumentException.class, () -> unreadable.acquire(LockRequest.of("x")));
        }
    }

    static void theWorksOwnErrorsPass() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            LockClient client = gateway.client();
            thrown(java.io.IOException.class, () -> client.callWithLock(LockRequest.of("x"), lease -> { throw new java.io.IOException("boom"); }));
            check(gateway.count("DELETE") == 1, "the lease was not released");
            thrown(LeaseLost.class, () -> { // checkHeld and close throw different exceptions: one cannot be suppressed by itself
                try (Lease lease = client.acquire(LockRequest.of("x"))) {
                    gateway.breakLease();
                    while (true) {
                        lease.checkHeld();
                    }
                }
            });
            AtomicInteger terms = new AtomicInteger();
            client.elect(LockRequest.of("x"), term -> {
                if (terms.incrementAndGet() < 3) {
                    gateway.breakLease();
                    new CountDownLatch(1).await();
                }
            });
            check(terms.get() == 3, "a leader that lost its lease was no candidate again");
        }
    }

    static void theLossOfAnotherLeaseEndsAnElection() throws Exception {
        try (FakeGateway gateway = new FakeGateway(); FakeGateway others = new FakeGateway()) {
            others.id = "lk2";
            AtomicInteger terms = new AtomicInteger();
            LeaseLost lost = thrown(LeaseLost.class, () -> {
                gateway.client().elect(LockRequest.of("leader"), term -> {
                    check(terms.incrementAndGet() == 1, "the leader was a candidate again, and held its lease");
                    others.client().withLock("x", lease -> {
                        others.breakLease();
                        new CountDownLatch(1).await();
                    });
                });
                return null;
            });
            check(lost.leaseId.equals("lk2"), lost.toString());
            check(gateway.count("DELETE") == 1, "the leader did not resign");
        }
    }

    static void aLockIsItsThreadsOwn() throws Exception {
        try (FakeGateway gateway = new FakeGateway()) {
            BlockingQueue<LeaseLost> told = new LinkedBlockingQueue<>();
            Lock lock = gateway.client().asLock(LockRequest.of("x").onLost(told::add));
            inThread(() -> {
                Thread.currentThread().interrupt();
                lock.lock(); // waits also when it is interrupted, and does not forget it
                check(Thread.interrupted(), "the interrupt was forgotten");
                thrown(IllegalStateException.class, () -> { lock.lock(); return null; });
                inThread(() -> thrown(IllegalMonitorStateException.class, () -> { lock.unlock(); return null; }));
                lock.unlock();
                gateway.taken = true;
                check(!lock.tryLock(), "it took what others hold");
                check(!lock.tryLock(2, TimeUnit.SECONDS), "it took what others hold");
                gateway.taken = false;
                check(lock.tryLock(1, TimeUnit.SECONDS), "it did not take what is free");
                gateway.breakLease();
                while (told.isEmpty()) {
                    Thread.onSpinWait();
                }
                check(told.remove().by.equals("alice"), "the loss was told wrongly");
                thrown(LeaseLost.class, () -> { lock.unlock(); return null; });
                check(!Thread.interrupted(), "the interrupt leaked out");
                thrown(UnsupportedOperationException.class, lock::newCondition);
                Thread.currentThread().interrupt();
                return thrown(InterruptedException.class, () -> { lock.lockInterruptibly(); return null; });
            });
        }
    }

    static void theClockCountsSleepAndNeverGoesBack() {
        long[] nanos = {0}, other = {5_000_000_000L};
        Clock clock = new Clock() {
            @Override long nanos() { return nanos == null ? 0 : nanos[0]; }

            @Override long other() { return other == null ? 0 : other[0]; }
        };
        clock.now();
        long[][] steps = {{100, 100, 100}, {100, 105, 100}, {100, 5100, 5100}, {100, -90_000, 100}, {100, 100, 100}, {100, 3_600_100, 3_600_100}};
        for (long[] step : steps) { // what each clock went on, and what the clock must make of it, in milliseconds
            long before = clock.now();
            nanos[0] += step[0] * 1_000_000;
            other[0] += step[1] * 1_000_000;
            long went = (clock.now() - before) / 1_000_000;
            check(went == step[2], "went " + went + " ms after " + Arrays.toString(step));
        }
    }

    static void jsonIsReadWithinBounds() {
        Json json = Json.read(" {\"a\":\"x\\u0024\\n\\\"\\\\é\", \"b\":[1,{\"c\":-2.5e3},null,true], \"d\":9223372036854775807} ");
        check(json.text("a").equals("x$\n\"\\é") && json.objects("b").count() == 1 && json.number("d") == Long.MAX_VALUE, json.members.toString());
        for (String text : List.of("", "[]", "{", "{\"a\":", "{\"a\":\"", "<html>", "{} x", "{\"a\":tru}", "\"x\"", "[".repeat(100_000), "{\"a\":".repeat(40))) {
            check(Json.read(text).members.isEmpty(), text);
        }
        check(Json.read("{\"a\":\"" + "\\\\\\\"".repeat(100_000) + "\"}").text("a").length() == 200_000, "a long text");
        String written = Json.write(new TreeMap<>(Map.of("a", "q\"\\\n\u0001", "b", List.of(1, true))));
        check(written.equals("{\"a\":\"q\\u0022\\u005c\\u000a\\u0001\",\"b\":[1,true]}"), written);
    }
}
