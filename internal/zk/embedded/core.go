package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// A batch is stored and answered after so many requests, or so many bytes of requests and of output.
const (
	batchRequests = 4096
	batchBytes    = 16 << 20
)

// A connection's turn is over after so many requests or so long a time. What is left of its burst goes to the end of the queue.
const (
	turnRequests = 512
	turnTime     = 20 * time.Millisecond
)

// core owns the state machine and the sessions. Its loop runs in Run's goroutine; elapsed alone may be called from others.
type core struct {
	s        *Server
	log      *slog.Logger
	state    *state.State
	sessions *sessions
	stats    stats
	begun    time.Time

	// The present batch.
	now      int64 // ms since the Unix epoch
	requests int
	bytes    int // of requests and of output
	txns     []*state.Txn
	dirty    []*conn // have output or are to be closed
	done     []carriedOut

	snapshots snapshots
}

// carriedOut is a burst that goes back to its reader when the batch is released.
type carriedOut struct {
	c *conn
	b burst
}

func newCore(s *Server) (*core, error) {
	k := &core{s: s, log: s.cfg.Logger, begun: time.Now()}
	var err error
	if k.state, err = load(s.cfg.Storage, state.Config{MaxData: s.cfg.MaxFrame, MaxReply: s.cfg.MaxUnread}); err != nil {
		return nil, err
	}
	newest := newestIDs{remote: k.state.NewestSession(remoteServer), local: k.state.NewestSession(localServer)}
	k.sessions = newSessions(s.cfg.TickTime.Milliseconds(), s.cfg.Storage.Secret(), newest, s.cfg.Clock())
	return k, nil
}

// elapsed is the time that sessions live by: monotonic, in milliseconds since the server was made.
func (k *core) elapsed() int64 { return time.Since(k.begun).Milliseconds() }

// loop is the core's life.
func (k *core) loop(ctx context.Context) error {
	awake := k.elapsed() // when the loop last looked at the sessions
	if err := k.recover(awake); err != nil {
		return err
	}
	ticks := time.NewTimer(k.untilTick())
	defer ticks.Stop()
	reaping := time.NewTicker(k.s.cfg.ReapInterval)
	defer reaping.Stop()
	for {
		var first item
		var tick, reap, drain bool
		select {
		case first = <-k.s.queue:
		case <-ticks.C:
			tick = true
			ticks.Reset(k.untilTick())
		case <-reaping.C:
			reap = true
		case <-k.snapshots.more():
		case <-ctx.Done():
			drain = true
		case <-k.s.closing:
			return ErrClosed
		}
		if k.s.cfg.Gate != nil {
			k.s.cfg.Gate(k.s.closing)
			select {
			case <-k.s.closing:
				return ErrClosed
			default:
			}
		}
		k.now = k.s.cfg.Clock()
		if first.c != nil {
			k.take(first, drain)
		}
		// Everything that has come until now is looked at before any session expires, however much it is.
		for n := len(k.s.queue); n > 0 && (!k.full() || tick || drain); n-- {
			k.take(<-k.s.queue, drain)
		}
		if tick {
			k.expire(&awake)
		}
		if reap {
			k.txns = append(k.txns, k.state.Reap(k.now)...)
		}
		if err := k.commit(); err != nil {
			return err
		}
		if drain {
			return nil
		}
	}
}

// recover does what comes before the first request: the sessions of the storage begin their timeouts.
func (k *core) recover(now int64) error {
	k.sessions.swept = now / k.sessions.tick * k.sessions.tick
	for id, timeout := range k.state.Sessions() {
		k.sessions.add(id, now, int64(timeout))
	}
	if err := k.endLocal(); err != nil {
		return err
	}
	if k.s.cfg.KeepAdmin {
		k.txns = k.state.KeepAdmin(k.s.cfg.Clock())
		if err := k.commit(); err != nil {
			return err
		}
	}
	k.s.served.Store(true)
	k.log.Info("embedded ZooKeeper serves", "zxid", k.state.LastZxid(), "sessions", len(k.sessions.byID))
	return nil
}

