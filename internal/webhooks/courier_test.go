package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// receivers are what the courier talks to: one function decides each answer.
type receivers struct {
	mu     sync.Mutex
	answer func(to *Subscription, m *Message, n int) Attempt // n: the attempts before this one
	took   time.Duration
	seen   []seen
	now    map[string]int // attempts under way, by subscription
	most   map[string]int
}

type seen struct {
	at     time.Time
	to, id string
	lock   string
	order  string // the event's Detail
	result Result
}

func (r *receivers) Send(ctx context.Context, to *Subscription, m *Message) Attempt {
	r.mu.Lock()
	r.now[to.ID]++
	r.most[to.ID] = max(r.most[to.ID], r.now[to.ID])
	a := r.answer(to, m, len(r.seen))
	a.At, a.MessageID, a.Type, a.NS, a.Lock = time.Now(), m.ID, m.Type, m.NS, m.Lock
	if a.Result == 0 {
		a.Result = Delivered
	}
	_, detail, _ := strings.Cut(string(m.Body), `"detail":"`)
	detail, _, _ = strings.Cut(detail, `"`)
	r.seen = append(r.seen, seen{at: a.At, to: to.ID, id: m.ID, lock: m.Lock, order: detail, result: a.Result})
	r.mu.Unlock()
	select {
	case <-time.After(r.took):
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.now[to.ID]--
	r.mu.Unlock()
	return a
}

// delivered are the details of a subscription's messages, in their order.
func (r *receivers) delivered(to string) (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if s.to == to && s.result == Delivered {
			list = append(list, s.order)
		}
	}
	return list
}

type keeper struct {
	mu       sync.Mutex
	done     []string
	changed  int
	disabled []string
	givenUp  []string
}

func (k *keeper) Done(e *Entry)  { k.mu.Lock(); k.done = append(k.done, e.Name); k.mu.Unlock() }
func (k *keeper) Changed(*Entry) { k.mu.Lock(); k.changed++; k.mu.Unlock() }
func (k *keeper) GivenUp(e *Event, host, why string) {
	k.mu.Lock()
	k.givenUp = append(k.givenUp, e.Type+" "+host+" "+why)
	k.mu.Unlock()
}

func (k *keeper) Disable(s, _, _ string) {
	k.mu.Lock()
	k.disabled = append(k.disabled, s)
	k.mu.Unlock()
}

func ok(*Subscription, *Message, int) Attempt { return Attempt{Status: 200} }

func newBench(t *testing.T, answer func(*Subscription, *Message, int) Attempt) (*Courier, *receivers, *keeper) {
	t.Helper()
	r := &receivers{answer: answer, now: map[string]int{}, most: map[string]int{}}
	k := &keeper{}
	c := NewCourier(CourierOptions{Transport: r, Keeper: k, Random: func(int64) int64 { return 0 }})
	t.Cleanup(c.Close)
	return c, r, k
}

func subscription(name string) *Subscription {
	return &Subscription{ID: idPrefix + strings.Repeat("a", 16-len(name)) + name, URL: "https://example.com/" + name, Enabled: true}
}

func entry(order int, lock string, to ...*Subscription) *Entry {
	e := &Entry{Name: fmt.Sprint("lease", order), Order: int64(order)}
	n := Notice{Event: Event{Type: Released, NS: "default", Lock: lock, Detail: fmt.Sprint(lock, order)}}
	for i, s := range to {
		e.Subscriptions = append(e.Subscriptions, s.ID)
		n.To = append(n.To, i)
	}
	e.Notices = []Notice{n}
	return e
}

func TestWhatIsDeliveredIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, k := newBench(t, ok)
		r.took = time.Millisecond // it is not done when it is added again
		one, two := subscription("one"), subscription("two")
		c.Subscriptions([]*Subscription{one, two})
		e := entry(1, "a", one, two)
		e.Notices = append(e.Notices, Notice{Event: Event{Type: Released, NS: "default", Lock: "b", Detail: "b1"}, To: []int{1}})
		c.Add(e)
		c.Add(e) // adding it again changes nothing
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Slices(t, r.delivered(one.ID), []string{"a1"}, "one was told")
		got := r.delivered(two.ID)
		assert.That(t, len(got) == 2, "two was told %q", got)
		assert.That(t, slices.Equal(k.done, []string{"lease1"}), "done: %q", k.done)
		ids := map[string]bool{}
		for _, s := range r.seen {
			ids[s.id] = true
		}
		assert.That(t, len(ids) == 3, "three messages have %d ids", len(ids))
	})
}

