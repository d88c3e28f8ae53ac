package webhooks

import (
	"slices"
	"sync"
	"time"
)

// Each subscription has a share of the outbox: one that has more entries waiting than the outbox has places free is left out of new
// entries. So one receiver that takes nothing stops at half of the outbox, two at a third each, and room for the others is never used up
// by receivers that have failed before them. (Dynamic thresholds, as in the buffers of switches: Choudhury and Hahne 1998.)
//
// What waits is counted where it is delivered, so each gateway applies the rule to its own part: with G gateways one receiver stops at
// G/(G+1) of the outbox. Dead letters count: they occupy places until they are replayed.

// places counts, for each subscription, the entries in which it has a message that waits or is dead. Its lock is a leaf: the courier
// writes it under its own lock, the service reads it under its own.
type places struct {
	mu sync.Mutex
	of map[string]int
}

func (p *places) add(subscription string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[subscription] += n; p.of[subscription] == 0 {
		delete(p.of, subscription)
	}
}

// above are the subscriptions that have more entries than that.
func (p *places) above(n int) (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, has := range p.of {
		if has > n {
			list = append(list, id)
		}
	}
	return list
}

// take notes that a subscription of the entry has one message more that waits or is dead; free, one fewer.
func (c *Courier) take(out *outgoing, to int) {
	if isNotify(out.Subscriptions[to]) {
		return // they have half of the outbox together
	}
	if out.messages == nil {
		out.messages = make([]int32, len(out.Subscriptions))
	}
	if out.messages[to]++; out.messages[to] == 1 {
		c.places.add(out.Subscriptions[to], 1)
	}
}

func (c *Courier) free(out *outgoing, to int) {
	if isNotify(out.Subscriptions[to]) {
		return
	}
	if out.messages[to]--; out.messages[to] == 0 {
		c.places.add(out.Subscriptions[to], -1)
	}
}

// overShare are the subscriptions that are left out of new entries now; mu is held. Below half of the outbox there can be none.
func (s *Service) overShare() []string {
	free := s.bound.limit - s.bound.entries
	if free >= s.bound.entries {
		return nil
	}
	return s.courier.places.above(max(free, 0))
}

// drops are the ends of which a subscription, or everyone, is not told.
type drops struct {
	n      int // since this gateway began
	untold int // of them: no event has told of these yet
	last   time.Time
}

// drop counts an end of which not all are told who wanted to be; mu is held. It is told of under the ids of those that were left out,
// or, when the outbox was full, under none.
func (s *Service) drop(e *Entry) {
	now := time.Now().UTC()
	b := &s.bound
	b.dropped++
	b.last = now
	if s.opt.Metrics != nil {
		s.opt.Metrics.WebhookDropped()
	}
	if b.by == nil {
		b.by = map[string]*drops{}
	}
	count := func(id string, untold int) {
		d := b.by[id]
		if d == nil {
			d = &drops{}
			b.by[id] = d
		}
		d.n++
		d.untold += untold
		d.last = now
	}
	for _, id := range e.LeftOut {
		count(id, 1)
	}
	if !e.Dropped || len(e.LeftOut) > 0 && len(e.Subscriptions) == 0 {
		return
	}
	count("", 1)
	for _, id := range e.Subscriptions {
		if !isNotify(id) {
			count(id, 0) // what is told of under no id
		}
	}
}

// statuses adds to what the courier knows what was never given to it.
func (s *Service) statuses(all map[string]Status) map[string]Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.bound.by {
		if id != "" {
			status := all[id]
			status.Dropped, status.LastDropped = d.n, d.last
			all[id] = status
		}
	}
	return all
}

// forgetDrops forgets those of subscriptions that are gone; mu is held.
func (s *Service) forgetDrops() {
	now := s.inForce
	if now == nil || now.unchecked {
		return
	}
	for id, d := range s.bound.by {
		is := func(sub *Subscription) bool { return sub.ID == id }
		if id != "" && d.untold == 0 && !slices.ContainsFunc(now.subscriptions, is) && !slices.ContainsFunc(now.unread, is) {
			delete(s.bound.by, id)
		}
	}
}
