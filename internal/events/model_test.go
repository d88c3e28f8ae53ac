package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// journal is the model: all that was published, in order. A publisher writes
// and publishes under one lock, as the lock manager does.
type journal struct {
	mu   sync.Mutex
	hub  *Hub
	list []*Event
}

func (j *journal) publish(typ Type, lock string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = append(j.list, &Event{Type: typ, Lock: lock, Reason: fmt.Sprint(len(j.list) + 1)})
	j.hub.Publish(&Event{Type: typ, Lock: lock, Reason: fmt.Sprint(len(j.list))})
}

func (j *journal) at(seq uint64) *Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.list[seq-1]
}

func (j *journal) published() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return uint64(len(j.list))
}

// follower reads and compares with the journal: everything up to seq was given
// to it, or held back by its filter, or reported as lost.
type follower struct {
	*journal
	ring   uint64
	filter Filter
	wants  func(*Event) bool // what the filter means, in other words
	seq    uint64
}

// follow reads batches until the plan says to go away (and resume), or until the hub is closed, which it reports.
func (f *follower) follow(ctx context.Context, after string, pauses []time.Duration) (resume string, closed bool, err error) {
	s, err := f.hub.Subscribe(f.filter, after)
	if err != nil {
		return "", false, err
	}
	defer s.Close()
	for _, pause := range pauses {
		time.Sleep(pause)
		batch, err := s.Next(ctx)
		switch {
		case errors.Is(err, ErrClosed):
			return "", true, f.skipTo(f.published())
		case errors.Is(err, ErrLagged):
			return s.Position(), false, nil
		case err != nil:
			return "", false, err
		}
		for _, e := range batch {
			if err := f.take(e); err != nil {
				return "", false, err
			}
		}
		if resync := batch[len(batch)-1].Type == Resync; !resync {
			// The filter kept back every event between the last one and Position.
			if seq, ok := f.hub.place(s.Position()); !ok {
				return "", false, fmt.Errorf("position %s is none", s.Position())
			} else if err := f.skipTo(seq); err != nil {
				return "", false, err
			}
		}
	}
	return s.Position(), false, nil
}

// take checks that e is the next event.
func (f *follower) take(e *Event) error {
	seq, ok := f.hub.place(e.ID())
	if !ok {
		return fmt.Errorf("ID %s is none", e.ID())
	}
	if e.Type == Resync {
		if lost := f.seq + 1; seq < lost+f.ring-1 || e.Reason == ReasonUnknownPosition {
			return fmt.Errorf("a Resync (%s) at %d, but %d was not lost", e.Reason, seq, lost)
		}
		f.seq = seq
		return nil
	}
	if err := f.skipTo(seq - 1); err != nil {
		return err
	}
	if want := f.at(seq); seq != f.seq+1 || e.Reason != want.Reason || e.Type != want.Type || e.Lock != want.Lock || !f.wants(want) {
		return fmt.Errorf("got %s %s %s with ID %d behind %d; published was %s %s %s", e.Type, e.Lock, e.Reason, seq, f.seq, want.Type, want.Lock, want.Reason)
	}
	f.seq = seq
	return nil
}

// skipTo checks that no event up to seq was due.
func (f *follower) skipTo(seq uint64) error {
	for f.seq < seq {
		if e := f.at(f.seq + 1); f.wants(e) {
			return fmt.Errorf("%s %s %s was left out", e.Type, e.Lock, e.Reason)
		}
		f.seq++
	}
	return nil
}

