package manager

import (
	"slices"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
)

// hazardsNow is what is wrong with the lock as it is, in the catalogue's order; nil when nothing is.
func (q *queue) hazardsNow() (now []*interop.Hazard) {
	r := q.noted()
	for code, wrong := range [...]bool{len(r.hidden) > 0, !q.contenders.Ordered(), r.strays > 0, r.misplaced, r.invalid && q.exists} {
		if wrong {
			now = append(now, interop.HazardAt(code))
		}
	}
	return r.presence.AddHazards(now, q.space.ignoring)
}

// hazards are those of the lock, as they are shown.
func (q *queue) hazards() (list []locks.Hazard) {
	for _, h := range q.noted().hazards {
		list = append(list, h.Hazard)
	}
	return list
}

// consider looks whether the lock has come to have a hazard, or one is over, and publishes it.
func (m *Manager) consider(q *queue) {
	was, now := q.noted().hazards, q.hazardsNow()
	if slices.Equal(was, now) {
		return
	}
	q.note().hazards = now
	q.unnote("")
	change := min(len(now), 1) - min(len(was), 1)
	m.counts.hazardous += change
	q.space.hazardous += change
	before, after := interop.CountCodes(was), interop.CountCodes(now)
	for i := range locks.NumHazards {
		m.counts.hazards[i] += after[i] - before[i]
	}
	for _, h := range now {
		if !slices.Contains(was, h) {
			m.tellHazard(events.LockHazard, q, h)
		}
	}
	for _, h := range was {
		if !slices.Contains(now, h) {
			m.tellHazard(events.LockHazardCleared, q, h)
		}
	}
	m.touchQueue(q)
}

// locate notes whether the directory that has appeared in a lock root is a contender.
func (q *queue) locate(there bool) {
	_, numbered := recipe.Number(q.dir())
	if there = there && numbered && !recipe.IsKazooLease(q.dir()) && interop.IsContender(q.dir()); there != q.noted().misplaced {
		q.note().misplaced = there
		q.unnote("")
	}
}

// tellHazard publishes that a hazard has appeared, or is over.
func (m *Manager) tellHazard(t events.Type, q *queue, h *interop.Hazard) {
	if !m.telling() {
		return
	}
	e := m.event(t, q.path, "")
	e.NS, e.Lock, e.Hazard = q.space.name, q.name(), &events.Hazard{Code: string(h.Code), Programs: h.Programs}
	if t == events.LockHazard {
		e.Detail = h.Detail
	}
	m.opt.Events.Publish(e)
}
