package webhooks

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// failing is a bench with one subscription whose receiver answers 500 until it is mended.
func failing(t *testing.T) (c *Courier, r *receivers, s *Subscription, mended *atomic.Bool) {
	t.Helper()
	mended = new(atomic.Bool)
	c, r, _ = newBench(t, func(*Subscription, *Message, int) Attempt {
		if mended.Load() {
			return Attempt{Status: 200}
		}
		return Attempt{Result: Failed, Status: 500, Error: "the receiver answered 500"}
	})
	s = subscription("one")
	c.Subscriptions([]*Subscription{s})
	return c, r, s, mended
}

func TestWhatWaitsForAPausedReceiverIsDeliveredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, s, mended := failing(t)
		const locks = 30
		for i := range locks {
			c.Add(entry(2*i, fmt.Sprint(i), s))
			c.Add(entry(2*i+1, fmt.Sprint(i), s))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		next := c.Statuses()[s.ID].Next
		assert.That(t, next.After(time.Now()) && next.Before(time.Now().Add(maxPause)), "the next try is in %v", time.Until(next))
		mended.Store(true)
		assert.Equal(t, c.DeliverNow(s.ID), 2*locks, "wait")
		synctest.Wait()
		assert.Equal(t, len(r.delivered(s.ID)), 2*locks, "are delivered without time passing")
		assert.Equal(t, c.Statuses()[s.ID].Next, time.Time{}, "no next try")
		assert.Equal(t, c.DeliverNow(s.ID), 0, "wait afterwards")
	})
}

// Few failures pause no receiver, but each message waits by its own schedule.
func TestWhatWaitsForItsNextTryIsDeliveredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, s, mended := failing(t)
		c.Add(entry(1, "a", s))
		time.Sleep(time.Minute) // the third try comes after 5 minutes
		synctest.Wait()
		assert.Equal(t, time.Until(c.Statuses()[s.ID].Next), 4*time.Minute+5*time.Second, "the next try")
		mended.Store(true)
		assert.Equal(t, c.DeliverNow(s.ID), 1, "wait")
		synctest.Wait()
		assert.Slices(t, r.delivered(s.ID), []string{"a1"}, "delivered")
	})
}

func TestAReceiverThatStillFailsGetsOneMessageAndTheTriesDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, s, mended := failing(t)
		for i := range 10 {
			c.Add(entry(i, fmt.Sprint(i), s))
		}
		time.Sleep(time.Minute)
		for range 10 * (len(schedule) + 2) { // more than all of them have tries
			synctest.Wait()
			before := r.tries()
			c.DeliverNow(s.ID)
			synctest.Wait()
			assert.Equal(t, r.tries()-before, 1, "tries after a call")
			time.Sleep(time.Second)
		}
		assert.Equal(t, len(c.DeadLetters(s.ID, 100, anyEvent)), 0, "dead letters of so many calls")
		mended.Store(true)
		c.DeliverNow(s.ID)
		synctest.Wait()
		assert.Equal(t, len(r.delivered(s.ID)), 10, "are delivered in the end")
	})
}

// A receiver that hangs is mended while a try is under way: that try's failure says nothing of the mended one.
func TestATryThatFailsAfterTheCallIsRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, s, mended := failing(t)
		r.took = 10 * time.Second
		for i := range 10 {
			c.Add(entry(i, fmt.Sprint(i), s))
		}
		synctest.Wait()
		for r.tries() < 14 { // pauses take 5 minutes by now, and a probe is under way
			time.Sleep(time.Second)
			synctest.Wait()
		}
		mended.Store(true)
		c.DeliverNow(s.ID)
		time.Sleep(time.Minute) // the probe's end, the next one, and three times perReceiver
		synctest.Wait()
		assert.Equal(t, len(r.delivered(s.ID)), 10, "are delivered within a minute")
	})
}
