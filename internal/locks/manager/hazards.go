package manager

import (
	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
)

// tellHazard publishes that a hazard has appeared, or is over.
func (m *Manager) tellHazard(t events.Type, q *queues.Queue, h *interop.Hazard) {
	if !m.telling() {
		return
	}
	e := m.event(t, q.Path, "")
	e.NS, e.Lock, e.Hazard = q.Namespace.Name, q.Name(), &events.Hazard{Code: string(h.Code), Programs: h.Programs}
	if t == events.LockHazard {
		e.Detail = h.Detail
	}
	m.opt.Events.Publish(e)
}
