package webhooks

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
		if waiting, dead := c.Load(); dead > 100 || waiting+dead != ends {
			t.Errorf("after three days %d wait and %d are dead", waiting, dead)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		late := entry(ends, "late", s)
		c.Add(late)
		time.Sleep(12 * time.Hour)
		synctest.Wait()
		if waiting, dead := c.Load(); waiting != 1 || dead != ends {
			t.Errorf("%d wait and %d are dead", waiting, dead)
		}
		list := c.DeadLetters(s.ID, ends)
		if len(list) != ends || !strings.Contains(list[0].Error, "500") {
			t.Fatalf("%d dead letters, the first of them %+v", len(list), list[:min(len(list), 1)])
		}
		if len(r.seen) > 5*24*20 {
			t.Errorf("it was tried %d times", len(r.seen))
		}
		// They are replayed like any others.
		r.mu.Lock()
		r.answer = ok
		r.mu.Unlock()
		if n := c.Replay(s.ID, ""); n != ends {
			t.Errorf("%d are replayed", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if waiting, dead := c.Load(); waiting != 0 || dead != 0 {
			t.Errorf("in the end %d wait and %d are dead", waiting, dead)
		}
	})
}
