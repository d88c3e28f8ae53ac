package lockkeeper;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.*;

import java.io.*;
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.SSLContext;

/**
 * Sends requests to the gateways of one fleet: to the one that answered last, and to the next one after a failure.
 * Times are milliseconds.
 */
final class Gateways {
    static final long TIMEOUT = 10_000; // for a request that is answered at once
    static final long LEAST_PAUSE = 50, MOST_PAUSE = 1000; // between repeats: twice as long after each failure, or what Retry-After says
    private static final long BEGUN = System.nanoTime();
    private static final int MOST = 1 << 20; // what is read of an answer; a lease of 64 locks takes some 20 KiB

    final Clock clock = new Clock();
    private final List<String> bases;
    private final Callable<String> token;
    private final HttpClient http;
    private final AtomicInteger next = new AtomicInteger();
    /**
     * One thread for each lease, for each request that is being sent, and for each callback; and the HttpClient's.
     * HttpClient.sendAsync would need none, but hands its answers over in the common pool of the process: work that
     * blocks there would cost leases.
     */
    final ExecutorService threads = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 1, SECONDS, new SynchronousQueue<>(), work -> {
        Thread thread = new Thread(null, work, "lockkeeper", 0, false);
        thread.setDaemon(true);
        return thread;
    });

    Gateways(List<String> bases, Callable<String> token, SSLContext ssl) {
        this.bases = bases;
        this.token = token;
        // It follows no redirects, which would carry the tokens to another address.
        HttpClient.Builder builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).followRedirects(HttpClient.Redirect.NEVER)
                .connectTimeout(Duration.ofMillis(TIMEOUT)).executor(threads);
        http = (ssl == null ? builder : builder.sslContext(ssl)).build();
    }

    /** An interrupt has ended a call: the public methods make an InterruptedException of it. */
    static final class Interrupted extends RuntimeException {}

    /** Now, for limits of calls, in milliseconds: a wait may be longer by the time for which the machine sleeps. */
    static long now() { return NANOSECONDS.toMillis(System.nanoTime() - BEGUN); }

    /** Waits for the result. An interrupt ends that, or is set again when it is over. */
    static <T> T get(CompletableFuture<T> future, boolean interruptible) {
        try { return interruptible ? future.get() : future.join(); } catch (InterruptedException e) { throw new Interrupted();
        } catch (ExecutionException | CompletionException e) { throw Problem.of(e.getCause()); }
    }

    static void sleep(long millis, boolean interruptible) {
        get(new CompletableFuture<Void>().completeOnTimeout(null, Math.max(0, millis), MILLISECONDS), interruptible);
    }

    /** One request, which may be sent more than once. */
    final class Request {
        private final String method, path, lease;
        private final long timeout;
        Object body;
        String key;
        boolean once; // the answer may be that the work is done

        Request(String method, String path, String lease, long timeout) {
            this.method = method;
            this.path = path;
            this.lease = lease;
            this.timeout = timeout;
        }

        /**
         * Begins to send it to one gateway. It fails with a Problem, or when no answer comes in time; the next gateway
         * is asked then.
         */
        CompletableFuture<Json> start(long most) {
            int at = next.get();
            long limit = Math.max(1, Math.min(most, timeout));
            CompletableFuture<Json> answer = new CompletableFuture<Json>().orTimeout(limit, MILLISECONDS);
            answer.whenComplete((a, e) -> {
                boolean failed = e instanceof Problem ? ((Problem) e).temporary() : e != null && !answer.isCancelled();
                next.compareAndSet(at, failed ? (at + 1) % bases.size() : at);
            });
            threads.execute(() -> {
                try { answer.complete(send(bases.get(at), limit, answer)); } catch (Exception e) { answer.completeExceptionally(e); }
            });
            return answer;
        }

        private Json send(String base, long limit, CompletableFuture<Json> answer) throws IOException, InterruptedException {
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(base + path)).timeout(Duration.ofMillis(limit))
                    .header("User-Agent", "lockkeeper-java").method(method, BodyPublishers.ofString(body == null ? "" : Json.write(body)));
            // A request with a lease token needs no other credential: the API token that took the lease may have expired since.
            String api;
            try { api = lease == null ? token.call().trim() : ""; } catch (Exception e) {
                throw new IllegalArgumentException("the API token must be readable: " + e, e);
            }
            if (!api.isEmpty()) { request.header("Authorization", "Bearer " + api); }
            if (lease != null) { request.header("Lease-Token", lease); }
            if (key != null) { request.header("Idempotency-Key", key); }
            if (body != null) { request.header("Content-Type", "application/json"); }
            long sent = clock.now();
            HttpResponse<InputStream> response = http.send(request.build(), BodyHandlers.ofInputStream());
            InputStream in = response.body(); // which is closed also when its end does not come
            answer.whenComplete((a, e) -> { try { in.close(); } catch (IOException late) { /* it is over */ } });
            Json json = Json.read(new String(in.readNBytes(MOST), UTF_8));
            int status = response.statusCode();
            json.sent = sent;
            boolean ours = status >= 400 ? json.has("code") : method.equals("DELETE") ? status == 204
                    : status < 300 && (json.has("state") || json.has("queue_length") || once && json.done());
            if (ours && status < 300) { return json; }
            String after = response.headers().firstValue("Retry-After").filter(s -> s.matches("\\d{1,5}")).orElse("0");
            throw new Problem(status, ours ? json.text("code") : Problem.UNEXPECTED, json, SECONDS.toMillis(Long.parseLong(after)), null);
        }

        /**
         * Sends it until a gateway answers with success or a refusal that a repeat does not change, or until the time
         * is over.
         */
        Json repeated(long until, boolean interruptible) {
            for (long pause = LEAST_PAUSE;; pause = Math.min(2 * pause, MOST_PAUSE)) {
                try { return get(start(until - now()), interruptible); } catch (Problem e) {
                    if (e.temporary()) { sleep(Math.min(until - now(), jitter(Math.max(pause, e.retryAfter))), interruptible); }
                    if (!e.temporary() || now() >= until) { throw e; }
                }
            }
        }
    }

    /** Spreads the repeats of many clients. */
    static long jitter(long millis) { return millis + ThreadLocalRandom.current().nextLong(millis / 4 + 1); }
}
