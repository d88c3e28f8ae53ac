package reports

import (
	"encoding/json"
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
	Kind   Kind           `json:"kind"`
	Lease  recipe.LeaseID `json:"lease,omitempty"`
	NS     string         `json:"ns,omitempty"`
	Lock   string         `json:"lock,omitempty"`
	Name   string         `json:"name,omitempty"` // of its contender in that queue, when it is known
	Reason locks.Reason   `json:"reason,omitempty"`
	Words  string         `json:"words,omitempty"`
	// With Ended. Unsure: another client has deleted the contender, and its gateway may report the reason. Stays: the
	// place stays for a lock delay.
	Unsure bool          `json:"unsure,omitempty"`
	Stays  bool          `json:"stays,omitempty"`
	Ended  int64         `json:"ended,omitempty"`
	Mode   locks.Mode    `json:"mode,omitempty"`
	Owner  string        `json:"owner,omitempty"`
	Token  int64         `json:"token,omitempty"`
	TTL    time.Duration `json:"ttl,omitempty"`
	Waited time.Duration `json:"waited,omitempty"`
	Held   time.Duration `json:"held,omitempty"`
	Beat   time.Duration `json:"beat,omitempty"`
	Next   *Next         `json:"next,omitempty"`
	// With Destroyed: the replica must contain this zxid before the event is published.
	Zxid int64 `json:"zxid,omitempty"`
}

// Next is the next holder of the lock.
type Next struct {
	Lease recipe.LeaseID `json:"lease,omitempty"`
	Name  string         `json:"name"`
	Owner string         `json:"owner,omitempty"`
	Token int64          `json:"token,omitempty"`
	After time.Duration  `json:"after"`
}

// Encode writes each report as a line.
func Encode(list []Report) [][]byte {
	var lines [][]byte
	for i := range list {
		line, err := json.Marshal(&list[i])
		if err != nil {
			panic("encoding a report: " + err.Error()) // strings and numbers
		}
		lines = append(lines, line)
	}
	return lines
}

// Decode reads lines. It skips invalid ones: a newer release may have sent them.
func Decode(lines [][]byte) []Report {
	list := make([]Report, 0, len(lines))
	for _, line := range lines {
		var r Report
		if err := json.Unmarshal(line, &r); err == nil && r.valid() {
			list = append(list, r)
		}
	}
	return list
}

// valid reports whether a report may be shown to users: its fields have the same bounds as in requests. A reason of a newer
// release becomes ReasonUnknown.
func (r *Report) valid() bool {
	if !r.Reason.Known() {
		r.Reason = locks.ReasonUnknown
	}
	return len(r.Owner) <= locks.MaxOwner && len(r.Words) <= locks.MaxReasonText && utf8.ValidString(r.Owner) && utf8.ValidString(r.Words) &&
		max(len(r.Name), len(r.NS), len(r.Lock)) <= MaxName && min(r.Waited, r.Held, r.Beat, r.TTL) >= 0 && (r.Mode == "" || r.Mode.Known()) &&
		(r.Next == nil || len(r.Next.Owner) <= locks.MaxOwner && len(r.Next.Name) <= MaxName && r.Next.After >= 0)
}
