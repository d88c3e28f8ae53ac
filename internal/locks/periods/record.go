package periods

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
)

// Record is the record of the periods in which the work of a lock was done, or is under way.
type Record struct {
	Version int      `json:"v"`
	Periods []Period `json:"periods"`
}

// Period is one of them.
type Period struct {
	Name      string       `json:"period"`
	LeaseID   string       `json:"lease_id"` // that was granted for it
	Owner     string       `json:"owner,omitempty"`
	Principal string       `json:"principal,omitempty"`
	DoneOn    locks.DoneOn `json:"done_on"`
	// Done: no other lease is granted for the period. Else the lease was granted, and only its release makes the period done.
	Done  bool  `json:"done"`
	At    int64 `json:"at_ms"`    // Unix time of the grant, or of the release that made it done; for display
	Until int64 `json:"until_ms"` // Unix time after which it may be forgotten
}

// ErrNoRecord: another program has written over the record of a lock's periods. What was done is not known.
var ErrNoRecord = errors.New("the data is not a record of periods")

// Parse reads a record; no data is an empty one.
func Parse(data []byte) (p Record, err error) {
	if len(data) == 0 {
		return Record{}, nil
	}
	if json.Unmarshal(data, &p) != nil || p.Version < 1 {
		return Record{}, ErrNoRecord
	}
	return p, nil
}

// Encode is the record as it is written.
func (p Record) Encode() []byte {
	p.Version = record.Version
	if p.Periods == nil {
		p.Periods = []Period{}
	}
	data, err := json.Marshal(p)
	if err != nil {
		panic("encoding a lock's periods: " + err.Error()) // strings, integers and bools
	}
	return data
}

// Find is the period of that name; nil: nothing is known of it.
func (p Record) Find(name string) *Period {
	if i := slices.IndexFunc(p.Periods, func(one Period) bool { return one.Name == name }); i >= 0 {
		return &p.Periods[i]
	}
	return nil
}

// Kept are the periods that may not be forgotten yet, at that Unix time.
func (p Record) Kept(now int64) Record {
	return Record{p.Version, slices.DeleteFunc(slices.Clone(p.Periods), func(one Period) bool { return one.Until <= now })}
}

// With is the record with a period, in the place of one of the same name, and without what may be forgotten. ok is false when it
// would have more than MaxPeriods.
func (p Record) With(one Period, now int64) (_ Record, ok bool) {
	next := p.Kept(now).Without(one.Name)
	next.Periods = append(next.Periods, one)
	return next, len(next.Periods) <= locks.MaxPeriods
}

// Without is the record without the period of that name.
func (p Record) Without(name string) Record {
	return Record{p.Version, slices.DeleteFunc(slices.Clone(p.Periods), func(one Period) bool { return one.Name == name })}
}

// Keep is for how long a period is kept after it is done: an acquire for it may come from a machine whose clock is late.
func Keep(per time.Duration) time.Duration { return max(2*per, 24*time.Hour) }
