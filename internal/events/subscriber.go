package events

import (
	"context"
	"sync/atomic"
	"time"
)

// Subscriber is a place in the hub's order and a filter. Its
// methods are for one goroutine at a time; Close is for any.
type Subscriber struct {
	hub    *Hub
	group  *group        // those with the same filter
	wake   chan struct{} // capacity 1
	closed atomic.Bool

	cursor uint64   // seq of the next event to look at; 0: not known
	resync string   // why the next batch is a Resync; "" otherwise
	over   bool     // it lagged, and got Resync
	batch  []*Event // the last one that Next returned
	piece  *piece   // where it comes from, when others may be given the same; nil: its own
	buffer []byte   // of Encoded, for a batch of its own

	// Hub.mu guards these.
	given    span // what was found for it, and not looked at yet
	waits    bool // in Await
	expected bool // it was told while it waited, and has not read yet: see group
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
	s := &Subscriber{hub: h, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count.Load() >= int64(h.max) {
		return nil, ErrTooManySubscribers
	}
	if h.count.Add(1) == 1 { // before the first look: see Publish
		h.seen = h.next.Load() // find had nothing to do
	}
	h.join(s, f)
	h.metrics.Subscribers(1)
	if after == "" {
		s.cursor = h.next.Load()
		return s, nil
	}
	if seq, ok := h.place(after); !ok {
		s.resync = ReasonUnknownPosition
	} else if s.cursor = seq + 1; s.cursor < h.next.Load() && h.at(s.cursor) == nil {
		s.resync = ReasonTooOld
	} else {
		s.given = span{s.cursor, h.seen} // find has passed it already
	}
	return s, nil
}

// Close ends the subscription: a Next that waits, or would wait, returns ErrClosed.
// It may be called more than once.
func (s *Subscriber) Close() {
	s.hub.mu.Lock()
	open := s.hub.leave(s)
	if open {
		s.hub.count.Add(-1)
		s.hub.metrics.Subscribers(-1)
	}
	s.closed.Store(true)
	s.hub.mu.Unlock()
	s.rouse()
}

// rouse wakes a subscriber that waits.
func (s *Subscriber) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Position is the ID behind which the next batch begins: resuming with it
// misses nothing, also when the filter let nothing through for long. While a
// Resync is still to come, resuming with it begins with one too.
func (s *Subscriber) Position() string {
	if s.cursor == 0 {
		return s.hub.nonce + "-unknown"
	}
	if s.resync == "" {
		s.hub.mu.Lock()
		s.skip()
		s.hub.mu.Unlock()
	}
	return s.hub.id(s.cursor - 1)
}

// skip moves the cursor behind what holds nothing for this subscriber. Hub.mu is held.
func (s *Subscriber) skip() {
	if s.closed.Load() {
		return // nothing is found for it any more
	}
	to := s.hub.seen
	if !s.given.empty() {
		to = s.given.first
	} else if !s.group.span.empty() {
		to = s.group.span.first
	}
	s.cursor = max(s.cursor, to)
}

// Next waits for events that the filter lets through and returns a batch of
// them, which is valid until the next call. A subscriber that fell behind by
// the whole ring gets a Resync as its last batch, then ErrLagged. Other errors
// are ctx's, and ErrClosed when the subscriber is closed, or when the hub is and
// all that was published before has been read.
func (s *Subscriber) Next(ctx context.Context) ([]*Event, error) {
	for {
		if err := s.Await(ctx); err != nil {
			return nil, err
		}
		if batch := s.Read(); len(batch) > 0 {
			return batch, nil
		}
	}
}

// Await is the first half of Next: it returns when there is something to read. Its caller reads then, as soon as it can.
func (s *Subscriber) Await(ctx context.Context) error {
	s.forget()
	for {
		switch {
		case ctx.Err() != nil: // a busy hub
			return context.Cause(ctx)
		case s.over:
			return ErrLagged
		case s.resync != "" || !s.nothingGiven():
			return nil
		case s.closed.Load():
			return ErrClosed
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			s.leaveOff()
		case <-s.hub.done:
			if !s.lastLook() {
				return ErrClosed
			}
		}
	}
}

// Read is the second half of Next. The batch is empty when the filter lets nothing through, after all.
//
// What is published from here on is found at the end of a pause: else one whose every batch takes it longer than the time
// between two events would get, and send, each event by itself. No wake-up is lost by it: Run gives before it wakes.
func (s *Subscriber) Read() []*Event {
	s.forget()
	if s.resync != "" {
		s.tellResync()
		return s.batch
	}
	of, shared := s.take()
	if of.empty() {
		return nil
	}
	p := &piece{group: s.group, span: of, events: s.batch}
	if shared {
		p = s.hub.pieceOf(s.group, of)
		s.piece = p
	}
	p.read.Do(func() { p.fill(s.hub) })
	s.batch, s.cursor = p.events, of.end
	if p.lost > 0 {
		s.cursor, s.resync = p.lost, ReasonLagged
	}
	return s.batch
}

// forget lets go of the last batch: a subscriber that waits for long would keep what the ring has dropped.
func (s *Subscriber) forget() {
	if s.piece != nil {
		s.piece, s.batch = nil, nil
	}
	clear(s.batch)
	s.batch = s.batch[:0]
	if cap(s.buffer) > maxKept {
		s.buffer = nil
	}
}

// nothingGiven reports whether there is nothing to read, in which case the subscriber waits from now on.
func (s *Subscriber) nothingGiven() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.given.end > s.cursor {
		s.waits = false
		return false
	}
	s.arrived() // what it was told of lies before its place: it has nothing to read
	s.waits = true
	return true
}

// leaveOff says that a subscriber neither waits any more nor is about to read.
func (s *Subscriber) leaveOff() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.arrived()
}

// arrived ends the wait, and the group's for this member. Hub.mu is held.
func (s *Subscriber) arrived() {
	s.waits = false
	if s.expected {
		s.expected = false
		s.group.expected--
	}
}

// take is the span of the next batch, empty when nothing was found. shared: other subscribers may want the same.
func (s *Subscriber) take() (of span, shared bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.arrived()
	s.given.first = max(s.given.first, s.cursor)
	s.skip()
	if s.given.empty() {
		return span{}, false
	}
	of = span{s.cursor, s.given.end}
	if of.end-of.first > maxBatch {
		of.end = (of.first/maxBatch + 1) * maxBatch
	}
	s.given.first = of.end
	return of, len(s.group.members) > 1
}

// lastLook gives what was published when the hub has stopped. It reports whether there is something to read.
func (s *Subscriber) lastLook() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.find()
	for g := range s.hub.found {
		g.due, g.latest = time.Time{}, time.Time{}
	}
	clear(s.hub.tell(time.Now()))
	return s.given.end > s.cursor
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
