package webhooks

import (
	"cmp"
	"slices"
	"time"
)

// DeadLetter is a message that had its last try.
type DeadLetter struct {
	MessageID    string
	Entry        string // of the outbox
	Subscription string
	Event        Event
	Dead
}

// DeadLetters are those of a subscription ("": of all), the oldest first, at most so many.
func (c *Courier) DeadLetters(subscription string, limit int) []DeadLetter {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []DeadLetter
	for _, out := range c.entries {
		for _, d := range out.Dead {
			id := out.Subscriptions[d.Subscription]
			if subscription == "" || id == subscription {
				list = append(list, DeadLetter{MessageID(out.Name, d.Notice, id), out.Name, id, out.Notices[d.Notice].Event, d})
			}
		}
	}
	slices.SortFunc(list, func(a, b DeadLetter) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.MessageID, b.MessageID))
	})
	return list[:min(len(list), limit)]
}

// Replay sends dead letters of a subscription again, with a whole schedule: one of
// them, or all with message "". It tells how many.
func (c *Courier) Replay(subscription, message string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, out := range c.entries {
		var again []Dead
		out.Dead = slices.DeleteFunc(out.Dead, func(d Dead) bool {
			id := out.Subscriptions[d.Subscription]
			chosen := id == subscription && (message == "" || MessageID(out.Name, d.Notice, id) == message)
			if chosen {
				again = append(again, d)
			}
			return chosen
		})
		if len(again) == 0 {
			continue
		}
		n += len(again)
		c.buried(-len(again))
		for _, d := range again {
			c.queue(out, d.Notice, d.Subscription)
		}
		c.settle(out, true)
	}
	if r := c.receivers[receiverOf(subscription)]; r != nil && n > 0 {
		r.failures, r.until = 0, time.Time{}
		c.pump(r)
	}
	return n
}

// Attempts are the last ones of a subscription, the newest first.
func (c *Courier) Attempts(subscription string) []Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.receivers[receiverOf(subscription)]
	if r == nil {
		return nil
	}
	list := slices.Clone(r.attempts)
	slices.Reverse(list)
	return list
}

// Load is how many messages wait and how many are dead.
func (c *Courier) Load() (waiting, dead int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.dead
}
