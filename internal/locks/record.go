package locks

import (
	"encoding/json"
	"time"
)

// recordVersion is the version of a contender's data.
const recordVersion = 1

// record is the data of a contender: small UTF-8 JSON (Kazoo decodes every
// contender's data as UTF-8). It tells a successor and a curious reader what
// the name does not; who holds is never decided by it.
type record struct {
	Version  int    `json:"v"`
	Owner    string `json:"owner,omitempty"`
	TTL      int64  `json:"ttl_ms"`
	Metadata string `json:"metadata,omitempty"`
	Enqueued int64  `json:"enqueued_ms"` // Unix time; for display, never for decisions
}

func (l *lease) record(ttl time.Duration) []byte {
	data, err := json.Marshal(record{
		Version: recordVersion, Owner: l.owner, TTL: ttl.Milliseconds(), Metadata: l.metadata(),
		Enqueued: l.enqueued.Milliseconds(),
	})
	if err != nil {
		panic("encoding a contender's record: " + err.Error()) // strings and integers only
	}
	return data
}

// label is the data of a lease's further contenders: who it is, for whoever
// looks at that queue. The metadata of 64 of them would be larger than a transaction
// may be.
func (l *lease) label(ttl time.Duration) []byte {
	data, err := json.Marshal(record{Version: recordVersion, Owner: l.owner, TTL: ttl.Milliseconds(), Enqueued: l.enqueued.Milliseconds()})
	if err != nil {
		panic("encoding a contender's record: " + err.Error()) // strings and integers only
	}
	return data
}

// data is what a slot's contender has in it.
func (l *lease) data(s *slot, ttl time.Duration) []byte {
	if s == &l.slot {
		return l.record(ttl)
	}
	return l.label(ttl)
}

// parseRecord reads a contender's data. Data that is not a record (another
// program overwrote it: Curator's __REVOKE__) is not an error of ours: the
// lease then has the longest TTL, so that it is never shortened.
func parseRecord(data []byte) (r record, ok bool) {
	if err := json.Unmarshal(data, &r); err != nil || r.Version < 1 || r.TTL <= 0 {
		return record{}, false
	}
	return r, true
}

func (r record) ttl() time.Duration {
	return min(max(time.Duration(r.TTL)*time.Millisecond, MinTTL), MaxTTL)
}

// keyRecord is the data of an idempotency key's node.
type keyRecord struct {
	Version     int    `json:"v"`
	LeaseID     string `json:"lease_id"`
	Fingerprint string `json:"fingerprint"`
	NS          string `json:"ns"`
	Lock        string `json:"lock"`
}
