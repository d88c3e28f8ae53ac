package webhooks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
		if got := r.delivered(one.ID); !slices.Equal(got, []string{"a1"}) {
			t.Errorf("one was told %q", got)
		}
		if got := r.delivered(two.ID); len(got) != 2 {
			t.Errorf("two was told %q", got)
		}
		if !slices.Equal(k.done, []string{"lease1"}) {
			t.Errorf("done: %q", k.done)
		}
		ids := map[string]bool{}
		for _, s := range r.seen {
			ids[s.id] = true
		}
		if len(ids) != 3 {
			t.Errorf("three messages have %d ids", len(ids))
		}
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
			if !slices.Equal(got[lock], list) {
				t.Errorf("%s was told %q", lock, got[lock])
			}
		}
		if len(k.done) != ends {
			t.Errorf("%d of %d entries are done", len(k.done), ends)
		}
		if dead := c.DeadLetters("", 10); len(dead) != 0 {
			t.Errorf("dead: %+v", dead)
		}
		if tries := len(r.seen) - ends; tries > 200 {
			t.Errorf("a receiver that is down was tried %d times in an hour", tries)
		}
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
		if len(got) != 21 || got[0] != "a0" || got[1] != "a-1" || got[2] != "a1" || got[20] != "a19" {
			t.Errorf("told %q", got)
		}
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
		if !slices.Equal(r.delivered(s.ID), []string{"good3"}) {
			t.Errorf("another lock waited: %q", r.delivered(s.ID))
		}
		time.Sleep(8 * 24 * time.Hour)
		synctest.Wait()
		dead := c.DeadLetters(s.ID, 10)
		if len(dead) != 2 || dead[0].Event.Detail != "poison1" || dead[0].Attempts != len(schedule)+1 || dead[0].Error == "" {
			t.Fatalf("dead letters: %+v", dead)
		}
		if waiting, n := c.Load(); waiting != 0 || n != 2 {
			t.Errorf("%d wait and %d are dead", waiting, n)
		}
		if k.changed != 2 || len(k.done) != 1 {
			t.Errorf("written down %d times, done %q", k.changed, k.done)
		}
		broken = false
		if n := c.Replay(s.ID, dead[0].MessageID); n != 1 {
			t.Errorf("%d replayed", n)
		}
		synctest.Wait()
		if n := c.Replay(s.ID, ""); n != 1 {
			t.Errorf("%d replayed", n)
		}
		synctest.Wait()
		if !slices.Equal(r.delivered(s.ID), []string{"good3", "poison1", "poison2"}) {
			t.Errorf("told %q", r.delivered(s.ID))
		}
		if r.seen[len(r.seen)-2].id != dead[0].MessageID {
			t.Error("a replayed message has another id")
		}
		if len(k.done) != 3 {
			t.Errorf("done: %q", k.done)
		}
		if _, n := c.Load(); n != 0 {
			t.Errorf("%d are dead", n)
		}
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
		if n := len(r.delivered(alive.ID)); n != ends {
			t.Errorf("%d of %d delivered after %v", n, ends, time.Since(began))
		}
		if r.most[alive.ID] != perReceiver {
			t.Errorf("%d at once", r.most[alive.ID])
		}
		if r.most[dead.ID] > perReceiver {
			t.Errorf("%d at once toward the dead one", r.most[dead.ID])
		}
		// And the dead one is not hammered: a probe each five minutes at most.
		r.mu.Lock()
		before := len(r.seen)
		r.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(r.seen) - before; n > 14 {
			t.Errorf("%d tries in an hour", n)
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(_ *Subscription, _ *Message, n int) Attempt {
			if n == 0 {
				return Attempt{Result: Failed, Status: 503, Error: "503", RetryAfter: 10 * time.Minute}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		c.Add(entry(1, "a", s))
		synctest.Wait()
		c.Add(entry(2, "b", s)) // another lock's, but the receiver is paused
		time.Sleep(time.Hour)
		synctest.Wait()
		if r.seen[1].at.Sub(r.seen[0].at) < 10*time.Minute {
			t.Errorf("sent after %v", r.seen[1].at.Sub(r.seen[0].at))
		}
		if len(r.delivered(s.ID)) != 2 {
			t.Errorf("told %q", r.delivered(s.ID))
		}
	})
}

