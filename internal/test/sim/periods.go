package sim

import (
	"fmt"
	"net/url"
	"slices"
	"time"
)

// period is what a lease is for, and what its client was told of its end.
type period struct {
	lock, name string
	release    bool      // only a release makes it done
	done       time.Time // when its client was told that its release is done, and the work with it; zero before
}

// windows are how long the periods of clients are: some follow each other in a run.
const windows = 15 * time.Second

// period draws whether an acquire is for a period. It takes one exclusive lock of the default namespace.
func (c *client) period(wishes []wish, query url.Values) (p period) {
	if len(wishes) != 1 || wishes[0].mode != exclusive || wishes[0].lock == spaceLock || query.Has("hold") || query.Has("ephemeral") || c.random.IntN(2) == 0 {
		return period{}
	}
	p = period{lock: wishes[0].lock, name: fmt.Sprintf("p%d", time.Since(c.w.journal.begun)/windows), release: c.random.IntN(2) == 0}
	query.Set("once_per", "1h")
	query.Set("period", p.name)
	if p.release {
		query.Set("done_on", "release")
	}
	return p
}

// count notes that a lease is for a period.
func (l *ledger) count(lease string, p period) {
	if p.name != "" {
		l.note(func(l *ledger) { l.periods[lease] = p })
	}
}

// onlyReleaseCounts reports whether only its release makes the period of a lease done.
func (l *ledger) onlyReleaseCounts(lease string) (only bool) {
	l.note(func(l *ledger) { only = l.periods[lease].release })
	return only
}

// released notes that a client was told that its release is done.
func (l *ledger) released(lease string) {
	l.note(func(l *ledger) {
		if p, ok := l.periods[lease]; ok {
			p.done = time.Now()
			l.periods[lease] = p
		}
	})
}

// checkPeriods looks whether the work of a period was done twice. What clients were told counts: the locks are exclusive, so
// leases were granted in the order in which their clients were told so first.
func (r *review) checkPeriods() {
	told := map[string]time.Time{}
	for _, b := range r.beliefs {
		if p, ok := r.ledger.periods[b.lease]; ok && b.held && p.name != "" {
			if first, known := told[b.lease]; !known || b.from.Before(first) {
				told[b.lease] = b.from
			}
		}
	}
	byPeriod := map[string][]string{}
	for lease := range sorted(told) {
		p := r.ledger.periods[lease]
		byPeriod[p.lock+" "+p.name] = append(byPeriod[p.lock+" "+p.name], lease)
	}
	for name, leases := range sorted(byPeriod) {
		slices.SortStableFunc(leases, func(a, b string) int { return told[a].Compare(told[b]) })
		for i, lease := range leases {
			for _, later := range leases[i+1:] {
				p := r.ledger.periods[lease]
				switch {
				case r.overwritten(later), p.release && r.overwritten(lease): // another program has taken the period out of its record
				case !p.release:
					r.violate("once: %s was granted for %s at %s, and %s at %s", lease, name, r.since(told[lease]), later, r.since(told[later]))
				case !p.done.IsZero():
					r.violate("once: %s was released at %s with %s done, and %s was granted for it at %s", lease, r.since(p.done), name, later, r.since(told[later]))
				}
			}
		}
	}
}
