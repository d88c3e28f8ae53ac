package webhooks

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// losses counts what metrics are told of lost messages.
type losses map[string]int

func (l losses) WebhookAttempt(string)     {}
func (l losses) WebhookDead(int)           {}
func (l losses) NotifyGivenUp()            {}
func (l losses) BestEffortLost(why string) { l[why]++ }

func down(*Subscription, *Message, int) Attempt {
	return Attempt{Result: Failed, Status: 500, Error: "down"}
}

// tell tells an event of a lock, under a name of its own.
func tell(c *Courier, n int, kind, lock string, to ...*Subscription) (refused []string) {
	var ids []string
	for _, s := range to {
		ids = append(ids, s.ID)
	}
	return c.Tell(fmt.Sprint(kind, n), &Event{Type: kind, NS: "default", Lock: lock, Detail: fmt.Sprint(kind, n)}, ids)
}

func TestABestEffortMessageIsTriedFourTimesAndThenGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, k := newBench(t, down)
		lost := losses{}
		c.opt.Metrics = lost
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		began := time.Now()
		assert.That(t, len(tell(c, 1, Granted, "a", s)) == 0, "it has no room")
		time.Sleep(time.Hour)
		synctest.Wait()
		var at []time.Duration
		for _, s := range r.seen {
			at = append(at, s.at.Sub(began))
			assert.Equal(t, s.id, r.seen[0].id, "the message's id")
		}
		assert.Slices(t, at, []time.Duration{0, 5 * time.Second, 35 * time.Second, 155 * time.Second}, "tries")
		status := c.Statuses()[s.ID]
		assert.That(t, lost[LostGivenUp] == 1 && status.BestEffortLost == 1 && status.Waiting == 0 && status.Dead == 0, "%v %+v", lost, status)
		assert.That(t, len(k.done) == 0 && k.changed == 0 && len(k.givenUp) == 0, "the outbox is written for it: %+v", k)
		attempts := c.Attempts(s.ID)
		assert.That(t, len(attempts) == 4 && attempts[0].Try == 4 && attempts[0].Type == Granted, "the attempt log: %+v", attempts)
	})
}

func TestAnEndDoesNotWaitForABestEffortMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(_ *Subscription, m *Message, _ int) Attempt {
			if m.Type == Granted {
				return Attempt{Result: Failed, Status: 500, Error: "not that"}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		tell(c, 1, Granted, "a", s)
		synctest.Wait()
		c.Add(entry(2, "a", s))
		synctest.Wait()
		assert.Slices(t, r.delivered(s.ID), []string{"a2"}, "delivered at once")
	})
}

func TestEndsAreSentBeforeWhatIsBestEffort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, ok)
		r.took = time.Second
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		for i := range 100 {
			tell(c, i, Granted, fmt.Sprint("lock", i), s)
		}
		time.Sleep(time.Millisecond) // the end is due last
		c.Add(entry(1, "a", s))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		assert.That(t, slices.Contains(r.delivered(s.ID), "a1"), "it is not among the first %d: %q", 2*perReceiver, r.delivered(s.ID))
		assert.Equal(t, r.most[s.ID], perReceiver, "at the same time")
	})
}

func TestMessagesOfOneLockAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(_ *Subscription, m *Message, n int) Attempt {
			if n == 0 {
				return Attempt{Result: Failed, Status: 500, Error: "not yet"}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		for i := range 5 {
			tell(c, i, Queued, "a", s)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Slices(t, r.delivered(s.ID), []string{"lease.queued0", "lease.queued1", "lease.queued2", "lease.queued3", "lease.queued4"}, "delivered")
	})
}