// untilTick is the time to the next end of a bucket of sessions.
func (k *core) untilTick() time.Duration {
	next := k.sessions.roundUp(k.elapsed())
	return time.Duration(next)*time.Millisecond - time.Since(k.begun)
}

// full says whether the present batch is long enough.
func (k *core) full() bool { return k.requests >= batchRequests || k.bytes >= batchBytes }

// take carries out one thing that a reader has handed over; with drain to its end, because there is no other turn.
func (k *core) take(it item, drain bool) {
	c := it.c
	switch {
	case it.word != "":
		k.stats.received++
		c.received.Add(1)
		k.send(c, []byte(k.word(it.word)))
		k.end(c, endsAfterOutput)
	case it.connect != nil:
		k.connect(c, it)
		k.done = append(k.done, carriedOut{c: c})
	case it.frames.rest != nil:
		k.burst(c, it, drain)
	case it.alive:
		if !c.over {
			k.sessions.touch(c.session, it.at)
		}
	default:
		k.end(c, endsAtOnce)
	}
}

// burst carries out requests of one connection, as many as there is room for replies and a turn has time for.
func (k *core) burst(c *conn, it item, drain bool) {
	b := it.frames
	unread := c.out.unread()
	n, turn := int64(0), newTurn(drain)
	putOff := false
	for !c.over {
		frame, rest := wire.NextInBurst(b.rest)
		if frame == nil {
			break
		}
		if n > 0 && unread+len(c.batch) >= unreadSoft {
			break // the rest waits
		}
		if turn.over() {
			if putOff = k.putOff(c, b); putOff {
				break
			}
			turn = newTurn(drain)
		}
		b.rest = rest
		n++
		k.bytes += len(frame)
		k.request(c, frame, it.at)
	}
	if c.over {
		b.rest = nil
	}
	k.requests += int(n)
	k.stats.latency(n, k.elapsed()-it.at)
	c.received.Add(n)
	k.stats.received += n
	if !putOff {
		k.done = append(k.done, carriedOut{c, b})
	}
}

// putOff puts what is left of a burst at the end of the queue. Its session has been heard of: that it has to wait is not its
// fault. It is false when the queue is full: connections have come and gone while the server stood still.
func (k *core) putOff(c *conn, b burst) bool {
	it := item{c: c, at: k.elapsed(), frames: b}
	select {
	case k.s.queue <- it:
		k.sessions.touch(c.session, it.at)
		return true
	default:
		return false
	}
}

// turn is how long one connection may have the core for itself.
type turn struct {
	left int
	end  time.Time // zero: there is no end
}

func newTurn(endless bool) turn {
	if endless {
		return turn{}
	}
	return turn{left: turnRequests, end: time.Now().Add(turnTime)}
}

// over counts a request, unless the turn is over. The first one always has its turn.
func (t *turn) over() bool {
	if t.end.IsZero() {
		return false
	}
	if t.left == 0 || t.left < turnRequests && !time.Now().Before(t.end) {
		return true
	}
	t.left--
	return false
}

// request carries out one request.
func (k *core) request(c *conn, frame []byte, at int64) {
	if len(frame) < 8 {
		k.end(c, endsAfterOutput)
		return
	}
	d := wire.NewDecoder(frame)
	var h wire.RequestHeader
	h.Decode(d)
	if h.Op != wire.OpAuth { // as in ZooKeeper, which answers it before it looks at the session
		k.sessions.touch(c.session, at)
	}
	reply := k.state.Request(c.peer, k.now, h, frame[8:])
	if reply.Txn != nil {
		k.txns = append(k.txns, reply.Txn)
	}
	if !reply.None {
		mark := k.begin(c)
		c.batch = reply.Header.AppendTo(c.batch)
		if reply.Body != nil {
			c.batch = reply.Body.AppendTo(c.batch)
		}
		k.finish(c, mark)
	}
	if h.Op == wire.OpCloseSession && !k.state.HasSession(c.session.id) {
		k.sessions.remove(c.session)
	}
	if reply.Close {
		k.end(c, endsAfterOutput)
	}
}

