package manager

import (
	"context"
	"fmt"
	"time"
)

// Leave makes Ready fail and changes nothing else: load balancers turn away
// before Drain refuses requests.
func (m *Manager) Leave() {
	m.do(func() {
		m.leaving = true
	})
}

// Drain hands over: clocks stop, then requests are refused, open acquires are
// answered or given up, writes under way finish within the promise window or
// ctx, and the registration is deleted in the session's last transaction, so
// that a successor begins at once.
func (m *Manager) Drain(ctx context.Context) error {
	m.mu.Lock()
	if m.draining {
		m.mu.Unlock()
		return nil
	}
	m.draining = true
	close(m.drain)
	m.endEphemerals(m.clock.Now().Boot())
	session := m.session
	m.unlock()
	defer func() {
		m.mu.Lock()
		m.notices.over = true
		m.wakeFollowers()
		m.unlock()
	}()
	if session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.layout.PromiseWindow)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for busy := true; busy; {
		m.mu.Lock()
		busy = m.inflight > 0 || m.acquiring > 0
		m.mu.Unlock()
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
