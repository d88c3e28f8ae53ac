package lockkeeper;

/**
 * A gateway refuses a request (RFC 9457), or no gateway answers it: the status is 0 then, and the code no_answer.
 * Programs go by the code, people by the detail.
 */
public final class Problem extends RuntimeException {
    /** The code of an answer that is not a gateway's: a proxy before it has no gateway to ask, or none yet. */
    static final String UNEXPECTED = "unexpected_answer";
    /** The HTTP status. */
    public final int status;
    /**
     * The code, such as forbidden (docs/errors.md lists them); a sentence for people; the field of the request that is
     * wrong, if it is one field; what finds the request in the gateway's log.
     */
    public final String code, detail, field, requestId;
    final transient Json body;
    final transient long retryAfter; // in milliseconds

    Problem(int status, String code, Json body, long retryAfter, Throwable cause) {
        super(status == 0 ? "no gateway answered: " + cause : status + " " + code + ": " + body.text("detail"), cause);
        this.status = status;
        this.code = code;
        detail = status == 0 ? getMessage() : body.text("detail");
        field = body.text("field");
        requestId = body.text("request_id");
        this.body = body;
        this.retryAfter = retryAfter;
    }

    /** The same request may succeed later, or at another gateway. */
    boolean temporary() { return status == 0 || status >= 500 || status == 429 || status == 408 || code.equals(UNEXPECTED); }

    /** A gateway refuses a request for a lease because the lease is over, or is not this client's. */
    boolean ended() { return !temporary() && (status == 403 || status == 404 || status == 410); }

    /** What made a request fail. */
    static RuntimeException of(Throwable e) {
        return e instanceof RuntimeException ? (RuntimeException) e.fillInStackTrace() : new Problem(0, "no_answer", new Json(), 0, e);
    }
}
