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

// DeadLetters are those of a subscription ("": of all) that show lets through, the oldest first, at most limit. There may be very many, and ends of leases
// wait for the lock: under it they are only gathered.
func (c *Courier) DeadLetters(subscription string, limit int, show func(*Event) bool) []DeadLetter {
	type dead struct {
		Dead
		of *Entry // of which Dead alone changes
	}
	var all []dead
	c.mu.Lock()
	for _, out := range c.entries {
		for _, d := range out.Dead {
			if (subscription == "" || out.Subscriptions[d.Subscription] == subscription) && show(&out.Notices[d.Notice].Event) {
				all = append(all, dead{d, out.Entry})
			}
		}
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b dead) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.of.Order, b.of.Order), cmp.Compare(a.of.Name, b.of.Name),
			cmp.Compare(a.Notice, b.Notice), cmp.Compare(a.Dead.Subscription, b.Dead.Subscription))
	})
	all = all[:min(len(all), limit)]
	list := make([]DeadLetter, len(all))
	for i, d := range all {
		id := d.of.Subscriptions[d.Dead.Subscription]
		list[i] = DeadLetter{MessageID(d.of.Name, &d.of.Notices[d.Notice].Event, id), d.of.Name, id, d.of.Notices[d.Notice].Event, d.Dead}
	}
	return list
}

// Replay sends dead letters of a subscription again, with a whole schedule: one of
// them, or all with message "". It returns how many.
func (c *Courier) Replay(subscription, message string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, out := range c.entries {
		var again []Dead
		out.Dead = slices.DeleteFunc(out.Dead, func(d Dead) bool {
			id := out.Subscriptions[d.Subscription]
			chosen := id == subscription && (message == "" || MessageID(out.Name, &out.Notices[d.Notice].Event, id) == message)
			if chosen {
				again = append(again, d)
			}
			return chosen
		})
		if len(again) == 0 {
			continue
		}
		n += len(again)
		c.addDead(-len(again))
		for _, d := range again {
			c.vacate(out, d.Subscription)
			c.enqueue(out, d.Notice, d.Subscription)
		}
		c.keep(out, true)
	}
	if r := c.receivers[receiverOf(subscription)]; r != nil && n > 0 {
		r.failures, r.until = 0, time.Time{}
		c.sendDue(r)
	}
	return n
}

// DeliverNow tries at once the messages of a subscription that wait for their next try, with a whole schedule, and returns how many
// wait in all. A receiver that is paused gets the probe first; when that is delivered, the others follow.
func (c *Courier) DeliverNow(subscription string) (waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.receivers[receiverOf(subscription)]
	if r == nil {
		return 0
	}
	for _, ln := range r.lanes {
		waiting += len(ln.queue)
	}
	if r.hasten(time.Now()) {
		c.sendDue(r)
	}
	return waiting
}

// prune forgets dead letters of subscriptions that are gone.
func (c *Courier) prune(out *outgoing) {
	before := len(out.Dead)
	out.Dead = slices.DeleteFunc(out.Dead, func(d Dead) bool {
		id := out.Subscriptions[d.Subscription]
		gone := !isNotify(id) && c.subscriptions[id] == nil
		if gone {
			c.vacate(out, d.Subscription)
		}
		return gone
	})
	if len(out.Dead) != before {
		c.addDead(len(out.Dead) - before)
		c.keep(out, true)
	}
}
