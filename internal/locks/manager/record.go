package manager

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks"
)

// recordVersion is the version of a contender's data.
const recordVersion = 1

// record is the data of a contender: small UTF-8 JSON (Kazoo decodes every
// contender's data as UTF-8). It tells a successor and a curious reader what
// the name does not; who holds is never decided by it.
type record struct {
	Version  int      `json:"v"`
	Owner    string   `json:"owner,omitempty"`
	TTL      int64    `json:"ttl_ms"`
	Metadata string   `json:"metadata,omitempty"`
	Enqueued int64    `json:"enqueued_ms"` // Unix time; for display, never for decisions
	Holds    []string `json:"holds,omitempty"`
	Released []string `json:"released,omitempty"` // names of holds that were let go
	// For so long its place stays after its end; which ends: DelayOnExpiry, DelayAlways.
	LockDelay   int64         `json:"lock_delay_ms,omitempty"`
	LockDelayOn locks.DelayOn `json:"lock_delay_on,omitempty"`
	Closed      *closedRecord `json:"closed,omitempty"` // the lease has ended, and its place stays
	// Revoke: the holder has been asked to let go.
	Revoke *revokeRecord `json:"revoke,omitempty"`
	// RevokeRound counts the revocations that were withdrawn: what is known of an earlier round does not count any more.
	RevokeRound int64 `json:"revoke_round,omitempty"`
	// Beats counts the heartbeats that other gateways wrote down; Told: one of them has
	// told the client that it holds. See written.go.
	Beats int64 `json:"beats,omitempty"`
	Told  bool  `json:"told,omitempty"`
	// Notify is told of the lease's grant and of its end.
	Notify string `json:"notify,omitempty"`

	more map[string]json.RawMessage // what a later release has put there
}

// closedRecord is the end of a lease whose place stays for its lock delay.
type closedRecord struct {
	Reason locks.Reason `json:"reason"`
	At     int64        `json:"at_ms"` // Unix time; for display, never for decisions
}

// endedFor is why the lease of a record has ended whose place alone is still there; "" when it has not.
func (r record) endedFor() locks.Reason {
	if r.Closed == nil {
		return ""
	}
	return r.Closed.Reason
}

// revokeRecord is a revocation as a contender's record has it.
type revokeRecord struct {
	Reason string `json:"reason,omitempty"`
	Force  int64  `json:"force_after_ms,omitempty"` // counts on the owner's clock from when it knows; 0: never
}

// contents is what the lease's record says, or will say with the given TTL.
func (l *lease) contents(ttl time.Duration) record {
	r := record{Version: recordVersion, Owner: l.owner, Metadata: l.metadata(), Enqueued: l.enqueued.Milliseconds()}
	r.setTTL(ttl)
	if few := l.seldom; few != nil {
		r.Holds, r.Released = few.holds, few.released
		r.Beats, r.Told = few.beats, few.toldBy
		r.Notify, r.more = l.notifyURL(), few.more
		r.LockDelay, r.LockDelayOn = few.lockDelay.Milliseconds(), few.lockDelayOn
		r.Revoke, r.RevokeRound = l.revocation().record(), l.revokeRound()
	}
	return r
}

// record is the lease's record as it is written.
func (l *lease) record(ttl time.Duration) []byte { return l.contents(ttl).encode() }

func (r record) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic("encoding a contender's record: " + err.Error()) // strings and integers only
	}
	return withMembers(data, r.more)
}

// label is the data of a lease's further contenders: who it is, for whoever
// looks at that queue. The metadata of 64 of them would be larger than a transaction
// may be.
func (l *lease) label(ttl time.Duration) []byte {
	r := record{Version: recordVersion, Owner: l.owner, Enqueued: l.enqueued.Milliseconds()}
	r.setTTL(ttl)
	return r.encode()
}

// data is what a slot's contender has in it.
func (l *lease) data(s *slot, ttl time.Duration) []byte {
	if s == &l.slot {
		return l.record(ttl)
	}
	return l.label(ttl)
}

// learn takes over what a record says besides TTL and times, and reports
// whether any of it is news. Slices of a record are never changed, so they are
// shared; strings may be a request's, and are not.
func (l *lease) learn(m *Manager, r record) (news bool) {
	if r.Owner != l.owner {
		l.owner, news = m.owners.one(r.Owner), true
	}
	if r.Metadata != l.metadata() {
		l.few().metadata, news = strings.Clone(r.Metadata), true
	}
	if !slices.Equal(r.Holds, l.holdNames()) || !slices.Equal(r.Released, l.releasedNames()) {
		l.few().holds, l.few().released, news = r.Holds, r.Released, true
	}
	if r.LockDelay > 0 {
		l.few().lockDelay, l.few().lockDelayOn = time.Duration(r.LockDelay)*time.Millisecond, r.LockDelayOn
	}
	m.weigh(l, 0)
	return news
}

// parseRecord reads a contender's data. Data that is not a record (another
// program overwrote it: Curator's __REVOKE__) is not an error of ours: the
// lease then has the longest TTL, so that it is never shortened. What a record says
// beyond the bounds of the API is cut off.
func parseRecord(data []byte) (r record, ok bool) {
	if len(data) > maxRecordData {
		return record{}, false
	}
	if err := json.Unmarshal(data, &r); err != nil || r.Version < 1 || r.TTL <= 0 {
		return record{}, false
	}
	r.cut()
	return r, true
}

func (r record) ttl() time.Duration {
	return millis(r.TTL, locks.MinTTL, locks.MaxTTL)
}

// setTTL rounds up: what was promised is not shortened by how it is written.
func (r *record) setTTL(ttl time.Duration) {
	r.TTL = (ttl + time.Millisecond - 1).Milliseconds()
}

// keyRecord is the data of an idempotency key's node.
type keyRecord struct {
	Version     int    `json:"v"`
	LeaseID     string `json:"lease_id"`
	Fingerprint string `json:"fingerprint"`
	NS          string `json:"ns"`
	Lock        string `json:"lock"`
}
