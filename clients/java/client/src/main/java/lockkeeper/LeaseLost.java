package lockkeeper;

/**
 * A lease ended before its holder released it. The work that it protected had to stop; what the work threw is the
 * cause.
 */
public final class LeaseLost extends RuntimeException {
    /**
     * The lease's name in logs and lists; why it ended, in the gateway's word (expired, revoked, removed, destroyed and
     * others; deadline when no gateway confirmed the lease in time, gone when no gateway knows it); who ended it and a
     * sentence for people, which both may be empty.
     */
    public final String leaseId, reason, by, detail;

    LeaseLost(String leaseId, Json end, Throwable cause) {
        super(cause);
        this.leaseId = leaseId;
        reason = end.has("reason") ? end.text("reason") : "gone";
        by = end.text("by");
        detail = end.text("detail");
    }

    @Override public String getMessage() { return "lease " + leaseId + " is lost: " + reason + " " + by + " " + detail; }
}
