package lockkeeper;

import com.sun.net.httpserver.*;
import java.io.*;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;

/** Answers as a gateway that has one lock. Tests say how, and when the lease ends. */
final class FakeGateway implements AutoCloseable {
    final HttpServer server;
    final List<String> requests = new CopyOnWriteArrayList<>(); // such as "DELETE /v1/leases/self"
    final Set<Integer> connections = ConcurrentHashMap.newKeySet();
    final CountDownLatch left = new CountDownLatch(1); // a client has closed a connection before its answer was over
    volatile long ttl = 3000;
    volatile String id = "lk1";
    volatile boolean queued, taken, bodyWithoutEnd;
    private volatile CountDownLatch ended = new CountDownLatch(1);
    private final ExecutorService threads = Executors.newCachedThreadPool();

    FakeGateway() throws IOException {
        this(0);
    }

    FakeGateway(int port) throws IOException {
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 100);
        server.setExecutor(threads);
        server.createContext("/", this::answer);
        server.start();
    }

    String url() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    LockClient client() {
        return new LockClient(url(), () -> "secret", null);
    }

    /** Ends the lease that is held, as an administrator does. */
    void breakLease() {
        ended.countDown();
    }

    long count(String request) {
        return requests.stream().filter(r -> r.startsWith(request)).count();
    }

    private void answer(HttpExchange x) throws IOException {
        connections.add(x.getRemoteAddress().getPort());
        String body = new String(x.getRequestBody().readAllBytes(), StandardCharsets.UTF_8), path = x.getRequestURI().toString();
        requests.add(x.getRequestMethod() + " " + path + " " + body);
        try {
            if (x.getRequestMethod().equals("DELETE")) {
                ended.countDown();
                say(x, 204, "");
            } else if (path.endsWith("/leases") && taken) {
                say(x, 409, "{\"code\":\"held_by_other\",\"holders\":[{\"owner\":\"other\",\"lease_id\":\"lk2\",\"fencing_token\":9}],\"queue_length\":4}");
            } else if (path.endsWith("/leases") && bodyWithoutEnd) {
                x.sendResponseHeaders(201, 0);
                x.getResponseBody().write("{\"state\":\"held\"".getBytes());
                for (int i = 0; i < 300; i++) {
                    x.getResponseBody().write(' ');
                    x.getResponseBody().flush();
                    Thread.sleep(100);
                }
            } else if (path.endsWith("/leases")) {
                ended = new CountDownLatch(1);
                say(x, 201, lease(queued ? "waiting" : "held"));
            } else if (path.contains("/leases/self")) {
                CountDownLatch end = ended;
                String wait = path.replaceAll(".*wait=(\\d+)ms.*", "$1");
                boolean over = end.await(wait.equals(path) ? 0 : Long.parseLong(wait), TimeUnit.MILLISECONDS);
                say(x, over ? 410 : 200, over ? "{\"code\":\"lease_ended\",\"reason\":\"revoked\",\"by\":\"alice\",\"detail\":\"why\"}" : lease("held"));
            } else {
                say(x, 200, "{\"queue_length\":4,\"holders\":[]}");
            }
        } catch (IOException e) {
            left.countDown();
        } catch (InterruptedException e) { // the server is closed
        } finally {
            x.close();
        }
    }

    private String lease(String state) {
        return "{\"lease_id\":\"" + id + "\",\"token\":\"secret\",\"state\":\"" + state + "\",\"position\":1,\"rev\":\"1\",\"fencing_token\":7,\"waited_ms\":0,"
                + "\"ttl_ms\":" + ttl + "}";
    }

    private static void say(HttpExchange x, int status, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        x.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
        x.getResponseBody().write(bytes);
    }

    @Override public void close() {
        ended.countDown();
        server.stop(0);
        threads.shutdownNow();
    }
}
