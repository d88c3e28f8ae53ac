package zk

// The nodes below the root, as paths relative to it.
const (
	NodeVersion       = "/version"
	NodeSecret        = "/secret"
	NodeFenceBase     = "/fence_base"
	NodePromiseWindow = "/promise_window"
	NodeNamespaces    = "/namespaces"
	NodeLocks         = "/locks"
	// NodeSettings has a child for each lock that has settings.
	NodeSettings = "/settings"
	// NodePeriods has a child for each lock whose work runs once per period.
	NodePeriods    = "/periods"
	NodeGateways   = "/gateways"
	NodeGuards     = "/guards"
	NodeSuccession = "/succession"
	// Gateways alone read what is below these: idempotency keys, and webhooks, which name receivers and sign messages.
	NodeKeys     = "/keys"
	NodeOutbox   = "/outbox"
	NodeWebhooks = "/webhooks"
	// NodeTokens has the records of API tokens. Gateways alone see what is at or below NodeAuth.
	NodeAuth   = "/auth"
	NodeTokens = NodeAuth + "/tokens"
	// NodeRotation has what each gateway says about a rotation of the secret.
	NodeRotation = NodeAuth + "/rotation"
	// NodeImport is there while an import fills the root, and when one has died
	// half way. No gateway makes use of a root that has it.
	NodeImport = "/import"
)