func TestRetryAfterIsHonouredAfterAnotherMessageWasDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, func(_ *Subscription, m *Message, n int) Attempt {
			if n == 0 {
				return Attempt{Result: Failed, Status: 429, Error: "429", RetryAfter: 10 * time.Minute}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		r.took = time.Second
		c.Add(entry(1, "a", s))
		time.Sleep(time.Millisecond)
		c.Add(entry(2, "b", s)) // under way when the other one is refused
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if got := r.delivered(s.ID); !slices.Equal(got, []string{"b2"}) {
			t.Errorf("told %q", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := r.delivered(s.ID); len(got) != 2 {
			t.Errorf("told %q", got)
		}
	})
}

func TestAfterAnOutageNoMessageWaitsForTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(time.Hour)
		c, r, _ := newBench(t, func(*Subscription, *Message, int) Attempt {
			if time.Now().Before(back) {
				return Attempt{Result: Failed, Error: "connection refused"}
			}
			return Attempt{Status: 200}
		})
		s := subscription("s")
		c.Subscriptions([]*Subscription{s})
		c.Add(entry(1, "a", s))
		c.Add(entry(2, "b", s))
		time.Sleep(time.Until(back) + time.Second)
		synctest.Wait()
		if got := r.delivered(s.ID); len(got) != 0 {
			t.Fatalf("told %q", got)
		}
		c.Add(entry(3, "c", s)) // nothing is known of it that would make it wait
		synctest.Wait()
		if got := r.delivered(s.ID); len(got) != 3 || got[0] != "c3" {
			t.Errorf("told %q", got)
		}
		for _, a := range c.Attempts(s.ID)[:2] {
			if a.Try != 4 { // at 0 s, 5 s, 5 min; the one at 35 min met the outage and is not counted
				t.Errorf("%s was try %d", a.Lock, a.Try)
			}
		}
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
		if len(r.seen) > perReceiver {
			t.Errorf("sent %d times to one that is gone", len(r.seen))
		}
		if !slices.Equal(k.disabled, []string{s.ID}) {
			t.Errorf("disabled: %q", k.disabled)
		}
		if dead := c.DeadLetters(s.ID, 100); len(dead) != 50 {
			t.Errorf("%d dead letters", len(dead))
		}
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
		if !slices.Equal(k.done, []string{"lease1"}) {
			t.Errorf("done: %q", k.done)
		}
		if waiting, dead := c.Load(); waiting != 1 || dead != 0 {
			t.Errorf("%d wait, %d are dead", waiting, dead)
		}
		c.Subscriptions(nil)
		if len(k.done) != 2 {
			t.Errorf("done: %q", k.done)
		}
	})
}

func TestAMessageToANotifyURLIsSignedWithItsLeasesSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receivers{now: map[string]int{}, most: map[string]int{}}
		var secrets []string
		r.answer = func(to *Subscription, m *Message, n int) Attempt {
			secrets = append(secrets, to.Secrets[0].Value)
			if n == 0 {
				return Attempt{Result: Failed, Error: "no"}
			}
			return Attempt{Status: 200}
		}
		k := &keeper{}
		c := NewCourier(CourierOptions{Transport: r, Keeper: k, Secrets: func(e *Entry) []Secret { return []Secret{{Value: "of " + e.Name}} }})
		defer c.Close()
		e := entry(1, "a")
		e.Subscriptions, e.Notices[0].To = []string{"https://hooks.example.com/x"}, []int{0}
		c.Add(e)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(k.done, []string{"lease1"}) || !slices.Equal(secrets, []string{"of lease1", "of lease1"}) {
			t.Errorf("done %q with %q", k.done, secrets)
		}
		if len(c.receivers) != 0 {
			t.Errorf("%d receivers are remembered", len(c.receivers))
		}
	})
}

