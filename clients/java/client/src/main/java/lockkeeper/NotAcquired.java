package lockkeeper;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/** Others hold the lock, and the time for waiting is over. */
public final class NotAcquired extends RuntimeException {
    private final String lock;
    private final transient List<Holder> holders;
    private final long queueLength;
    private final Duration retryAfter;

    NotAcquired(String lock, Map<String, Object> answer, Duration retryAfter) {
        super(lock + " is held" + Json.objects(answer, "holders").stream().map(h -> " by " + Json.text(h, "owner")).findFirst().orElse("")
                + ", and " + Json.number(answer, "queue_length") + " wait for it");
        this.lock = lock;
        holders = Json.objects(answer, "holders").stream().map(Holder::new).collect(java.util.stream.Collectors.toUnmodifiableList());
        queueLength = Json.number(answer, "queue_length");
        this.retryAfter = retryAfter;
    }

    /** @return the name of the lock, or of several with commas between */
    public String lock() {
        return lock;
    }

    /** @return those who held the lock when the gateway saw them last; may be empty */
    public List<Holder> holders() {
        return holders;
    }

    /** @return how many waited for the lock */
    public long queueLength() {
        return queueLength;
    }

    /** @return the least time after which the answer can change; zero when it is not known */
    public Duration retryAfter() {
        return retryAfter;
    }

    /** One of those who hold a lock. */
    public static final class Holder {
        private final String owner, leaseId;
        private final long fencingToken;

        private Holder(Map<String, Object> holder) {
            owner = Json.text(holder, "owner");
            leaseId = Json.text(holder, "lease_id");
            fencingToken = Json.number(holder, "fencing_token");
        }

        /** @return the holder's label */
        public String owner() {
            return owner;
        }

        /** @return its lease; empty for a program that locks in ZooKeeper itself */
        public String leaseId() {
            return leaseId;
        }

        /** @return its fencing token; 0 when it has none */
        public long fencingToken() {
            return fencingToken;
        }
    }
}
