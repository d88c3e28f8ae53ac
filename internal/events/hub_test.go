package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// counts is what a hub gave its Metrics.
type counts struct {
	dropped     atomic.Uint64
	subscribers atomic.Int64
}

func (c *counts) EventsDropped(n uint64) { c.dropped.Add(n) }
func (c *counts) Subscribers(delta int)  { c.subscribers.Add(int64(delta)) }

// running is a hub whose Run is over, at the latest, when the test is.
func running(t *testing.T, o Options) (h *Hub, stop func()) {
	t.Helper()
	h = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- h.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.Nil(t, <-over, "Run")
	})
	t.Cleanup(stop)
	return h, stop
}

// publish publishes n lease events; the lock's name is the event's place. The hub finds them together, also if it runs meanwhile.
func publish(h *Hub, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range n {
		h.Publish(&Event{Type: LeaseQueued, NS: "default", Lock: fmt.Sprint(h.next.Load())})
	}
}

func subscribe(t *testing.T, h *Hub, f Filter, after string) *Subscriber {
	t.Helper()
	s := assert.Value(h.Subscribe(f, after))(t)
	t.Cleanup(s.Close)
	return s
}

// locks is what a batch is about; a Resync is shown with its reason.
func locks(batch []*Event) string {
	var names []string
	for _, e := range batch {
		if e.Type == Resync {
			names = append(names, "resync:"+e.Reason)
			continue
		}
		names = append(names, e.Lock)
	}
	return strings.Join(names, " ")
}

// next is what the next batch is about.
func next(t *testing.T, s *Subscriber) string {
	t.Helper()
	batch := assert.Value(s.Next(t.Context()))(t, "Next")
	return locks(batch)
}

// nothing checks that there is nothing to read for a long (virtual) time.
func nothing(t *testing.T, s *Subscriber) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if batch, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("there is something to read: %s, %v", locks(batch), err)
	}
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	assert.Must(t, got == want, "got %q, want %q", got, want)
}

func TestPublishStampsTheTimeInUTCUnlessItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{})
		known := time.Unix(1, 0).UTC()
		h.Publish(&Event{Type: GatewayJoined, Time: known})
		time.Sleep(time.Second)
		h.Publish(&Event{Type: GatewayLeft})
		list := h.Recent(Filter{Rules: seesAll}, 2)
		now := time.Now().UTC()
		if list[0].Time != known || !list[1].Time.Equal(now) || list[1].Time.Location() != time.UTC {
			t.Errorf("%v and %v; now is %v", list[0].Time, list[1].Time, now)
		}
	})
}

func TestWithoutSubscribersPublishOnlyStores(t *testing.T) {
	h := New(Options{Ring: 4})
	publish(h, 3)
	assert.That(t, len(h.nudge) == 0, "it woke Run")
	expect(t, locks(h.Recent(Filter{Rules: seesAll}, 9)), "1 2 3")
	subscribe(t, h, Filter{Rules: seesAll}, "").Close()
	publish(h, 1)
	assert.That(t, len(h.nudge) == 0, "it woke Run after the last one had left")
	e := make([]Event, 101)
	n := testing.AllocsPerRun(100, func() { h.Publish(&e[0]); e = e[1:] })
	assert.That(t, n == 0, "Publish allocates %v times", n)
}

func TestRecentListsTheLastThatTheFilterLetsThroughOldestFirst(t *testing.T) {
	for _, c := range []struct {
		published, n int
		filter       Filter
		want         string
	}{
		{0, 3, Filter{Rules: seesAll}, ""},
		{2, 3, Filter{Rules: seesAll}, "1 2"},
		{3, 3, Filter{Rules: seesAll}, "1 2 3"},
		{4, 3, Filter{Rules: seesAll}, "2 3 4"},
		{4, 9, Filter{Rules: seesAll}, "1 2 3 4"},
		{5, 9, Filter{Rules: seesAll}, "2 3 4 5"}, // the ring has 4
		{11, 9, Filter{Rules: seesAll}, "8 9 10 11"},
		{11, 1, Filter{Rules: seesAll, Lock: "1?"}, "11"},
		{11, 9, Filter{Rules: seesAll, Lock: "[89]"}, "8 9"},
		{11, 1, Filter{Rules: seesAll, Lock: "8"}, "8"},
		{11, 1, Filter{Rules: seesAll, Lock: "7"}, ""}, // lost
		{11, 0, Filter{Rules: seesAll}, ""},
		{11, -1, Filter{Rules: seesAll}, ""},
	} {
		h := New(Options{Ring: 4})
		publish(h, c.published)
		assert.Equal(t, locks(h.Recent(c.filter, c.n)), c.want, "the last %d of %d, lock %q", c.n, c.published, c.filter.Lock)
	}
}

// The times are what a subscriber sees: a lone event at once, a burst in one go a pause later.
func TestWakeUpsAreAPauseApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		s := subscribe(t, h, Filter{Rules: seesAll}, "")
		begin := time.Now()
		go func() {
			publish(h, 1)
			for range 3 {
				time.Sleep(time.Millisecond)
				publish(h, 1)
			}
		}()
		expect(t, next(t, s), "1")
		assert.Equal(t, time.Since(begin), 0, "a lone event took")
		expect(t, next(t, s), "2 3 4")
		took := time.Since(begin)
		assert.That(t, took == WakePause, "the burst came %v after the first event", took)
		time.Sleep(time.Hour)
		begin = time.Now()
		publish(h, 1)
		expect(t, next(t, s), "5")
		assert.Equal(t, time.Since(begin), 0, "an event after a quiet hour took")
	})
}

