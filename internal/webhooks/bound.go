package webhooks

import (
	"context"
	"maps"
	"slices"
	"time"
)

// The outbox is bounded: receivers that take nothing must not fill ZooKeeper. At the bound an end is
// told to nobody and its lock is let go all the same. Such ends are counted when their transaction is done, or may be (rather
// one too many than one too few), and that there were some is told: at most once every tellDropsEvery, however many there are.
// Before the bound is reached, a subscription that has more than its share is left out (share.go), and counted likewise.

// MaxEntries is how many entries the outbox has at most, about: each gateway looks every countEvery, and counts its own in between.
const MaxEntries = 100_000

// tellDropsEvery is how often at most ends that were dropped are told of.
const tellDropsEvery = time.Minute

// Outbox is how full it is.
type Outbox struct {
	Entries     int // about, of the whole fleet
	Limit       int
	Dropped     int       // ends of which this gateway has not told all who wanted to be, for lack of room, since it began
	LastDropped time.Time // zero: none was
}

// bound is what is kept of it; guarded by Service.mu.
type bound struct {
	entries int // in the outbox, about
	limit   int
	dropped int
	last    time.Time         // when the last one was
	told    time.Time         // when that was last told
	by      map[string]*drops // of those that were left out; "": of everyone
}

// full reports whether there is no room for an entry. What is for a notify_url alone has half of the outbox: anybody who takes a
// lock has those made, and they must not keep subscriptions from being told.
func (b *bound) full(e *Entry) bool {
	limit := b.limit
	if !slices.ContainsFunc(e.Subscriptions, func(id string) bool { return !isNotify(id) }) {
		limit /= 2
	}
	return b.entries >= limit
}

// tellDrops tells how many were dropped since that was last told; sooner than it may be again only when it is the last time.
func (s *Service) tellDrops(last bool) {
	s.mu.Lock()
	now, untold := time.Now(), map[string]int{}
	if last || s.bound.told.IsZero() || now.Sub(s.bound.told) >= tellDropsEvery {
		for id, d := range s.bound.by {
			if d.untold > 0 {
				untold[id], d.untold = d.untold, 0
			}
		}
	}
	s.forgetDrops()
	if len(untold) == 0 {
		s.mu.Unlock()
		return
	}
	s.bound.told = now
	entries, limit := s.bound.entries, s.bound.limit
	s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(untold)) {
		if id == "" {
			s.log.Error("webhooks: ends are told to nobody: the outbox is full until receivers take what waits", "dropped", untold[id], "entries", entries, "limit", limit)
		} else {
			s.log.Error("webhooks: a webhook is not told of ends: more waits for it than the outbox has room for", "webhook", id, "dropped", untold[id], "entries", entries, "limit", limit)
		}
		if s.opt.Dropped != nil {
			s.opt.Dropped(id, untold[id])
		}
	}
}

// Outbox says how full it is.
func (s *Service) Outbox() Outbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Outbox{Entries: s.bound.entries, Limit: s.bound.limit, Dropped: s.bound.dropped, LastDropped: s.bound.last}
}

func (s *Service) added(n int) {
	s.mu.Lock()
	s.bound.entries = max(s.bound.entries+n, 0)
	entries := s.bound.entries
	s.mu.Unlock()
	if s.opt.Metrics != nil {
		s.opt.Metrics.OutboxEntries(entries)
	}
}

// count learns how many entries there are, and tells of those that found no room.
func (s *Service) count(ctx context.Context) error {
	s.tellDrops(false)
	s.tellGivenUp()
	stat, err := s.opt.Store.Exists(ctx, s.outbox())
	if err != nil || stat == nil {
		return nil // the next time
	}
	s.mu.Lock()
	s.bound.entries = int(stat.NumChildren)
	s.mu.Unlock()
	if s.opt.Metrics != nil {
		s.opt.Metrics.OutboxEntries(int(stat.NumChildren))
	}
	return nil
}