func TestAReceiverThatIsDownForAnHourGetsEverythingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(time.Hour)
		c, r, k := newBench(t, func(*Subscription, *Message, int) Attempt {
			if time.Now().Before(back) {
				return Attempt{Result: Failed, Error: "connection refused"}
			}
			return Attempt{Status: 200}
		})
		r.took = 10 * time.Millisecond
		s := subscription("down")
		c.Subscriptions([]*Subscription{s})
		want := map[string][]string{}
		const ends = 3000
		for i := range ends {
			lock := fmt.Sprint("lock", i%40)
			c.Add(entry(i, lock, s))
			want[lock] = append(want[lock], fmt.Sprint(lock, i))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Until(back) + 6*time.Minute) // a probe each five minutes, and a fifth of it
		synctest.Wait()
		got := map[string][]string{}
		for _, d := range r.seen {
			if d.result == Delivered {
				got[d.lock] = append(got[d.lock], d.order)
			}
		}
		for lock, list := range want {
			assert.That(t, slices.Equal(got[lock], list), "%s was told %q", lock, got[lock])
		}
		assert.That(t, len(k.done) == ends, "%d of %d entries are done", len(k.done), ends)
		dead := c.DeadLetters("", 10, anyEvent)
		assert.That(t, len(dead) == 0, "dead: %+v", dead)
		tries := len(r.seen) - ends
		assert.That(t, tries <= 200, "a receiver that is down was tried %d times in an hour", tries)
	})
}

func TestMessagesOfOneLockStayInOrderWhenTheFirstFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(_ *Subscription, m *Message, n int) Attempt {
			if n < 2 {
				return Attempt{Result: Failed, Status: 500, Error: "500"}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		r.took = time.Millisecond
		for i := range 20 {
			c.Add(entry(i, "a", s))
		}
		c.Add(entry(-1, "a", s)) // found later, happened before: it comes after the head that is being sent
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		got := r.delivered(s.ID)
		assert.That(t, len(got) == 21 && got[0] == "a0" && got[1] == "a-1" && got[2] == "a1" && got[20] == "a19", "told %q", got)
		if r.seen[1].at.Sub(r.seen[0].at).Truncate(time.Second) != 5*time.Second || r.seen[2].at.Sub(r.seen[1].at).Truncate(time.Second) != 5*time.Minute {
			t.Errorf("tried at %v, %v, %v", r.seen[0].at, r.seen[1].at, r.seen[2].at)
		}
	})
}

func TestWhatHasHadItsLastTryIsADeadLetterAndCanBeReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		c, r, k := newBench(t, func(_ *Subscription, m *Message, _ int) Attempt {
			if broken && m.Lock == "poison" {
				return Attempt{Result: Failed, Status: 500, Error: "the receiver answered 500"}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		c.Add(entry(1, "poison", s))
		c.Add(entry(2, "poison", s))
		c.Add(entry(3, "good", s))
		synctest.Wait()
		assert.That(t, slices.Equal(r.delivered(s.ID), []string{"good3"}), "another lock waited: %q", r.delivered(s.ID))
		time.Sleep(8 * 24 * time.Hour)
		synctest.Wait()
		dead := c.DeadLetters(s.ID, 10, anyEvent)
		assert.Must(t, len(dead) == 2 && dead[0].Event.Detail == "poison1" && dead[0].Attempts == len(schedule)+1 && dead[0].Error != "",
			"dead letters: %+v", dead)
		waiting, n := c.Load()
		assert.That(t, waiting == 0 && n == 2, "%d wait and %d are dead", waiting, n)
		assert.That(t, k.changed == 2 && len(k.done) == 1, "written down %d times, done %q", k.changed, k.done)
		broken = false
		assert.Equal(t, c.Replay(s.ID, dead[0].MessageID), 1, "replayed")
		synctest.Wait()
		assert.Equal(t, c.Replay(s.ID, ""), 1, "replayed")
		synctest.Wait()
		assert.That(t, slices.Equal(r.delivered(s.ID), []string{"good3", "poison1", "poison2"}), "told %q", r.delivered(s.ID))
		assert.That(t, r.seen[len(r.seen)-2].id == dead[0].MessageID, "a replayed message has another id")
		assert.That(t, len(k.done) == 3, "done: %q", k.done)
		_, n = c.Load()
		assert.Equal(t, n, 0, "are dead")
	})
}

func TestADeadReceiverDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, alive := subscription("dead"), subscription("alive")
		c, r, _ := newBench(t, func(to *Subscription, _ *Message, _ int) Attempt {
			if to.ID == dead.ID {
				return Attempt{Result: Failed, Error: "no answer"}
			}
			return Attempt{Status: 200}
		})
		r.took = attemptTimeout
		c.Subscriptions([]*Subscription{dead, alive})
		began := time.Now()
		const ends = 40
		for i := range ends {
			c.Add(entry(i, fmt.Sprint(i), dead, alive))
		}
		time.Sleep((ends/perReceiver)*attemptTimeout + time.Second)
		synctest.Wait()
		assert.Equal(t, len(r.delivered(alive.ID)), ends, "of %d delivered after %v", ends, time.Since(began))
		assert.That(t, r.most[alive.ID] == perReceiver, "%d at once", r.most[alive.ID])
		assert.That(t, r.most[dead.ID] <= perReceiver, "%d at once toward the dead one", r.most[dead.ID])
		// And the dead one is not hammered: a probe each five minutes at most.
		r.mu.Lock()
		before := len(r.seen)
		r.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		n := len(r.seen) - before
		assert.That(t, n <= 14, "%d tries in an hour", n)
	})
}

