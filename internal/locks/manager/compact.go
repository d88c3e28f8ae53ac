package manager

import (
	"encoding/json"
	"hash/maphash"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
)

// A gateway may run very many leases, nearly all of them held, and what a lease
// has in memory is what it costs: a held lease on a lock of its own takes some
// 580 bytes here and in the observer's replica (TestAHeldLeaseTakesLittleMemory).
// So strings are there once, whatever few leases have is made for those, and the
// rest is packed.

// rare is what few leases have.
type rare struct {
	least       int64  // see readableFrom
	rest        []slot // all slots but the first; never grown, so that they stay where they are
	behind      *slot  // the one that did not hold when the lease's turn was last asked for
	metadata    string
	key         string        // hash of its idempotency key; ""
	shrinkAt    time.Duration // boot: when recorded may come down to ttl; 0: it need not
	version     int32         // of the data whose content was applied here
	visibleFrom int64         // zxid of the downgrade that made the present contenders; 0
	failure     *locks.Error  // ended: what became of a create that came to nothing
	holds       []string      // in the order in which they were taken; unnamed: see there. Never changed in place
	released    []string      // names of holds that were let go. Never changed in place
	revoke      *revocation   // its holder has been asked to let go
	revokeRound int64         // how many revocations of it were withdrawn
	restored    uint8         // how often its data was written back; see overwritten.go
	words       string        // ending and ended: of the administrator who ended it
	trace       string        // ending: traceparent of the request that ends it

	beats              int64         // heartbeats that other gateways wrote into its record, as read; see written.go
	outgoing           time.Duration // the record's TTL before a write that is under way, or was not done
	acknowledgedByPeer bool          // the record says that another gateway has told the client that it holds

	telling *telling                   // of its notify_url; nil: it has none
	more    map[string]json.RawMessage // members of its record that only a later release knows. Never changed in place

	lockDelay   time.Duration // its place stays so long after its end
	lockDelayOn locks.DelayOn
}

func (l *lease) reason() locks.Reason { return l.why.Reason() }

// rare is where what few leases have can be written.
func (l *lease) rare() *rare {
	if l.rareFields == nil {
		l.rareFields = &rare{}
	}
	return l.rareFields
}

// noRare is read where a lease has none, and never written.
var noRare rare

// known is what the lease has of it, to be read.
func (l *lease) known() *rare {
	if l.rareFields == nil {
		return &noRare
	}
	return l.rareFields
}

func (l *lease) metadata() string { return l.known().metadata }

func (l *lease) key() string { return l.known().key }

func (l *lease) shrinkAt() time.Duration { return l.known().shrinkAt }

func (l *lease) failure() *locks.Error { return l.known().failure }

// revocation is what the lease's holder has been asked to do; nil: nothing.
func (l *lease) revocation() *revocation { return l.known().revoke }

// revokeRound counts the lease's revocations that were withdrawn.
func (l *lease) revokeRound() int64 { return l.known().revokeRound }

// forceAt is when the lease is taken back; 0: never.
func (l *lease) forceAt() time.Duration {
	if v := l.revocation(); v != nil {
		return v.forceAt
	}
	return 0
}

// trace is the traceparent of the request that ends the lease.
func (l *lease) trace() string { return l.known().trace }

// words are those of the administrator who ended the lease, or asked for its end.
func (l *lease) words() string { return l.known().words }

// dataVersion is the version of the contender's data whose content was applied here.
func (l *lease) dataVersion() int32 { return l.known().version }

// readableFrom is the zxid to which a server must have come whose word counts for
// the contender's data: a write of it was lost before.
func (l *lease) readableFrom() int64 { return l.known().least }

func (l *lease) setDataVersion(version int32) {
	if version != l.dataVersion() {
		l.rare().version = version
	}
}

// observation is what is observed of the slot's contender. What is not shown of a lease is not told of it either.
func (s *slot) observation() queues.Observed {
	return queues.Observed{Since: s.seenAt, Holds: s.observed != observedNot, SinceBefore: s.observed == observedLate, SuppressEvents: !s.shown}
}

func (s *slot) setObservation(to queues.Observed) {
	s.seenAt, s.observed = to.Since, observedNot
	switch {
	case to.SinceBefore:
		s.observed = observedLate
	case to.Holds:
		s.observed = observedHeld
	}
}

// observeHold is Observed.Begin.
func (s *slot) observeHold(now time.Duration, longer bool) bool {
	noted := s.observation()
	news := noted.Begin(now, longer)
	s.setObservation(noted)
	return news
}

// names keeps one copy of what many leases are called alike: their owner. Where
// two names want the same place the later one takes it, so it never grows.
type names [1 << 10]string

var namesSeed = maphash.MakeSeed()

// one returns the shared copy of a name. The argument's memory may belong to a larger buffer.
func (n *names) one(name string) string {
	if name == "" {
		return ""
	}
	place := &n[maphash.String(namesSeed, name)%uint64(len(n))]
	if *place != name {
		*place = strings.Clone(name)
	}
	return *place
}
