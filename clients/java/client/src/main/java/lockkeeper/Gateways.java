package lockkeeper;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/** Sends requests to the gateways of one fleet: to the last one that answered, and to the next one after a failure. */
final class Gateways {
    /** For a request that is answered at once. */
    static final long TIMEOUT = 10_000;
    /** Repeats wait for the least time, twice as long after each failure up to the most, and as long as Retry-After says. */
    static final long LEAST_PAUSE = 50, MOST_PAUSE = 1000;

    final Clock clock = new Clock();
    private final List<String> bases;
    private final HttpClient http;
    private final Supplier<String> token;
    private final AtomicInteger next = new AtomicInteger();

    Gateways(List<String> bases, HttpClient http, Supplier<String> token) {
        this.bases = bases;
        this.http = http;
        this.token = token;
    }

    /** One request, which may be sent more than once. */
    static final class Request {
        final String method, path, lease;
        long timeout = TIMEOUT;
        Object body;
        String key, needs; // the member that a gateway's answer has; null: the answer has no body

        /** A request with the lease token needs no other credential: the API token that took the lease may have expired since. */
        Request(String method, String path, String lease, String needs) {
            this.method = method;
            this.path = path;
            this.lease = lease;
            this.needs = needs;
        }

        Request timeout(long millis) {
            timeout = millis;
            return this;
        }
    }

    /** The answer of a gateway, and when its request was sent, by the clock. */
    static final class Answer {
        final Map<String, Object> body;
        final long sent;

        private Answer(Map<String, Object> body, long sent) {
            this.body = body;
            this.sent = sent;
        }
    }

    /** No gateway answered. */
    static final class NoAnswer extends UncheckedIOException {
        NoAnswer(Throwable e) {
            super("no gateway answered: " + e, e instanceof IOException ? (IOException) e : new IOException(e));
        }
    }

    /** Sends the request to one gateway. The future fails with a Problem, or another exception when no answer came; its cancellation ends the request. */
    CompletableFuture<Answer> start(Request r) {
        int at = next.get();
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(bases.get(at % bases.size()) + r.path)).timeout(Duration.ofMillis(r.timeout))
                .method(r.method, r.body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(Json.write(r.body)))
                .header("User-Agent", "lockkeeper-java");
        Map<String, String> headers = new LinkedHashMap<>();
        headers.put("Content-Type", r.body == null ? null : "application/json");
        headers.put("Idempotency-Key", r.key);
        headers.put("Lease-Token", r.lease);
        String api = r.lease == null ? token.get() : "";
        headers.put("Authorization", api.isEmpty() ? null : "Bearer " + api);
        headers.forEach((name, value) -> {
            if (value != null) {
                request.header(name, value);
            }
        });
        Body body = new Body();
        long sent = clock.now();
        CompletableFuture<HttpResponse<String>> exchange = http.sendAsync(request.build(), info -> body);
        CompletableFuture<Answer> answer = new CompletableFuture<Answer>().orTimeout(r.timeout, TimeUnit.MILLISECONDS);
        exchange.thenAccept(response -> answer.complete(read(r, response, sent))).exceptionally(e -> {
            answer.completeExceptionally(e);
            return null;
        });
        answer.whenComplete((a, e) -> {
            RuntimeException failure = e == null ? null : Limit.failure(e);
            if (e != null && !answer.isCancelled() && !(failure instanceof Problem && !((Problem) failure).temporary())) {
                next.compareAndSet(at, (at + 1) % bases.size());
            }
            exchange.cancel(true);
            body.cancel();
        });
        return answer;
    }

    private static Answer read(Request r, HttpResponse<String> response, long sent) {
        Map<String, Object> body = Map.of();
        int status = response.statusCode();
        boolean expected = false;
        try {
            body = status == 204 ? body : Json.object(response.body());
            expected = status >= 400 ? body.containsKey("code") : r.needs == null ? status == 204 : status < 300 && body.containsKey(r.needs);
        } catch (IOException e) { // not a gateway's
        }
        if (!expected) {
            body = Map.of("code", Problem.UNEXPECTED, "title", "the answer is not a Lockkeeper gateway's");
        } else if (status < 300) {
            return new Answer(body, sent);
        }
        String after = response.headers().firstValue("Retry-After").orElse("");
        throw new Problem(status, body, Duration.ofSeconds(after.matches("[0-9]{1,5}") ? Long.parseLong(after) : 0));
    }

    /** Sends the request until a gateway answers it with success, or with a refusal that a repeat does not change, or until the limit is over. */
    Answer repeated(Request r, Limit limit) {
        long timeout = r.timeout;
        for (long pause = LEAST_PAUSE;; pause = Math.min(2 * pause, MOST_PAUSE)) {
            try {
                return limit.await(start(r.timeout(Math.max(1, Math.min(timeout, limit.left())))));
            } catch (NoAnswer | Problem e) {
                Problem problem = e instanceof Problem ? (Problem) e : null;
                if (problem != null && !problem.temporary() || limit.left() == 0) {
                    throw e;
                }
                limit.sleep(jitter(Math.max(pause, problem == null ? 0 : problem.retryAfter.toMillis())));
                if (limit.left() == 0) {
                    throw e;
                }
            }
        }
    }

    /** Spreads the repeats of many clients. */
    static long jitter(long millis) {
        return millis + ThreadLocalRandom.current().nextLong(millis / 4 + 1);
    }

    /** The text of an answer, which is bounded: a lease of 64 locks takes some 20 KiB. */
    private static final class Body implements HttpResponse.BodySubscriber<String> {
        private static final int MOST = 1 << 20;
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final CompletableFuture<String> text = new CompletableFuture<>();
        private volatile Flow.Subscription subscription;

        @Override
        public void onSubscribe(Flow.Subscription s) {
            subscription = s;
            s.request(Long.MAX_VALUE);
            if (text.isDone()) {
                s.cancel();
            }
        }

        @Override
        public void onNext(List<ByteBuffer> buffers) {
            for (ByteBuffer b : buffers) {
                byte[] some = new byte[Math.min(b.remaining(), MOST + 1 - bytes.size())];
                b.get(some);
                bytes.writeBytes(some);
            }
            if (bytes.size() > MOST) {
                onError(new IOException("the answer is longer than " + MOST + " bytes"));
                cancel();
            }
        }

        @Override
        public void onError(Throwable e) {
            text.completeExceptionally(e);
        }

        @Override
        public void onComplete() {
            text.complete(bytes.toString(UTF_8));
        }

        @Override
        public CompletionStage<String> getBody() {
            return text;
        }

        /** Ends an answer that is not read to its end. */
        void cancel() {
            if (text.completeExceptionally(new IOException("cancelled")) || text.isCompletedExceptionally()) {
                Flow.Subscription s = subscription;
                if (s != null) {
                    s.cancel();
                }
            }
        }
    }
}
