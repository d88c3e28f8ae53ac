package lockkeeper;

import static java.util.stream.Collectors.joining;

import java.time.Duration;
import java.util.*;
import java.util.function.*;

/**
 * Which locks are taken, and how. {@code LockRequest.of("a").shared().and("b").ttl(Duration.ofSeconds(15))} takes both
 * locks at once, or none; two clients that name the same locks in different orders cannot block each other. A request
 * may be used many times; it is not to be changed while it is in use.
 */
public final class LockRequest {
    final List<Map<String, Object>> locks = new ArrayList<>();
    private final Map<String, Object> fields = new LinkedHashMap<>();
    Long wait, margin; // in milliseconds; null: without a bound, as the TTL says
    boolean keepAlive = true, interrupts = true;
    Consumer<String> onRevoke = reason -> {};
    Consumer<LeaseLost> onLost = lost -> {};
    Consumer<Done> onDone = done -> {};
    IntConsumer onQueued = position -> {};

    private LockRequest() {}

    private LockRequest set(Runnable change) {
        change.run();
        return this;
    }

    private LockRequest put(Map<String, Object> to, String field, Object value) { return set(() -> to.put(field, value)); }

    private Map<String, Object> last() { return locks.get(locks.size() - 1); }

    static String millis(Duration d) { return d.toMillis() + "ms"; }

    /**
     * Asks for one lock: exclusive, in the default namespace, with a TTL of 30 s, and without a bound for the wait.
     *
     * @param lock its name
     * @return a new request
     */
    public static LockRequest of(String lock) { return new LockRequest().and(lock); }

    /**
     * Asks for one more lock.
     *
     * @param lock its name
     * @return this request
     */
    public LockRequest and(String lock) { return set(() -> locks.add(new LinkedHashMap<>(Map.of("lock", lock)))); }

    /**
     * Takes the lock that was named last in a namespace.
     *
     * @param namespace its name
     * @return this request
     */
    public LockRequest namespace(String namespace) { return put(last(), "ns", namespace); }

    /**
     * Takes the lock that was named last together with other readers.
     *
     * @return this request
     */
    public LockRequest shared() { return put(last(), "mode", "shared"); }

    /**
     * Takes permits of the lock that was named last, a semaphore.
     *
     * @param permits how many
     * @param limit how many the lock has; 0: as many as it has now
     * @return this request
     */
    public LockRequest permits(int permits, int limit) {
        return set(() -> last().putAll(Map.of("mode", "semaphore", "permits", permits))).put(last(), "limit", limit > 0 ? limit : null);
    }

    /**
     * Sets the time to live of the lease: for so long others wait when this process dies. Below 15 s the crash of a
     * gateway can cost the lease.
     *
     * @param ttl 1 s to 24 h
     * @return this request
     */
    public LockRequest ttl(Duration ttl) { return put(fields, "ttl", millis(ttl)); }

    /**
     * Bounds the wait in the queue.
     *
     * @param most how long; zero: the locks are taken if they are free
     * @return this request
     */
    public LockRequest waitAtMost(Duration most) { return set(() -> wait = Math.max(0, most.toMillis())); }

    /**
     * Sets the label for people who look at the lock. Without it the gateway takes the caller's name or address.
     *
     * @param owner the label
     * @return this request
     */
    public LockRequest owner(String owner) { return put(fields, "owner", owner); }

    /**
     * Says what the locks are taken for, to people who look at them.
     *
     * @param reason the text
     * @return this request
     */
    public LockRequest reason(String reason) { return put(fields, "reason", reason); }

    /**
     * Sets a text that every client can read at the lock, such as the address of a leader.
     *
     * @param metadata the text
     * @return this request
     */
    public LockRequest metadata(String metadata) { return put(fields, "metadata", metadata); }

    /**
     * Keeps the lock free for some time after the lease has expired, so that a holder that has not noticed can finish.
     *
     * @param delay how long
     * @return this request
     */
    public LockRequest lockDelay(Duration delay) { return put(fields, "lock_delay", millis(delay)); }

