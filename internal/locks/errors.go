package locks

import "time"

// Code names a way in which a call can fail. The list is closed; adapters
// turn each code into their own form (internal/httpapi into a problem document).
type Code string

// The codes of the domain.
const (
	CodeInvalid          Code = "invalid_field"          // Field names what is wrong
	CodeHeldByOther      Code = "held_by_other"          // try: somebody holds the lock or stands in line
	CodeWaitElapsed      Code = "wait_elapsed"           // the wait ended before the grant; the place in line is given up
	CodeForeignSemaphore Code = "foreign_semaphore"      // another program's semaphore stands there, which waiting would block
	CodeLockInvalid      Code = "lock_invalid"           // another program has marked the lock as being destroyed
	CodeNotFound         Code = "lease_not_found"        // no such lease, and no trace of one
	CodeEnded            Code = "lease_ended"            // Reason tells why
	CodeTokenMissing     Code = "lease_token_missing"    // no token was given
	CodeTokenWrong       Code = "lease_token_wrong"      // the token is not this lease's
	CodeKeyReused        Code = "idempotency_key_reused" // the key came with other parameters before
	CodeUnavailable      Code = "zookeeper_unavailable"  // nothing was done
	CodeOutcomeUnknown   Code = "outcome_unknown"        // it may have been done: repeat, with the same key
	CodeNotOwner         Code = "owned_by_other_gateway" // another gateway runs this lease's clock
	CodeTooManyWaiters   Code = "too_many_leases"        // this gateway's bound on leases, or on requests that wait for another program's node to go
	CodeCancelled        Code = "cancelled"              // the caller went away
	CodeNamespaceUnknown Code = "namespace_unknown"      // no such namespace
	CodeSettingsDiffer   Code = "settings_differ"        // the lock's limit is another one; Limit tells it
	CodeLockInUse        Code = "lock_in_use"            // somebody holds the lock or stands in line
	CodeHoldReleased     Code = "hold_released"          // a hold of that name was let go; a late repeat takes nothing
	CodeNotHeld          Code = "lease_not_held"         // it needs a lease that is held
	CodeNotExclusive     Code = "lease_not_exclusive"    // a semaphore's permits have nothing to downgrade to
	CodeHolderChanged    Code = "holder_changed"         // one that the administrator named is not as it was shown; nothing was done
	CodeNothingToAsk     Code = "nothing_to_ask"         // no holder of the lock can be asked to let go
	CodeNoContender      Code = "contender_not_found"    // no contender of that name is in the lock's queue
	CodeTooManyTickets   Code = "too_many_tickets"       // this gateway's bound on leases that wait though their acquire's request is over
	CodeTooManyKeys      Code = "too_many_keys"          // this gateway's bound on idempotency keys
	CodeTooManyLocks     Code = "too_many_locks"         // this gateway's bound on locks that it knows
	CodeTooManySettings  Code = "too_many_settings"      // the bound on locks with settings
	CodeTooMuchMetadata  Code = "too_much_metadata"      // this gateway's bound on the texts of its leases
	CodeEphemeralCap     Code = "too_many_ephemeral"     // the gateway's session may have no more ephemeral nodes
)

// Error is the one error type of this package.
type Error struct {
	Code       Code
	Field      string        // with CodeInvalid: the field's name in the API
	Detail     string        // one sentence for a person, what to do next included
	RetryAfter time.Duration // when repeating may help; 0: it will not
	Reason     Reason        // with CodeEnded
	// Holders and QueueLength explain CodeHeldByOther, CodeWaitElapsed, CodeHolderChanged and CodeNothingToAsk.
	Holders     []Contender
	QueueLength int
	Limit       int    // with CodeSettingsDiffer: the limit in force
	Owner       *Route // with CodeNotOwner: where to send it; nil when that is not known, or when it would be another request there
	Err         error  // cause, for the log only

	UnknownGateway bool // this gateway has never read of the lease's gateway: its replica may be behind
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

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// because adds what an administrator said to it; "" for nothing.
func (e *Error) Because(words string) *Error {
	if words != "" {
		e.Detail += ": " + words
	}
	return e
}
