package lockkeeper;

/** A lease ended before its holder released it. The work that it protected had to stop; what it threw is the cause. */
public final class LeaseLost extends RuntimeException {
    private final String leaseId, reason, by, detail;

    LeaseLost(String leaseId, String reason, String by, String detail) {
        super("lease " + leaseId + " is lost: " + reason + (by.isEmpty() ? "" : " by " + by) + (detail.isEmpty() ? "" : " (" + detail + ")"));
        this.leaseId = leaseId;
        this.reason = reason;
        this.by = by;
        this.detail = detail;
    }

    /** @return the lease's name in logs and lists */
    public String leaseId() {
        return leaseId;
    }

    /**
     * @return the gateway's reason, such as expired, revoked, removed or destroyed; deadline when no gateway confirmed the lease in time; gone
     *     when no gateway knows the lease
     */
    public String reason() {
        return reason;
    }

    /** @return who ended the lease; empty when the gateway does not tell */
    public String by() {
        return by;
    }

    /** @return a sentence for people; may be empty */
    public String detail() {
        return detail;
    }
}
