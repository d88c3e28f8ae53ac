package fault

// Names are the fail points, in the order of the alphabet. The linker drops them from programs without the build tag.
var Names = []string{
	"absence", "at-least", "behind", "blind-time", "closed-first", "closed-read", "closed-restored", "created-event", "creates-first",
	"deadlock-placed", "deadlock-youngest",
	"depose-blind", "depose-polled", "downgrade-token", "early-end", "end-report", "ephemeral", "epoch-bump",
	"epoch-check", "fence-memory", "fleet", "force-record", "force-withdrawn", "freshness", "gap", "granted-number", "group-turn",
	"group-whole", "guard", "guard-writes", "held-order", "holds-named", "hooks-after", "hooks-check",
	"hooks-done", "hooks-fresh", "hooks-gone", "hooks-id", "hooks-left", "hooks-termination", "hooks-tries",
	"hooks-wait", "knows-all", "last-seen", "limit-check", "limit-name", "old-read",
	"once-done", "once-mark", "once-release", "read-first", "release-closed", "reservation-end", "reservation-spare", "resync",
	"rotate-leases", "rotate-members", "rotate-sign", "rotate-unknown",
	"seen-version", "tail-batches", "tail-first", "trust-window", "unclaimed-counts", "unclaimed-ends", "window",
	"withdraw-round", "written-heard", "written-over",
}
