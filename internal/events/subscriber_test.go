package events

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"lockkeeper/internal/test/assert"
)

func TestASubscriberBeginsWithTheNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		publish(h, 3)
		s := subscribe(t, h, Filter{Rules: seesAll}, "")
		nothing(t, s)
		publish(h, 2)
		expect(t, next(t, s), "4 5")
		nothing(t, s)
	})
}

// The ring holds 4 events, and 10 were published: 7, 8, 9 and 10 are kept.
func TestResumingGoesOnBehindTheIDOrSaysThatItCannot(t *testing.T) {
	const nonce = "0a1b2c3d"
	id := (&Hub{nonce: nonce}).id
	for _, c := range []struct {
		name, after, want string
		dropped           uint64
	}{
		{"behind one that is kept", id(8), "9 10", 0},
		{"behind the newest but one", id(9), "10", 0},
		{"behind the newest", id(10), "", 0},
		{"behind the last that was lost: the edge", id(6), "7 8 9 10", 0},
		{"too old by one", id(5), "resync:too_old", 4 + 1},
		{"from the beginning", id(0), "resync:too_old", 10},
		{"an event that is still to come", id(11), "resync:unknown_position", 0},
		{"far in the future", id(1 << 63), "resync:unknown_position", 0},
		{"the end of numbers", id(1<<64 - 1), "resync:unknown_position", 0},
		{"of another process", New(Options{}).id(8), "resync:unknown_position", 0},
		{"no number", nonce + "-", "resync:unknown_position", 0},
		{"a number with a sign", nonce + "-+8", "resync:unknown_position", 0},
		{"a negative number", nonce + "--8", "resync:unknown_position", 0},
		{"too large a number", nonce + "-18446744073709551616", "resync:unknown_position", 0},
		{"no nonce", "8", "resync:unknown_position", 0},
		{"an empty nonce", "-8", "resync:unknown_position", 0},
		{"junk", "\x00\r\n", "resync:unknown_position", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m counts
				h, _ := running(t, Options{Ring: 4, Metrics: &m})
				h.nonce = nonce
				publish(h, 10)
				s := subscribe(t, h, Filter{Rules: seesAll}, c.after)
				if c.want == "" {
					nothing(t, s)
				} else {
					expect(t, next(t, s), c.want)
				}
				expect(t, s.Position(), h.id(10))
				got := m.dropped.Load()
				assert.That(t, got == c.dropped, "%d events were counted as dropped, not %d", got, c.dropped)
				publish(h, 1) // and it goes on from there
				expect(t, next(t, s), "11")
				nothing(t, s)
			})
		})
	}
}

func TestTheIDOfAResyncIsAPlaceToResumeFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{Ring: 4})
		publish(h, 10)
		s := subscribe(t, h, Filter{Rules: seesAll}, "of another process")
		batch, err := s.Next(t.Context())
		assert.Must(t, err == nil && locks(batch) == "resync:unknown_position" && !batch[0].Time.IsZero(), "%v, %v", locks(batch), err)
		id := batch[0].ID()
		publish(h, 2)
		expect(t, next(t, subscribe(t, h, Filter{Rules: seesAll}, id)), "11 12")
		expect(t, next(t, s), "11 12")
	})
}

func TestAResyncPassesEveryFilter(t *testing.T) {
	h := New(Options{})
	s := subscribe(t, h, Filter{Rules: seesAll, Types: Types(LeaseGranted), NS: "prod", Lock: "x", Owner: "y"}, "junk")
	expect(t, next(t, s), "resync:unknown_position")
}

func TestPositionResumesWithoutLossThoughTheFilterLetNothingThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{Ring: 4})
		f := Filter{Rules: seesAll, Lock: "1?"}
		s := subscribe(t, h, f, "")
		expect(t, s.Position(), h.id(0))
		for range 3 { // more than the ring keeps, in sum
			publish(h, 3)
			nothing(t, s)
		}
		expect(t, s.Position(), h.id(9))
		position := s.Position()
		s.Close()
		publish(h, 4)
		expect(t, next(t, subscribe(t, h, f, position)), "10 11 12 13")
	})
}

