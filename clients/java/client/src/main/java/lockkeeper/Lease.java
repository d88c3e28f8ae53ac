package lockkeeper;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import lockkeeper.Gateways.*;

/**
 * Locks that are held. A lease owns one daemon thread, which keeps it, ends it at its deadline, and ends with it; its
 * heartbeats are sent in another one.
 *
 * <p>The thread that acquired it is interrupted when the lease is lost, before another client can hold the lock. {@link
 * #close} takes back an interrupt that the work has not taken. One that other code sends between the loss and the close
 * cannot be told apart from it, and is taken back too; the LeaseLost tells of both.
 */
public final class Lease implements AutoCloseable {
    private static final long LOOK = 250; // at most between two looks at the clock: a wait stands still while the machine sleeps
    private static final long HOLD = 240_000; // at most for which a gateway is asked to hold a heartbeat
    private static final Json DEADLINE = Json.read("{\"reason\": \"deadline\", \"detail\": \"no gateway confirmed it in time\"}");
    private static final Set<Lease> GUARDING = ConcurrentHashMap.newKeySet(); // those of one thread share its interrupt
    private final Gateways gateways;
    private final LockRequest request;
    private final Json grant;
    private final long margin;

    // Guarded by this. The deadline is a time of the clock, all else is in milliseconds.
    private Thread worker; // is interrupted when the lease is lost; null: nothing is
    private boolean interrupted, released;
    private Json lost; // what tells why
    private long ttl, deadline;

    Lease(Gateways gateways, LockRequest request, Json grant, long sent) {
        this.gateways = gateways;
        this.request = request;
        this.grant = grant;
        ttl = grant.number("ttl_ms");
        margin = request.margin == null ? Math.min(1000, ttl / 5) : request.margin;
        if (margin < 0 || 2 * margin >= ttl) {
            throw new IllegalArgumentException("the margin must be 0 to half of the TTL of " + ttl + " ms, not " + margin);
        }
        deadline = sent + ttl * 1_000_000;
        worker = request.interrupts ? Thread.currentThread() : null;
        GUARDING.add(this);
        gateways.threads.execute(this::keep);
    }

    /**
     * What names the lease in logs and lists. It gives no right.
     *
     * @return the id
     */
    public String id() { return grant.text("lease_id"); }

    /**
     * The fencing token. Each holder of the lock has a higher one than the holder before. What the lock protects keeps
     * the highest that it has seen, and refuses lower ones.
     *
     * @return the token; of several locks the highest
     */
    public long fence() { return grant.number("fencing_token"); }

    /**
     * The fencing token of one of several locks.
     *
     * @param lock its name
     * @return the token; 0 for a lock that the lease does not hold
     */
    public long fence(String lock) {
        return grant.objects("locks").filter(l -> l.text("lock").equals(lock)).mapToLong(l -> l.number("fencing_token")).sum();
    }

    /**
     * Says whether the work may go on now. Work that cannot be interrupted asks before each step, which takes less than
     * the margin.
     *
     * @return whether the lease is held
     */
    public synchronized boolean held() {
        if (left() <= 0) { lose(DEADLINE); }
        return lost == null && !released;
    }

    /**
     * Throws unless the work may go on now.
     *
     * @throws LeaseLost if the lease is lost
     * @throws IllegalStateException if it was closed
     */
    public synchronized void checkHeld() { checkHeld(null); }

    private synchronized void checkHeld(Throwable cause) {
        if (held()) { return; }
        throw lost == null ? new IllegalStateException("lease " + id() + " was released") : new LeaseLost(id(), lost, cause);
    }

    /** The time for which the work may go on without another heartbeat. */
    private synchronized long left() { return (deadline - gateways.clock.now()) / 1_000_000 - margin; }

    private synchronized void confirm(Json answer) {
        ttl = answer.number("ttl_ms");
        deadline = Math.max(deadline, answer.sent + ttl * 1_000_000);
    }

    /** The lease is lost, as a gateway's answer says. */
    private synchronized void lose(Json end) {
        if (lost != null || released) { return; }
        lost = end;
        interrupt();
        gateways.threads.execute(() -> request.onLost.accept(new LeaseLost(id(), end, null)));
    }

    private void lose(Throwable e) {
        if (e instanceof Problem && ((Problem) e).ended()) { lose(((Problem) e).body); }
    }

    /**
     * Interrupts the worker once. While the worker has an interrupt that it has not taken, which would hide this one,
     * that waits.
     */
    private synchronized boolean interrupt() {
        if (worker != null && !interrupted && !worker.isInterrupted()) {
            interrupted = true;
            worker.interrupt();
        }
        return worker == null || interrupted;
    }

