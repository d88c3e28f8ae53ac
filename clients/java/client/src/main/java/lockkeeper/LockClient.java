package lockkeeper;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URLEncoder;
import java.nio.file.*;
import java.security.SecureRandom;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.*;
import java.util.function.*;
import javax.net.ssl.SSLContext;
import lockkeeper.Gateways.*;

/**
 * Takes locks from the gateways of one fleet. A client is safe for use by many threads, and has nothing to close: its
 * threads end when idle.
 */
public final class LockClient {
    private static final long POLL = 25_000; // for which the gateway holds a look at a waiting lease, in milliseconds
    private static final long LEAVE = 2_000; // for giving up a place in the queue
    private static final long TRY = 30_000; // for finding a gateway that can answer an acquire that does not wait
    private static final SecureRandom RANDOM = new SecureRandom();

    private final Gateways gateways;

    /**
     * Makes a client. It sends no request.
     *
     * @param urls gateways of one fleet, such as https://locks.example.com, with commas between them; the next one is
     *     asked when one does not answer
     * @param token gives the API token for each acquire, such as {@code () -> Files.readString(file)}; an empty one is
     *     none
     * @param ssl the certificates for https; null: the platform's
     */
    public LockClient(String urls, Callable<String> token, SSLContext ssl) {
        List<String> bases = new ArrayList<>();
        for (String url : urls.split(",")) {
            if (!url.trim().matches("https?://[^/?#@]+(/[^?#]*)?")) {
                throw new IllegalArgumentException("a gateway's URL must be like http://127.0.0.1:8080, without user, query and"
                        + " fragment, and not unix: (Java's HttpClient has no Unix sockets): " + url);
            }
            bases.add(url.trim().replaceAll("/+$", ""));
        }
        gateways = new Gateways(bases, token, ssl);
    }

    /**
     * Makes a client of LOCKKEEPER_URL (http://127.0.0.1:8080 when it is not set), and of LOCKKEEPER_TOKEN or
     * LOCKKEEPER_TOKEN_FILE.
     *
     * @return a client
     */
    public static LockClient fromEnv() { return fromEnv(System.getenv()); }

    static LockClient fromEnv(Map<String, String> env) {
        String url = env.getOrDefault("LOCKKEEPER_URL", ""), file = env.getOrDefault("LOCKKEEPER_TOKEN_FILE", "");
        String token = env.getOrDefault("LOCKKEEPER_TOKEN", "");
        if (!token.isEmpty() && !file.isEmpty()) { throw new IllegalArgumentException("only a token or a token file must be set"); }
        Callable<String> given = () -> file.isEmpty() ? token : Files.readString(Path.of(file));
        return new LockClient(url.isEmpty() ? "http://127.0.0.1:8080" : url, given, null);
    }

    /**
     * Work that a lock protects.
     *
     * @param <T> its result
     * @param <X> what it throws
     */
    public interface Task<T, X extends Exception> {
        /**
         * Works, and ends soon after its thread was interrupted.
         *
         * @param lease the lease that holds the lock
         * @return the result
         * @throws X when the work fails
         */
        T call(Lease lease) throws X;
    }

    /**
     * Work without a result that a lock protects.
     *
     * @param <X> what it throws
     */
    public interface Work<X extends Exception> {
        /**
         * Works, and ends soon after its thread was interrupted.
         *
         * @param lease the lease that holds the lock
         * @throws X when the work fails
         */
        void run(Lease lease) throws X;
    }

    /**
     * Does {@link #withLock(LockRequest, Work)} for one exclusive lock.
     *
     * @param <X> what the work throws
     * @param lock its name
     * @param work what it protects
     * @throws X what the work threw
     * @throws InterruptedException if the thread was interrupted while it waited
     */
    public <X extends Exception> void withLock(String lock, Work<X> work) throws X, InterruptedException {
        withLock(LockRequest.of(lock), work);
    }

    /**
     * Acquires the locks, runs the work in this thread, and releases the locks on every path. The thread is interrupted
     * when the lease is lost, before another client can hold the lock. The work is not run, and {@link
     * LockRequest#onDone} is told, when it is done in this period.
     *
     * @param <X> what the work throws
     * @param request which locks, and how
     * @param work what they protect
     * @throws X what the work threw
     * @throws InterruptedException if the thread was interrupted while it waited; its place in the queue is given up
     * @throws LeaseLost if the lease was lost before the work returned, also when the work did not notice
     * @throws NotAcquired if others hold the lock, and the time for waiting is over
     * @throws Problem if the gateway refuses the request
     */
    public <X extends Exception> void withLock(LockRequest request, Work<X> work) throws X, InterruptedException {
        Lease lease;
        try { lease = acquire(request); } catch (Done e) { request.onDone.accept(e); return; }
        LockClient.<Void, X>guard(lease, held -> { work.run(held); return null; });
    }

