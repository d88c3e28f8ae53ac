package record

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks"
)

// Version is the version of a contender's data.
const Version = 1

// Record is the data of a contender: small UTF-8 JSON (Kazoo decodes every
// contender's data as UTF-8). It tells a successor and a curious reader what
// the name does not; who holds is never decided by it.
type Record struct {
	Version int    `json:"v"`
	Owner   string `json:"owner,omitempty"`
	// Principal took the lease. Another program can write any name here: it is for display and for quotas, and gives no right.
	Principal string `json:"principal,omitempty"`
	TTL       int64  `json:"ttl_ms"`
	Metadata  string `json:"metadata,omitempty"`
	Enqueued  int64  `json:"enqueued_ms"` // Unix time; for display, never for decisions
	// Granted is when the lease was granted: Unix time by the clock of the gateway that granted it. 0: that is not written. It is
	// for display and history, never for decisions: clocks differ, and another program can write any time.
	Granted int64 `json:"granted_ms,omitempty"`
	// AtOnce is written with the create: the lease was granted when it was queued if this is one more than its contender's number.
	// See GrantedAt. 0: it does not tell.
	AtOnce   int64    `json:"at_once,omitempty"`
	Holds    []string `json:"holds,omitempty"`
	Released []string `json:"released,omitempty"` // names of released holds
	// For so long its place stays after its end; which ends: DelayOnExpiry, DelayAlways.
	LockDelay   int64         `json:"lock_delay_ms,omitempty"`
	LockDelayOn locks.DelayOn `json:"lock_delay_on,omitempty"`
	Closed      *Closed       `json:"closed,omitempty"` // the lease has ended, and its place stays
	// Revoke is the request to the holder to release; nil for none.
	Revoke *Revocation `json:"revoke,omitempty"`
	// RevokeRound counts the revocations that were withdrawn: what is known of an earlier round does not count any more.
	RevokeRound int64 `json:"revoke_round,omitempty"`
	// Beats counts the heartbeats that other gateways recorded. Told is set once
	// one of them has reported the grant to the client.
	Beats int64 `json:"beats,omitempty"`
	Told  bool  `json:"told,omitempty"`
	// Notify is the address that receives the lease's grant and end events.
	Notify string `json:"notify,omitempty"`
	// AtLeast is for how long from its grant on the lock stays taken, however the lease ends.
	AtLeast int64 `json:"at_least_ms,omitempty"`
	// Trace is the W3C traceparent that the acquire carried, where a gateway exports its trace. For display, never for decisions.
	Trace string `json:"trace,omitempty"`
	// Purpose is the reason of the acquire.
	Purpose string `json:"purpose,omitempty"`
	// Reserve: the lease is a reservation; nil: heartbeats keep it.
	Reserve *Reserve `json:"reserve,omitempty"`
	// OnDeadlock is DeadlockFail where a wait that is one of a deadlock ends; else "".
	OnDeadlock locks.OnDeadlock `json:"deadlock,omitempty"`
	Once       *Once            `json:"once,omitempty"` // the period that it is for; nil: none

	More map[string]json.RawMessage `json:"-"` // what a later release has put there
}

// Closed is the end of a lease whose place stays for its lock delay.
type Closed struct {
	Reason locks.Reason `json:"reason"`
	By     string       `json:"by,omitempty"` // who ended it; for display, never for decisions
	At     int64        `json:"at_ms"`        // Unix time; for display, never for decisions
	// Stays is for how long the place stayed when that was written: what was left of its lock delay and of AtLeast. 0: another
	// gateway than the owner wrote it, which does not know when the lease was granted.
	Stays int64 `json:"stays_ms,omitempty"`
}

// Reserve says when a reservation ends.
type Reserve struct {
	For int64 `json:"for_ms,omitempty"` // so long after its grant, which sets Until
	// Until is Unix time by the clock of the gateway that wrote it; 0 before the grant.
	Until int64 `json:"until_ms,omitempty"`
	// Stays: it keeps its place in the queue though no request asks for it, and its grant needs no claim.
	Stays bool `json:"stays,omitempty"`
}

// EndsAt is when the reservation ends; zero: that is not known yet, or it is none.
func (r *Reserve) EndsAt() time.Time {
	if r == nil || r.Until == 0 {
		return time.Time{}
	}
	return time.UnixMilli(r.Until).UTC()
}

// EndsAtUnix is EndsAt as Unix time.
func (r *Reserve) EndsAtUnix() time.Duration { return time.Duration(r.Until) * time.Millisecond }

// Span is for how long it was asked for; 0: until a time, or it is none.
func (r *Reserve) Span() time.Duration {
	if r == nil {
		return 0
	}
	return time.Duration(r.For) * time.Millisecond
}

// EndedFor is why the lease of a record has ended whose place alone is still there; "" when it has not.
func (r Record) EndedFor() locks.Reason {
	if r.Closed == nil {
		return ""
	}
	return r.Closed.Reason
}

