package events

import (
	"context"
	"time"
)

// Subscriber is one who watches: a place in the hub's order and a filter. Its
// methods are for one goroutine at a time.
type Subscriber struct {
	hub    *Hub
	filter Filter
	wake   chan struct{} // capacity 1

	cursor uint64 // seq of the next event to look at
	resync string // why the next batch is a Resync; "" otherwise
	over   bool   // it lagged, and has been told so
	batch  []*Event
}

// The reasons of a Resync.
const (
	ReasonUnknownPosition = "unknown_position" // the ID to resume from is not this process's
	ReasonTooOld          = "too_old"          // the ring has lost what came after it
	ReasonLagged          = "lagged"           // the subscriber read too slowly
)

// Subscribe begins behind the event whose ID is after, or with the next event
// when after is "". When what follows after is not known (any more), the first
// batch is a Resync. The subscriber must be closed.
func (h *Hub) Subscribe(f Filter, after string) (*Subscriber, error) {
	s := &Subscriber{hub: h, filter: f, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	if len(h.subscribers) >= h.max {
		h.mu.Unlock()
		return nil, ErrTooManySubscribers
	}
	h.subscribers[s] = struct{}{}
	h.count.Add(1)
	h.mu.Unlock()
	h.metrics.Subscribers(1)
	s.cursor = h.next.Load()
	if after == "" {
		return s, nil
	}
	seq, ok := h.place(after)
	switch {
	case !ok:
		s.resync = ReasonUnknownPosition
	case seq+1 < s.cursor && h.at(seq+1) == nil:
		s.resync = ReasonTooOld
	default:
		s.cursor = seq + 1
	}
	return s, nil
}

// Close ends the subscription. It may be called more than once.
func (s *Subscriber) Close() {
	s.hub.mu.Lock()
	_, open := s.hub.subscribers[s]
	delete(s.hub.subscribers, s)
	s.hub.mu.Unlock()
	if open {
		s.hub.count.Add(-1)
		s.hub.metrics.Subscribers(-1)
	}
}

// Position is the ID behind which the next batch begins: resuming with it
// misses nothing, also when the filter let nothing through for long.
func (s *Subscriber) Position() string { return s.hub.id(s.cursor - 1) }

// Next waits for events that the filter lets through and returns a batch of
// them, which is valid until the next call. A subscriber that fell behind by
// the whole ring gets a Resync as its last batch, then ErrLagged. Other errors
// are ctx's, and ErrClosed when the hub is.
func (s *Subscriber) Next(ctx context.Context) ([]*Event, error) {
	for {
		if ctx.Err() != nil { // a busy hub and a filter that lets nothing through
			return nil, context.Cause(ctx)
		}
		if s.over {
			return nil, ErrLagged
		}
		if s.resync != "" {
			e := &Event{Type: Resync, Time: time.Now().UTC(), Reason: s.resync, hub: s.hub, seq: s.cursor - 1}
			s.over, s.resync = s.resync == ReasonLagged, ""
			s.batch = append(s.batch[:0], e)
			return s.batch, nil
		}
		if s.look() {
			return s.batch, nil
		}
		if s.resync != "" || s.cursor < s.hub.next.Load() {
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.hub.done:
			if s.cursor == s.hub.next.Load() {
				return nil, ErrClosed
			}
		}
	}
}

// look reads what is new, at most maxBatch events of it, and reports whether
// the filter let any through.
func (s *Subscriber) look() bool {
	next := s.hub.next.Load()
	s.batch = s.batch[:0]
	for end := min(next, s.cursor+maxBatch); s.cursor < end; s.cursor++ {
		e := s.hub.at(s.cursor)
		if e == nil {
			s.lag()
			return len(s.batch) > 0
		}
		if s.filter.Match(e) {
			s.batch = append(s.batch, e)
		}
	}
	return len(s.batch) > 0
}

// lag ends the subscription: the ring has lost what comes next.
func (s *Subscriber) lag() {
	now := s.hub.next.Load()
	s.hub.metrics.EventsDropped(now - s.cursor)
	s.cursor = now
	s.resync = ReasonLagged
}
