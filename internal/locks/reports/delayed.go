package reports

import (
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

const (
	// HoldBack is how long an end's event waits for its reason. Reports usually arrive within milliseconds.
	HoldBack = time.Second
	// MaxDelayedOfLock and MaxDelayed bound the events that are delayed. At a bound the lock's events are published at
	// once, with the reason as far as it is known.
	MaxDelayedOfLock = 64
	MaxDelayed       = 4096
)

// delayedEvent waits for a report, or for earlier events of its lock.
type delayedEvent struct {
	*events.Event
	about     recipe.LeaseID // the lease whose end is not explained yet; "" once it can be published
	until     time.Duration  // boot
	own       *Cause         // how an administrator of this gateway ended it; nil: no administrator did
	ephemeral bool           // its gateway may turn out to be gone
	several   bool           // the lease is of several locks
}

// delayed are the delayed events.
type delayed struct {
	n       int                                // number of events
	locks   map[string][]*delayedEvent         // by the lock's directory, in order; the first of each waits for a report
	waiting map[recipe.LeaseID][]*delayedEvent // events that wait for a report
	line    []*delayedEvent                    // the same in the order of until, with some that are already published
}

// waits reports whether a lease's end waits for a report.
func (d *delayed) waits(id recipe.LeaseID) bool { return len(d.waiting[id]) > 0 }

// Publish publishes an event about a lock, after the delayed events of that lock.
func (x *Exchange) Publish(e *events.Event) {
	if x.delayed.n > 0 && len(x.delayed.locks[e.Dir]) > 0 && !fault.On("held-order") {
		x.delay(&delayedEvent{Event: e})
	} else {
		x.opt.Publish(e)
	}
}

// Delay delays the event of the end of a contender's lease until a peer reports the reason, at most for HoldBack.
func (x *Exchange) Delay(e *events.Event, c *recipe.Contender, own *Cause, ephemeral bool, now time.Duration) {
	about := c.LeaseID
	h := &delayedEvent{Event: e, about: about, until: now + HoldBack, own: own, ephemeral: ephemeral, several: c.Groups > 1}
	x.delayed.waiting[about] = append(x.delayed.waiting[about], h)
	x.delayed.line = append(x.delayed.line, h)
	x.opt.WakeAt(h.until)
	x.delay(h)
}

func (x *Exchange) delay(h *delayedEvent) {
	x.opt.Stamp(h.Event)
	d := &x.delayed
	d.locks[h.Dir] = append(d.locks[h.Dir], h)
	d.n++
	if len(d.locks[h.Dir]) >= MaxDelayedOfLock || d.n >= MaxDelayed {
		for _, other := range d.locks[h.Dir] {
			if other.about != "" {
				x.explain(other)
			}
		}
		x.release(h.Dir)
	}
}

// explain writes the known reason of the end into an event, which then waits no longer. release publishes it.
func (x *Exchange) explain(h *delayedEvent) {
	id := h.about
	h.about = ""
	var others []*delayedEvent // a list of its own: explainAll walks the old one
	for _, other := range x.delayed.waiting[id] {
		if other != h {
			others = append(others, other)
		}
	}
	put(x.delayed.waiting, id, others)
	w := x.reports[LeaseOrPath(id)]
	if h.own == nil && x.onlyAnnounced(w, id) {
		w = nil
	}
	why := w.outcome(h.own)
	if why.Reason == locks.ReasonUnknown {
		why.Reason = locks.Reason(h.Reason)
		if h.ephemeral && !x.opt.Members.Registered(id.Gateway()) {
			why.Reason = locks.ReasonGatewayLeft
		}
	}
	why.Explain(h.Event, h.several)
	w.complete(h.Event)
	if len(others) == 0 {
		x.drop(id)
	}
}

// onlyAnnounced reports whether an administrator's gateway was about to end a lease, and no gateway has reported more. The
// lease's own gateway is there, and may have ended the lease first.
func (x *Exchange) onlyAnnounced(w *evidence, id recipe.LeaseID) bool {
	runner, _ := x.opt.Members.OwnerOf(id.Gateway())
	return w != nil && w.termination != nil && !w.confirmed && !w.ended && x.peers[runner] != nil && !x.opt.Members.IsOwn(runner)
}

// put sets a list of a map, or removes it when it is empty.
func put[K comparable](m map[K][]*delayedEvent, at K, list []*delayedEvent) {
	if len(list) == 0 {
		delete(m, at)
	} else {
		m[at] = list
	}
}

// release publishes a lock's delayed events, up to the first that still waits.
func (x *Exchange) release(dir string) {
	d := &x.delayed
	list := d.locks[dir]
	for len(list) > 0 && list[0].about == "" {
		x.opt.Publish(list[0].Event)
		list[0] = nil
		list = list[1:]
		d.n--
	}
	put(d.locks, dir, list)
}

// Explain publishes the events that wait for the reason of a lease's end, which this gateway has found out.
func (x *Exchange) Explain(id recipe.LeaseID, why Cause) {
	for _, h := range x.delayed.waiting[id] {
		own := why // on the heap for an event that waits, which is rare
		h.own = &own
	}
	x.explainAll(id)
}

// Unexplained records that another client has ended a lease. Its delayed events go on waiting for a report, and say no more that it
// was this gateway.
func (x *Exchange) Unexplained(id recipe.LeaseID) {
	for _, h := range x.delayed.waiting[id] {
		Cause{Reason: locks.ReasonRemoved}.Explain(h.Event, h.several)
	}
}

// explainAll publishes the events that wait for the reason of a lease's end.
func (x *Exchange) explainAll(id recipe.LeaseID) {
	list := x.delayed.waiting[id]
	for _, h := range list {
		x.explain(h)
	}
	for _, h := range list {
		x.release(h.Dir)
	}
}

// Next returns when the first event has waited long enough.
func (x *Exchange) Next() (until time.Duration, ok bool) {
	d := &x.delayed
	for len(d.line) > 0 && d.line[0].about == "" {
		d.line = d.line[1:]
	}
	if len(d.line) == 0 {
		return 0, false
	}
	return d.line[0].until, true
}

// ReleaseDue publishes the events that have waited long enough.
func (x *Exchange) ReleaseDue(now time.Duration) {
	for until, ok := x.Next(); ok && until <= now; until, ok = x.Next() {
		h := x.delayed.line[0]
		x.explain(h)
		x.release(h.Dir)
	}
}

// ReleaseAll publishes all delayed events: this gateway stops.
func (x *Exchange) ReleaseAll() { x.ReleaseDue(1<<63 - 1) }

// Sizes are how much an Exchange keeps.
type Sizes struct{ Delayed, Locks, Waiting, Line, Reports, Notices int }

// Size is how many events are delayed, of how many locks, for how many leases they wait, how long their line is, how many
// reports are kept, and how many notices.
func (x *Exchange) Size() Sizes {
	d := &x.delayed
	return Sizes{d.n, len(d.locks), len(d.waiting), len(d.line), len(x.reports), len(x.feed.line)}
}

// Check returns what is wrong with the counts of the delayed events.
func (x *Exchange) Check() (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	n, waiting := 0, 0
	for dir, list := range x.delayed.locks {
		n += len(list)
		if len(list) == 0 || list[0].about == "" {
			fail("%s: what is delayed waits for nothing", dir)
		}
		for _, h := range list {
			if h.about != "" {
				waiting++
			}
		}
	}
	if n != x.delayed.n {
		fail("%d events are delayed; counted %d", n, x.delayed.n)
	}
	for _, list := range x.delayed.waiting {
		waiting -= len(list)
	}
	if waiting != 0 {
		fail("%d events wait for a report that will not find them", waiting)
	}
	return err
}
