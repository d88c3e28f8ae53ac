package sim

import (
	"fmt"
	"net/url"
	"sync"
	"time"
)

// ledger is what clients asked for and were told beside their beliefs, for the checks at the end of a run.
type ledger struct {
	mu         sync.Mutex
	keyed      map[string]bool      // attempts with an idempotency key, by their owner
	repeated   map[string]time.Time // when attempts were last repeated, by their owner
	terms      map[string]terms     // of leases with a lock delay or at_least
	granted    map[string]bool      // contenders of which an event has told that they hold
	configured map[string]bool      // locks whose settings may have been set
	tickets    []string             // leases of clients that have gone away
	periods    map[string]period    // of leases that are for one
	booked     map[string]time.Time // by when reservations are to end
}

func newLedger() *ledger {
	return &ledger{keyed: make(map[string]bool), repeated: make(map[string]time.Time), terms: make(map[string]terms),
		granted: make(map[string]bool), configured: make(map[string]bool), periods: make(map[string]period), booked: make(map[string]time.Time)}
}

// note changes the ledger.
func (l *ledger) note(change func(*ledger)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// agree notes the terms of a lease.
func (l *ledger) agree(lease string, t terms) {
	if t.delay > 0 || t.least > 0 {
		l.note(func(l *ledger) { l.terms[lease] = t })
	}
}

// terms are what a client has agreed upon for the end of its lease.
type terms struct {
	delay  time.Duration // how long its place stays
	always bool          // also when it is released
	least  time.Duration // from its grant on its place stays so long, however it ends
}

// terms draws them for an acquire: mostly there are none. Some leases are ephemeral.
func (c *client) terms(query url.Values) (t terms) {
	switch c.random.IntN(10) {
	case 0, 1:
		t = terms{delay: time.Duration(1+c.random.IntN(3)) * time.Second, always: c.random.IntN(2) == 0}
		query.Set("lock_delay", fmt.Sprint(t.delay))
		if t.always {
			query.Set("lock_delay_on", "always")
		}
	case 2:
		query.Set("ephemeral", "true")
	case 3, 4:
		t = terms{least: time.Duration(1+c.random.IntN(8)) * time.Second}
		query.Set("at_least", fmt.Sprint(t.least))
	}
	return t
}