func TestBestEffortMessagesAreBoundedPerReceiverAndInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := subscription("well")
		c, r, _ := newBench(t, func(to *Subscription, m *Message, n int) Attempt {
			if to.ID == well.ID {
				return ok(to, m, n)
			}
			return down(to, m, n)
		})
		lost := losses{}
		c.opt.Metrics = lost
		var dead []*Subscription
		for i := range 30 {
			dead = append(dead, subscription(string(rune('a'+i%26))+string(rune('a'+i/26))))
		}
		c.Subscriptions(append(slices.Clone(dead), well))
		refused := 0
		for i := range MaxBestEffortASubscription + 10 {
			refused += len(tell(c, i, Granted, fmt.Sprint("lock", i), dead[0]))
		}
		assert.That(t, refused == 10 && lost[LostNoRoom] == 10 && c.Statuses()[dead[0].ID].BestEffortLost == 10, "%d found no room, %v", refused, lost)
		for i := range MaxBestEffortASubscription {
			tell(c, i, Granted, fmt.Sprint("lock", i), dead...)
		}
		waiting, _ := c.Load()
		assert.That(t, waiting <= MaxBestEffort && waiting > MaxBestEffort/2, "%d wait", waiting)
		assert.That(t, len(tell(c, 1, Granted, "a", well)) == 0, "there is no room for one that accepts")
		synctest.Wait()
		assert.Slices(t, r.delivered(well.ID), []string{"lease.granted1"}, "told")
		// What waited is given up, and there is room again.
		time.Sleep(bestEffortAge + time.Second)
		c.expire()
		time.Sleep(bestEffortAge) // of those under way
		synctest.Wait()
		c.expire()
		waiting, _ = c.Load()
		assert.Equal(t, waiting, 0, "wait in the end")
		assert.That(t, len(tell(c, 1, Granted, "b", dead[0])) == 0, "no room")
	})
}

func TestABestEffortMessageIsNotTriedWhenItIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(*Subscription, *Message, int) Attempt {
			return Attempt{Result: Failed, Status: 503, Error: "busy", RetryAfter: 10 * time.Minute}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		tell(c, 1, Granted, "a", s)
		synctest.Wait()
		assert.Equal(t, c.Statuses()[s.ID].BestEffortLost, 1, "given up at once: it would be too old")
		tell(c, 2, Granted, "a", s)
		time.Sleep(4 * time.Minute)
		c.expire()
		assert.Equal(t, c.Statuses()[s.ID].Waiting, 1, "it may still be sent")
		time.Sleep(2 * time.Minute)
		c.expire()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.That(t, len(r.seen) == 1 && c.Statuses()[s.ID].BestEffortLost == 2, "tried %d times", len(r.seen))
	})
}

func TestWhatIsBestEffortEndsWithItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, k := newBench(t, func(*Subscription, *Message, int) Attempt { return Attempt{Result: Gone, Status: 410, Error: "gone"} })
		lost := losses{}
		c.opt.Metrics = lost
		one, two := subscription("one"), subscription("two")
		c.Subscriptions([]*Subscription{one, two})
		r.took = time.Second
		for i := range 3 {
			tell(c, i, Granted, "a", one, two)
		}
		synctest.Wait()
		c.Subscriptions([]*Subscription{one}) // two is removed
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.That(t, len(r.seen) == 2 && slices.Equal(k.disabled, []string{one.ID}) && lost[LostGivenUp] == 3, "%+v %q %v", r.seen, k.disabled, lost)
		waiting, dead := c.Load()
		assert.That(t, waiting == 0 && dead == 0 && c.bestEffort.waiting == 0, "%d wait, %d are dead, %d counted", waiting, dead, c.bestEffort.waiting)
		c.Subscriptions(nil)
		assert.That(t, len(c.bestEffort.of) == 0, "counted for removed subscriptions: %v", c.bestEffort.of)
	})
}

// source is the feed of a service.
type source struct {
	Feed
	wanted []bool
}

func (s *source) Want(wanted bool) { s.wanted = append(s.wanted, wanted) }