func TestAMessageThatANotifyURLRefusesIsGivenUpAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dead, well = "https://hooks.example.com/dead", "https://hooks.example.com/well"
		c, r, k := newBench(t, func(to *Subscription, m *Message, _ int) Attempt {
			if to.URL == dead {
				return Attempt{Result: Failed, Status: 401, Error: "the receiver answered 401"}
			}
			return Attempt{Status: 200}
		})
		for i, url := range []string{dead, well} { // two leases of one lock, whose receivers are one host
			e := entry(i, "a")
			e.Subscriptions, e.Notices[0].To = []string{url}, []int{0}
			c.Add(e)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.delivered(well); len(got) != 1 {
			t.Errorf("delivered %q: it waits for what another lease's receiver does not take", got)
		}
		time.Sleep(5 * 24 * time.Hour)
		synctest.Wait()
		if want := []string{Released + " https://hooks.example.com the receiver answered 401"}; !slices.Equal(k.givenUp, want) {
			t.Errorf("given up: %q", k.givenUp)
		}
		if waiting, dead := c.Load(); waiting != 0 || dead != 0 || !slices.Contains(k.done, "lease0") || len(c.receivers) != 0 {
			t.Errorf("%d wait, %d are dead letters that nobody can ask for; done %q", waiting, dead, k.done)
		}
		if n := len(r.seen); n != 11 {
			t.Errorf("%d tries, want ten of one and one of the other", n)
		}
	})
}

func TestANotifyURLThatAnswers410GetsTheMessageNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, k := newBench(t, func(*Subscription, *Message, int) Attempt { return Attempt{Result: Gone, Status: 410, Error: "410"} })
		e := entry(1, "a")
		e.Subscriptions, e.Notices[0].To = []string{"https://hooks.example.com/x"}, []int{0}
		c.Add(e)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(r.seen) != 1 || len(k.givenUp) != 1 || len(k.disabled) != 0 || !slices.Equal(k.done, []string{"lease1"}) {
			t.Errorf("%d tries, given up %q, disabled %q, done %q", len(r.seen), k.givenUp, k.disabled, k.done)
		}
	})
}

// Whatever fails and whatever comes and goes: each message of each entry is
// delivered or dead at the end, those of one lane in their order, and nothing is
// counted that is not there.
func TestNothingIsLostWhateverFails(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng, answers := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			subs := []*Subscription{subscription("a"), subscription("b"), subscription("c")}
			var down [3]time.Time
			c, r, k := newBench(t, func(to *Subscription, m *Message, _ int) Attempt {
				i := slices.IndexFunc(subs, func(s *Subscription) bool { return s.ID == to.ID })
				if time.Now().Before(down[i]) || answers.IntN(4) == 0 {
					return Attempt{Result: Failed, Status: 500, Error: "500"}
				}
				return Attempt{Status: 200}
			})
			r.took = time.Millisecond
			c.Subscriptions(subs)
			messages := 0
			for i := range 300 {
				var to []*Subscription
				for _, s := range subs {
					if rng.IntN(2) == 0 {
						to = append(to, s)
					}
				}
				if len(to) > 0 {
					c.Add(entry(i, fmt.Sprint(rng.IntN(6)), to...))
					messages += len(to)
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
				if rng.IntN(20) == 0 {
					r.mu.Lock()
					down[rng.IntN(3)] = time.Now().Add(time.Duration(rng.IntN(7200)) * time.Second)
					r.mu.Unlock()
				}
			}
			time.Sleep(40 * 24 * time.Hour)
			synctest.Wait()
			waiting, dead := c.Load()
			delivered := 0
			for _, s := range subs {
				last := map[string]int{}
				for _, d := range r.seen {
					if d.to != s.ID || d.result != Delivered {
						continue
					}
					delivered++
					n := 0
					fmt.Sscan(strings.TrimPrefix(d.order, d.lock), &n)
					if n < last[d.lock] {
						t.Errorf("seed %d: %s came after %d", seed, d.order, last[d.lock])
					}
					last[d.lock] = n
				}
			}
			if waiting != 0 || delivered+dead != messages {
				t.Errorf("seed %d: of %d messages %d were delivered, %d are dead, %d wait", seed, messages, delivered, dead, waiting)
			}
			if len(k.done)+len(c.entries) == 0 || dead == 0 && len(c.entries) != 0 {
				t.Errorf("seed %d: done %d, kept %d", seed, len(k.done), len(c.entries))
			}
		})
	}
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
		if time.Since(began) != 0 || len(k.done) != 0 {
			t.Errorf("closed after %v, done %q", time.Since(began), k.done)
		}
		c.Add(entry(11, "z", s)) // nothing happens any more
	})
}
