package events

import (
	"context"
	"time"
)

// Subscriber is a place in the hub's order and a filter. Its
// methods are for one goroutine at a time; Close is for any.
type Subscriber struct {
	hub    *Hub
	filter Filter
	wake   chan struct{} // capacity 1; closed by Close

	cursor uint64   // seq of the next event to look at; 0: not known
	resync string   // why the next batch is a Resync; "" otherwise
	over   bool     // it lagged, and got Resync
	rested bool     // it has seen all there was: the next look waits for a wake-up
	batch  []*Event // the last one that Next returned
}

// The reasons of a Resync.
const (
	ReasonUnknownPosition = "unknown_position" // the ID to resume from is not this process's
	ReasonTooOld          = "too_old"          // the ring has lost what came after it
	ReasonLagged          = "lagged"           // the subscriber read too slowly
)

// Subscribe begins behind the event whose ID is after, or with the next event
// when after is "". When what follows after is not known (any more), the first
// batch is a Resync. f has passed Check. The subscriber must be closed.
func (h *Hub) Subscribe(f Filter, after string) (*Subscriber, error) {
	s := &Subscriber{hub: h, filter: f, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	if len(h.subscribers) >= h.max {
		h.mu.Unlock()
		return nil, ErrTooManySubscribers
	}
	h.subscribers[s] = struct{}{}
	h.count.Add(1) // before the first look: see Publish
	h.mu.Unlock()
	h.metrics.Subscribers(1)
	if after == "" {
		s.cursor = h.next.Load()
		return s, nil
	}
	if seq, ok := h.place(after); !ok {
		s.resync = ReasonUnknownPosition
	} else if s.cursor = seq + 1; s.cursor < h.next.Load() && h.at(s.cursor) == nil {
		s.resync = ReasonTooOld
	}
	return s, nil
}

// Close ends the subscription: a Next that waits, or would wait, returns ErrClosed.
// It may be called more than once.
func (s *Subscriber) Close() {
	s.hub.mu.Lock()
	_, open := s.hub.subscribers[s]
	delete(s.hub.subscribers, s)
	if open {
		close(s.wake) // Run sends only to those in the map, under mu
	}
	s.hub.mu.Unlock()
	if open {
		s.hub.count.Add(-1)
		s.hub.metrics.Subscribers(-1)
	}
}

// Position is the ID behind which the next batch begins: resuming with it
// misses nothing, also when the filter let nothing through for long. While a
// Resync is still to come, resuming with it begins with one too.
func (s *Subscriber) Position() string {
	if s.cursor == 0 {
		return s.hub.nonce + "-unknown"
	}
	return s.hub.id(s.cursor - 1)
}

// Next waits for events that the filter lets through and returns a batch of
// them, which is valid until the next call. A subscriber that fell behind by
// the whole ring gets a Resync as its last batch, then ErrLagged. Other errors
// are ctx's, and ErrClosed when the subscriber is closed, or when the hub is and
// all that was published before has been read.
func (s *Subscriber) Next(ctx context.Context) ([]*Event, error) {
	clear(s.batch) // or one that waits for long would keep what the ring has dropped
	s.batch = s.batch[:0]
	for {
		switch {
		case ctx.Err() != nil: // a busy hub and a filter that lets nothing through
			return nil, context.Cause(ctx)
		case s.over:
			return nil, ErrLagged
		case s.resync != "":
			s.tellResync()
			return s.batch, nil
		case !s.rested:
			if s.look(); len(s.batch) > 0 {
				return s.batch, nil
			}
			continue
		}
		select {
		case _, open := <-s.wake:
			if !open {
				return nil, ErrClosed
			}
		case <-ctx.Done():
		case <-s.hub.done:
			if s.cursor == s.hub.next.Load() {
				return nil, ErrClosed
			}
		}
		s.rested = false
	}
}

// look reads what is new, at most maxBatch events of it, and puts into the batch
// what the filter lets through.
//
// Once it has read all there was, the next look waits for a wake-up, though there
// may be something new by then: else one whose every batch takes it longer than
// the time between two events would get, and send, each event by itself. No
// wake-up is lost by it: what is published from here on brings one.
func (s *Subscriber) look() {
	next := s.hub.next.Load()
	for end := min(next, s.cursor+maxBatch); s.cursor < end; s.cursor++ {
		e := s.hub.at(s.cursor)
		if e == nil {
			s.resync = ReasonLagged
			return
		}
		if s.filter.Match(e) {
			s.batch = append(s.batch, e)
		}
	}
	s.rested = s.cursor == next
}

// tellResync makes a Resync the batch. Only here the cursor leaves what is lost
// behind, so that a subscriber that leaves before it got Resync, and resumes, gets it then.
func (s *Subscriber) tellResync() {
	next := s.hub.next.Load()
	if s.cursor > 0 {
		s.hub.metrics.EventsDropped(next - s.cursor)
	}
	s.batch = append(s.batch, &Event{Type: Resync, Time: time.Now().UTC(), Reason: s.resync, hub: s.hub, seq: next - 1})
	s.over = s.resync == ReasonLagged
	s.cursor, s.resync = next, ""
}
