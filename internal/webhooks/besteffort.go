package webhooks

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Best effort: what happens to leases and locks besides their ends. No transaction notes such an event. The gateway that
// publishes it delivers it, and its message waits in the courier's memory alone:
//
//   - it is lost when the gateway ends;
//   - it is tried four times in some three minutes (bestEffortSchedule), and not after bestEffortAge;
//   - after its last try it is given up, without a dead letter;
//   - a message that finds no room is dropped, the newest first.
//
// It stands in a lane of its own, so no end waits for it, and ends are sent first. It is never written to ZooKeeper.

// What best-effort messages may take, at each gateway. A message takes some 1.5 kB.
const (
	MaxBestEffort              = 10_000          // that wait, for all subscriptions
	MaxBestEffortASubscription = 1_000           // of them for one; less where less than that is free
	bestEffortAge              = 5 * time.Minute // after that a message is not tried any more
)

// Why a best-effort message was lost.
const (
	LostNoRoom  = "no_room"
	LostGivenUp = "given_up"
)

// bestEffort counts best-effort messages; guarded by Courier.mu.
type bestEffort struct {
	waiting int
	of      map[string]*bestEffortOf // by subscription
	told    int64                    // so far: a number for the order of the next
}

type bestEffortOf struct {
	waiting  int
	lost     int // since this gateway began
	lastLost time.Time
}

func (b *bestEffort) account(subscription string) *bestEffortOf {
	of := b.of[subscription]
	if of == nil {
		of = &bestEffortOf{}
		b.of[subscription] = of
	}
	return of
}

// wait counts n messages more that wait for a subscription.
func (b *bestEffort) wait(subscription string, n int) {
	b.waiting += n
	b.account(subscription).waiting += n
}

// full reports whether there is no room for a message more. A subscription has no more waiting than there is room left
// for all, so one receiver that accepts nothing cannot keep the others out (as share.go).
func (b *bestEffort) full(subscription string) bool {
	return b.account(subscription).waiting >= min(MaxBestEffortASubscription, MaxBestEffort-b.waiting)
}

// forget drops the counts of subscriptions that are gone, once nothing of theirs is being sent.
func (b *bestEffort) forget(known map[string]*Subscription) {
	maps.DeleteFunc(b.of, func(id string, of *bestEffortOf) bool { return known[id] == nil && of.waiting == 0 })
}

// lose counts a best-effort message that is not delivered.
func (c *Courier) lose(subscription, why string) {
	of := c.bestEffort.account(subscription)
	of.lost++
	of.lastLost = time.Now().UTC()
	if c.opt.Metrics != nil {
		c.opt.Metrics.BestEffortLost(why)
	}
}

// Tell takes over a best-effort event for subscriptions. name and the event's lock make the messages' ids. It returns the
// subscriptions that have no room for it.
func (c *Courier) Tell(name string, e *Event, to []string) (refused []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.bestEffort.told++
	out := &outgoing{Entry: &Entry{Name: notKeptPrefix + name, Order: c.bestEffort.told, Notices: []Notice{{Event: *e}}, Subscriptions: to}, bestEffort: true}
	for i, id := range to {
		if s := c.subscriptions[id]; s == nil || !s.active() {
			continue
		}
		if c.bestEffort.full(id) {
			c.lose(id, LostNoRoom)
			refused = append(refused, id)
			continue
		}
		if r := c.enqueue(out, 0, i); r != nil {
			c.sendDue(r)
		}
	}
	return refused
}

// expire gives up the best-effort messages that are too old, which may wait behind others or for a receiver that is paused.
func (c *Courier) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bestEffort.waiting == 0 {
		return
	}
	now := time.Now()
	for _, r := range c.receivers {
		c.giveUp(r, slices.Values(slices.Clone(r.idleBestEffort)), func(d *delivery) bool { return d.late(now) }, "it waited for "+bestEffortAge.String())
	}
}

// late reports whether the message would not be tried at that time any more.
func (d *delivery) late(at time.Time) bool {
	return d.out.bestEffort && at.Sub(d.since) > bestEffortAge
}

// schedule is when it is tried again.
func (d *delivery) schedule() []time.Duration {
	if d.out.bestEffort {
		return bestEffortSchedule[:]
	}
	return schedule[:]
}

// noRoom counts the best-effort messages without room that were not reported yet, by subscription.
type noRoom struct {
	mu       sync.Mutex
	of       map[string]int
	reported time.Time
}

func (n *noRoom) add(subscription string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[string]int{}
	}
	n.of[subscription]++
}

// take is what is to be reported now. last: also before the time.
func (n *noRoom) take(last bool) map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if len(n.of) == 0 || !last && !n.reported.IsZero() && now.Sub(n.reported) < reportDropsEvery {
		return nil
	}
	of := n.of
	n.of, n.reported = nil, now
	return of
}

// reportNoRoom logs and publishes how many best-effort messages found no room since the last report.
func (s *Service) reportNoRoom(last bool) {
	list := s.noRoom.take(last)
	for _, id := range slices.Sorted(maps.Keys(list)) {
		s.log.Error("webhooks: best-effort messages to a webhook are dropped: too many wait at this gateway", "webhook", id, "dropped", list[id])
		if s.opt.Dropped != nil {
			s.opt.Dropped(id, list[id], "too many best-effort messages wait for this webhook at this gateway: it is not told of these events; make its receiver faster, or subscribe to fewer types or locks")
		}
	}
}

// Wanting are the subscriptions that an event is delivered to as best effort.
func (s *Service) Wanting(e *Event) (to []string) {
	s.registry.mu.Lock()
	now := s.inForce
	s.registry.mu.Unlock()
	if now == nil || !slices.Contains(BestEffort, e.Type) {
		return nil
	}
	for _, sub := range now.subscriptions {
		if sub.Wants(e) {
			to = append(to, sub.ID)
		}
	}
	return to
}

// Tell delivers an event to subscriptions as best effort. The messages of one name about one lock have one id, so that a
// receiver drops a repeat. It returns at once.
func (s *Service) Tell(name string, e *Event, to []string) {
	for _, id := range s.courier.Tell(name, e, to) {
		s.noRoom.add(id)
	}
}

// Missed notes that the feed has lost events: at least one for each subscription that wants any.
func (s *Service) Missed() {
	for _, sub := range s.List() {
		if sub.wantsBestEffort() {
			s.courier.missed(sub.ID)
			s.noRoom.add(sub.ID)
		}
	}
}

func (c *Courier) missed(subscription string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose(subscription, LostNoRoom)
}
