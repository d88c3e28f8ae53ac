package reports

import (
	"time"
	"unicode/utf8"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// Kind is what a report is about.
type Kind string

// The kinds.
const (
	Ended       Kind = "ended"       // a lease of the sender ended
	Termination Kind = "termination" // another gateway's lease is about to be ended
	Withdrawn   Kind = "withdrawn"   // it was not
	Confirmed   Kind = "confirmed"   // it was
	Destroyed   Kind = "destroyed"   // a lock was destroyed
)

// MaxName bounds a name in a report, in bytes.
const MaxName = 1024

// Cause is why an administrator ends something.
type Cause struct {
	Reason locks.Reason
	Words  string
	By     string // the administrator: locks.Principal.By
	Trace  string // traceparent of the request
}

// ends reports whether an administrator's end has that reason. Others decide how a lease ends: what time ends, for
// example, a heartbeat may revive.
func (c *Cause) ends() bool {
	return c.Reason == locks.ReasonRevoked || c.Reason == locks.ReasonDestroyed
}

// Report is what one gateway sends to the others. Spans are nanoseconds; Ended is since the Unix epoch, by the sender's
// clock.
type Report struct {
	Kind   Kind
	Lease  recipe.LeaseID
	NS     string
	Lock   string
	Name   string // of its contender in that queue, when it is known
	Reason locks.Reason
	Words  string
	By     string
	// With Ended. Unsure: another client has deleted the contender, and its gateway may report the reason. Stays: the
	// place stays for a lock delay.
	Unsure  bool
	Stays   bool
	Several bool // of several locks
	Ended   int64
	Mode    locks.Mode
	Owner   string
	Token   int64
	TTL     time.Duration
	Waited  time.Duration
	Held    time.Duration
	Beat    time.Duration
	Next    *Next
	// With Destroyed: the replica must contain this zxid before the event is published.
	Zxid    int64
	Purpose string // the reason of its acquire; with Ended
}

// Next is the next holder of the lock.
type Next struct {
	Lease recipe.LeaseID
	Name  string
	Owner string
	Token int64
	After time.Duration
}

// valid reports whether a report may be shown to users: its fields have the same bounds as in requests. A reason of a newer
// release becomes ReasonUnknown.
func (r *Report) valid() bool {
	if !r.Reason.Known() {
		r.Reason = locks.ReasonUnknown
	}
	return len(r.Owner) <= locks.MaxOwner && max(len(r.Words), len(r.Purpose)) <= locks.MaxReasonText && len(r.By) <= locks.MaxPrincipal &&
		utf8.ValidString(r.Owner) && utf8.ValidString(r.Words) && utf8.ValidString(r.By) && utf8.ValidString(r.Purpose) &&
		max(len(r.Name), len(r.NS), len(r.Lock)) <= MaxName && min(r.Waited, r.Held, r.Beat, r.TTL) >= 0 && (r.Mode == "" || r.Mode.Known()) &&
		(r.Next == nil || len(r.Next.Owner) <= locks.MaxOwner && len(r.Next.Name) <= MaxName && r.Next.After >= 0)
}
