package manager

import (
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// peerReports has what gateways report to each other, and the events that wait for it. The monitor guards it.
type peerReports struct {
	notices   notices                        // reports of this gateway
	reports   map[leaseOrPath]*report        // reports by other gateways about contenders that still exist
	feeds     map[recipe.GatewayID]*peerFeed // gateways that may send reports
	feedsWake chan struct{}                  // closed when sources changes; nil while no reader waits
	back      back                           // delayed events

	destructions int // reports of destroyed locks that wait

	// The manager's, which the reports are about.
	monitor      *monitor
	follows      bool // this gateway follows its peers
	clock        zk.Clock
	port         *term.Port
	life         *life
	timers       *timers
	fleet        *fleet
	members      *cluster.Members
	replica      *queues.Replica
	leases       *leaseTable
	delays       *delays
	history      *postmortem.Log
	observedEnds *postmortem.Log
	publisher    *publisher
}

// report is what peers have reported about an end.
type report struct {
	ended, sure bool // ended: the lease's gateway reported end; sure: its report is final
	end         postmortem.End
	termination *cause        // the reason that an administrator's gateway reported
	confirmed   bool          // that gateway confirmed the deletion
	q           *queues.Queue // the contender's queue when the report arrived; nil: the replica had none
	name        string
}

// outcome returns why a lease ended, as far as known; own is what this gateway did to it. w may be nil.
func (w *report) outcome(own *cause) (locks.Reason, string) {
	switch {
	case w != nil && w.sure && w.end.Reason() != locks.ReasonRemoved:
		return w.end.Reason(), w.end.Words
	case own != nil:
		return own.reason, own.words
	case w != nil && w.termination != nil:
		return w.termination.reason, w.termination.words
	case w != nil && w.ended:
		return w.end.Reason(), w.end.Words
	}
	return locks.ReasonUnknown, ""
}

// The event of an end is delayed for a moment when another gateway may know its reason. Later events of the same lock
// are delayed with it: each lock's events keep their order, and all gateways report the same reasons. Only the
// publication waits; grants, answers and lists do not. Node, gateway and session events are not delayed.
//
// An event waits for the report at most holdBack. At most maxHeldOfLock events of a lock and maxHeld in total are
// delayed; at a bound the lock's events are published at once, with the known reason.

const (
	// holdBack is how long an end's event waits for its reason. Peer reports usually arrive within milliseconds.
	holdBack      = time.Second
	maxHeldOfLock = 64
	maxHeld       = 4096
)

// heldEvent is a delayed event. It waits for a peer's report, or for earlier events of its lock.
type heldEvent struct {
	*events.Event
	about recipe.LeaseID // the lease whose end is not explained yet; "" once it can be published
	until time.Duration  // boot
	own   *cause         // how an administrator of this gateway ended it; nil: no administrator did
	// ephemeral is set for an ephemeral lease: its gateway may turn out to be gone.
	ephemeral bool
}

// back are the delayed events.
type back struct {
	n       int                             // number of events
	locks   map[string][]*heldEvent         // by the lock's directory, in order; the first of each waits for a report
	waiting map[recipe.LeaseID][]*heldEvent // events that wait for a report
	line    []*heldEvent                    // the same in the order of until, with some that are already published
}

// waits reports whether a lease's end waits for a report.
func (b *back) waits(id recipe.LeaseID) bool { return len(b.waiting[id]) > 0 }

// next returns when the first event has waited long enough.
func (b *back) next() (until time.Duration, ok bool) {
	for len(b.line) > 0 && b.line[0].about == "" {
		b.line = b.line[1:]
	}
	if len(b.line) == 0 {
		return 0, false
	}
	return b.line[0].until, true
}

// holdBehind delays an event about a lock behind the delayed events of that lock. It returns false when there are none.
func (pr *peerReports) holdBehind(e *events.Event) bool {
	if pr.back.n == 0 || len(pr.back.locks[e.Dir]) == 0 || fault.On("held-order") {
		return false
	}
	pr.hold(&heldEvent{Event: e})
	return true
}

// holdEnd delays the event of a lease's end until a peer reports the reason, at most for holdBack.
func (pr *peerReports) holdEnd(e *events.Event, about recipe.LeaseID, own *cause, ephemeral bool) {
	h := &heldEvent{Event: e, about: about, until: pr.clock.Now().Boot() + holdBack, own: own, ephemeral: ephemeral}
	if pr.back.waiting == nil {
		pr.back.waiting, pr.back.locks = map[recipe.LeaseID][]*heldEvent{}, map[string][]*heldEvent{}
	}
	pr.back.waiting[about] = append(pr.back.waiting[about], h)
	pr.back.line = append(pr.back.line, h)
	pr.timers.wakeAt(h.until)
	pr.hold(h)
}

func (pr *peerReports) hold(h *heldEvent) {
	if h.Time.IsZero() {
		h.Time = time.Unix(0, int64(pr.clock.Now().Wall())).UTC() // when it happened, not when it is published
	}
	b := &pr.back
	b.locks[h.Dir] = append(b.locks[h.Dir], h)
	b.n++
	if len(b.locks[h.Dir]) >= maxHeldOfLock || b.n >= maxHeld {
		for _, other := range b.locks[h.Dir] {
			if other.about != "" {
				pr.explain(other)
			}
		}
		pr.release(h.Dir)
	}
}

// explain writes the known reason of the end into an event, which then waits no longer. release publishes it.
func (pr *peerReports) explain(h *heldEvent) {
	id := h.about
	h.about = ""
	list := pr.back.waiting[id]
	for i := range list {
		if list[i] == h {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(pr.back.waiting, id)
	} else {
		pr.back.waiting[id] = list
	}
	w := pr.reports[leaseOrPath(id)]
	reason, words := w.outcome(h.own)
	if reason == locks.ReasonUnknown {
		reason = locks.Reason(h.Reason)
		if h.ephemeral && !pr.members.Registered(id.Gateway()) {
			reason = locks.ReasonGatewayLeft
		}
	}
	h.Type, h.Reason, h.Detail = endType(reason), string(reason), words
	if w != nil && w.ended {
		if h.Owner == "" {
			h.Owner = w.end.Owner
		}
		if h.FencingToken == 0 {
			h.FencingToken = w.end.FencingToken
		}
	}
	if len(list) == 0 {
		pr.dropReport(id)
	}
}

// release publishes a lock's delayed events, up to the first that still waits.
func (pr *peerReports) release(dir string) {
	b := &pr.back
	list := b.locks[dir]
	for len(list) > 0 && list[0].about == "" {
		pr.publisher.hub.Publish(list[0].Event)
		list[0] = nil
		list = list[1:]
		b.n--
	}
	if len(list) == 0 {
		delete(b.locks, dir)
	} else {
		b.locks[dir] = list
	}
}

// releaseOf publishes the events that wait for the reason of a lease's end.
func (pr *peerReports) releaseOf(id recipe.LeaseID) {
	list := pr.back.waiting[id]
	for _, h := range list {
		pr.explain(h)
	}
	for _, h := range list {
		pr.release(h.Dir)
	}
}

// releaseDue publishes the events that have waited long enough.
func (pr *peerReports) releaseDue(now time.Duration) {
	for until, ok := pr.back.next(); ok && until <= now; until, ok = pr.back.next() {
		h := pr.back.line[0]
		pr.explain(h)
		pr.release(h.Dir)
	}
}

// releaseAll publishes all events when the manager stops.
func (pr *peerReports) releaseAll() {
	pr.monitor.do(func() { pr.releaseDue(1<<63 - 1) })
}

// checkBack returns what is wrong with the counts of the delayed events.
func checkBack(b *back) (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	n, waiting := 0, 0
	for dir, list := range b.locks {
		n += len(list)
		if len(list) == 0 || list[0].about == "" {
			fail("%s: what is held back waits for nothing", dir)
		}
		for _, h := range list {
			if h.about != "" {
				waiting++
			}
		}
	}
	if n != b.n {
		fail("%d events are held back; counted %d", n, b.n)
	}
	for _, list := range b.waiting {
		waiting -= len(list)
	}
	if waiting != 0 {
		fail("%d events wait for a word that will not find them", waiting)
	}
	return err
}
