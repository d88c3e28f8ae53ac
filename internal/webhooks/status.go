package webhooks

import "time"

// Status is what this gateway knows of the deliveries of a subscription.
type Status struct {
	Waiting int       // messages that are neither delivered nor dead
	Dead    int       // dead letters
	Failing time.Time // since when attempts have failed without one success; zero: the last one succeeded. Tests do not count
	Next    time.Time // when the first message is tried that waits for a later try; zero: none does

	Dropped     int       // ends without an entry for it, for lack of room, since this gateway began
	LastDropped time.Time // zero: none was

	BestEffortLost     int       // best-effort messages that were not delivered, since this gateway began
	LastBestEffortLost time.Time // zero: none was
}

// Statuses are those of all subscriptions that have any.
func (c *Courier) Statuses() map[string]Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, now := map[string]Status{}, time.Now()
	for id, r := range c.receivers {
		if isNotify(id) {
			continue
		}
		s := Status{Failing: r.failing}
		for _, ln := range r.lanes {
			s.Waiting += len(ln.queue)
		}
		s.Next = r.next(now)
		all[id] = s
	}
	for id, of := range c.bestEffort.of {
		s := all[id]
		s.BestEffortLost, s.LastBestEffortLost = of.lost, of.lastLost
		all[id] = s
	}
	for _, out := range c.entries {
		for _, d := range out.Dead {
			if id := out.Subscriptions[d.Subscription]; !isNotify(id) {
				s := all[id]
				s.Dead++
				all[id] = s
			}
		}
	}
	return all
}