// Publishers and subscribers of all speeds, some of which go away and resume,
// against the journal. In virtual time all run at once and none waits.
func TestEverySubscriberGetsItsPartOfTheOrderOrResync(t *testing.T) {
	filters := []struct {
		Filter
		wants func(*Event) bool
	}{
		{Filter{Rules: seesAll}, func(e *Event) bool { return e.Type != NodeCreated }},
		{Filter{Rules: seesAll, Types: AllTypes}, func(e *Event) bool { return true }},
		{Filter{Rules: seesAll, Types: Types(NodeCreated)}, func(e *Event) bool { return e.Type == NodeCreated }},
		{Filter{Rules: seesAll, Lock: "b?"}, func(e *Event) bool { return e.Type != NodeCreated && e.Lock[0] == 'b' }},
		{Filter{Rules: seesAll, Types: AllTypes, Lock: "a1"}, func(e *Event) bool { return e.Lock == "a1" }},
		{Filter{Rules: seesAll, Lock: "none"}, func(e *Event) bool { return false }},
	}
	type burst struct {
		pause time.Duration
		types []Type
	}
	pause := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 7, 50}).Draw(t, "ms")) * time.Millisecond
	})
	kinds := []Type{LeaseQueued, LeaseGranted, NodeCreated, GatewayJoined}
	rapid.Check(t, func(r *rapid.T) {
		ring := rapid.SampledFrom([]int{1, 2, 8, 64, 1024}).Draw(r, "ring")
		plans := rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) burst {
			return burst{pause.Draw(t, "pause"), rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 40).Draw(t, "types")}
		}), 1, 10), 1, 4).Draw(r, "publishers")
		type reader struct {
			filter   int
			sessions [][]time.Duration
		}
		readers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) reader {
			return reader{rapid.IntRange(0, len(filters)-1).Draw(t, "filter"),
				rapid.SliceOfN(rapid.SliceOfN(pause, 1, 6), 1, 5).Draw(t, "sessions")}
		}), 1, 5).Draw(r, "subscribers")
		failed := make([]error, len(readers))

		synctest.Test(t, func(*testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			j := &journal{hub: New(Options{Ring: ring})}
			var hub, publishers, subscribers sync.WaitGroup
			hub.Go(func() { _ = j.hub.Run(ctx) })
			for i, reader := range readers {
				f := &follower{journal: j, ring: uint64(ring), filter: filters[reader.filter].Filter, wants: filters[reader.filter].wants}
				subscribers.Go(func() {
					after := j.hub.id(0)
					for n := 0; failed[i] == nil; n++ {
						var closed bool
						after, closed, failed[i] = f.follow(context.Background(), after, reader.sessions[n%len(reader.sessions)])
						if closed {
							return
						}
					}
				})
			}
			for i, bursts := range plans {
				publishers.Go(func() {
					for _, b := range bursts {
						time.Sleep(b.pause)
						for n, typ := range b.types {
							j.publish(typ, fmt.Sprintf("%c%d", 'a'+i%2, n%3))
						}
					}
				})
			}
			publishers.Wait()
			cancel()
			hub.Wait()
			subscribers.Wait()
		})
		for i, err := range failed {
			if err != nil {
				r.Fatalf("subscriber %d: %v", i, err)
			}
		}
	})
}

// The ring is as small as can be, so that every look is at its edge while it is being overwritten. What is handed out
// must be what was asked for, with every field as it was published (the race detector watches the reads).
func TestAReaderAtTheEdgeOfTheRingIsNeverGivenAnotherEvent(t *testing.T) {
	const events = 30000
	for _, ring := range []int{1, 2, 3, 64} {
		h, _ := running(t, Options{Ring: ring})
		done := make(chan struct{})
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					newest := h.next.Load() - 1
					for seq := newest - min(newest, uint64(ring)) + 1; seq <= newest; seq++ {
						if e := h.at(seq); e != nil && (e.Lock != fmt.Sprint(seq) || e.ID() != h.id(seq) || e.Time.IsZero()) {
							t.Errorf("at %d of a ring of %d: %s, ID %s, %v", seq, ring, e.Lock, e.ID(), e.Time)
							return
						}
					}
					list := h.Recent(Filter{Rules: seesAll}, ring)
					for i, e := range list {
						if i > 0 && e.seq != list[i-1].seq+1 {
							t.Errorf("Recent has %d behind %d", e.seq, list[i-1].seq)
							return
						}
					}
					if len(list) > ring {
						t.Errorf("Recent has %d of a ring of %d", len(list), ring)
						return
					}
				}
			})
		}
		publish(h, events)
		close(done)
		readers.Wait()
	}
}
