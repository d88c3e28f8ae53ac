package webhooks

import "sync"

// Each subscription has a share of the outbox, and those of one maker have one together: one that has more entries waiting than the
// outbox has places free is left out of new entries. So one receiver that accepts nothing stops at half of the outbox, two at a third each, and room for the others is never used up
// by receivers that have failed before them. (Dynamic thresholds, as in the buffers of switches: Choudhury and Hahne 1998.)
//
// What waits is counted where it is delivered, so each gateway applies the rule to its own part: with G gateways one receiver stops at
// G/(G+1) of the outbox. Dead letters count: they occupy places until they are replayed.

// shares counts, for each subscription, the entries in which it has a message that waits or is dead. The courier
// writes it under its own lock, the service reads it under its own; no other lock is taken under this one.
type shares struct {
	mu sync.Mutex
	of map[string]int
}

func (p *shares) add(subscription string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[subscription] += n; p.of[subscription] == 0 {
		delete(p.of, subscription)
	}
}

// above are the subscriptions that have more than n entries, with all others of the same owner.
func (p *shares) above(n int, whose func(id string) string) (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	together := map[string]int{}
	for id, has := range p.of {
		together[whose(id)] += has
	}
	for id := range p.of {
		if together[whose(id)] > n {
			list = append(list, id)
		}
	}
	return list
}

// occupy notes one message more of a subscription that waits or is dead in the entry; vacate, one fewer.
// notify_urls have half of the outbox together and are not counted.
func (c *Courier) occupy(out *outgoing, to int) {
	switch {
	case out.bestEffort:
		c.bestEffort.wait(out.Subscriptions[to], 1)
		return
	case isNotify(out.Subscriptions[to]):
		return
	}
	if out.messages == nil {
		out.messages = make([]int32, len(out.Subscriptions))
	}
	if out.messages[to]++; out.messages[to] == 1 {
		c.shares.add(out.Subscriptions[to], 1)
	}
}

func (c *Courier) vacate(out *outgoing, to int) {
	switch {
	case out.bestEffort:
		c.bestEffort.wait(out.Subscriptions[to], -1)
		return
	case isNotify(out.Subscriptions[to]):
		return
	}
	if out.messages[to]--; out.messages[to] == 0 {
		c.shares.add(out.Subscriptions[to], -1)
	}
}
