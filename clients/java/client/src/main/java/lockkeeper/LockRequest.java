package lockkeeper;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.IntConsumer;
import java.util.stream.Collectors;

/**
 * Which locks are taken, and how. {@code LockRequest.of("a").shared().and("b").ttl(Duration.ofSeconds(15))} takes both locks at once, or none;
 * two clients that name the same locks in different orders cannot block each other. A request may be used again; it is not to be changed while it is.
 */
public final class LockRequest {
    final List<Map<String, Object>> locks = new ArrayList<>();
    final Map<String, Object> fields = new LinkedHashMap<>();
    Long margin, wait;
    boolean keepAlive = true, interrupts = true;
    Consumer<String> onRevoke;
    IntConsumer onQueued;

    private LockRequest() {}

    /**
     * Asks for one lock: exclusive, in the default namespace, with a TTL of 30 s, and without a bound for the wait.
     *
     * @param lock its name
     * @return a new request
     */
    public static LockRequest of(String lock) {
        return new LockRequest().and(lock);
    }

    /**
     * Asks for one more lock.
     *
     * @param lock its name
     * @return this request
     */
    public LockRequest and(String lock) {
        if (lock.isEmpty() || lock.equals(".") || lock.equals("..")) {
            throw new IllegalArgumentException("\"" + lock + "\" is no name of a lock");
        }
        locks.add(new LinkedHashMap<>(Map.of("lock", lock)));
        return this;
    }

    private LockRequest last(String field, Object value) {
        locks.get(locks.size() - 1).put(field, value);
        return this;
    }

    private LockRequest put(String field, Object value) {
        fields.put(field, value);
        return this;
    }

    static String millis(Duration d) {
        return d.toMillis() + "ms";
    }

    /**
     * Takes the lock named last in a namespace.
     *
     * @param namespace its name
     * @return this request
     */
    public LockRequest namespace(String namespace) {
        return last("ns", namespace);
    }

    /**
     * Takes the lock named last together with other readers.
     *
     * @return this request
     */
    public LockRequest shared() {
        return last("mode", "shared");
    }

    /**
     * Takes permits of the lock named last, a semaphore.
     *
     * @param permits how many
     * @param limit how many the lock has; 0: the number in force
     * @return this request
     */
    public LockRequest permits(int permits, int limit) {
        return last("permits", permits).last("limit", limit > 0 ? limit : null).last("mode", "semaphore");
    }

    /**
     * Sets the time to live of the lease: for so long others wait when this process dies. Below 15 s the crash of a gateway can cost the lease.
     *
     * @param ttl 1 s to 24 h
     * @return this request
     */
    public LockRequest ttl(Duration ttl) {
        return put("ttl", millis(ttl));
    }

    /**
     * Bounds the wait in the queue.
     *
     * @param most how long; zero: the lock is taken if it is free
     * @return this request
     */
    public LockRequest waitAtMost(Duration most) {
        wait = Math.max(0, most.toMillis());
        return this;
    }

    /**
     * Sets the label for people who look at the lock. Without it the gateway takes the caller's name or address.
     *
     * @param owner the label
     * @return this request
     */
    public LockRequest owner(String owner) {
        return put("owner", owner);
    }

    /**
     * Sets a text that every client can read at the lock, such as the address of a leader.
     *
     * @param metadata the text
     * @return this request
     */
    public LockRequest metadata(String metadata) {
        return put("metadata", metadata);
    }

    /**
     * Keeps the lock free for some time after the lease has expired, so that a holder that has not noticed can finish.
     *
     * @param delay how long
     * @return this request
     */
    public LockRequest lockDelay(Duration delay) {
        return put("lock_delay", millis(delay));
    }

    /**
     * Sets how long before the end of the lease's time the work is stopped: the longest time that it takes to stop. Without it 1 s, or a fifth of
     * a TTL below 5 s.
     *
     * @param margin less than half of the TTL
     * @return this request
     */
    public LockRequest margin(Duration margin) {
        this.margin = margin.toMillis();
        return this;
    }

    /**
     * Says whether the thread that acquires the lease is interrupted when the lease is lost before it is closed. It is unless this is set to false:
     * for a lease that another thread works under, and closes.
     *
     * @param interrupts whether it is
     * @return this request
     */
    public LockRequest interrupts(boolean interrupts) {
        this.interrupts = interrupts;
        return this;
    }

    /**
     * Says whether heartbeats keep the lease. They do unless this is set to false: the lease then ends with its TTL, however long the work takes,
     * unless {@link Lease#renew} begins it anew.
     *
     * @param keepAlive whether they do
     * @return this request
     */
    public LockRequest keepAlive(boolean keepAlive) {
        this.keepAlive = keepAlive;
        return this;
    }

    /**
     * Sets what is called once, in a thread of its own, when the holder is asked to release the lease. The work may go on until the lease is lost.
     *
     * @param callback gets the reason
     * @return this request
     */
    public LockRequest onRevoke(Consumer<String> callback) {
        onRevoke = callback;
        return this;
    }

    /**
     * Sets what is called while the thread waits: when it enters the queue, and when its place changes. It must not block.
     *
     * @param callback gets the place among the waiters
     * @return this request
     */
    public LockRequest onQueued(IntConsumer callback) {
        onQueued = callback;
        return this;
    }

    String name() {
        return locks.stream().map(lock -> (String) lock.get("lock")).collect(Collectors.joining(","));
    }

    /** The body of the acquire: of one lock, whose name is in the path, or of several. */
    Map<String, Object> body(boolean async) {
        Map<String, Object> body = new LinkedHashMap<>(fields);
        body.put("async", async);
        if (locks.size() > 1) {
            body.put("locks", locks);
        } else {
            body.putAll(locks.get(0));
            body.remove("lock");
        }
        return body;
    }
}
