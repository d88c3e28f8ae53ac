package reports

import (
	"strconv"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

const (
	// MaxNotices are kept at least, and fewer than twice as many. A follower that falls further behind gets the whole
	// history again.
	MaxNotices = 1 << 13
	// FeedBatch bounds the reports of one call.
	FeedBatch = 256
)

// Notice is an entry of this gateway's feed. The details of an end are read from the history when the notice is sent.
type Notice struct {
	Kind  Kind
	Lease recipe.LeaseID
	At    queues.Location  // its contender, of another program's when Lease is ""
	Lock  postmortem.Place // with Destroyed
	Why   Cause
	Zxid  int64
}

// feed has the latest notices. It stays empty until a peer follows, so a single gateway pays nothing.
type feed struct {
	followed bool
	line     []Notice
	first    uint64        // the place of line[0]
	wake     chan struct{} // closed at the next one; nil without waiters
	over     bool          // no more notices follow
}

func (f *feed) end() uint64 { return f.first + uint64(len(f.line)) }

// Tell adds a notice, if a peer follows.
func (x *Exchange) Tell(n Notice) {
	f := &x.feed
	if !f.followed {
		return
	}
	f.line = append(f.line, n)
	if extra := len(f.line) - MaxNotices; extra >= MaxNotices {
		f.line = append(f.line[:0:0], f.line[extra:]...)
		f.first += uint64(extra)
	}
	x.wake(&f.wake)
}

// Close ends the feed: this gateway stops.
func (x *Exchange) Close() {
	x.feed.over = true
	x.wake(&x.feed.wake)
}

// wake has a channel closed that readers wait for.
func (x *Exchange) wake(ch *chan struct{}) {
	if *ch != nil {
		x.opt.Wake(*ch)
		*ch = nil
	}
}

// Announce reports that contenders of others are about to be ended, or the outcome.
func (x *Exchange) Announce(kind Kind, why Cause, list []queues.Location) {
	if !x.feed.followed {
		return
	}
	var last recipe.LeaseID
	for _, at := range list {
		n := Notice{Kind: kind, At: at, Why: why}
		if at.Contender.Ours {
			n.Lease = at.Contender.LeaseID
		}
		if n.Lease != "" && n.Lease == last {
			continue // a lease of several contenders
		}
		last = n.Lease
		x.Tell(n)
	}
}

// follower is a place in the feed: at seq in the line and, while the history comes first, at past in the history.
type follower struct {
	seq, past uint64
	history   bool // the history comes first
}

// Since returns the reports after a place that an earlier call returned, "" for all that are remembered; at is the place
// after them. A new follower, or one that lost its place, gets the whole history first. Without reports there are none now,
// and more is closed when there may be. more is nil without reports when no more follow, because this gateway stops.
func (x *Exchange) Since(since string, now zk.Instant) (list []Report, at string, more <-chan struct{}) {
	f := &x.feed
	f.followed = true
	p, ok := x.placeOf(since)
	if !ok {
		p = follower{seq: f.end(), history: true}
	}
	if p.history {
		ids, next := x.opt.History.From(p.past, FeedBatch)
		for _, id := range ids {
			list = append(list, x.endReport(id, now))
		}
		if p.history = next != p.past && len(ids) > 0; p.history {
			p.past = next
			return list, x.placeAt(p), nil
		}
	}
	for ; p.seq < f.end() && len(list) < FeedBatch; p.seq++ {
		if r, ok := x.reportOf(&f.line[p.seq-f.first], now); ok {
			list = append(list, r)
		}
	}
	if len(list) > 0 || f.over {
		return list, x.placeAt(p), nil
	}
	if f.wake == nil {
		f.wake = make(chan struct{})
	}
	return nil, x.placeAt(p), f.wake
}

// placeAt writes a place down, and placeOf reads it. One of another process, or one that is too old, is none.
func (x *Exchange) placeAt(p follower) string {
	at := x.opt.Nonce + "." + strconv.FormatUint(p.seq, 10)
	if p.history {
		at += "." + strconv.FormatUint(p.past, 10)
	}
	return at
}

func (x *Exchange) placeOf(at string) (p follower, ok bool) {
	parts := strings.Split(at, ".")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != x.opt.Nonce {
		return p, false
	}
	var err error
	if p.seq, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return p, false
	}
	if p.history = len(parts) == 3; p.history {
		if p.past, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
			return p, false
		}
	}
	return p, p.seq >= x.feed.first && p.seq <= x.feed.end()
}

// reportOf is a notice as it is sent; false when what it is about has been forgotten.
func (x *Exchange) reportOf(n *Notice, now zk.Instant) (Report, bool) {
	switch n.Kind {
	case Ended, Confirmed:
		if !x.opt.History.Has(n.Lease) {
			break
		}
		r := x.endReport(n.Lease, now)
		if n.At.Contender != nil {
			r.Name = n.At.Contender.Name
		}
		return r, true
	case Destroyed:
		return Report{Kind: n.Kind, NS: n.Lock.NS, Lock: n.Lock.Lock, Words: n.Why.Words, By: n.Why.By, Zxid: n.Zxid}, true
	}
	if n.At.Queue == nil {
		return Report{}, false
	}
	return Report{Kind: n.Kind, Lease: n.Lease, NS: n.At.Queue.Namespace.Name, Lock: n.At.Queue.Name(), Name: n.At.Contender.Name,
		Reason: n.Why.Reason, Words: n.Why.Words, By: n.Why.By, Several: n.At.Contender.Groups > 1}, true
}

// endReport is what is remembered of an end, as it is sent.
func (x *Exchange) endReport(id recipe.LeaseID, now zk.Instant) Report {
	p, _ := x.opt.History.Get(id)
	r := Report{Kind: Ended, Lease: id, NS: p.NS, Lock: p.Lock, Reason: p.Reason(), Words: p.Words, By: p.By, Several: p.Several, Mode: locks.ModeOf(p.Mode), Owner: p.Owner,
		Token: p.FencingToken, TTL: p.TTL, Waited: p.Waited, Held: p.Held, Beat: p.Beat, Ended: int64(now.Wall() - (now.Boot() - p.At)),
		Unsure: x.delayed.waits(id), Stays: p.Stays || x.opt.Stays(id), Purpose: p.Purpose}
	if p.Terminated {
		r.Kind, r.Unsure = Confirmed, false
	}
	// A longer name of another program would make the peer drop the report.
	if p.Next != nil && len(p.Next.Name) <= MaxName && len(p.Next.Owner) <= locks.MaxOwner {
		r.Next = &Next{Lease: p.Next.Lease, Name: p.Next.Name, Owner: p.Next.Owner, Token: p.Next.Token, After: p.Next.After}
	}
	return r
}
