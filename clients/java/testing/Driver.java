package lockkeeper;

import static java.util.stream.Collectors.toList;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Takes locks as the commands on stdin say, one JSON object a line, and tells what happens on stdout: the driver of internal/test/clientsuite. */
final class Driver {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private static final Map<Long, Driver> RUNNING = new ConcurrentHashMap<>();
    private static LockClient shared;

    private final long id;
    private final Json command;
    private final Thread thread;
    private volatile boolean finish, fail, cancelled;
    private Done already; // what the client says of work that is done

    private Driver(Json command) {
        this.command = command;
        id = command.number("id");
        thread = new Thread(this::run, "driver-" + id);
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // stdout is for events alone
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Json command = Json.read(line);
            if (command.text("do").equals("lock")) {
                Driver driver = new Driver(command);
                RUNNING.put(driver.id, driver);
                driver.thread.start();
                continue;
            }
            Driver driver = RUNNING.get(command.number("id"));
            if (driver != null) {
                driver.told(command.text("do"));
            }
        }
        for (Driver driver : RUNNING.values()) {
            driver.told("cancel");
            driver.thread.join();
        }
    }

    private synchronized void told(String what) {
        finish |= what.equals("finish");
        fail |= what.equals("fail");
        if (what.equals("cancel") && !cancelled) {
            cancelled = true;
            thread.interrupt();
        }
    }

    private static synchronized LockClient client(Json command) {
        if (command.members.containsKey("url") || command.members.containsKey("token") || command.members.containsKey("token_file")) {
            Map<String, String> env = new LinkedHashMap<>();
            env.put("LOCKKEEPER_URL", command.text("url"));
            env.put("LOCKKEEPER_TOKEN", command.text("token"));
            env.put("LOCKKEEPER_TOKEN_FILE", command.text("token_file"));
            return LockClient.fromEnv(env);
        }
        return shared = shared == null ? LockClient.fromEnv() : shared;
    }

    private LockRequest request() {
        LockRequest request = null;
        for (Json lock : command.objects("locks").collect(toList())) {
            String name = lock.text("lock"), mode = lock.text("mode"), ns = lock.text("ns");
            request = request == null ? LockRequest.of(name) : request.and(name);
            if (!ns.isEmpty()) {
                request.namespace(ns);
            }
            if (mode.equals("shared")) {
                request.shared();
            } else if (mode.equals("semaphore")) {
                request.permits((int) lock.number("permits"), (int) lock.number("limit"));
            }
        }
        given("ttl_ms", request::ttl);
        given("wait_ms", request::waitAtMost);
        given("margin_ms", request::margin);
        given("lock_delay_ms", request::lockDelay);
        if (command.members.get("owner") != null) {
            request.owner(command.text("owner"));
        }
        if (command.members.get("metadata") != null) {
            request.metadata(command.text("metadata"));
        }
        if (command.members.get("reason") != null) {
            request.reason(command.text("reason"));
        }
        given("at_least_ms", request::atLeast);
        given("once_per_ms", request::oncePer);
        if (command.members.get("period") != null) {
            request.period(command.text("period"));
        }
        if (command.members.get("done_on") != null) {
            request.doneOnRelease();
        }
        request.onDone(done -> already = done);
        return request.onQueued(position -> tell("queued", "position", position)).onRevoke(reason -> tell("revoke", "reason", reason));
    }

    private void given(String field, java.util.function.Function<Duration, LockRequest> set) {
        if (command.members.get(field) != null) {
            set.apply(Duration.ofMillis(command.number(field)));
        }
    }

    private void run() {
        try {
            client(command).withLock(request(), this::work);
            if (cancelled) {
                failed("Cancelled");
            } else if (already != null) {
                tell("done", "already", true, "period", already.period, "by", already.by, "done_at", already.at.toString());
            } else {
                tell("done");
            }
        } catch (InterruptedException e) {
            failed(cancelled ? "Cancelled" : "Other", "detail", String.valueOf(e));
        } catch (LeaseLost e) {
            failed("LeaseLost", "lease_id", e.leaseId, "reason", e.reason, "by", e.by, "detail", e.detail);
        } catch (NotAcquired e) {
            Object holders = e.holders.stream().map(h -> Map.of("owner", h.owner, "lease_id", h.leaseId, "fencing_token", h.fencingToken)).collect(toList());
            failed("NotAcquired", "lock", e.lock, "holders", holders, "queue_length", e.queueLength);
        } catch (Problem e) {
            failed(e.status == 0 ? "Other" : "Problem", "status", e.status, "code", e.code, "field", e.field, "detail", e.detail);
        } catch (IllegalArgumentException e) {
            failed("Invalid", "detail", e.getMessage());
        } catch (IOException e) {
            failed(cancelled ? "Cancelled" : "Work", "detail", e.getMessage());
        } catch (RuntimeException e) {
            failed("Other", "detail", String.valueOf(e));
        } finally {
            RUNNING.remove(id);
        }
    }

    private void work(Lease lease) throws IOException {
        Json work = (Json) command.members.get("work");
        String log = work.text("log");
        long step = work.members.get("step_ms") == null ? 10 : work.number("step_ms");
        long until = work.members.get("for_ms") == null ? Long.MAX_VALUE : System.nanoTime() + work.number("for_ms") * 1_000_000;
        tell("started", "fence", lease.fence(), "lease_id", lease.id(), "t", System.nanoTime());
        try (FileOutputStream file = log.isEmpty() ? null : new FileOutputStream(log, true)) {
            write(file, lease, "start");
            while (!finish && !fail && System.nanoTime() < until) {
                try {
                    Thread.sleep(step);
                } catch (InterruptedException e) {
                    break;
                }
                if (cancelled || !lease.held()) {
                    break;
                }
                write(file, lease, "step");
            }
            write(file, lease, "end");
        } finally {
            tell("stopped", "t", System.nanoTime());
        }
        if (fail || cancelled) {
            throw new IOException("boom");
        }
    }

    /** One write to a file that is open for appending. System.nanoTime is CLOCK_MONOTONIC on Linux. */
    private void write(FileOutputStream file, Lease lease, String what) throws IOException {
        if (file != null) {
            file.write((System.nanoTime() + " " + ProcessHandle.current().pid() + " " + id + " " + lease.fence() + " " + what + "\n").getBytes());
        }
    }

    private void failed(String error, Object... more) {
        Object[] all = new Object[more.length + 2];
        all[0] = "error";
        all[1] = error;
        System.arraycopy(more, 0, all, 2, more.length);
        tell("failed", all);
    }

    private void tell(String event, Object... more) {
        Map<String, Object> said = new LinkedHashMap<>(Map.of("id", id));
        said.put("event", event);
        for (int i = 0; i < more.length; i += 2) {
            said.put((String) more[i], more[i + 1]);
        }
        synchronized (OUT) {
            OUT.println(Json.write(said));
        }
    }
}