// DelayAfter is how long the lease's place stays after such an end, counted from when it is read. What is left only the owner
// knows, and writes it. Without that all of AtLeast and of the lock delay is left; neither follows the end of a lease that waited.
func (r Record) DelayAfter(c Closed) time.Duration {
	stays := c.Stays
	switch {
	case stays != 0 || c.Reason == locks.ReasonCancelled:
	case c.Reason == locks.ReasonReleased && r.LockDelayOn != locks.DelayAlways:
		stays = r.AtLeast
	default:
		stays = max(r.AtLeast, r.LockDelay)
	}
	return time.Duration(stays) * time.Millisecond
}

// Encode is the data as it is written.
func (r Record) Encode() []byte {
	if r.plain() {
		return r.encodePlain()
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic("encoding a contender's record: " + err.Error()) // strings and integers only
	}
	return withMembers(data, r.More)
}

// ErrNoRecord: another program has written over a contender's data.
var ErrNoRecord = errors.New("the contender's data is not a record of this program")

// Parse reads a contender's data. Data that is not a record (another
// program overwrote it: Curator's __REVOKE__) is not an error of ours: the
// lease then has the longest TTL, so that it is never shortened. What a record says
// beyond the bounds of the API is cut off.
func Parse(data []byte) (r Record, ok bool) {
	if len(data) > MaxData {
		return Record{}, false
	}
	if r, ok = parsePlain(data); !ok {
		var written Record // what is decoded into would be on the heap for all
		ok = json.Unmarshal(data, &written) == nil
		r = written
	}
	if !ok || r.Version < 1 || r.TTL <= 0 {
		return Record{}, false
	}
	r.cut()
	return r, true
}

// LeaseTTL is the TTL within the bounds of the API.
func (r Record) LeaseTTL() time.Duration {
	return millis(r.TTL, locks.MinTTL, locks.MaxTTL)
}

// SetTTL rounds up: what was promised is not shortened by how it is written.
func (r *Record) SetTTL(ttl time.Duration) {
	r.TTL = (ttl + time.Millisecond - 1).Milliseconds()
}

// recordMembers are the members of a record that this release knows.
var recordMembers = func() map[string]bool {
	known := map[string]bool{}
	for field := range reflect.TypeFor[Record]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			known[name] = true
		}
	}
	return known
}()

// Members are the members of a record, with those that only a later release knows.
type Members map[string]json.RawMessage

// Set sets a member.
func (m Members) Set(name string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		panic("encoding the member " + name + " of a record: " + err.Error()) // strings, numbers and bools
	}
	m[name] = raw
}

// Edit returns another gateway's record with members changed; nil without an error: change reports that nothing has to be
// written. It is ErrNoRecord when the data is no record, or would become larger than a record may be.
func Edit(data []byte, change func(Record, Members) bool) ([]byte, error) {
	known, ok := Parse(data)
	var members Members
	if !ok || json.Unmarshal(data, &members) != nil {
		return nil, ErrNoRecord
	}
	if !change(known, members) {
		return nil, nil
	}
	data, err := json.Marshal(members)
	if err == nil && len(data) > MaxData {
		err = ErrNoRecord
	}
	return data, err
}

// withMembers is a record's data with more members.
func withMembers(data []byte, more map[string]json.RawMessage) []byte {
	if len(more) == 0 {
		return data
	}
	rest, err := json.Marshal(more)
	if err != nil {
		panic("encoding members of a record: " + err.Error()) // they have just been decoded
	}
	return append(append(data[:len(data)-1], ','), rest[1:]...)
}

// OtherMembers are the members of a record that only a later release knows; none when they are larger than MaxMore. ok is
// false when the data is no JSON object.
func OtherMembers(data []byte) (_ map[string]json.RawMessage, ok bool) {
	if _, plain := parsePlain(data); plain {
		return nil, true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return nil, false
	}
	size := 0
	for name, value := range members {
		if recordMembers[name] {
			delete(members, name)
			continue
		}
		size += len(value)
	}
	if more, err := json.Marshal(members); err != nil || max(size, len(more)) > MaxMore {
		members = nil
	}
	return members, true
}

// Unnamed is the hold of a lease that was acquired without a name, once it has
// been given named ones: only a plain release ends it. Else a nested hold
// that comes and goes would end what its surroundings hold. The same becomes of a
// lease whose record another program wrote over before its gateway died: its holds
// are not known any more, and only a plain release, or time, ends it.
const Unnamed = ""

// Named are the holds that clients see.
func Named(holds []string) []string {
	if len(holds) > 0 && holds[0] == Unnamed {
		holds = holds[1:]
	}
	if len(holds) == 0 {
		return nil
	}
	return slices.Clip(holds)
}

// NotifyURL is the http or https address that receives the lease's events, "" for
// none. Any program can write a record, so any other address counts as none.
func (r Record) NotifyURL() string {
	if len(r.Notify) > locks.MaxNotifyURL || !strings.HasPrefix(r.Notify, "http://") && !strings.HasPrefix(r.Notify, "https://") {
		return ""
	}
	return r.Notify
}

// NotifiesOfEnd is NotifyURL, or "" when the end is over.
func (r Record) NotifiesOfEnd() string {
	if r.Closed != nil {
		return ""
	}
	return r.NotifyURL()
}
