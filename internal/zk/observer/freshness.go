package observer

import (
	"sync"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
)

// currencySlots is how many of the writer's commits are remembered until the observer reaches them. They lie at least a
// sixteenth of the window apart (currencySpacing), so that all of them together span four windows.
const (
	commitSlots   = 64
	commitSpacing = 16
)

// Freshness judges whether the replica is fit to grant from. It is current while the tree has been read on the present
// connection and a reply to the observer has carried a zxid at least as high as that of a transaction that the writer
// sent at most one promise window ago. A server that is cut off from its peers answers reads and pings for seconds, but
// its zxid stands still, so its replica stops being current while the writer's zxid moves on.
//
// Its methods are safe for concurrent use and do not block.
type Freshness struct {
	clock  zk.Clock
	window time.Duration
	turned func() // called when the replica became current; may be nil
	wanted func() // called when something has committed that would make it current once it is observed; may be nil

	mu       sync.Mutex
	synced   bool
	observed int64      // highest zxid an observer's reply has carried
	proven   zk.Instant // when the newest transaction that was observed was sent
	waiting  []commit   // commits not yet observed, oldest first, spaced in time
	latest   commit     // the newest commit not yet observed, unless zxid is 0
}

// commit is a committed transaction of the writer.
type commit struct {
	zxid int64
	sent zk.Instant // when it was handed to the client library
	told zk.Instant // when we learned that it had committed
}

// NewFreshness returns a Freshness that is not current.
func NewFreshness(clock zk.Clock, window time.Duration) *Freshness {
	return &Freshness{clock: clock, window: window, waiting: make([]commit, 0, commitSlots)}
}

// Committed tells that a transaction of the writer that was sent at that moment has committed with this zxid.
func (c *Freshness) Committed(sent zk.Instant, zxid int64) {
	now := c.clock.Now()
	c.update(now, func() {
		if zxid <= c.observed {
			c.prove(sent)
			return
		}
		if zxid <= c.latest.zxid {
			return // an older one brings nothing that the latest will not
		}
		c.latest = commit{zxid: zxid, sent: sent, told: now}
		n := len(c.waiting)
		if n > 0 && sent.Since(c.waiting[n-1].sent) < c.window/commitSpacing {
			return
		}
		if n == commitSlots {
			// The oldest was sent several windows ago and proves nothing any more; but it still shows since when the
			// server has been behind, so the second oldest goes.
			n = copy(c.waiting[1:], c.waiting[2:]) + 1
			c.waiting = c.waiting[:n]
		}
		c.waiting = append(c.waiting, c.latest)
	})
	if c.wanted != nil && !c.Current(now) {
		c.wanted()
	}
}

// Observed tells that a reply with this zxid has come in on the observer's
// stream, and that everything before it has been applied.
func (c *Freshness) Observed(zxid int64) {
	c.update(c.clock.Now(), func() {
		if zxid <= c.observed {
			return
		}
		c.observed = zxid
		n := 0
		for n < len(c.waiting) && c.waiting[n].zxid <= zxid {
			c.prove(c.waiting[n].sent)
			n++
		}
		c.waiting = c.waiting[:copy(c.waiting, c.waiting[n:])]
		if c.latest.zxid != 0 && c.latest.zxid <= zxid {
			c.prove(c.latest.sent)
			c.latest = commit{}
		}
	})
}

// Synced tells that the tree has been read on the present connection.
func (c *Freshness) Synced() { c.update(c.clock.Now(), func() { c.synced = true }) }

// Lost tells that the connection is gone: nothing is current until Synced.
func (c *Freshness) Lost() { c.update(c.clock.Now(), func() { c.synced = false }) }

// Current reports whether the replica is current now.
func (c *Freshness) Current(now zk.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current(now)
}

// Until is the instant at which the replica stops being current if nothing
// more is observed; the zero Instant when it is not synced.
func (c *Freshness) Until() zk.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced || c.proven.IsZero() {
		return zk.Instant{}
	}
	return c.proven.Add(c.window)
}

// behind reports whether a server that answered zxid to a ping sent at that instant has fallen behind the writer: the
// writer had heard of a later transaction's commit more than grace before the ping was even sent.
func (c *Freshness) behind(zxid int64, sent zk.Instant, grace time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		if w.zxid > zxid {
			return sent.Since(w.told) > grace
		}
	}
	return c.latest.zxid > zxid && sent.Since(c.latest.told) > grace
}

// Lag is for how long a commit of the writer has been known that the observer has not reached; 0: there is none.
func (c *Freshness) Lag(now zk.Instant) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		return max(now.Since(c.waiting[0].told), 0)
	}
	return 0
}

// update runs f under the lock and tells when the replica became current by it.
func (c *Freshness) update(now zk.Instant, f func()) {
	c.mu.Lock()
	before := c.current(now)
	f()
	turned := !before && c.current(now)
	c.mu.Unlock()
	if turned && c.turned != nil {
		c.turned()
	}
}

func (c *Freshness) current(now zk.Instant) bool {
	return c.synced && (!c.proven.IsZero() && now.Since(c.proven) < c.window || fault.On("freshness"))
}

// prove moves proven forward to sent.
func (c *Freshness) prove(sent zk.Instant) {
	if c.proven.IsZero() || sent.Since(c.proven) > 0 {
		c.proven = sent
	}
}
