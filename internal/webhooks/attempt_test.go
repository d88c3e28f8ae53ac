package webhooks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

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
		assert.That(t, r.seen[1].at.Sub(r.seen[0].at) >= 10*time.Minute, "sent after %v", r.seen[1].at.Sub(r.seen[0].at))
		assert.That(t, len(r.delivered(s.ID)) == 2, "told %q", r.delivered(s.ID))
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
		assert.Slices(t, r.delivered(s.ID), []string{"b2"}, "told")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got := r.delivered(s.ID)
		assert.That(t, len(got) == 2, "told %q", got)
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
		got := r.delivered(s.ID)
		assert.Must(t, len(got) == 0, "told %q", got)
		c.Add(entry(3, "c", s)) // nothing is known of it that would make it wait
		synctest.Wait()
		got = r.delivered(s.ID)
		assert.That(t, len(got) == 3 && got[0] == "c3", "told %q", got)
		for _, a := range c.Attempts(s.ID)[:2] {
			if a.Try != 4 { // at 0 s, 5 s, 5 min; the one at 35 min met the outage and is not counted
				t.Errorf("%s was try %d", a.Lock, a.Try)
			}
		}
	})
}

// With any failures, and with webhooks that come and go: each message of each entry is
// delivered or dead at the end, those of one lane in their order, and the counts are
// those of the messages.
func TestNothingIsLostAfterAnyFailure(t *testing.T) {
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
					assert.That(t, n >= last[d.lock], "seed %d: %s came after %d", seed, d.order, last[d.lock])
					last[d.lock] = n
				}
			}
			assert.That(t, waiting == 0 && delivered+dead == messages,
				"seed %d: of %d messages %d were delivered, %d are dead, %d wait", seed, messages, delivered, dead, waiting)
			assert.That(t, len(k.done)+len(c.entries) != 0 && (dead != 0 || len(c.entries) == 0),
				"seed %d: done %d, kept %d", seed, len(k.done), len(c.entries))
		})
	}
}
