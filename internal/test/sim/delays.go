package sim

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"
)

// terms are what a client has agreed upon for the end of its lease.
type terms struct {
	delay  time.Duration // how long its place stays
	always bool          // also when it is let go
}

// terms draws them for an acquire: mostly there are none. Some leases are ephemeral.
func (c *client) terms(query url.Values) (t terms) {
	switch c.random.IntN(10) {
	case 0, 1:
		t = terms{time.Duration(1+c.random.IntN(3)) * time.Second, c.random.IntN(2) == 0}
		query.Set("lock_delay", fmt.Sprint(t.delay))
		if t.always {
			query.Set("lock_delay_on", "always")
		}
	case 2:
		query.Set("ephemeral", "true")
	}
	return t
}

// agree notes the terms of a lease.
func (w *world) agree(l *lease, t terms) {
	if t.delay > 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.terms[l.id] = t
	}
}

// checkDelays looks whether the places of leases with a lock delay have stayed; held are the leases whose clients were told that
// they hold.
func (w *world) checkDelays(held map[string]bool) {
	w.mu.Lock()
	agreed, jumps := maps.Clone(w.terms), slices.Clone(w.jumps)
	excused, freed := maps.Clone(w.excused), maps.Clone(w.freed)
	w.mu.Unlock()
	for _, lease := range slices.Sorted(maps.Keys(agreed)) {
		t := agreed[lease]
		for _, c := range w.audit.places(lease) {
			if c.gone.IsZero() || excused[lease] || w.struckDown(lease, c.gone) {
				continue
			}
			stays := t.delay
			for _, j := range jumps {
				if j.at.After(c.closed) && j.at.Before(c.gone) {
					stays -= j.by // its gateway may have counted so
				}
			}
			switch {
			case c.closed.IsZero() && held[lease] && (t.always || !freed[lease]) && !w.overwritten(lease):
				w.violate("delay: %s went at %s and did not stay for %v", c.path, w.since(c.gone), t.delay)
			case !c.closed.IsZero() && c.gone.Before(c.closed.Add(stays)):
				w.violate("delay: %s ended at %s and was to stay for %v, but went at %s", c.path, w.since(c.closed), t.delay, w.since(c.gone))
			}
		}
	}
}

// overwritten reports whether another program has written over what a lease's contender says.
func (w *world) overwritten(lease string) bool {
	return slices.ContainsFunc(w.audit.places(lease), func(c contender) bool { return !c.written.IsZero() })
}