    /**
     * Says that the work is over, and the lease is not: its loss interrupts nothing any more, and an interrupt that the
     * work has not taken is taken back, if the thread that acquired the lease calls this. {@link #close} does it too.
     */
    public void unguard() {
        Thread thread = Thread.currentThread();
        boolean takeBack;
        synchronized (this) { takeBack = interrupts(thread); worker = null; }
        GUARDING.remove(this);
        if (takeBack) {
            Thread.interrupted();
            GUARDING.stream().filter(outer -> outer.interrupts(thread)).forEach(outer -> thread.interrupt()); // it was theirs too
        }
    }

    private synchronized boolean interrupts(Thread thread) { return interrupted && worker == thread; }

    /** Keeps the lease: one request follows the other. After a failure one is sent that the gateway does not hold. */
    private void keep() {
        CompletableFuture<Json> beat = null;
        long due = 0, pause = Gateways.LEAST_PAUSE; // due: when the next request is sent, by the clock
        boolean hold = true, asked = false;
        while (held()) {
            long now = gateways.clock.now(), wait = Math.min(LOOK, Math.max(1, left())), pauseNow = Gateways.LEAST_PAUSE;
            try {
                if (beat == null && now < due) {
                    Thread.sleep(Math.min(wait, (due - now) / 1_000_000 + 1));
                    continue;
                }
                beat = beat == null ? beat(hold, null).start(Long.MAX_VALUE) : beat;
                Json answer = beat.get(wait, TimeUnit.MILLISECONDS);
                if (answer.text("state").equals("ended")) { lose(answer); }
                if (request.keepAlive) { confirm(answer); }
                Object asks = answer.members.get("revoke_requested");
                if (asks != null && !asked) { gateways.threads.execute(() -> request.onRevoke.accept(((Json) asks).text("reason"))); }
                asked = asks != null;
                hold = true;
                pause = Gateways.LEAST_PAUSE;
            } catch (TimeoutException | InterruptedException e) { // to look at the clock; this thread is not there to be interrupted
                continue;
            } catch (ExecutionException | Error e) { // an Error: no memory, or no thread to send the request in
                lose(e.getCause());
                hold = false;
                pauseNow = Gateways.jitter(Math.min(pause, grant.number("ttl_ms") / 20));
                pause = Math.min(2 * pause, Gateways.MOST_PAUSE);
            }
            beat = null;
            due = gateways.clock.now() + pauseNow * 1_000_000; // also after an early answer that says nothing about this lease
        }
        while (!interrupt()) { Gateways.sleep(10, false); }
    }

    /**
     * The request that begins the TTL anew, or looks at a lease that is not kept alive. With hold the gateway answers
     * it when something happens to the lease, but in time for another one before the deadline.
     */
    private synchronized Request beat(boolean hold, String newTtl) {
        long third = Math.min((ttl - 2 * Math.max(0, margin - Math.min(1000, ttl / 5))) / 3, HOLD);
        boolean look = !request.keepAlive && newTtl == null;
        long held = !hold ? 0 : look ? Math.max(1, Math.min(third, left())) : left() > third + ttl / 20 ? third : 0;
        String path = "/v1/leases/self" + (look ? "?until=ended&" : "/heartbeat?") + (held > 0 ? "wait=" + held + "ms" : "");
        long late = held == 0 ? Gateways.TIMEOUT : Math.min(Gateways.TIMEOUT, Math.max(ttl / 6, 100));
        Request beat = gateways.new Request(look ? "GET" : "POST", path, grant.text("token"), held + late);
        beat.body = newTtl == null ? null : Map.of("ttl", newTtl);
        return beat;
    }

    /**
     * Begins the TTL anew, with another one. Only a lease that is not kept alive needs it.
     *
     * @param newTtl 1 s to 24 h; a shorter one than before does not bring the end of the lease nearer
     * @throws LeaseLost if the lease is lost
     * @throws Problem if the gateway refuses the TTL
     */
    public void renew(Duration newTtl) {
        checkHeld();
        try { confirm(beat(false, LockRequest.millis(newTtl)).repeated(Gateways.now() + left(), false)); } catch (Problem e) {
            lose(e);
            checkHeld();
            throw e;
        }
    }

    /**
     * Releases the locks, and tries for up to 5 s to tell a gateway. When none answers, the lease ends with its time.
     * It is harmless to call this again. Work with {@link LockRequest#doneOnRelease} counts as done.
     *
     * @throws LeaseLost if the lease had ended before
     */
    @Override public void close() { close(null); }

    /** The cause is what the work has thrown, or null: then the work is done. */
    void close(Throwable cause) {
        unguard();
        synchronized (this) {
            if (released) { return; }
            checkHeld(cause);
            released = true;
        }
        try {
            gateways.new Request("DELETE", request.back(cause == null), grant.text("token"), 2000).repeated(Gateways.now() + 5000, false);
        } catch (Problem e) {
            if (e.ended()) { throw new LeaseLost(id(), e.body, cause); }
        }
    }
}
