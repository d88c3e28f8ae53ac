package lockkeeper;

import static lockkeeper.Json.number;
import static lockkeeper.Json.text;

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;
import lockkeeper.Gateways.Answer;
import lockkeeper.Gateways.Request;

/** Takes locks from the gateways of one fleet. It is safe for use by many threads, and owns nothing but the connections of its HttpClient. */
public final class LockClient {
    private static final long POLL = 25_000; // for which the gateway holds a look at a waiting lease
    private static final long LEAVE = 2_000; // for giving up a place in the queue
    private static final long TRY = 30_000; // for finding a gateway that can answer an acquire that does not wait
    private static final SecureRandom RANDOM = new SecureRandom();

    private final Gateways gateways;

    private LockClient(Gateways gateways) {
        this.gateways = gateways;
    }

    /**
     * Makes a client of LOCKKEEPER_URL (several URLs with commas between them; http://127.0.0.1:8080 when it is not set), and of LOCKKEEPER_TOKEN or
     * LOCKKEEPER_TOKEN_FILE.
     *
     * @return a client
     */
    public static LockClient fromEnv() {
        return fromEnv(System.getenv());
    }

    static LockClient fromEnv(Map<String, String> env) {
        String urls = env.getOrDefault("LOCKKEEPER_URL", "");
        return builder().urls((urls.isEmpty() ? "http://127.0.0.1:8080" : urls).split(",")).token(env.get("LOCKKEEPER_TOKEN"))
                .tokenFile(env.get("LOCKKEEPER_TOKEN_FILE")).build();
    }

    /** @return what makes a client */
    public static Builder builder() {
        return new Builder();
    }

    /** Says which gateways a client asks, and how. */
    public static final class Builder {
        private final List<String> bases = new ArrayList<>();
        private String token = "", tokenFile = "";
        private SSLContext ssl;

        private Builder() {}

        /**
         * Adds gateways of one fleet. The client asks the next one when one does not answer.
         *
         * @param urls such as https://locks.example.com
         * @return this builder
         */
        public Builder urls(String... urls) {
            for (String text : urls) {
                URI url = URI.create(text.trim());
                if ("unix".equals(url.getScheme())) {
                    throw new IllegalArgumentException("Java's HttpClient cannot use a Unix socket (" + url + "): give the http:// or https:// URL of a gateway");
                } else if (!"http".equals(url.getScheme()) && !"https".equals(url.getScheme()) || url.getHost() == null) {
                    throw new IllegalArgumentException("\"" + text + "\" is no URL of a gateway, such as http://127.0.0.1:8080");
                } else if (url.getRawUserInfo() != null || url.getRawQuery() != null || url.getRawFragment() != null) {
                    throw new IllegalArgumentException("the URL of a gateway must have no user, query or fragment; the token goes into LOCKKEEPER_TOKEN");
                }
                bases.add(url.toString().replaceAll("/+$", ""));
            }
            return this;
        }

        /**
         * Sets the API token, which is sent with each acquire.
         *
         * @param token the token; null or empty: none
         * @return this builder
         */
        public Builder token(String token) {
            this.token = token == null ? "" : token;
            return this;
        }

        /**
         * Sets a file that holds the API token. It is read for each acquire, so that the token in it can change.
         *
         * @param path of the file; null or empty: none
         * @return this builder
         */
        public Builder tokenFile(String path) {
            tokenFile = path == null ? "" : path;
            return this;
        }

        /**
         * Sets which certificates are trusted and shown. Without it they are the platform's.
         *
         * @param context for https
         * @return this builder
         */
        public Builder sslContext(SSLContext context) {
            ssl = context;
            return this;
        }