    /**
     * Does {@link #withLock(LockRequest, Work)} for work with a result.
     *
     * @param <T> the result
     * @param <X> what the work throws
     * @param request which locks, and how
     * @param work what they protect
     * @return the result of the work
     * @throws X what the work threw
     * @throws InterruptedException if the thread was interrupted while it waited
     */
    public <T, X extends Exception> T callWithLock(LockRequest request, Task<T, X> work) throws X, InterruptedException {
        return guard(acquire(request), work);
    }

    private static <T, X extends Exception> T guard(Lease lease, Task<T, X> work) throws X {
        Throwable thrown = null;
        try {
            return work.call(lease);
        } catch (Throwable e) {
            thrown = e;
            throw e;
        } finally {
            lease.close(thrown);
        }
    }

    /**
     * Runs the work while this client is the leader: the holder of the lock. Waiters are the candidates, and the
     * fencing token is the number of the term. A leader whose lease is lost is a candidate again when the work has
     * returned. This returns when the work returns while it leads.
     *
     * @param <X> what the work throws
     * @param request which lock, and how
     * @param lead the work of a leader
     * @throws X what the work threw
     * @throws InterruptedException if the thread was interrupted while it waited
     * @throws LeaseLost if the work threw the loss of another lease
     */
    public <X extends Exception> void elect(LockRequest request, Work<X> lead) throws X, InterruptedException {
        while (true) {
            String[] term = {""};
            try { this.<X>withLock(request, lease -> { term[0] = lease.id(); lead.run(lease); }); return; } catch (LeaseLost e) {
                if (!e.leaseId.equals(term[0])) { throw e; } // only the loss of its own lease makes it a candidate again
            }
        }
    }

    /**
     * Acquires the locks, for try-with-resources. The thread is interrupted when the lease is lost before it is closed.
     *
     * @param request which locks, and how
     * @return the lease, which is to be closed
     * @throws InterruptedException if the thread was interrupted while it waited; its place in the queue is given up
     * @throws NotAcquired if others hold the lock, and the time for waiting is over
     * @throws Problem if the gateway refuses the request
     */
    public Lease acquire(LockRequest request) throws InterruptedException {
        return interruptible(() -> acquire(request, request.wait, true));
    }

