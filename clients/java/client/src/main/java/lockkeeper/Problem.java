package lockkeeper;

import java.time.Duration;
import java.util.Map;

/** A gateway refuses a request (RFC 9457). Programs go by the code; docs/errors.md lists them. */
public final class Problem extends RuntimeException {
    /** The code of an answer that is not a gateway's: a proxy before it has no gateway to ask, or none yet. */
    static final String UNEXPECTED = "unexpected_answer";

    private final int status;
    final transient Map<String, Object> body;
    final transient Duration retryAfter;

    Problem(int status, Map<String, Object> body, Duration retryAfter) {
        super(status + " " + Json.text(body, "code") + ": " + Json.text(body, Json.text(body, "detail").isEmpty() ? "title" : "detail"));
        this.status = status;
        this.body = body;
        this.retryAfter = retryAfter;
    }

    /** @return the HTTP status */
    public int status() {
        return status;
    }

    /** @return the code, such as forbidden */
    public String code() {
        return Json.text(body, "code");
    }

    /** @return a sentence for people */
    public String detail() {
        return Json.text(body, "detail");
    }

    /** @return the field of the request that is wrong, if it is one field; else empty */
    public String field() {
        return Json.text(body, "field");
    }

    /** @return what finds the request in the gateway's log */
    public String requestId() {
        return Json.text(body, "request_id");
    }

    /** The same request may succeed later, or at another gateway. */
    boolean temporary() {
        return status >= 500 || status == 429 || status == 408 || code().equals(UNEXPECTED);
    }

    /** A gateway refuses a request for a lease because the lease is over, or is not this client's. */
    boolean ended() {
        return !temporary() && (status == 403 || status == 404 || status == 410);
    }

    /** An acquire was refused because others have the lock now. */
    boolean taken() {
        return code().equals("held_by_other") || code().equals("lock_delayed") || code().equals("wait_elapsed");
    }

    LeaseLost lost(String leaseId) {
        String reason = Json.text(body, "reason");
        return new LeaseLost(leaseId, reason.isEmpty() ? "gone" : reason, Json.text(body, "by"), detail());
    }
}
