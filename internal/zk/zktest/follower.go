package zktest

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// Follower is a server with a copy of the leader's state that is a little behind.
type Follower struct {
	e      *Ensemble
	name   string
	random *rand.Rand

	mu     sync.Mutex
	state  *state.State
	queue  []due // transactions on their way
	timer  *time.Timer
	last   time.Time
	lag    Delay
	cut    bool
	limit  *time.Timer // ends the service of a follower that is cut off
	conns  []*followed // in the order in which they came
	closed bool
}

type due struct {
	txn *state.Txn
	at  time.Time
}

func newFollower(e *Ensemble, name string) *Follower {
	f := &Follower{e: e, name: name, random: e.Network.random(LeaderName, name, 0, "history"), state: state.New(state.Config{}), lag: e.cfg.Lag}
	e.Network.Serve(name, f.accept)
	return f
}

// Lag changes how far the follower is behind.
func (f *Follower) Lag(d Delay) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lag = d
}

// Zxid is the newest transaction that the follower has.
func (f *Follower) Zxid() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.LastZxid()
}

// CutOff takes the follower's connection to the leader away without either noticing. It answers reads and pings, from a
// state that stands still, until the sync limit has passed; then it refuses everybody until Heal.
func (f *Follower) CutOff() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut || f.closed {
		return
	}
	f.cut = true
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	for _, l := range f.e.Network.Links(f.name, LeaderName) {
		l.Stall()
	}
	at := f.e.Network.slot(time.Now().Add(f.e.cfg.SyncLimit))
	f.limit = time.AfterFunc(time.Until(at), func() {
		f.e.Network.leave(at)
		f.quit()
	})
}

// quit ends the service of a follower that is still cut off.
func (f *Follower) quit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.cut {
		return
	}
	f.e.Network.Serve(f.name, nil)
	for _, c := range f.conns {
		c.hangUp()
	}
}

// Heal connects the follower with the leader again. It catches up.
func (f *Follower) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.cut || f.closed {
		return
	}
	f.cut = false
	f.limit.Stop()
	now := time.Now()
	for i := range f.queue {
		if d := &f.queue[i]; !d.at.After(now) {
			f.e.Network.leave(d.at)
			now = f.e.Network.slot(now.Add(time.Nanosecond))
			d.at = now
		}
	}
	f.last = later(f.last, now)
	for _, l := range f.e.Network.Links(f.name, LeaderName) {
		l.Resume()
	}
	f.e.Network.Serve(f.name, f.accept)
	f.schedule()
}

// feed gives the follower a transaction that was committed just now.
func (f *Follower) feed(txn *state.Txn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Now().Add(f.lag.Min + time.Duration(f.random.Int64N(int64(f.lag.Max-f.lag.Min)+1)))
	if !at.After(f.last) {
		at = f.last.Add(time.Nanosecond)
	}
	at = f.e.Network.slot(at)
	f.last = at
	f.queue = append(f.queue, due{txn, at})
	f.schedule()
}

func (f *Follower) schedule() {
	if f.timer == nil && len(f.queue) > 0 && !f.cut && !f.closed {
		f.timer = time.AfterFunc(time.Until(f.queue[0].at), f.apply)
	}
}

// apply puts the oldest transaction on its way into the copy. Events go to the clients that watch, and then the replies that
// waited for it.
func (f *Follower) apply() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = nil
	if f.cut || f.closed || len(f.queue) == 0 {
		return
	}
	next := f.queue[0]
	f.queue = f.queue[1:]
	f.e.Network.leave(next.at)
	if err := f.state.Apply(next.txn); err != nil {
		panic(err) // the leader applied it
	}
	for _, c := range f.conns {
		c.advance()
	}
	f.schedule()
}

func (f *Follower) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.e.Network.Serve(f.name, nil)
	for _, t := range []*time.Timer{f.timer, f.limit} {
		if t != nil {
			t.Stop()
		}
	}
	for _, c := range f.conns {
		c.hangUp()
	}
}

// accept serves a client until it or the leader hangs up.
func (f *Follower) accept(client net.Conn) {
	defer client.Close()
	frames := wire.NewFrameReader(client, 1<<20)
	hello, err := frames.Next()
	if err != nil {
		return
	}
	var request wire.ConnectRequest
	d := wire.NewDecoder(hello)
	if request.Decode(d); d.Err() != nil {
		return
	}
	if request.LastZxidSeen > f.Zxid() {
		return // as ZooKeeper: without a word
	}
	leader, err := f.e.Network.Dial(f.name, LeaderName)
	if err != nil {
		return
	}
	defer leader.Close()
	c := &followed{f: f, client: client, leader: leader, peer: state.NewConn("127.0.0.1"), session: request.SessionID}
	c.peer.Deliver = c.event
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.conns = append(f.conns, c)
	if f.cut {
		for _, l := range f.e.Network.Links(f.name, LeaderName) {
			l.Stall()
		}
	}
	f.mu.Unlock()
	var replies sync.WaitGroup
	replies.Go(func() { c.fromLeader() })
	c.forward(hello)
	f.e.came(c)
	for {
		frame, err := frames.Next()
		if err != nil {
			break
		}
		c.fromClient(frame)
	}
	c.hangUp()
	replies.Wait()
	f.e.went(c)
	f.mu.Lock()
	f.conns = slices.DeleteFunc(f.conns, func(other *followed) bool { return other == c })
	f.state.Detach(c.peer)
	f.mu.Unlock()
}

