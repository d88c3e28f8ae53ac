package observer

import (
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// request is a request in flight, waiting for its reply.
type request struct {
	xid     int32
	op      wire.Op
	listing listing // OpGetChildren2
	get     get     // OpGetData
	sent    time.Time
}

// observation is the work on one connection. It is owned by the goroutine in Run and forgotten with the connection.
type observation struct {
	*Observer
	s *stream

	xid     int32
	flight  []request // in the order of their requests, which is that of the replies
	frames  []byte    // requests made since the last send
	urgent  []listing // to be sent when there is room: what callers of List asked for
	tree    []listing // and after them what the replica wants
	asked   []get     // to be sent when there is room
	listing int       // listings in flight
	getting int       // Gets in flight

	minZxid int64 // of this connection: what it promised when it began, then its last reply's
	replied bool  // a reply that carries a zxid has come
	synced  bool  // every root of the first tree read is synced
	since   time.Time

	pings        []zk.Instant // when the pings in flight were sent
	silenceLimit time.Duration
	pace         time.Duration // between two beats
	beat         time.Time     // when the last ping was due
	syncing      bool          // a sync is in flight
	syncFor      int64         // the lowest zxid that a caller of Reached waited for when it was sent
	syncGap      time.Duration // pause after a sync that did not reach syncFor
	syncAt       time.Time     // when that pause ends; zero: there is none

	decoder wire.Decoder
	news    []zk.Change // scratch for changes that are no part of the replica
}

// apply tells the sink what has changed in the replica.
func (c *observation) apply() {
	if len(c.replica.changes) > 0 {
		c.sink.Apply(c.replica.changes)
		c.replica.changes = reuse(c.replica.changes)
	}
}

// checkSynced tells which tree reads are complete.
func (c *observation) checkSynced() {
	whole := true
	for _, root := range c.replica.roots {
		if root.synced {
			continue
		}
		if root.pending > 0 {
			whole = false
			continue
		}
		root.synced, root.fresh = true, nil
		if c.synced {
			c.tell(zk.Change{Kind: zk.Synced, Root: &root.WatchRoot})
		}
	}
	if c.synced || !whole {
		return
	}
	c.synced, c.since = true, time.Now()
	c.mu.Lock()
	c.state.Synced = true
	c.mu.Unlock()
	c.log.Info("observer has read the tree", "server", c.s.server, "zxid", c.lastZxid)
	c.freshness.Observed(c.lastZxid)
	c.freshness.Synced()
	c.tell(zk.Change{Kind: zk.Synced})
}

// tell gives the sink a change that is about the observer itself.
func (c *observation) tell(change zk.Change) {
	c.news = append(c.news[:0], change)
	c.sink.Apply(c.news)
}

// reuse empties a scratch slice, and lets it go when it has become huge.
func reuse(changes []zk.Change) []zk.Change {
	if cap(changes) > 1<<14 {
		return nil
	}
	clear(changes)
	return changes[:0]
}

func (c *observation) answer(g get, data []byte, stat wire.Stat, zxid int64, err error) {
	c.mu.Lock()
	c.getCount--
	c.mu.Unlock()
	g.reply(data, stat, zxid, err)
}
