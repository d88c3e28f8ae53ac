package lockkeeper;

import static lockkeeper.Json.number;
import static lockkeeper.Json.text;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import lockkeeper.Gateways.Answer;
import lockkeeper.Gateways.Request;

/**
 * A lock that is held. It owns one daemon thread, which keeps it, ends it at its deadline, and ends with it.
 *
 * <p>The thread that acquired it is interrupted when it is lost, and before its time is over. An interrupt that the work has not taken is taken back
 * by {@link #close}; one that somebody else sends after the loss cannot be told apart from it.
 */
public final class Lease implements AutoCloseable {
    /** Between two looks at the clock: waiting stands still while the machine sleeps. */
    private static final long LOOK = 250;
    private static final Set<Lease> GUARDING = ConcurrentHashMap.newKeySet();

    private final Gateways gateways;
    private final LockRequest request;
    private final Consumer<LeaseLost> onLost;
    private final String id, token;
    private final long fence;
    private final Map<String, Long> fences = new LinkedHashMap<>();

    // Guarded by this.
    private Thread worker; // is interrupted when the lease is lost
    private boolean interrupted, released;
    private LeaseLost lost;
    private long ttl, margin, deadline, closeAt = Long.MAX_VALUE; // milliseconds, and times of the clock

    Lease(Gateways gateways, LockRequest request, Map<String, Object> grant, String token, long sent, Consumer<LeaseLost> onLost) {
        this.gateways = gateways;
        this.request = request;
        this.token = token;
        this.onLost = onLost;
        id = text(grant, "lease_id");
        fence = number(grant, "fencing_token");
        Json.objects(grant, "locks").forEach(lock -> fences.put(text(lock, "lock"), number(lock, "fencing_token")));
        ttl = number(grant, "ttl_ms");
        margin = marginOf(request, ttl);
        deadline = sent + (number(grant, "waited_ms") + ttl) * 1_000_000;
        worker = request.interrupts ? Thread.currentThread() : null;
        GUARDING.add(this);
        daemon("lockkeeper-" + id, this::keep);
    }

    static long marginOf(LockRequest request, long ttl) {
        long margin = request.margin == null ? Math.min(1000, ttl / 5) : request.margin;
        if (margin < 0 || 2 * margin >= ttl) {
            throw new IllegalArgumentException("the margin (" + margin + " ms) must be positive and less than half of the TTL (" + ttl + " ms)");
        }
        return margin;
    }

