package observer

import (
	"math"
	"time"

	"lockkeeper/internal/zk/wire"
)

// watch sets the root's watch.
func (c *observation) watch(root *root) {
	c.request(request{op: wire.OpAddWatch}, &wire.AddWatchRequest{Path: root.full, Mode: wire.WatchRecursive})
}

// readTree asks for the root's own listing, from which the others follow.
func (c *observation) readTree(root *root) {
	root.pending++
	c.tree = append(c.tree, listing{root: root, top: root.Depth == 2, tree: true})
}

// ping asks for the server's zxid.
func (c *observation) ping() {
	if len(c.pings) == maxPings {
		return
	}
	c.pings = append(c.pings, c.cfg.Clock.Now())
	c.frames = wire.AppendFrame(c.frames, &wire.RequestHeader{Xid: wire.XidPing, Op: wire.OpPing})
}

// send makes requests as far as the windows allow and hands them to the writer.
func (c *observation) send() {
	c.tree = append(c.tree, c.replica.want...)
	c.replica.want = c.replica.want[:0]
	c.urgent = c.list(c.urgent)
	c.tree = c.list(c.tree)
	n := min(len(c.asked), getWindow-c.getting)
	for _, g := range c.asked[:n] {
		c.request(request{op: wire.OpGetData, get: g}, &wire.ReadRequest{Path: c.cfg.Full(g.path)})
	}
	clear(c.asked[:n])
	c.asked = c.asked[n:]
	c.getting += n
	c.sync()
	if len(c.frames) > 0 {
		c.s.queue(c.frames)
		c.frames = c.frames[:0]
	}
}

// list requests as many listings as there is room for and returns the others.
func (c *observation) list(want []listing) []listing {
	n := min(len(want), listWindow-c.listing)
	for _, l := range want[:n] {
		path := l.root.full
		if l.root.Depth == 2 && !l.top {
			path = l.root.prefix + l.name
		}
		c.request(request{op: wire.OpGetChildren2, listing: l}, &wire.ReadRequest{Path: path})
	}
	c.listing += n
	return want[n:]
}

// sync makes the server catch up with its leader while callers wait in Reached: a sync's reply comes after everything
// that the leader had proposed when it got the request. (A ping only tells how far the server is.)
func (c *observation) sync() {
	if !c.synced || c.syncing || !c.syncAt.IsZero() {
		return
	}
	c.mu.Lock()
	waiting := len(c.reachers) > 0
	c.syncFor = math.MaxInt64
	for _, r := range c.reachers {
		c.syncFor = min(c.syncFor, r.zxid)
	}
	c.mu.Unlock()
	if !waiting {
		return
	}
	c.syncing = true
	c.request(request{op: wire.OpSync}, &wire.PathRecord{Path: c.cfg.Full("/")})
}

// syncedUp follows a sync's reply. A server that has not reached what the first in line waits for is asked again, more
// and more slowly: the zxid may be one that does not exist yet.
func (c *observation) syncedUp() {
	c.syncing = false
	if c.lastZxid >= c.syncFor {
		c.syncGap = 0
		return
	}
	c.syncGap = min(max(2*c.syncGap, time.Millisecond), 100*time.Millisecond)
	c.syncAt = time.Now().Add(c.syncGap)
}

func (c *observation) nextXid() int32 {
	if c.xid++; c.xid < 0 {
		c.xid = 1
	}
	return c.xid
}

func (c *observation) request(r request, body wire.Record) {
	r.xid, r.sent = c.nextXid(), time.Now()
	c.frames = wire.AppendFrame(c.frames, &wire.RequestHeader{Xid: r.xid, Op: r.op}, body)
	c.flight = append(c.flight, r)
}