func Test410DisablesTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, k := newBench(t, func(*Subscription, *Message, int) Attempt {
			return Attempt{Result: Gone, Status: 410, Error: "410"}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		for i := range 50 {
			c.Add(entry(i, fmt.Sprint(i), s))
		}
		synctest.Wait()
		assert.That(t, len(r.seen) <= perReceiver, "sent %d times to one that is gone", len(r.seen))
		assert.That(t, slices.Equal(k.disabled, []string{s.ID}), "disabled: %q", k.disabled)
		dead := c.DeadLetters(s.ID, 100, anyEvent)
		assert.That(t, len(dead) == 50, "%d dead letters", len(dead))
	})
}

func TestWhatWaitsForARemovedSubscriptionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, k := newBench(t, func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Error: "no"} })
		gone, stays := subscription("gone"), subscription("stays")
		c.Subscriptions([]*Subscription{gone, stays})
		c.Add(entry(1, "a", gone))
		c.Add(entry(2, "a", gone, stays))
		synctest.Wait()
		c.Subscriptions([]*Subscription{stays})
		synctest.Wait()
		assert.That(t, slices.Equal(k.done, []string{"lease1"}), "done: %q", k.done)
		waiting, dead := c.Load()
		assert.That(t, waiting == 1 && dead == 0, "%d wait, %d are dead", waiting, dead)
		c.Subscriptions(nil)
		assert.That(t, len(k.done) == 2, "done: %q", k.done)
	})
}

func TestCloseEndsAttemptsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, k := newBench(t, ok)
		r.took = time.Hour
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		for i := range 10 {
			c.Add(entry(i, fmt.Sprint(i), s))
		}
		synctest.Wait()
		began := time.Now()
		c.Close()
		assert.That(t, time.Since(began) == 0 && len(k.done) == 0, "closed after %v, done %q", time.Since(began), k.done)
		c.Add(entry(11, "z", s)) // nothing happens any more
	})
}

// One message at a time is tried, so with very many locks hardly any comes to its last try.
func TestAReceiverThatAnswers500ForEverGetsDeadLettersForAnyNumberOfLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Status: 500, Error: "500"} })
		s := subscription("broken")
		c.Subscriptions([]*Subscription{s})
		const ends = 2000
		for i := range ends {
			c.Add(entry(i, fmt.Sprint("lock", i), s))
		}
		time.Sleep(3 * 24 * time.Hour)
		waiting, dead := c.Load()
		assert.That(t, dead <= 100 && waiting+dead == ends, "after three days %d wait and %d are dead", waiting, dead)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		late := entry(ends, "late", s)
		c.Add(late)
		time.Sleep(12 * time.Hour)
		synctest.Wait()
		waiting, dead = c.Load()
		assert.That(t, waiting == 1 && dead == ends, "%d wait and %d are dead", waiting, dead)
		list := c.DeadLetters(s.ID, ends, anyEvent)
		if len(list) != ends || !strings.Contains(list[0].Error, "500") {
			t.Fatalf("%d dead letters, the first of them %+v", len(list), list[:min(len(list), 1)])
		}
		assert.That(t, len(r.seen) <= 5*24*20, "it was tried %d times", len(r.seen))
		// They are replayed like any others.
		r.mu.Lock()
		r.answer = ok
		r.mu.Unlock()
		assert.Equal(t, c.Replay(s.ID, ""), ends, "are replayed")
		time.Sleep(time.Hour)
		synctest.Wait()
		waiting, dead = c.Load()
		assert.That(t, waiting == 0 && dead == 0, "in the end %d wait and %d are dead", waiting, dead)
	})
}

