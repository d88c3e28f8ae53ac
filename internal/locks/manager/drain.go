package manager

import (
	"context"
	"fmt"
	"time"

	"lockkeeper/internal/locks/term"
)

// Leave makes Ready fail and changes nothing else: load balancers stop routing here before Drain refuses requests.
func (m *Manager) Leave() {
	m.do(func() { m.life.leaving = true })
}

// Drain hands over to a successor. Clocks stop, new requests are refused, and open acquires are answered or cancelled.
// Writes under way finish within the promise window or ctx. The session's last transaction deletes the registration,
// so a successor begins at once.
func (m *Manager) Drain(ctx context.Context) error {
	session, begun := locked2(m, func() (term.Session, bool) {
		if m.life.draining {
			return nil, false
		}
		m.life.draining = true
		m.port.Last()
		close(m.life.drain)
		m.endEphemerals(m.clock.Now().Boot())
		return m.port.Session(), true
	})
	if !begun {
		return nil
	}
	defer func() {
		m.do(func() {
			m.notices.over = true
			m.wakeFollowers()
		})
	}()
	if session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.fleet.layout.PromiseWindow)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for busy := true; busy; {
		m.do(func() { busy = m.port.InFlight() > 0 || m.requests.acquiring > 0 })
		if !busy {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			busy = false
		}
	}
	if err := session.Close(ctx); err != nil {
		return fmt.Errorf("handing over: %w", err)
	}
	return nil
}