func TestAServiceTellsWhatIsNamedAndWritesNothing(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		s, from := b.services[0], &source{}
		s.opt.Feed = from
		all := b.subscribe(t, 0, "")
		named, err := s.Create(t.Context(), &Subscription{URL: "https://example.com/", Enabled: true, Events: []string{Released, Granted, Released}, Locks: "deploy*"})
		assert.NoError(t, err)
		assert.Slices(t, from.wanted, []bool{false, true}, "wanted")
		to := s.Wanting(&Event{Type: Granted, NS: "default", Lock: "deploy"})
		assert.Slices(t, to, []string{named.ID}, "who names no types gets ends alone")
		assert.That(t, len(s.Wanting(&Event{Type: Queued, NS: "default", Lock: "deploy"}))+len(s.Wanting(&Event{Type: Granted, NS: "default", Lock: "x"}))+len(s.Wanting(&Event{Type: Released, NS: "default", Lock: "deploy"})) == 0, "too much")
		durable, bestEffort := named.Deliveries()
		assert.Slices(t, append(durable, bestEffort...), []string{Released, Granted}, "its types")
		durable, bestEffort = all.Deliveries()
		assert.That(t, len(durable) == len(Durable) && len(bestEffort) == 0, "%q %q", durable, bestEffort)
		zxid := b.tree.zxid
		s.Tell("granted l1", &Event{Type: Granted, NS: "default", Lock: "deploy"}, to)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.That(t, len(b.seen) == 1 && b.seen[0].to == named.ID && b.tree.zxid == zxid, "%+v, %d writes", b.seen, b.tree.zxid-zxid)
		_, err = s.Update(t.Context(), named.ID, -1, func(s *Subscription) error { s.Enabled = false; return nil })
		assert.NoError(t, err)
		assert.That(t, !from.wanted[len(from.wanted)-1], "a disabled subscription wants events")
	})
}

func TestBestEffortMessagesWithoutRoomAreReportedOnceAMinute(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		s := b.services[0]
		b.answer = down
		sub, err := s.Create(t.Context(), &Subscription{URL: "https://example.com/", Enabled: true, Events: []string{Granted}})
		assert.NoError(t, err)
		var reports []string
		s.opt.Dropped = func(id string, n int, detail string) {
			assert.That(t, id == sub.ID && detail != "", "%q %q", id, detail)
			reports = append(reports, fmt.Sprint(n))
		}
		flood := func() {
			for i := range MaxBestEffortASubscription + 7 {
				s.Tell(fmt.Sprint(i), &Event{Type: Granted, NS: "default", Lock: "a"}, []string{sub.ID})
			}
		}
		flood()
		time.Sleep(10 * time.Second)
		flood()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		assert.Slices(t, reports, []string{"7"}, "in the first minute")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Slices(t, reports, []string{"7", "1007"}, "in two")
	})
}

func TestATypeOfALaterReleaseStaysInTheRecord(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		s := b.services[0]
		sub := b.subscribe(t, 0, "")
		later := *sub
		later.Events = []string{"lease.of_a_later_release", Released}
		b.with(func() {
			b.tree.nodes["/l/webhooks/"+sub.ID].data = later.Record()
			b.tree.nodes["/l/webhooks/"+sub.ID].version++
		})
		changed, err := s.Update(t.Context(), sub.ID, -1, func(s *Subscription) error { s.Description = "x"; return nil })
		assert.NoError(t, err)
		assert.Slices(t, changed.Events, later.Events, "types")
		assert.That(t, changed.Wants(&Event{Type: Released, NS: "default", Lock: "a"}) && !changed.Wants(&Event{Type: Expired, NS: "default", Lock: "a"}), "wants")
		_, err = s.Update(t.Context(), sub.ID, -1, func(s *Subscription) error { s.Events = []string{"lease.relesed"}; return nil })
		assert.That(t, err != nil, "a typing error is accepted")
	})
}

func TestAMessageIsNamedByItsEventAndLock(t *testing.T) {
	e := func(lock string) *Event { return &Event{NS: "default", Lock: lock} }
	id := MessageID(notKeptPrefix+"lease.granted l-1", e("a"), "wh_1")
	for _, other := range []string{MessageID(notKeptPrefix+"lease.granted l-2", e("a"), "wh_1"), MessageID(notKeptPrefix+"lease.queued l-1", e("a"), "wh_1"),
		MessageID(notKeptPrefix+"lease.granted l-1", e("b"), "wh_1"), MessageID(notKeptPrefix+"lease.granted l-1", e("a"), "wh_2")} {
		assert.That(t, other != id, "two messages have one id")
	}
	assert.Equal(t, MessageID(notKeptPrefix+"lease.granted l-1", e("a"), "wh_1"), id)
}