// What waits for one of all places is decided once more when it gets the place.
func TestWhatWaitsForAPlaceIsSentAsItsSubscriptionIsThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		urls := map[string][]string{}
		c, r, k := newBench(t, func(to *Subscription, _ *Message, _ int) Attempt {
			urls[to.ID] = append(urls[to.ID], to.URL)
			return Attempt{Status: 200}
		})
		r.took = attemptTimeout
		var busy []*Subscription
		for i := range attemptsAtOnce / perReceiver {
			busy = append(busy, subscription(fmt.Sprintf("busy%c%c", 'a'+i/26, 'a'+i%26)))
		}
		removed, disabled, changed, unread, limited := subscription("removed"), subscription("disabled"), subscription("changed"), subscription("unread"), subscription("limited")
		limited.Maker, limited.Standing = &Maker{Name: "token:shop"}, reading(t, "*")
		c.Subscriptions(slices.Concat(busy, []*Subscription{removed, disabled, changed, unread, limited}))
		order := 0
		for _, s := range busy {
			for range perReceiver {
				order++
				c.Add(entry(order, fmt.Sprint("lock", order), s))
			}
		}
		synctest.Wait()
		assert.MustEqual(t, len(r.seen), attemptsAtOnce, "attempts at once")
		for i, s := range []*Subscription{removed, disabled, changed, unread, limited} {
			c.Add(entry(1001+i, "a", s))
			c.Add(entry(1101+i, "a", s)) // the lane's next
		}
		synctest.Wait()
		off, other, hidden, less := *disabled, *changed, *unread, *limited
		off.Enabled, off.Disabled = false, "switched off"
		other.URL = "https://example.com/other"
		hidden.Unread = true
		less.Standing = reading(t, "shop:*")
		c.Subscriptions(slices.Concat(busy, []*Subscription{&off, &other, &hidden, &less}))
		time.Sleep(3 * attemptTimeout)
		synctest.Wait()
		assert.That(t, len(urls[removed.ID])+len(urls[disabled.ID])+len(urls[limited.ID])+len(urls[unread.ID]) == 0, "sent: %q", urls)
		assert.Slices(t, urls[changed.ID], []string{other.URL, other.URL}, "where the changed one was sent")
		dead := c.DeadLetters("", 10, anyEvent)
		assert.Must(t, len(dead) == 2, "dead: %+v", dead)
		for _, d := range dead {
			assert.That(t, d.Subscription == disabled.ID && d.Error == "switched off" && d.Attempts == 0, "dead: %+v", d)
		}
		assert.Equal(t, len(k.done), order+6, "done: those of the removed, the changed and the limited one, and all others")
		// It was not tried while it could not be read, and follows when it can.
		c.Subscriptions(slices.Concat(busy, []*Subscription{&off, &other, unread, &less}))
		time.Sleep(2 * attemptTimeout)
		synctest.Wait()
		assert.Slices(t, r.delivered(unread.ID), []string{"a1004", "a1104"}, "what waited while it could not be read")
		assert.Equal(t, c.Attempts(unread.ID)[0].Try, 1, "try")
		waiting, _ := c.Load()
		assert.That(t, waiting == 0 && len(c.room) == 0, "%d wait, %d places are taken", waiting, len(c.room))
	})
}

// Changes come faster than places: a message that waits is not put behind the others again and again.
func TestChangesDoNotKeepAMessageFromItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, ok)
		r.took = attemptTimeout
		var all []*Subscription
		for i := range 2 * attemptsAtOnce / perReceiver {
			all = append(all, subscription(fmt.Sprintf("s%c%c", 'a'+i/26, 'a'+i%26)))
		}
		c.Subscriptions(all)
		const each = 10 * perReceiver
		for i := range each * len(all) {
			c.Add(entry(i, fmt.Sprint("lock", i), all[i%len(all)]))
		}
		for range each * len(all) / attemptsAtOnce * int(attemptTimeout/time.Second) {
			for i := range all {
				changed := *all[i]
				all[i] = &changed
			}
			c.Subscriptions(all)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		waiting, _ := c.Load()
		assert.That(t, waiting == 0 && len(r.seen) == each*len(all), "%d wait, %d were sent", waiting, len(r.seen))
	})
}

// The head of a lane that is given up has waited long for its next try. What comes behind it has not been tried.
func TestAMessageBehindOneThatIsGivenUpIsDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var c *Courier
		c, r, _ := newBench(t, func(*Subscription, *Message, int) Attempt {
			if _, dead := c.Load(); dead < 3 {
				return Attempt{Result: Failed, Status: 500, Error: "500"}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		for i := range 3 { // the second is tried when the first is dead, and given up together with the third
			c.Add(entry(i, "a", s))
			time.Sleep(time.Hour)
		}
		time.Sleep(time.Until(began.Add(giveUpAfter - 10*time.Hour)))
		c.Add(entry(3, "a", s))
		time.Sleep(time.Until(began.Add(2 * giveUpAfter)))
		synctest.Wait()
		dead := c.DeadLetters("", 10, anyEvent)
		assert.Must(t, len(dead) == 3 && dead[1].At.Equal(dead[2].At), "dead: %+v", dead)
		assert.MustSlices(t, r.delivered(s.ID), []string{"a3"}, "told")
		waited := r.seen[len(r.seen)-1].at.Sub(dead[2].At)
		assert.That(t, waited <= maxPause+time.Second, "it was sent %v after the one before it was given up", waited)
	})
}
