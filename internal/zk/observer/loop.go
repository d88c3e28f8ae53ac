package observer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// run works on the connection until it fails.
func (c *observation) run(ctx context.Context) error {
	c.replica.reset()
	c.mu.Lock()
	c.connected = true
	c.state.Server, c.state.SessionID = c.s.server, c.s.sessionID
	c.state.Connects++
	clear(c.lists)
	c.listAll = false
	c.current = false
	c.mu.Unlock()
	if auth := c.cfg.Auth; auth != nil {
		c.frames = wire.AppendFrame(c.frames, &wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth},
			&wire.AuthRequest{Scheme: "digest", Auth: auth.Packet()})
	}
	// Watches before reads: what changes in between is told twice rather than not at all, and events are idempotent.
	for _, root := range c.replica.roots {
		c.watch(root)
	}
	for _, root := range c.replica.roots {
		if c.lastZxid == 0 || !fault.On("resync") {
			c.readTree(root)
		}
	}
	c.pace = min(c.cfg.PromiseWindow/6, c.s.timeout/3, c.silenceLimit/4)
	c.beat = time.Now()
	c.ping()
	for {
		failed := c.s.listen(c.nextWork())
		if err := cmp.Or(ctx.Err(), failed); err != nil {
			return err
		}
		c.commands()
		c.send()
		err := c.burst()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.work()
		}
		if err != nil {
			return err
		}
	}
}

// nextWork is when work has something to do, however much arrives until then.
func (c *observation) nextWork() time.Time {
	next := c.beat.Add(c.pace)
	if !c.syncAt.IsZero() && c.syncAt.Before(next) {
		next = c.syncAt
	}
	return next
}

// work does what is due when a read has ended without a frame: because it is time, or because of an interrupt.
func (c *observation) work() error {
	now := time.Now()
	if !c.syncAt.IsZero() && !now.Before(c.syncAt) {
		c.syncAt = time.Time{}
	}
	if now.Before(c.beat.Add(c.pace)) {
		return nil
	}
	late := now.Sub(c.beat) > 2*c.pace // then it was we who did not listen: what waits is read before the next beat
	c.beat = now
	if quiet := c.s.silence(); quiet > c.silenceLimit && !late {
		return fmt.Errorf("%s has been silent for %v", c.s.server, quiet)
	}
	c.ping()
	return nil
}

// commands takes over what others have asked for since the last time.
func (c *observation) commands() {
	c.mu.Lock()
	roots := c.newRoots
	c.newRoots = nil
	c.asked = append(c.asked, c.gets...)
	clear(c.gets)
	c.gets = c.gets[:0]
	all := c.listAll
	c.listAll = false
	if len(c.urgent) == 0 { // otherwise they wait where calls for one directory become one
		for _, dir := range slices.Sorted(maps.Keys(c.lists)) {
			if root, name, node, ok := c.replica.locate([]byte(c.cfg.Full(dir))); ok && node == nil {
				c.urgent = append(c.urgent, listing{root: root, name: string(name), top: root.Depth == 2 && name == nil})
			}
		}
		clear(c.lists)
	}
	current, lagging := c.current, c.lagging
	c.current, c.lagging = false, false
	c.mu.Unlock()
	if lagging {
		c.ping()
	}

	for _, w := range roots {
		if root := c.replica.add(w, c.cfg.Full(w.Path)); root != nil {
			c.watch(root)
			c.readTree(root)
		}
	}
	if all {
		for _, root := range c.replica.roots {
			c.readTree(root)
		}
	}
	if current && c.synced {
		c.tell(zk.Change{Kind: zk.Current})
	}
}

// burst waits for a frame, and applies it and those that have arrived with it, in their order.
func (c *observation) burst() error {
	for {
		frame, err := c.s.frames.Next()
		if err == nil {
			err = c.frame(frame)
		} else {
			err = fmt.Errorf("reading from %s: %w", c.s.server, err)
		}
		if err != nil {
			c.apply() // what stands before the bad frame did happen
			return err
		}
		if !c.s.frames.Buffered() {
			break
		}
	}
	c.flush()
	return nil
}

// flush tells the sink what has changed, and only then lets others rely on it.
func (c *observation) flush() {
	c.apply()
	if !c.replied {
		return
	}
	c.mu.Lock()
	c.state.LastZxid = c.lastZxid
	c.state.Events, c.state.Ignored = c.replica.events, c.replica.ignored
	c.mu.Unlock()
	c.checkSynced()
	if !c.synced {
		return
	}
	c.freshness.Observed(c.lastZxid)
	c.mu.Lock()
	c.applied = c.lastZxid
	// In the order in which they came: what they do next begins in that order.
	c.reachers = slices.DeleteFunc(c.reachers, func(r *reacher) bool {
		if r.zxid > c.applied {
			return false
		}
		r.done <- nil
		return true
	})
	c.mu.Unlock()
}

// end gives up what the connection leaves behind.
func (c *observation) end() {
	c.mu.Lock()
	c.connected = false
	c.state.Server, c.state.SessionID, c.state.Synced = "", 0, false
	gets := append(c.asked, c.gets...)
	c.gets = nil
	c.mu.Unlock()
	// First the replica stops being current, then the sink hears why.
	c.freshness.Lost()
	c.tell(zk.Change{Kind: zk.Lost})
	for _, r := range c.flight {
		if r.op == wire.OpGetData {
			c.answer(r.get, nil, wire.Stat{}, 0, zk.ErrUnavailable)
		}
	}
	for _, g := range gets {
		c.answer(g, nil, wire.Stat{}, 0, zk.ErrUnavailable)
	}
}
