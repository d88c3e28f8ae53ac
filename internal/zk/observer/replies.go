package observer

import (
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// frame takes one frame.
func (c *observation) frame(frame []byte) error {
	d := &c.decoder
	d.Reset(frame)
	var h wire.ReplyHeader
	h.Decode(d)
	if d.Err() != nil {
		return fmt.Errorf("reply of %s: %w", c.s.server, d.Err())
	}
	switch h.Xid {
	case wire.XidWatcherEvent:
		t, path := d.Event()
		if err := d.Finish(); err != nil {
			return fmt.Errorf("event from %s: %w", c.s.server, err)
		}
		if t == wire.EventPersistentWatchRemoved {
			return fmt.Errorf("%s has removed the watch on %q", c.s.server, path)
		}
		c.replica.event(t, path)
		return nil
	case wire.XidAuth:
		if h.Err != wire.OK {
			return &zk.FatalError{Kind: zk.KindAuth, Hint: "check the user and password given for ZooKeeper", Err: h.Err}
		}
		return nil // its zxid is 0
	case wire.XidPing:
		return c.pong(h)
	}
	return c.reply(h)
}

// zxid notes the zxid of a reply.
func (c *observation) zxid(h wire.ReplyHeader) error {
	if h.Zxid < c.minZxid {
		return fmt.Errorf("%s went back in time, from zxid %#x to %#x", c.s.server, c.minZxid, h.Zxid)
	}
	c.minZxid, c.replied = h.Zxid, true
	c.lastZxid = max(c.lastZxid, h.Zxid)
	return nil
}

func (c *observation) pong(h wire.ReplyHeader) error {
	if len(c.pings) == 0 {
		return fmt.Errorf("%s answered a ping that was not sent", c.s.server)
	}
	sent := c.pings[0]
	c.pings = append(c.pings[:0], c.pings[1:]...)
	if h.Err != wire.OK {
		return fmt.Errorf("ping of %s: %w", c.s.server, h.Err)
	}
	if err := c.zxid(h); err != nil {
		return err
	}
	// A third of the window without progress, seen by pings a sixth apart:
	// that leaves half the window to find a better server.
	if grace := c.cfg.PromiseWindow / 3; c.freshness.behind(h.Zxid, sent, grace) && !fault.On("behind") {
		return fmt.Errorf("%s has fallen behind: its zxid is %#x although the writer was further %v before", c.s.server, h.Zxid, grace)
	}
	return nil
}

// reply takes the reply to the oldest request in flight.
func (c *observation) reply(h wire.ReplyHeader) error {
	if len(c.flight) == 0 || c.flight[0].xid != h.Xid {
		return fmt.Errorf("%s answered request %d out of turn", c.s.server, h.Xid)
	}
	r := c.flight[0]
	if h.Err == wire.OK || h.Err == wire.ErrNoNode || h.Err == wire.ErrNoAuth {
		if err := c.zxid(h); err != nil {
			return err
		}
	}
	c.flight[0] = request{}
	c.flight = c.flight[1:]
	c.observe(r, h)
	switch r.op {
	case wire.OpAddWatch:
		if h.Err == wire.ErrUnimplemented {
			return &zk.FatalError{Kind: zk.KindServerTooOld,
				Hint: "ZooKeeper 3.6 or later is needed: earlier servers have no persistent recursive watches",
				Err:  fmt.Errorf("%s: addWatch: %w", c.s.server, h.Err)}
		}
		if h.Err != wire.OK {
			return fmt.Errorf("addWatch at %s: %w", c.s.server, h.Err)
		}
		return nil
	case wire.OpGetChildren2:
		c.listing--
		return c.listed(r.listing, h)
	case wire.OpGetData:
		c.getting--
		return c.got(r.get, h)
	}
	if h.Err != wire.OK {
		return fmt.Errorf("sync at %s: %w", c.s.server, h.Err)
	}
	c.syncedUp()
	return nil
}

// observe tells the metrics of a request.
func (c *observation) observe(r request, h wire.ReplyHeader) {
	op, outcome := "sync", "ok"
	switch r.op {
	case wire.OpAddWatch:
		op = "addWatch"
	case wire.OpGetChildren2:
		op = "getChildren"
	case wire.OpGetData:
		op = "getData"
	}
	if h.Err != wire.OK {
		outcome = "refused"
	}
	c.cfg.Metrics.Op(op, outcome, time.Since(r.sent))
}

// listed takes the reply to a listing.
func (c *observation) listed(l listing, h wire.ReplyHeader) error {
	if l.tree {
		l.root.pending--
	}
	switch {
	case h.Err == wire.ErrNoNode:
		c.replica.listedGone(l.root, l.name, l.top, h.Zxid)
		return nil
	case h.Err == wire.ErrNoAuth && !l.top && l.root.Depth == 2:
		c.replica.listedRefused(l.root, l.name, h.Zxid, zk.ErrNoAuth)
		return nil
	case h.Err != wire.OK:
		return fmt.Errorf("listing %s%s at %s: %w", l.root.prefix, l.name, c.s.server, h.Err)
	}
	// Everything is decoded before anything is applied, so that a reply that is cut short changes nothing.
	d := &c.decoder
	names := c.replica.names[:0]
	for range d.Count(4) {
		names = append(names, d.View())
	}
	var stat wire.Stat
	stat.Decode(d)
	if err := d.Finish(); err != nil {
		return fmt.Errorf("listing of %s%s: %w", l.root.prefix, l.name, err)
	}
	if l.top {
		c.replica.listedTop(l.root, names, l.tree, h.Zxid)
	} else {
		c.replica.listedDir(l.root, l.name, names, &stat, h.Zxid)
	}
	clear(names)
	c.replica.names = names[:0]
	if cap(names) > 1<<16 {
		c.replica.names = nil
	}
	return nil
}

// got takes the reply to a Get.
func (c *observation) got(g get, h wire.ReplyHeader) error {
	var reply wire.DataReply
	switch h.Err {
	case wire.OK:
		reply.Decode(&c.decoder)
		if err := c.decoder.Finish(); err != nil {
			c.answer(g, nil, wire.Stat{}, 0, zk.ErrUnavailable)
			return fmt.Errorf("data of %s: %w", g.path, err)
		}
		data := append(make([]byte, 0, len(reply.Data)), reply.Data...)
		c.answerInPlace(g, data, reply.Stat, h.Zxid, nil)
	case wire.ErrNoNode:
		c.answerInPlace(g, nil, wire.Stat{}, h.Zxid, zk.ErrNoNode)
	case wire.ErrNoAuth:
		c.answerInPlace(g, nil, wire.Stat{}, h.Zxid, zk.ErrNoAuth)
	default:
		c.answerInPlace(g, nil, wire.Stat{}, h.Zxid, errors.Join(zk.ErrUnavailable, h.Err))
	}
	return nil
}

// answerInPlace answers a Get after everything that stands before its reply.
func (c *observation) answerInPlace(g get, data []byte, stat wire.Stat, zxid int64, err error) {
	c.apply()
	c.answer(g, data, stat, zxid, err)
}
