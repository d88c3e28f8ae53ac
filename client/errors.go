package client

import (
	"errors"
	"fmt"
	"time"
)

// LeaseLost says that a lease ended before its holder released it. The work that it protected had to stop.
type LeaseLost struct {
	LeaseID string

	// Reason is the gateway's: expired, revoked, unclaimed, removed, destroyed, gateway_left or unknown. It is ReasonDeadline
	// when no gateway confirmed the lease in time, and ReasonGone when no gateway knows the lease any more.
	Reason string

	// By is the administrator who ended the lease, when the gateway tells: the name of a caller, or its address.
	By string

	// Detail is a sentence for people, such as the text of the administrator who broke the lease.
	Detail string

	// Work is what the work returned after its context had ended, if it returned an error.
	Work error
}

// Reasons of a LeaseLost that the client itself gives.
const (
	ReasonDeadline = "deadline"
	ReasonGone     = "gone"
)

func (e *LeaseLost) Error() string {
	text := "lockkeeper: lease " + e.LeaseID + " is lost: " + e.Reason
	if e.By != "" {
		text += " by " + e.By
	}
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	if e.Work != nil {
		text += "; the work returned: " + e.Work.Error()
	}
	return text
}

// Unwrap gives the error of the work.
func (e *LeaseLost) Unwrap() error { return e.Work }

// NotAcquired says that others hold the lock, and that the time for waiting is over.
type NotAcquired struct {
	Lock        string
	Holders     []Holder      // as the gateway saw them last; may be empty
	QueueLength int           // how many waited
	RetryAfter  time.Duration // the least time after which the answer can change; 0 when it is not known
}

// Holder is one of those who hold a lock.
type Holder struct {
	Owner        string `json:"owner"`
	LeaseID      string `json:"lease_id"`      // empty for a program that locks in ZooKeeper itself
	FencingToken uint64 `json:"fencing_token"` // 0 when the holder has none
}

func (e *NotAcquired) Error() string {
	text := "lockkeeper: " + e.Lock + " is held"
	if len(e.Holders) > 0 && e.Holders[0].Owner != "" {
		text += " by " + e.Holders[0].Owner
	}
	return fmt.Sprintf("%s, and %d wait for it", text, e.QueueLength)
}

// Problem is a refusal of the gateway (RFC 9457). Programs go by Code; docs/errors.md lists the codes.
type Problem struct {
	Status      int      `json:"status"`
	Code        string   `json:"code"`
	Title       string   `json:"title"`
	Detail      string   `json:"detail"`
	Field       string   `json:"field"`  // what is wrong in the request, if it is one field
	Reason      string   `json:"reason"` // why a lease ended
	By          string   `json:"by"`     // the administrator who ended it
	RequestID   string   `json:"request_id"`
	Holders     []Holder `json:"holders"`
	QueueLength int      `json:"queue_length"`
	Limit       int      `json:"limit"` // of settings_differ: the limit in force

	retryAfter time.Duration
}

func (e *Problem) Error() string {
	text := fmt.Sprintf("lockkeeper: %d %s", e.Status, e.Code)
	if e.Detail != "" {
		return text + ": " + e.Detail
	}
	return text + ": " + e.Title
}

// temporary says that the same request may succeed later, or at another gateway.
func (e *Problem) temporary() bool {
	return e.Status >= 500 || e.Status == 429 || e.Status == 408 || e.Code == unexpectedAnswer
}

// unexpectedAnswer is the code of an answer that is not a gateway's: a proxy before it has no gateway to ask, or none yet. Another
// gateway, or the same one later, may be reached.
const unexpectedAnswer = "unexpected_answer"

// final says that a gateway has refused a request for a lease because the lease is over, or is not this client's.
func (e *Problem) final() bool {
	return e.Code != unexpectedAnswer && (e.Status == 403 || e.Status == 404 || e.Status == 410)
}

// taken says that an acquire was refused because others have the lock now.
func (e *Problem) taken() bool {
	return e.Code == "held_by_other" || e.Code == "lock_delayed" || e.Code == "wait_elapsed"
}

// asProblem gives the gateway's refusal in err, or nil.
func asProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return nil
}
