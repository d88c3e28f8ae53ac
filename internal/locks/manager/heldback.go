package manager

import (
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// An end whose reason another gateway may know is held back from the event stream for a moment, and with it whatever happens
// to the same lock afterwards, so that each lock's events keep their order and every gateway tells the same story. Nothing
// waits but the telling: grants, answers and lists do not. Node events, and those of gateways and sessions, are not held back.
//
// An event is held until the word comes, or for holdBack; a lock's events up to maxHeldOfLock, all of them up to maxHeld. At
// a bound the lock's are told at once, with what is known.

const (
	// holdBack is how long an end waits for its reason. What gateways tell each other is there within milliseconds.
	holdBack      = time.Second
	maxHeldOfLock = 64
	maxHeld       = 4096
)

// heldEvent is an event that is held back. It waits for a word, or for those before it.
type heldEvent struct {
	*events.Event
	about recipe.LeaseID // whose end it tells and nobody has explained yet; "" once it can be told
	until time.Duration  // boot
	own   *verdict       // what an administrator of this gateway has done to it; nil: nothing
	// ephemeral is set for an ephemeral lease: it may turn out that its gateway is gone.
	ephemeral bool
}

// back are the events that are held back.
type back struct {
	n       int                             // of them
	locks   map[string][]*heldEvent         // by the lock's directory, in order; the first of each waits for a word
	waiting map[recipe.LeaseID][]*heldEvent // those that wait for a word
	line    []*heldEvent                    // the same in the order of until, and some that have been told
}

// waits reports whether a lease's end waits for a word.
func (b *back) waits(id recipe.LeaseID) bool { return len(b.waiting[id]) > 0 }

// next is when the first of them has waited long enough.
func (b *back) next() (until time.Duration, ok bool) {
	for len(b.line) > 0 && b.line[0].about == "" {
		b.line = b.line[1:]
	}
	if len(b.line) == 0 {
		return 0, false
	}
	return b.line[0].until, true
}

// publish tells an event about a lock, behind those of the same lock that are held back.
func (m *Manager) publish(e *events.Event) {
	if m.back.n == 0 || len(m.back.locks[e.Dir]) == 0 || fault.On("held-order") {
		m.opt.Events.Publish(e)
		return
	}
	m.hold(&heldEvent{Event: e})
}

// holdEnd holds back the end of a lease until somebody says why, or long enough.
func (m *Manager) holdEnd(e *events.Event, about recipe.LeaseID, own *verdict, ephemeral bool) {
	h := &heldEvent{Event: e, about: about, until: m.clock.Now().Boot() + holdBack, own: own, ephemeral: ephemeral}
	if m.back.waiting == nil {
		m.back.waiting, m.back.locks = map[recipe.LeaseID][]*heldEvent{}, map[string][]*heldEvent{}
	}
	m.back.waiting[about] = append(m.back.waiting[about], h)
	m.back.line = append(m.back.line, h)
	m.wakeClock(h.until)
	m.hold(h)
}

func (m *Manager) hold(h *heldEvent) {
	if h.Time.IsZero() {
		h.Time = time.Unix(0, int64(m.clock.Now().Wall())).UTC() // when it happened, not when it is told
	}
	b := &m.back
	b.locks[h.Dir] = append(b.locks[h.Dir], h)
	b.n++
	if len(b.locks[h.Dir]) >= maxHeldOfLock || b.n >= maxHeld {
		for _, other := range b.locks[h.Dir] {
			if other.about != "" {
				m.explain(other)
			}
		}
		m.release(h.Dir)
	}
}

// explain writes into an event what is known of the end that it tells, and has it wait no more. release tells it.
func (m *Manager) explain(h *heldEvent) {
	id := h.about
	h.about = ""
	list := m.back.waiting[id]
	for i := range list {
		if list[i] == h {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(m.back.waiting, id)
	} else {
		m.back.waiting[id] = list
	}
	w := m.words[subject(id)]
	reason, words := w.outcome(h.own)
	if reason == locks.ReasonUnknown {
		reason = locks.Reason(h.Reason)
		if h.ephemeral && !m.members.Registered(id.Gateway()) {
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
		m.unexplained(id)
	}
}

// release tells a lock's events that are held back, up to the first that waits.
func (m *Manager) release(dir string) {
	b := &m.back
	list := b.locks[dir]
	for len(list) > 0 && list[0].about == "" {
		m.opt.Events.Publish(list[0].Event)
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

// releaseOf tells what was held back for the sake of a lease's end.
func (m *Manager) releaseOf(id recipe.LeaseID) {
	list := m.back.waiting[id]
	for _, h := range list {
		m.explain(h)
	}
	for _, h := range list {
		m.release(h.Dir)
	}
}

// releaseDue tells what has waited long enough.
func (m *Manager) releaseDue(now time.Duration) {
	for until, ok := m.back.next(); ok && until <= now; until, ok = m.back.next() {
		h := m.back.line[0]
		m.explain(h)
		m.release(h.Dir)
	}
}

// releaseAll tells everything, when the manager stops.
func (m *Manager) releaseAll() {
	m.do(func() { m.releaseDue(1<<63 - 1) })
}