// event sends a watch event. The state machine calls it, and must not be called from here.
func (k *core) event(c *conn, event wire.WatcherEvent) {
	if c.flooded {
		return
	}
	mark := k.begin(c)
	header := wire.ReplyHeader{Xid: wire.XidWatcherEvent, Zxid: -1}
	c.batch = event.AppendTo(header.AppendTo(c.batch))
	k.finish(c, mark)
	if len(c.batch) > k.s.cfg.MaxUnread {
		c.flooded, c.batch = true, nil // release closes it
	}
}

// begin and finish put one frame between them into c's output.
func (k *core) begin(c *conn) (mark int) {
	k.touch(c)
	mark = len(c.batch)
	c.batch = wire.BeginFrame(c.batch)
	return mark
}

func (k *core) finish(c *conn, mark int) {
	c.batch = wire.EndFrame(c.batch, mark)
	k.bytes += len(c.batch) - mark
	c.sent.Add(1)
	k.stats.sent++
}

// send puts bytes into c's output.
func (k *core) send(c *conn, b []byte) {
	k.touch(c)
	c.batch = append(c.batch, b...)
	c.sent.Add(1)
	k.stats.sent++
}

func (k *core) touch(c *conn) {
	if !c.touched {
		c.touched = true
		k.dirty = append(k.dirty, c)
	}
}

// end makes nothing more count that comes from c, takes its session and its watches from it, and closes it when the batch is
// released.
func (k *core) end(c *conn, how ending) {
	if c.session != nil {
		k.state.Detach(c.peer)
		c.session.conn, c.session = nil, nil
	}
	if !c.over || how == endsAtOnce {
		c.over, c.ending = true, how
		k.touch(c)
	}
}

// expire ends the sessions that are due. awake is when it last did.
func (k *core) expire(awake *int64) {
	now := k.elapsed()
	if late := now - *awake - k.sessions.tick; late >= k.sessions.tick {
		k.log.Warn("the server stood still", "ms", late)
		k.sessions.forgive(late, now)
	}
	*awake = now
	for _, s := range k.sessions.due(now) {
		k.log.Info("session expired", "session", fmt.Sprintf("0x%x", s.id), "timeout_ms", s.timeout)
		k.stats.expired++
		if txn := k.state.CloseSession(k.now, s.id); txn != nil {
			k.txns = append(k.txns, txn)
		}
		if s.conn != nil {
			k.end(s.conn, endsAfterOutput)
		}
	}
}

// commit stores the batch and then releases it: output to the writers, bursts back to the readers.
func (k *core) commit() error {
	if err := k.store(); err != nil {
		return err
	}
	for _, c := range k.dirty {
		k.release(c)
	}
	clear(k.dirty)
	k.dirty = k.dirty[:0]
	for _, d := range k.done {
		d.c.back <- d.b // it has the place: one burst of each connection is out
	}
	clear(k.done)
	k.done = k.done[:0]
	k.requests, k.bytes = 0, 0
	return nil
}

// tooMuch says whether a connection has left so much unread that it is closed.
func (k *core) tooMuch(unread int) bool {
	return unread > k.s.cfg.MaxUnread || unread > unreadSoft && k.s.unread.Load() > int64(k.s.cfg.MaxUnreadTotal)
}

func (k *core) release(c *conn) {
	c.touched = false
	if len(c.batch) > 0 || c.flooded {
		unread := 0
		if !c.flooded {
			c.batch, unread = c.out.put(c.batch)
		}
		if (c.flooded || k.tooMuch(unread)) && c.ending != endsAtOnce {
			k.log.Warn("connection closed: its output is not read", "remote", c.remote, "unread", unread, "in_all", k.s.unread.Load())
			k.stats.unread++
			c.over, c.ending = true, endsAtOnce
		}
		if cap(c.batch) > maxKept {
			c.batch = nil
		}
	}
	switch c.ending {
	case endsAfterOutput:
		c.out.finish(k.s.cfg.DrainTimeout)
	case endsAtOnce:
		c.out.close()
	}
}