// A subscriber that takes longer over a batch than passes between two events would, if it
// were given what there is whenever it asks, be given each event by itself.
func TestABusySubscriberGetsBurstsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := running(t, Options{})
		s := subscribe(t, h, Filter{Rules: seesAll}, "")
		go func() {
			for range 1000 {
				publish(h, 1)
				time.Sleep(100 * time.Microsecond)
			}
		}()
		batches := 0
		for read := 0; read < 1000; batches++ {
			batch := assert.Value(s.Next(t.Context()))(t)
			read += len(batch)
			time.Sleep(150 * time.Microsecond)
		}
		// The first event comes alone, and the last burst may be cut in two.
		most := int(1000*100*time.Microsecond/WakePause) + 2
		assert.That(t, batches <= most, "%d batches in the time of %d pauses", batches, most)
	})
}

func TestOnlySoManySubscribeAtATime(t *testing.T) {
	var m counts
	h := New(Options{MaxSubscribers: 2, Metrics: &m})
	a, b := subscribe(t, h, Filter{Rules: seesAll}, ""), subscribe(t, h, Filter{Rules: seesAll}, "")
	_, err := h.Subscribe(Filter{Rules: seesAll}, "")
	assert.That(t, errors.Is(err, ErrTooManySubscribers), "the third: %v", err)
	a.Close()
	a.Close() // makes no second place free
	c := subscribe(t, h, Filter{Rules: seesAll}, "")
	_, err = h.Subscribe(Filter{Rules: seesAll}, "")
	assert.That(t, errors.Is(err, ErrTooManySubscribers), "one more than there is room for: %v", err)
	n := m.subscribers.Load()
	assert.That(t, n == 2, "the metrics show %d subscribers", n)
	b.Close()
	c.Close()
	if n := m.subscribers.Load(); n != 0 || h.count.Load() != 0 || len(h.groups)+len(h.wide) != 0 {
		t.Errorf("no subscriber is left, but there are %d in the metrics, %d counted and %d groups kept", n, h.count.Load(), len(h.groups))
	}
}

func TestWhenTheHubStopsEachSubscriberReadsToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, stop := running(t, Options{})
		waits, behind := subscribe(t, h, Filter{Rules: seesAll}, ""), subscribe(t, h, Filter{Rules: seesAll}, "")
		rejects := subscribe(t, h, Filter{Rules: seesAll, Lock: "other"}, "")
		over := make(chan error, 1)
		go func() { _, err := waits.Next(t.Context()); over <- err }()
		synctest.Wait()
		stop()
		assert.ErrorIs(t, <-over, ErrClosed, "one that waits")
		publish(h, 3*maxBatch/2)
		for _, s := range []*Subscriber{behind, subscribe(t, h, Filter{Rules: seesAll}, h.id(0))} {
			read := 0
			for {
				batch, err := s.Next(t.Context())
				if err != nil {
					assert.That(t, errors.Is(err, ErrClosed) && read == 3*maxBatch/2, "%d events, then %v", read, err)
					break
				}
				read += len(batch)
			}
		}
		for range 2 { // and it stays so
			_, err := rejects.Next(t.Context())
			assert.That(t, errors.Is(err, ErrClosed), "one whose filter lets nothing through: %v", err)
		}
		_, err := subscribe(t, h, Filter{Rules: seesAll}, "").Next(t.Context())
		assert.That(t, errors.Is(err, ErrClosed), "one that comes too late: %v", err)
	})
}

// Publishers race with one another; the order is one for all, and keeps each publisher's own.
func TestAllSubscribersSeeOneOrder(t *testing.T) {
	const publishers, each, watchers = 4, 2000, 3
	h, _ := running(t, Options{Ring: publishers*each + 1})
	seen := make([][]string, watchers)
	var all sync.WaitGroup
	for i := range watchers {
		s := subscribe(t, h, Filter{Rules: seesAll}, "")
		all.Go(func() {
			for len(seen[i]) < publishers*each {
				batch, err := s.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range batch {
					seen[i] = append(seen[i], e.Owner+" "+e.Lock)
				}
			}
		})
	}
	for p := range publishers {
		all.Go(func() {
			for n := range each {
				h.Publish(&Event{Type: LeaseQueued, Owner: fmt.Sprint(p), Lock: fmt.Sprint(n)})
			}
		})
	}
	all.Wait()
	for i := range seen {
		assert.Must(t, slices.Equal(seen[i], seen[0]), "two subscribers saw different orders")
	}
	of := map[string]int{}
	for _, s := range seen[0] {
		owner, lock, _ := strings.Cut(s, " ")
		assert.Must(t, lock == fmt.Sprint(of[owner]), "publisher %s: %s where %d was next", owner, lock, of[owner])
		of[owner]++
	}
}