    /**
     * Keeps the lock from others for some time from the grant, whatever becomes of its holder.
     *
     * @param least how long: up to 7 days
     * @return this request
     */
    public LockRequest atLeast(Duration least) { return put(fields, "at_least", millis(least)); }

    /**
     * Takes the lock once in each period, by all clients together: see {@link Done}. The grant makes the period done,
     * so that work that fails does not run again; with {@link #doneOnRelease} success does.
     *
     * @param length how long a period is
     * @return this request
     */
    public LockRequest oncePer(Duration length) { return put(fields, "once_per", millis(length)); }

    /**
     * Names the period of {@link #oncePer}. Without it the gateway derives it from the time.
     *
     * @param period the name, such as 2026-11-22
     * @return this request
     */
    public LockRequest period(String period) { return put(fields, "period", period); }

    /**
     * Makes the period of {@link #oncePer} done with the release of the lease, not with its grant: another client runs
     * the work again when this one dies, or when the work throws.
     *
     * @return this request
     */
    public LockRequest doneOnRelease() { return put(fields, "done_on", "release"); }

    /**
     * Sets what withLock calls in place of the work when the work of the period is done.
     *
     * @param callback gets by which owner, and when
     * @return this request
     */
    public LockRequest onDone(Consumer<Done> callback) { return set(() -> onDone = callback); }

    /**
     * Sets how long before the end of the lease's time the work is stopped: the longest time that it takes to stop.
     * Without it 1 s, or a fifth of a TTL below 5 s.
     *
     * @param margin less than half of the TTL
     * @return this request
     */
    public LockRequest margin(Duration margin) { return set(() -> this.margin = margin.toMillis()); }

    /**
     * Says whether the thread that acquires the lease is interrupted when the lease is lost before it is closed, as it
     * is without this. Not for a lease that another thread works under, or closes.
     *
     * @param interrupts whether it is
     * @return this request
     */
    public LockRequest interrupts(boolean interrupts) { return set(() -> this.interrupts = interrupts); }

    /**
     * Says whether heartbeats keep the lease, as they do without this. Otherwise it ends with its TTL, however long the
     * work takes, unless {@link Lease#renew} begins the TTL anew.
     *
     * @param keepAlive whether they do
     * @return this request
     */
    public LockRequest keepAlive(boolean keepAlive) { return set(() -> this.keepAlive = keepAlive); }

    /**
     * Sets what is called once, in a thread of its own, when the holder is asked to release the lease. The work may go
     * on until the lease is lost.
     *
     * @param callback gets the reason
     * @return this request
     */
    public LockRequest onRevoke(Consumer<String> callback) { return set(() -> onRevoke = callback); }

    /**
     * Sets what is called, in a thread of its own, when the lease is lost: for work that an interrupt does not stop.
     *
     * @param callback gets the loss
     * @return this request
     */
    public LockRequest onLost(Consumer<LeaseLost> callback) { return set(() -> onLost = callback); }

    /**
     * Sets what is called while the thread waits: when it enters the queue, and when its place changes. It must not
     * block.
     *
     * @param callback gets the place among the waiters
     * @return this request
     */
    public LockRequest onQueued(IntConsumer callback) { return set(() -> onQueued = callback); }

    String name() { return locks.stream().map(lock -> lock.get("lock").toString()).collect(joining(",")); }

    /** The path that gives the locks back. */
    String back(boolean done) { return "/v1/leases/self" + (done || !fields.containsKey("done_on") ? "" : "?done=false"); }

    boolean once() { return fields.containsKey("once_per"); }

    /** The body of the acquire: of one lock, whose name is in the path, or of several. */
    Map<String, Object> body(boolean async) {
        Map<String, Object> body = new LinkedHashMap<>(fields);
        body.putAll(locks.size() == 1 ? locks.get(0) : Map.of("locks", locks));
        body.remove("lock");
        body.put("async", async);
        return body;
    }
}
