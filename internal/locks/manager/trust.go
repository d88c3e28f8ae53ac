package manager

import (
	"errors"
	"strconv"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/term"
)

// StillValid reports whether an answer that was decided under the term may be given now: the term's session is the
// present one, its trust window is open and the replica is current. Adapters call it right before they write such an
// answer. An answer of a former session must not pass under the window of the next one: another gateway may have owned
// the lease in between.
func (m *Manager) StillValid(term locks.Term) bool { return m.port.StillValid(term) }

// Trusted reports whether an answer of this gateway would be valid now.
func (m *Manager) Trusted() bool { return m.port.Trusted() }

// presentTerm is the term of the present session, 0 when there is none.
func presentTerm(port *term.Port) locks.Term {
	if ref := port.Present(); ref != nil {
		return ref.Term
	}
	return 0
}

func (m *Manager) trusted() bool { return m.port.Session() != nil && m.stream.synced && m.Trusted() }

// usable returns nil when requests can be served, else the error to answer.
func (m *Manager) usable() *locks.Error {
	switch {
	case m.life.draining:
		return &locks.Error{Code: locks.CodeUnavailable, Detail: "this gateway is shutting down; repeat the request, another gateway or the restarted one answers"}
	case m.trusted():
		return nil
	}
	return unavailable()
}

func unavailable() *locks.Error {
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "ZooKeeper cannot be reached or does not confirm this gateway's writes; nothing was done, repeat the request"}
}

// unavailableFor is unavailable with a cause for the log.
func unavailableFor(cause error) *locks.Error {
	e := unavailable()
	e.Err = cause
	return e
}

func outcomeUnknown() *locks.Error {
	return &locks.Error{Code: locks.CodeOutcomeUnknown, RetryAfter: retryAfter,
		Detail: "ZooKeeper has not confirmed it yet: it may have been done; repeat the request (an acquire with the same Idempotency-Key)"}
}

// stalled reports whether, for answerWithin, ZooKeeper has answered nothing or the gateway was not trusted, while a
// request has waited since `since`.
func (m *Manager) stalled(since, now time.Duration) bool {
	if m.port.Session() == nil {
		return true
	}
	return now-max(since, m.port.Session().LastAnswer().Boot()) >= answerWithin ||
		!m.trusted() && now-max(since, m.timers.lastTrusted) >= answerWithin
}

// overdue reports whether a request that has waited since then gets the answer that its outcome is unknown.
func (m *Manager) overdue(since, now time.Duration) bool {
	return m.stalled(since, now) || now-since >= settleWithin
}

// Ready returns nil when the replica is loaded, the gateway is not draining, and it is not the only gateway that is not
// trusted: one that reaches ZooKeeper and yet cannot commit. In a full outage it stays ready and answers 503.
func (m *Manager) Ready() error {
	return locked(m, func() error {
		switch {
		case m.life.draining, m.life.leaving:
			return errors.New("shutting down")
		case !m.stream.loadedOnce:
			return errors.New("the tree has not been read from ZooKeeper yet")
		case !m.life.served && !m.trusted():
			return errors.New("no ZooKeeper session has been opened yet")
		}
		m.life.served = true
		switch {
		case m.port.Session() == nil:
			return nil
		case !m.port.Session().Trusted(m.clock.Now()) && m.port.Session().Connected() && m.stream.synced:
			return errors.New("not trusted: ZooKeeper is reachable and does not confirm this gateway's writes")
		}
		return nil
	})
}

// Alive returns nil while the process's loops run.
func (m *Manager) Alive() error {
	return locked(m, func() error {
		select {
		case <-m.fleet.ready:
		default:
			return nil // still connecting to ZooKeeper; the loops have not begun
		}
		if since := m.clock.Now().Boot() - m.timers.beat; m.timers.beat != 0 && since > 20*clockTick {
			return errors.New("the clock loop has stood still for " + strconv.FormatInt(since.Milliseconds(), 10) + " ms")
		}
		return nil
	})
}

// Nodes gives access to ZooKeeper under the present session.
func (m *Manager) Nodes() term.Nodes { return m.port.Nodes() }
