package webhooks

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// The outbox is bounded: receivers that accept nothing must not fill ZooKeeper. At the bound an end gets an entry for no
// receiver, and its lock is released all the same. Such ends are counted when their transaction is done or may be (rather
// one too many than one too few). They are reported at most once every reportDropsEvery.
// Before the bound is reached, a subscription that has more than its share is left out (share.go), and counted likewise.

// MaxEntries is how many entries the outbox has at most, about: each gateway reads the number every countEvery, and counts its own in between.
const MaxEntries = 100_000

// reportDropsEvery is how often dropped ends are reported at most.
const reportDropsEvery = time.Minute

// Outbox is how full it is.
type Outbox struct {
	Entries     int // about, of the whole fleet
	Limit       int
	Dropped     int       // ends without an entry for some subscription, for lack of room, since this gateway began
	LastDropped time.Time // zero: none was
}

// bound keeps the number of entries, and what was dropped.
type bound struct {
	metrics ServiceMetrics // nil: none

	mu       sync.Mutex
	now      Outbox
	reported time.Time
	by       map[string]*drops // by subscription; "": the outbox was full
}

// drops are the ends without an entry for a subscription.
type drops struct {
	n          int // since this gateway began
	unreported int // of them
	last       time.Time
}

// state is how full the outbox is.
func (b *bound) state() Outbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// full reports whether there is no room for an entry. Entries for a notify_url alone have half of the outbox: any client that takes a
// lock has those made, and they must not keep subscriptions out.
func (o Outbox) full(e *Entry) bool {
	if !slices.ContainsFunc(e.Subscriptions, func(id string) bool { return !isNotify(id) }) {
		o.Limit /= 2
	}
	return o.Entries >= o.Limit
}

// fillingUp reports whether entries that have been delivered should make room soon.
func (o Outbox) fillingUp() bool { return o.Entries >= o.Limit/2 }

// count sets the number of entries from what it was.
func (b *bound) count(from func(entries int) int) {
	b.mu.Lock()
	b.now.Entries = max(from(b.now.Entries), 0)
	entries := b.now.Entries
	b.mu.Unlock()
	if b.metrics != nil {
		b.metrics.OutboxEntries(entries)
	}
}

func (b *bound) added(n int) { b.count(func(entries int) int { return entries + n }) }

// drop counts an end without an entry for some subscriptions: under the ids of those that were left out,
// or, when the outbox was full, under none.
func (b *bound) drop(e *Entry) {
	if b.metrics != nil {
		b.metrics.WebhookDropped()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now().UTC()
	b.now.Dropped++
	b.now.LastDropped = now
	count := func(id string, unreported int) {
		d := b.by[id]
		if d == nil {
			d = &drops{}
			b.by[id] = d
		}
		d.n++
		d.unreported += unreported
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
			count(id, 0) // it is reported under no id
		}
	}
}

// unreported are the drops to report now, by subscription; they count as reported. last: also before the time.
// It forgets the drops of subscriptions that are not known any more.
func (b *bound) unreported(known func(id string) bool, last bool) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, list := time.Now(), map[string]int{}
	if last || b.reported.IsZero() || now.Sub(b.reported) >= reportDropsEvery {
		for id, d := range b.by {
			if d.unreported > 0 {
				list[id], d.unreported = d.unreported, 0
			}
		}
	}
	maps.DeleteFunc(b.by, func(id string, d *drops) bool { return id != "" && d.unreported == 0 && !known(id) })
	if len(list) > 0 {
		b.reported = now
	}
	return list
}

// addTo adds the drops of each subscription to its status.
func (b *bound) addTo(all map[string]Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, d := range b.by {
		if id != "" {
			status := all[id]
			status.Dropped, status.LastDropped = d.n, d.last
			all[id] = status
		}
	}
}

// reportDrops logs and publishes how many ends were dropped since the last report.
func (s *Service) reportDrops(last bool) {
	unreported := s.bound.unreported(s.registry.known, last)
	now := s.bound.state()
	for _, id := range slices.Sorted(maps.Keys(unreported)) {
		if id == "" {
			s.log.Error("webhooks: the outbox is full: ends are not delivered to any webhook until receivers accept what waits", "dropped", unreported[id], "entries", now.Entries, "limit", now.Limit)
		} else {
			s.log.Error("webhooks: ends are not delivered to a webhook: it has more waiting than its share of the outbox", "webhook", id, "dropped", unreported[id], "entries", now.Entries, "limit", now.Limit)
		}
		if s.opt.Dropped != nil {
			detail := "the outbox is full: these ends are told to no webhook; have receivers take what waits, or remove their webhooks"
			if id != "" {
				detail = "more waits for this webhook than the outbox has room for: it is not told of these ends; have its receiver take what waits, replay its dead letters, or remove it"
			}
			s.opt.Dropped(id, unreported[id], detail)
		}
	}
}

// overShare are the subscriptions that are left out of new entries now. Below half of the outbox there are none.
func (s *Service) overShare(room Outbox, now *snapshot) []string {
	free := room.Limit - room.Entries
	if free >= room.Entries {
		return nil
	}
	return s.courier.shares.above(max(free, 0), now.whose)
}