// A subscriber that leaves before its Resync, and comes back with its Position, must still get it.
func TestPositionKeepsALossUntilItsResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{Ring: 4})
		slow := subscribe(t, h, Filter{Rules: seesAll}, "")
		publish(h, 2) // the ring has lost nothing yet, but what "junk" has seen is not known
		unknown := subscribe(t, h, Filter{Rules: seesAll}, subscribe(t, h, Filter{Rules: seesAll}, "junk").Position())
		expect(t, next(t, unknown), "resync:unknown_position")
		publish(h, 8)
		for name, s := range map[string]*Subscriber{
			"lagged":   slow,
			"too old":  subscribe(t, h, Filter{Rules: seesAll}, h.id(2)),
			"unknown":  subscribe(t, h, Filter{Rules: seesAll}, "junk"),
			"resumed":  subscribe(t, h, Filter{Rules: seesAll}, subscribe(t, h, Filter{Rules: seesAll}, h.id(2)).Position()),
			"resumed'": subscribe(t, h, Filter{Rules: seesAll}, subscribe(t, h, Filter{Rules: seesAll}, "junk").Position()),
		} {
			again := subscribe(t, h, Filter{Rules: seesAll}, s.Position())
			batch, err := again.Next(t.Context())
			if err != nil || batch[0].Type != Resync {
				t.Errorf("%s: %s, %v", name, locks(batch), err)
			}
		}
		// The publisher overtakes a reader in the middle of a look: what it has
		// read is handed out, what is lost is not passed over.
		s := subscribe(t, h, Filter{Rules: seesAll}, h.id(6))
		h.ring[9%4].Store(&Event{Type: LeaseQueued, seq: 13, hub: h})
		expect(t, next(t, s), "7 8")
		expect(t, s.Position(), h.id(8))
		expect(t, next(t, s), "resync:lagged")
		expect(t, s.Position(), h.id(10))
	})
}

func TestASubscriberBehindTheRingGetsResyncAndEnds(t *testing.T) {
	for _, c := range []struct {
		published int
		want      string
		dropped   uint64
	}{{4, "1 2 3 4", 0}, {5, "resync:lagged", 5}, {4096, "resync:lagged", 4096}} {
		synctest.Test(t, func(t *testing.T) {
			var m counts
			h, _ := running(t, Options{Ring: 4, Metrics: &m})
			s := subscribe(t, h, Filter{Rules: seesAll}, "")
			publish(h, c.published)
			expect(t, next(t, s), c.want)
			expect(t, s.Position(), h.id(uint64(c.published)))
			got := m.dropped.Load()
			assert.That(t, got == c.dropped, "%d events were counted as dropped, not %d", got, c.dropped)
			publish(h, 1)
			if c.dropped == 0 {
				expect(t, next(t, s), "5")
				return
			}
			for range 2 { // and it stays over
				if batch, err := s.Next(t.Context()); !errors.Is(err, ErrLagged) {
					t.Errorf("after the Resync: %s, %v", locks(batch), err)
				}
			}
			expect(t, next(t, subscribe(t, h, Filter{Rules: seesAll}, s.Position())), fmt.Sprint(c.published+1))
		})
	}
}

func TestASubscriberThatNeverReadsDelaysNoOtherAndKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{Ring: 4})
		stuck := subscribe(t, h, Filter{Rules: seesAll}, "")
		reads := subscribe(t, h, Filter{Rules: seesAll}, "")
		var first weak.Pointer[Event]
		for n := 1; n <= 1000; n++ {
			before := time.Now()
			publish(h, 1)
			if first.Value() == nil && n == 1 {
				first = weak.Make(h.at(1))
			}
			expect(t, next(t, reads), fmt.Sprint(n))
			waited := time.Since(before)
			assert.Must(t, waited <= WakePause, "event %d took %v to the one who reads", n, waited)
		}
		runtime.GC()
		assert.That(t, first.Value() == nil, "an event that the ring lost is still kept")
		expect(t, next(t, stuck), "resync:lagged")
		runtime.KeepAlive(reads)
	})
}

