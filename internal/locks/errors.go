package locks

import "time"

// Code names a way in which a call can fail. The list is closed. Adapters translate each code
// (internal/httpapi into a problem document).
type Code string

// The codes of the domain.
const (
	CodeInvalid          Code = "invalid_field"          // Field names the invalid field
	CodeHeldByOther      Code = "held_by_other"          // try: the lock is held, or has waiters
	CodeLockDelayed      Code = "lock_delayed"           // try: the last holder has ended, and its lock delay keeps the lock
	CodeWaitElapsed      Code = "wait_elapsed"           // the wait ended before the grant; the place in the queue is given up
	CodeForeignSemaphore Code = "foreign_semaphore"      // the lock is another program's semaphore, which a waiting contender would block
	CodeLockInvalid      Code = "lock_invalid"           // another program has marked the lock as being destroyed
	CodeNotFound         Code = "lease_not_found"        // no such lease, and no record of one
	CodeEnded            Code = "lease_ended"            // Reason says why
	CodeTokenMissing     Code = "lease_token_missing"    // no token was given
	CodeTokenWrong       Code = "lease_token_wrong"      // the token is not this lease's
	CodeKeyReused        Code = "idempotency_key_reused" // the key was used before with other parameters
	CodeUnavailable      Code = "zookeeper_unavailable"  // nothing was done
	CodeOutcomeUnknown   Code = "outcome_unknown"        // it may have been done: repeat, with the same key
	CodeNotOwner         Code = "owned_by_other_gateway" // another gateway owns this lease
	CodeTooManyWaiters   Code = "too_many_leases"        // this gateway's bound on leases, or on requests that wait for a foreign node to go
	CodeCancelled        Code = "cancelled"              // the caller cancelled the call
	CodeNamespaceUnknown Code = "namespace_unknown"      // no such namespace
	CodeSettingsDiffer   Code = "settings_differ"        // the lock has another limit: Limit
	CodeLockInUse        Code = "lock_in_use"            // the lock is held, or has waiters
	CodeHoldReleased     Code = "hold_released"          // the hold was released before; a late repeat adds none
	CodeNotHeld          Code = "lease_not_held"         // the call needs a held lease
	CodeNotExclusive     Code = "lease_not_exclusive"    // a permit cannot be downgraded
	CodeHolderChanged    Code = "holder_changed"         // a contender that the administrator named has changed; nothing was done
	CodeNothingToAsk     Code = "nothing_to_ask"         // no holder of the lock can be asked to release it
	CodeChanged          Code = "precondition_failed"    // it is not in a state that the request names; nothing was done
	CodeNoContender      Code = "contender_not_found"    // no contender of that name is in the lock's queue
	CodeTooManyTickets   Code = "too_many_tickets"       // this gateway's bound on waiting leases whose acquire has returned
	CodeTooManyKeys      Code = "too_many_keys"          // this gateway's bound on idempotency keys
	CodeTooManyLocks     Code = "too_many_locks"         // this gateway's bound on known locks
	CodeTooManyPeriods   Code = "too_many_periods"       // the lock keeps as many periods as it may
	CodeNoPeriod         Code = "period_not_found"       // the lock's record has no such period
	CodeTooManySettings  Code = "too_many_settings"      // the bound on locks with settings
	CodeTooMuchMetadata  Code = "too_much_metadata"      // this gateway's bound on the texts of its leases
	CodePrincipalLimit   Code = "principal_limit"        // the principal has as much of something as one may have
	CodeForbidden        Code = "forbidden"              // the principal's rules do not give it; Denied says what
	CodeWouldDeadlock    Code = "would_deadlock"         // the wait would be one of a deadlock: Cycle
	CodeEphemeralCap     Code = "too_many_ephemeral"     // the gateway's session is at its bound on ephemeral nodes
)

// Error is the only error type of this package.
type Error struct {
	Code       Code
	Field      string        // with CodeInvalid: the field's name in the API
	Detail     string        // one sentence for a person, with the next step
	RetryAfter time.Duration // after which a repeat may succeed; 0: it will not
	Reason     Reason        // with CodeEnded
	By         string        // with CodeEnded: the administrator who ended it, as Principal.By names it; "" for none
	// Holders and QueueLength explain CodeHeldByOther, CodeLockDelayed, CodeWaitElapsed, CodeHolderChanged and CodeNothingToAsk.
	Holders     []Contender
	QueueLength int
	Denied      *Denied // with CodeForbidden
	Limit       int     // with CodeSettingsDiffer: the limit in force
	Cycle       *Cycle  // with CodeWouldDeadlock; nil when it is not known any more
	Owner       *Route  // with CodeNotOwner: the gateway to ask; nil when not known, or when the request would mean something else there
	Err         error   // cause, for the log only

	UnknownGateway bool // this gateway has no record of the lease's gateway: its replica may be behind
}

func (e *Error) Error() string {
	s := string(e.Code)
	if e.Field != "" {
		s += " (" + e.Field + ")"
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Because adds an administrator's text to the sentence, and who that was; "" for none.
func (e *Error) Because(words, by string) *Error {
	if words != "" {
		e.Detail += ": " + words
	}
	e.By = by
	return e
}

// Bounds of the time after which a client asks again for a lock that is held. A holder may release at any moment.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 5 * time.Second
)

// RetryAfter is the least time after which a lock with these holders may be free: the end of the first of them, at least 1 s
// and at most 5 s; 1 s when the end of one is not known here. Of a lock that only lock delays keep it is the exact rest of the first.
func RetryAfter(holders []Contender) time.Duration {
	least, delayed := WaitForever, len(holders) > 0
	for i := range holders {
		least = min(least, holders[i].ExpiresIn)
		delayed = delayed && holders[i].Delayed
	}
	switch {
	case len(holders) == 0:
		return minRetryAfter
	case delayed && least > 0:
		return least
	}
	return min(max(least, minRetryAfter), maxRetryAfter)
}

// NamespaceUnknown refuses a namespace that is not recorded, by the request's field that names it.
func NamespaceUnknown(field, ns string) *Error {
	return &Error{Code: CodeNamespaceUnknown, Field: field, Detail: "there is no namespace " + ns}
}

// Changed refuses a change of what is not as the request says.
func Changed() *Error {
	return &Error{Code: CodeChanged, Field: "If-Match", Detail: "nothing was done; look at it again, and repeat the change if it still makes sense"}
}