// followed is a client's connection to a follower. Its fields are guarded by the follower's lock.
type followed struct {
	f              *Follower
	client, leader net.Conn
	peer           *state.Conn
	waiting        []waiting // what the client asked and is not answered, oldest first
	greeting       *wire.ConnectReply
	greeted        bool
	session        int64 // that the client came to go on with; 0 for a new one
}

// waiting is a request, with the leader's answer when the leader was asked and has answered.
type waiting struct {
	header wire.RequestHeader
	body   []byte
	remote bool
	reply  []byte // whole, with its header
	zxid   int64
}

// hangUp ends the connection on both sides.
func (c *followed) hangUp() {
	c.client.Close()
	c.leader.Close()
}

func (c *followed) forward(frame []byte) {
	b := wire.BeginFrame(nil)
	_, _ = c.leader.Write(wire.EndFrame(append(b, frame...), 0)) // a broken one is seen by the reader
}

func (c *followed) send(records ...wire.Record) {
	_, _ = c.client.Write(wire.AppendFrame(nil, records...))
}

// event sends a watch event. The copy of the state calls it, under the follower's lock.
func (c *followed) event(event wire.WatcherEvent) {
	c.send(&wire.ReplyHeader{Xid: wire.XidWatcherEvent, Zxid: -1}, &event)
}

// touch is a ping, by which a follower tells the leader that a session's client was heard of.
var touch = (&wire.RequestHeader{Xid: wire.XidPing, Op: wire.OpPing}).AppendTo(nil)

// fromClient takes a request.
func (c *followed) fromClient(frame []byte) {
	if len(frame) < 8 {
		c.hangUp()
		return
	}
	w := waiting{body: append([]byte(nil), frame[8:]...)}
	w.header.Decode(wire.NewDecoder(frame))
	switch w.header.Op {
	case wire.OpAuth:
		c.forward(frame) // the leader has to know it, too; its answer does not matter
	case wire.OpPing, wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetEphemerals,
		wire.OpCountChildren, wire.OpMultiRead, wire.OpWhoAmI,
		wire.OpSetWatches, wire.OpSetWatches2, wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches:
		c.forward(touch) // the session lives at the leader
	default:
		w.remote = true
	}
	if w.header.Op == wire.OpMulti {
		if next := c.f.e.successor(c); next != nil {
			next.late(frame)
			return
		}
	}
	if w.remote {
		c.forward(frame)
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.waiting = append(c.waiting, w)
	c.advance()
}

// fromLeader takes the leader's answers until it hangs up; then the client is hung up on, unless that is because it has
// connected elsewhere: what it said here may still be on its way.
func (c *followed) fromLeader() {
	defer func() {
		if c.f.e.successor(c) == nil {
			c.hangUp()
		}
	}()
	frames := wire.NewFrameReader(c.leader, 64<<20)
	hello, err := frames.Next()
	if err != nil {
		return
	}
	greeting := new(wire.ConnectReply)
	d := wire.NewDecoder(hello)
	if greeting.Decode(d); d.Err() != nil {
		return
	}
	greeting.Passwd = append([]byte(nil), greeting.Passwd...)
	c.f.mu.Lock()
	c.greeting = greeting
	c.f.e.knows(c, greeting.SessionID)
	c.advance()
	c.f.mu.Unlock()
	for {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		var h wire.ReplyHeader
		h.Decode(wire.NewDecoder(frame))
		if h.Xid == wire.XidPing || h.Xid == wire.XidAuth || h.Xid == xidLate {
			continue
		}
		c.f.mu.Lock()
		for i := range c.waiting {
			if w := &c.waiting[i]; w.remote && w.reply == nil {
				w.reply, w.zxid = append([]byte(nil), frame...), h.Zxid
				break
			}
		}
		c.advance()
		c.f.mu.Unlock()
	}
}

// advance answers what can be answered, in the client's order. The follower's lock is held.
func (c *followed) advance() {
	if !c.greeted {
		switch g := c.greeting; {
		case g == nil:
			return
		case g.SessionID == 0: // refused
			c.greeted = true
			c.send(g)
			return
		case !c.f.state.HasSession(g.SessionID):
			return // its beginning is still on its way
		default:
			c.greeted = true
			c.peer.Session = g.SessionID
			c.f.state.Attach(c.peer)
			c.send(g)
		}
	}
	for len(c.waiting) > 0 {
		w := &c.waiting[0]
		if !w.remote {
			reply := c.f.state.Request(c.peer, 0, w.header, w.body)
			if !reply.None {
				if reply.Body != nil {
					c.send(&reply.Header, reply.Body)
				} else {
					c.send(&reply.Header)
				}
			}
			if reply.Close {
				c.hangUp()
				return
			}
		} else {
			if w.reply == nil || w.zxid > c.f.state.LastZxid() {
				return
			}
			_, _ = c.client.Write(wire.EndFrame(append(wire.BeginFrame(nil), w.reply...), 0))
		}
		c.waiting = c.waiting[1:]
	}
}