// One batch is the caller's until the next call; then it must not be kept by one who waits for hours.
func TestAWaitingSubscriberKeepsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{Ring: 4})
		s := subscribe(t, h, Filter{Rules: seesAll, Lock: "[1-4]"}, "")
		publish(h, 4)
		expect(t, next(t, s), "1 2 3 4")
		kept := weak.Make(h.at(2))
		publish(h, 4)
		runtime.GC()
		assert.Must(t, kept.Value() != nil, "a batch lost an event before the next call: the test proves nothing")
		nothing(t, s)
		runtime.GC()
		assert.That(t, kept.Value() == nil, "an event that the ring lost is kept by a subscriber that waits")
		runtime.KeepAlive(s)
	})
}

func TestTheEndOfTheContextEndsNext(t *testing.T) {
	cause := errors.New("the client left")
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		s := subscribe(t, h, Filter{Rules: seesAll}, "")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := s.Next(ctx)
		assert.Equal(t, err, cause, "while it waited")
		publish(h, 1)
		_, err = s.Next(ctx)
		assert.Equal(t, err, cause, "though there is something to read")
		expect(t, next(t, s), "1") // nothing is lost by it
	})
}

// There is much to look at, and nothing of it for this one: it does not come to wait, where the end of the context would be
// noticed.
func TestTheEndOfTheContextEndsNextAlsoOnABusyHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{})
		publish(h, 20*maxBatch)
		s := subscribe(t, h, Filter{Rules: seesAll, Lock: "other"}, h.id(0))
		ctx, cancel := context.WithCancel(t.Context())
		busy := &busyContext{Context: ctx, cancel: cancel}
		_, err := s.Next(busy)
		assert.That(t, errors.Is(err, context.Canceled), "Next: %v", err)
		assert.That(t, busy.asked < 10, "the context was asked %d times", busy.asked)
	})
}

// busyContext ends when it is asked for the fifth time.
type busyContext struct {
	context.Context
	cancel func()
	asked  int
}

func (c *busyContext) Err() error {
	if c.asked++; c.asked == 5 {
		c.cancel()
	}
	return c.Context.Err()
}

func TestCloseEndsANextThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		s := subscribe(t, h, Filter{Rules: seesAll}, "")
		over := make(chan error, 1)
		go func() { _, err := s.Next(t.Context()); over <- err }()
		synctest.Wait()
		s.Close()
		s.Close()
		assert.ErrorIs(t, <-over, ErrClosed, "one that waited")
		publish(h, 1)
		_, err := s.Next(t.Context())
		assert.That(t, errors.Is(err, ErrClosed), "after Close: %v", err)
		never := subscribe(t, h, Filter{Rules: seesAll}, "")
		never.Close()
		_, err = never.Next(t.Context())
		assert.That(t, errors.Is(err, ErrClosed), "one that was closed before it read: %v", err)
	})
}

// The publisher publishes one event and waits until it was read: were a wake-up lost between a reader's look and its
// wait, both would wait forever, which synctest reports.
func TestNoWakeUpIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 5000
		h, _ := running(t, Options{Ring: 8})
		s := subscribe(t, h, Filter{Rules: seesAll}, "")
		read := make(chan string)
		go func() {
			for range rounds {
				batch, err := s.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				read <- locks(batch)
			}
		}()
		for n := 1; n <= rounds; n++ {
			publish(h, 1)
			expect(t, <-read, fmt.Sprint(n))
		}
	})
}

// A subscriber that comes while the first event is published either sees it or begins
// behind it: it never waits for an event that is there.
func TestASubscriberThatComesWithTheFirstEventMissesNoWakeUp(t *testing.T) {
	for range 2000 {
		synctest.Test(t, func(t *testing.T) {
			h, stop := running(t, Options{Ring: 8})
			go publish(h, 1)
			s := assert.Value(h.Subscribe(Filter{Rules: seesAll}, ""))(t)
			defer s.Close()
			if s.Position() == h.id(0) {
				expect(t, next(t, s), "1")
			}
			stop()
		})
	}
}