    /**
     * Gives the locks as a {@link Lock}, for code that takes one. Each thread that locks it has a lease of its own. It
     * is not reentrant, and has no conditions. The thread that has locked it is interrupted when the lease is lost, and
     * its unlock throws LeaseLost. See also {@link LockRequest#onLost}.
     *
     * @param request which locks, and how
     * @return the lock
     */
    public Lock asLock(LockRequest request) {
        ThreadLocal<Lease> mine = new ThreadLocal<>();
        return new Lock() {
            private boolean take(Long wait, boolean interruptible) {
                if (mine.get() != null) { throw new IllegalStateException("the lock is not reentrant"); }
                mine.set(acquire(request, wait, interruptible));
                return true;
            }

            private boolean tryTake(long wait, boolean interruptible) {
                try { return take(wait, interruptible); } catch (NotAcquired e) { return false; }
            }

            @Override public void lock() { take(request.wait, false); }

            @Override public void lockInterruptibly() throws InterruptedException { interruptible(() -> take(request.wait, true)); }

            @Override public boolean tryLock() { return tryTake(0, false); }

            @Override public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
                return interruptible(() -> tryTake(Math.max(0, unit.toMillis(time)), true));
            }

            @Override public void unlock() {
                Lease lease = mine.get();
                if (lease == null) { throw new IllegalMonitorStateException("this thread has not locked " + request.name()); }
                mine.remove();
                lease.close();
            }

            @Override public Condition newCondition() { throw new UnsupportedOperationException("a lock of Lockkeeper has no conditions"); }
        };
    }

    static <T> T interruptible(Supplier<T> call) throws InterruptedException {
        try { return call.get(); } catch (Interrupted e) { throw new InterruptedException(); }
    }

    /** Asks for the lease, and waits for it; null: without a bound. */
    private Lease acquire(LockRequest request, Long wait, boolean interruptible) {
        if (interruptible && Thread.interrupted()) { throw new Interrupted(); }
        boolean async = wait == null || wait > 0;
        long until = wait == null ? Long.MAX_VALUE : Gateways.now() + (async ? wait : TRY);
        for (Problem taken = null;;) {
            try {
                Lease lease = attempt(request, async, until, interruptible);
                if (lease != null) { return lease; }
            } catch (Problem e) {
                boolean now = List.of("held_by_other", "lock_delayed", "wait_elapsed").contains(e.code);
                if (!now && (taken == null || !e.temporary())) { throw e; } // else the wait ended before one more answer
                taken = now ? e : taken;
            }
            // The lock cannot be waited for in its queue now (held_by_other of a ticket), or what was taken was lost.
            long pause = Gateways.jitter(Math.max(Gateways.LEAST_PAUSE, taken == null ? 0 : taken.retryAfter));
            if (async || taken == null) { Gateways.sleep(Math.min(pause, until - Gateways.now()), interruptible); }
            if (!async && taken != null || Gateways.now() >= until) { throw notAcquired(request, taken); }
        }
    }

    /**
     * Takes the locks, or one place in their queue and waits there; null: what was taken is lost. All its requests have
     * one idempotency key.
     */
    private Lease attempt(LockRequest request, boolean async, long until, boolean interruptible) {
        String several = request.locks.size() > 1 ? "/v1/leases" : path(request) + "/leases";
        Request asking = gateways.new Request("POST", several, null, Gateways.TIMEOUT);
        asking.body = request.body(async);
        asking.once = request.once();
        asking.key = String.format("%016x%016x", RANDOM.nextLong(), RANDOM.nextLong());
        String token = "";
        try {
            Json grant = asking.repeated(until, interruptible);
            if (grant.done()) { throw new Done(request.name(), grant); }
            token = grant.text("token");
            long position = 0, since = grant.has("waited_ms") ? grant.sent + grant.number("waited_ms") * 1_000_000 : 0;
            for (; grant.text("state").equals("waiting"); since = 0) {
                if (grant.number("position") != position) {
                    position = grant.number("position");
                    request.onQueued.accept((int) position);
                }
                String look = "/v1/leases/self?wait=" + POLL + "ms&since=" + escape(grant.text("rev"));
                grant = gateways.new Request("GET", look, token, POLL + Gateways.TIMEOUT).repeated(until, interruptible);
            }
            if (!grant.text("state").equals("held")) { return null; }
            if (since == 0) { // the TTL began before this answer was asked for: a heartbeat begins it anew
                Request beat = gateways.new Request("POST", "/v1/leases/self/heartbeat", token, Gateways.TIMEOUT);
                since = beat.repeated(Gateways.now() + grant.number("ttl_ms"), interruptible).sent;
            }
            grant.members.put("token", token);
            Lease lease = new Lease(gateways, request, grant, since);
            token = ""; // the lease's to release
            return lease;
        } catch (Problem | Interrupted e) {
            Problem problem = e instanceof Problem ? (Problem) e : null;
            boolean temporary = problem == null || problem.temporary(), had = !token.isEmpty();
            boolean over = temporary ? had && async && Gateways.now() >= until : problem.status == 410 || had && problem.ended();
            if (problem != null && over) { return null; }
            // A repeat with the idempotency key tells the token of what a request without an answer may have taken.
            token = token.isEmpty() && temporary ? quietly(asking).text("token") : token;
            throw e;
        } finally {
            if (!token.isEmpty()) { quietly(gateways.new Request("DELETE", request.back(false), token, LEAVE)); }
        }
    }

    /** Tells who holds the lock: from the refusal, or else by a look at the lock. */
    private NotAcquired notAcquired(LockRequest request, Problem taken) {
        Json seen = taken == null ? new Json() : taken.body;
        if (seen.objects("holders").findAny().isEmpty() && request.locks.size() == 1) {
            String ns = String.valueOf(request.locks.get(0).getOrDefault("ns", "default"));
            seen = quietly(gateways.new Request("GET", path(request) + "?ns=" + escape(ns), null, LEAVE));
        }
        return new NotAcquired(request.name(), seen, taken == null ? 0 : taken.retryAfter);
    }

    /** Asks for what is not worth an error, for a short time: an answer is empty if there is none. */
    private static Json quietly(Request r) {
        try { return r.repeated(Gateways.now() + LEAVE, false); } catch (Problem e) { return new Json(); }
    }

    private static String path(LockRequest request) { return "/v1/locks/" + escape(request.name()); }

    private static String escape(String text) { return URLEncoder.encode(text, UTF_8).replace("+", "%20"); }
}