    private static void daemon(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** @return what names the lease in logs and lists; it gives no right */
    public String id() {
        return id;
    }

    /**
     * The fencing token. Each holder of the lock has a higher one than the holder before. What the lock protects keeps the highest that it has seen,
     * and refuses lower ones.
     *
     * @return the token; of several locks the highest
     */
    public long fence() {
        return fence;
    }

    /**
     * The fencing token of one of several locks.
     *
     * @param lock its name
     * @return the token; 0 for a lock that the lease does not hold
     */
    public long fence(String lock) {
        return fences.getOrDefault(lock, 0L);
    }

    /** @return whether the work may go on now: for work that is asked rather than interrupted, before each step that is shorter than the margin */
    public synchronized boolean held() {
        if (lost == null && !released && left() <= 0) {
            lose(new LeaseLost(id, "deadline", "", "no gateway confirmed it in time"));
        }
        return lost == null && !released;
    }

    /**
     * Throws unless the work may go on now.
     *
     * @throws LeaseLost if the lease is lost
     * @throws IllegalStateException if it was closed
     */
    public synchronized void checkHeld() {
        if (!held()) {
            throw lost != null ? again(lost) : new IllegalStateException("lease " + id + " was released");
        }
    }

    /** A new exception for each throw: one cannot be suppressed by itself. */
    private static LeaseLost again(LeaseLost lost) {
        return new LeaseLost(lost.leaseId(), lost.reason(), lost.by(), lost.detail());
    }

    /** The time for which the work may go on without another heartbeat, in milliseconds. */
    private long left() {
        return (deadline - gateways.clock.now()) / 1_000_000 - margin;
    }

    private synchronized void lose(LeaseLost why) {
        if (lost == null && !released) {
            lost = why;
            notifyAll();
            interrupt();
            if (onLost != null) {
                daemon("lockkeeper-lost-" + id, () -> onLost.accept(again(why)));
            }
        }
    }

    /** Interrupts the worker once. An interrupt by others hides this one while the worker has not taken it: false then. */
    private synchronized boolean interrupt() {
        if (worker != null && !interrupted && !worker.isInterrupted()) {
            worker.interrupt();
            interrupted = true;
        }
        return worker == null || interrupted;
    }

    /** Ends the right to interrupt the worker, which is gone or calls this, and takes back an interrupt that it has not taken. */
    private synchronized void unguard() {
        GUARDING.remove(this);
        if (interrupted && worker == Thread.currentThread()) {
            Thread.interrupted();
            for (Lease outer : GUARDING) {
                outer.interruptAgain(worker);
            }
        }
        worker = null;
    }

    /** The interrupt of an inner lease, which was taken back, may have been this one's too. */
    private synchronized void interruptAgain(Thread thread) {
        if (worker == thread && interrupted) {
            thread.interrupt();
        }
    }

    /** Keeps the lease until it is lost or released. One request follows the other; after a failure one is sent that the gateway does not hold. */
    private void keep() {
        CompletableFuture<Answer> beat = null;
        long pause = Gateways.LEAST_PAUSE, due = gateways.clock.now();
        boolean hold = true, asked = false;
        while (await(beat, due)) {
            if (beat == null) {
                beat = gateways.start(beat(hold, null));
                beat.whenComplete((answer, e) -> wake());
                continue;
            }
            long wait = Gateways.LEAST_PAUSE; // an early answer that says nothing about this lease must not make a busy loop
            try {
                Answer answer = beat.join();
                confirm(answer);
                boolean asks = answer.body.get("revoke_requested") instanceof Map;
                if (asks && !asked && request.onRevoke != null) {
                    @SuppressWarnings("unchecked")
                    String reason = text((Map<String, Object>) answer.body.get("revoke_requested"), "reason");
                    daemon("lockkeeper-revoke-" + id, () -> request.onRevoke.accept(reason));
                }
                asked = asks;
                hold = true;
                pause = Gateways.LEAST_PAUSE;
            } catch (RuntimeException e) {
                RuntimeException failure = Limit.failure(e);
                if (failure instanceof Problem && ((Problem) failure).ended()) {
                    lose(((Problem) failure).lost(id));
                }
                wait = Gateways.jitter(Math.min(pause, ttl() / 20));
                pause = Math.min(2 * pause, Gateways.MOST_PAUSE);
                hold = false;
            }
            beat = null;
            due = gateways.clock.now() + wait * 1_000_000;
        }
        if (beat != null) {
            beat.cancel(true);
        }
        if (closing()) {
            release();
        }
        while (!interrupt()) {
            Limit.of(10, false).sleep(10);
        }
    }

    /** The request that begins the TTL anew, or looks at a lease that is not kept. With hold the gateway answers when something happens to the lease. */
    private Request beat(boolean hold, Duration ttl) {
        long third = Math.min(ttl() / 3, 240_000), late = Math.min(Gateways.TIMEOUT, Math.max(ttl() / 6, 100));
        boolean look = !request.keepAlive && ttl == null;
        Request beat = look ? new Request("GET", "/v1/leases/self?until=ended&wait=" + (hold ? third : 0) + "ms", token, "ttl_ms")
                : new Request("POST", "/v1/leases/self/heartbeat" + (hold ? "?wait=" + third + "ms" : ""), token, "ttl_ms");
        beat.body = ttl == null ? null : Map.of("ttl", LockRequest.millis(ttl));
        return beat.timeout(hold ? third + late : Gateways.TIMEOUT);
    }

    private synchronized long ttl() {
        return ttl;
    }

    private synchronized void wake() {
        notifyAll();
    }

    /** Waits until the request is answered, or the next one is due. False: the lease is over. */
    private synchronized boolean await(CompletableFuture<Answer> beat, long due) {
        while (held()) {
            long now = gateways.clock.now();
            if (beat == null ? now >= due : beat.isDone()) {
                return true;
            } else if (now >= closeAt) {
                return false;
            }
            long next = Math.min(closeAt, beat == null ? due : Long.MAX_VALUE) - now;
            try {
                wait(Math.max(1, Math.min(Math.min(LOOK, left()), next / 1_000_000)));
            } catch (InterruptedException e) { // this thread is nobody's to interrupt
            }
        }
        return false;
    }

    private synchronized void confirm(Answer answer) {
        if (text(answer.body, "state").equals("ended")) {
            lose(new LeaseLost(id, text(answer.body, "reason"), text(answer.body, "by"), text(answer.body, "detail")));
        } else if (request.keepAlive) {
            deadline = Math.max(deadline, answer.sent + number(answer.body, "ttl_ms") * 1_000_000);
        }
    }

    /**
     * Begins the TTL anew, with another one. Only a lease that is not kept alive needs it.
     *
     * @param ttl 1 s to 24 h; a shorter one than before does not bring the end of the lease nearer
     * @throws LeaseLost if the lease is lost
     */
    public void renew(Duration ttl) {
        checkHeld();
        try {
            Answer answer = gateways.repeated(beat(false, ttl), Limit.of(Math.max(1, left()), false));
            synchronized (this) {
                this.ttl = number(answer.body, "ttl_ms");
                margin = marginOf(request, this.ttl);
                deadline = Math.max(deadline, answer.sent + this.ttl * 1_000_000);
            }
        } catch (Problem p) {
            if (p.ended()) {
                lose(p.lost(id));
            }
            checkHeld();
            throw p;
        }
    }

    /**
     * Releases the lock, and tries for up to 5 s to tell a gateway. When none answers, the lease ends with its time. The work is over: nothing is
     * interrupted any more. It is harmless to call this again.
     *
     * @throws LeaseLost if the lease had ended before
     */
    @Override
    public void close() {
        synchronized (this) {
            unguard();
            if (released || closing()) {
                return;
            }
            checkHeld();
            released = true;
            notifyAll();
        }
        LeaseLost late = release();
        if (late != null) {
            throw late;
        }
    }

    /**
     * Says that the work is over, as close does, and releases the lock later. Until then the lease is kept, or ends with its TTL where it is not kept
     * alive.
     *
     * @param delay how long the lock stays taken
     * @throws LeaseLost if the lease had ended before
     */
    public synchronized void closeAfter(Duration delay) {
        unguard();
        checkHeld();
        closeAt = gateways.clock.now() + delay.toNanos();
        notifyAll();
    }

    private synchronized boolean closing() {
        return closeAt != Long.MAX_VALUE;
    }

    private LeaseLost release() {
        try {
            gateways.repeated(new Request("DELETE", "/v1/leases/self", token, null).timeout(2000), Limit.of(5000, false));
        } catch (Problem p) {
            return p.ended() ? p.lost(id) : null;
        } catch (Gateways.NoAnswer e) { // the lease ends with its time
        }
        return null;
    }
}
