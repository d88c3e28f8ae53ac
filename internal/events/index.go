package events

import (
	"slices"
	"strings"
	"time"
)

// group is the subscribers with one and the same filter. The hub looks at an event once for all of them, and not at all
// for a group that wants another lock: subscribers of quiet locks cost nothing. Hub.mu guards a group.
type group struct {
	filter  Filter
	lock    string // the one that it wants
	oneLock bool   // lock is set
	members map[*Subscriber]struct{}
	span    span // what was found and the members were not told yet

	// They are told at due; or later, until latest, if some that waited when they were told last have not read yet: where a
	// thousand take turns, all of them are at the same place again, and are given the same batch.
	due, latest time.Time
	expected    int
}

// latestPause is the longest time between two wake-ups of a group in which something is found.
const latestPause = 20 * WakePause

// span is the events from first up to and without end. The zero value has none.
type span struct{ first, end uint64 }

func (s span) empty() bool { return s.first >= s.end }

// add makes the span reach until more ends.
func (s *span) add(more span) {
	if s.empty() {
		s.first = more.first
	}
	s.end = more.end
}

// join puts s into its group. mu is held.
func (h *Hub) join(s *Subscriber, f Filter) {
	g := h.groups[f.key()]
	if g == nil {
		g = &group{filter: f, members: map[*Subscriber]struct{}{}}
		g.lock, g.oneLock = literalOf(f.Lock)
		h.groups[f.key()] = g
		if g.oneLock {
			h.byLock[g.lock] = append(h.byLock[g.lock], g)
		} else {
			h.wide = append(h.wide, g)
		}
	}
	g.members[s] = struct{}{}
	s.group = g
}

// leave takes s out of its group, and the group out of the index once it is empty. It reports whether s was in. mu is held.
func (h *Hub) leave(s *Subscriber) bool {
	g := s.group
	if _, in := g.members[s]; !in {
		return false
	}
	s.arrived()
	if delete(g.members, s); len(g.members) > 0 {
		return true
	}
	delete(h.groups, g.filter.key())
	delete(h.found, g)
	if !g.oneLock {
		h.wide = without(h.wide, g)
	} else if left := without(h.byLock[g.lock], g); len(left) > 0 {
		h.byLock[g.lock] = left
	} else {
		delete(h.byLock, g.lock)
	}
	return true
}

func without(list []*group, g *group) []*group {
	return slices.DeleteFunc(list, func(other *group) bool { return other == g })
}

// find looks once at each new event for all groups. mu is held.
func (h *Hub) find() {
	next := h.next.Load()
	for ; h.seen < next; h.seen++ {
		e := h.at(h.seen)
		if e == nil { // the ring went round meanwhile: each subscriber looks for itself, and finds that out
			for _, g := range h.groups {
				h.note(g, span{h.seen, next})
			}
			h.seen = next
			return
		}
		for _, g := range h.byLock[e.Lock] {
			h.match(g, e)
		}
		for _, g := range h.wide {
			h.match(g, e)
		}
	}
}

func (h *Hub) match(g *group, e *Event) {
	if g.filter.Match(e) {
		h.note(g, span{e.seq, e.seq + 1})
	}
}

func (h *Hub) note(g *group, found span) {
	g.span.add(found)
	h.found[g] = struct{}{}
}

// tell gives the members of each group that may be woken what was found for it, and lists them: they are to be woken. mu is
// held.
func (h *Hub) tell(now time.Time) (woken []*Subscriber) {
	woken = h.woken[:0]
	for g := range h.found {
		if now.Before(g.due) || g.expected > 0 && now.Before(g.latest) {
			continue
		}
		for s := range g.members {
			s.given.add(g.span)
			if s.waits {
				s.waits, s.expected = false, true
				g.expected++
				woken = append(woken, s)
			}
		}
		g.span, g.due, g.latest = span{}, now.Add(WakePause), now.Add(latestPause)
		delete(h.found, g)
	}
	h.woken = woken
	return woken
}

// literalOf is the one name that a pattern of path.Match matches, if there is only one.
func literalOf(pattern string) (name string, ok bool) {
	if pattern == "" || strings.ContainsAny(pattern, `*?[`) && !strings.Contains(pattern, `\`) {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?', '[':
			return "", false
		case '\\':
			if i++; i == len(pattern) {
				return "", false
			}
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), true
}