        /**
         * Makes the client. It sends no request.
         *
         * @return a client
         */
        public LockClient build() {
            if (bases.isEmpty()) {
                throw new IllegalArgumentException("no URL of a gateway is given, such as http://127.0.0.1:8080");
            } else if (!token.isEmpty() && !tokenFile.isEmpty()) {
                throw new IllegalArgumentException("both a token and a token file are given (LOCKKEEPER_TOKEN, LOCKKEEPER_TOKEN_FILE): leave one out");
            }
            // It follows no redirects, which would carry the tokens to another address.
            HttpClient.Builder http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofMillis(Gateways.TIMEOUT));
            String text = token.trim(), file = tokenFile;
            return new LockClient(new Gateways(List.copyOf(bases), (ssl == null ? http : http.sslContext(ssl)).build(), () -> {
                try {
                    return file.isEmpty() ? text : Files.readString(Path.of(file)).trim();
                } catch (IOException e) {
                    throw new IllegalArgumentException("the file with the token cannot be read: " + e, e);
                }
            }));
        }
    }

    /**
     * Work that a lock protects.
     *
     * @param <X> what it throws
     */
    @FunctionalInterface
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
     * Work that a lock protects, with a result.
     *
     * @param <T> the result
     * @param <X> what it throws
     */
    @FunctionalInterface
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
     * Acquires the locks, runs the work in this thread, and releases the locks on every path. The thread is interrupted when the lease is lost,
     * before another client can hold the lock.
     *
     * @param <X> what the work throws
     * @param request which locks, and how
     * @param work what they protect
     * @throws X what the work threw
     * @throws InterruptedException if the thread was interrupted while it waited
     * @throws LeaseLost if the lease was lost before the work returned, also when the work did not notice
     * @throws NotAcquired if others hold the lock, and the time for waiting is over
     * @throws Problem if the gateway refuses the request
     */
    public <X extends Exception> void withLock(LockRequest request, Work<X> work) throws X, InterruptedException {
        this.<Void, X>callWithLock(request, lease -> {
            work.run(lease);
            return null;
        });
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
        Lease lease = acquire(request);
        T result;
        try {
            result = work.call(lease);
        } catch (Throwable e) {
            try {
                lease.close();
            } catch (LeaseLost lost) {
                if (e instanceof Error) {
                    e.addSuppressed(lost);
                } else {
                    lost.initCause(e);
                    throw lost;
                }
            }
            throw e;
        }
        lease.close();
        return result;
    }

    /**
     * Runs the work while this client is the leader: the holder of the lock. Waiters are the candidates; the fencing token is the number of the term.
     * A leader whose lease is lost is a candidate again when the work has returned. Returns when the work returns while it leads.
     *
     * @param <X> what the work throws
     * @param request which lock, and how
     * @param lead the work of a leader
     * @throws X what the work threw
     * @throws InterruptedException if the thread was interrupted while it waited
     */
    public <X extends Exception> void elect(LockRequest request, Work<X> lead) throws X, InterruptedException {
        while (true) {
            try {
                withLock(request, lead);
                return;
            } catch (LeaseLost e) { // a candidate again
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
        try {
            return acquire(request, request.wait, true, null);
        } catch (Limit.Interrupted e) {
            throw new InterruptedException();
        }
    }

    /**
     * Acquires one exclusive lock if it is free.
     *
     * @param lock its name
     * @return the lease, which is to be closed
     * @throws InterruptedException if the thread was interrupted
     * @throws NotAcquired if others hold the lock
     */
    public Lease tryAcquire(String lock) throws InterruptedException {
        return acquire(LockRequest.of(lock).waitAtMost(Duration.ZERO));
    }

    /**
     * Gives the locks as a {@link Lock}, for code that takes one. It is not reentrant, and has no conditions. The thread that has locked it is
     * interrupted when the lease is lost, and its unlock throws LeaseLost.
     *
     * @param request which locks, and how
     * @param onLost is called, in a thread of its own, when a lease is lost: it must see to it that the work stops
     * @return the lock
     */
    public Lock asLock(LockRequest request, Consumer<LeaseLost> onLost) {
        return new LeaseLock(this, request, onLost);
    }

    /** Asks for the lease, and waits for it. wait is in milliseconds; null: without a bound. */
    Lease acquire(LockRequest request, Long wait, boolean interruptible, Consumer<LeaseLost> onLost) {
        if (interruptible && Thread.interrupted()) {
            throw new Limit.Interrupted();
        }
        Limit limit = wait == null ? Limit.none(interruptible) : Limit.of(wait, interruptible);
        boolean async = wait == null || wait > 0;
        while (true) {
            Problem problem = null;
            try {
                Lease lease = attempt(request, async, async ? limit : Limit.of(TRY, interruptible), onLost);
                if (lease != null) {
                    return lease;
                }
            } catch (Problem | Gateways.NoAnswer e) {
                problem = e instanceof Problem ? (Problem) e : null;
                boolean taken = problem != null && problem.taken();
                if (!taken && (!async || limit.left() > 0)) {
                    throw e;
                }
            }
            // The lock cannot be waited for in its queue now (held_by_other of a ticket), or the place was lost.
            if (!async || limit.left() == 0) {
                throw notAcquired(request, problem);
            }
            limit.sleep(Gateways.jitter(Math.max(Gateways.LEAST_PAUSE, problem == null ? 0 : problem.retryAfter.toMillis())));
        }
    }

    /** Takes the locks, or one place in their queue and waits there; null when the place was lost. All its requests have one idempotency key. */
    private Lease attempt(LockRequest request, boolean async, Limit limit, Consumer<LeaseLost> onLost) {
        String path = request.locks.size() > 1 ? "/v1/leases" : "/v1/locks/" + escape(request.name()) + "/leases";
        Request asking = new Request("POST", path, null, "token");
        asking.body = request.body(async);
        asking.key = String.format("%016x%016x", RANDOM.nextLong(), RANDOM.nextLong());
        String token = null;
        try {
            Answer answer = gateways.repeated(asking, limit);
            token = text(answer.body, "token");
            Map<String, Object> grant = answer.body;
            long sent = answer.sent;
            if (text(grant, "state").equals("waiting")) {
                grant = awaitGrant(request, grant, token, limit);
            }
            if (!text(grant, "state").equals("held")) {
                return null;
            }
            if (grant != answer.body || !grant.containsKey("waited_ms")) {
                // The TTL began before this answer was asked for: a heartbeat begins it anew.
                Limit claim = limit.or(number(grant, "ttl_ms"));
                sent = gateways.repeated(new Request("POST", "/v1/leases/self/heartbeat", token, "ttl_ms"), claim).sent;
                grant.remove("waited_ms");
            }
            Lease lease = new Lease(gateways, request, grant, token, sent, onLost);
            token = null;
            return lease;
        } catch (Problem e) {
            if (token != null && e.ended()) {
                return null;
            }
            unheard(asking, token, e.temporary());
            throw e;
        } catch (Gateways.NoAnswer | Limit.Interrupted e) {
            unheard(asking, token, true);
            throw e;
        } finally {
            if (token != null) {
                leave(token);
            }
        }
    }

    /** Polls a ticket until it is granted, or gone. */
    private Map<String, Object> awaitGrant(LockRequest request, Map<String, Object> ticket, String token, Limit limit) {
        for (long position = 0; text(ticket, "state").equals("waiting");) {
            if (number(ticket, "position") != position && request.onQueued != null) {
                position = number(ticket, "position");
                request.onQueued.accept((int) position);
            }
            String path = "/v1/leases/self?wait=" + POLL + "ms&since=" + escape(text(ticket, "rev"));
            ticket = gateways.repeated(new Request("GET", path, token, "state").timeout(POLL + Gateways.TIMEOUT), limit).body;
        }
        return ticket;
    }

    /** Gives up what an acquire without an answer may have taken. A repeat with its idempotency key tells the token. */
    private void unheard(Request asking, String token, boolean unheard) {
        if (token == null && unheard) {
            try {
                leave(text(gateways.repeated(asking.timeout(LEAVE), Limit.of(LEAVE, false)).body, "token"));
            } catch (Problem | Gateways.NoAnswer e) { // the place passes on when its time is over
            }
        }
    }

    private void leave(String token) {
        try {
            gateways.repeated(new Request("DELETE", "/v1/leases/self", token, null).timeout(LEAVE), Limit.of(LEAVE, false));
        } catch (Problem | Gateways.NoAnswer e) { // the place passes on when its time is over
        }
    }

    /** Tells who holds the lock: from the refusal, or else by a look at the lock. */
    private NotAcquired notAcquired(LockRequest request, Problem problem) {
        Map<String, Object> seen = problem == null ? Map.of() : problem.body;
        if (Json.objects(seen, "holders").isEmpty() && request.locks.size() == 1) {
            Object ns = request.locks.get(0).get("ns");
            try {
                Limit once = Limit.of(LEAVE, false);
                seen = once.await(gateways.start(new Request("GET", "/v1/locks/" + escape(request.name()) + (ns == null ? "" : "?ns=" + escape((String) ns)),
                        null, "queue_length").timeout(LEAVE))).body;
            } catch (Problem | Gateways.NoAnswer e) { // nobody tells
            }
        }
        return new NotAcquired(request.name(), seen, problem == null ? Duration.ZERO : problem.retryAfter);
    }

    private static String escape(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
