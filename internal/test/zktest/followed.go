package zktest

import (
	"net"
	"sync"

	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// followed is a client's connection to a follower. Its fields are guarded by the follower's lock.
type followed struct {
	f              *Follower
	client, leader net.Conn // leader is nil as long as a local session does not need it
	local          *local   // nil: the session is known to all
	replies        sync.WaitGroup
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

	answered bool // by the follower itself, with err
	err      wire.ErrCode
}

// reach connects with the leader on the client's behalf.
func (c *followed) reach() bool {
	leader, err := c.f.e.Network.Dial(c.f.name, LeaderName)
	if err != nil {
		return false
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.leader = leader
	if c.f.cut {
		for _, l := range c.f.e.Network.Links(c.f.name, LeaderName) {
			l.Stall()
		}
	}
	return true
}

// listen begins a session at the leader, or attaches to one, and takes what the leader says from now on.
func (c *followed) listen(hello []byte) {
	c.replies.Go(func() { c.fromLeader() })
	c.forward(hello)
}

// hangUp ends the connection on both sides.
func (c *followed) hangUp() {
	c.client.Close()
	if c.leader != nil {
		c.leader.Close()
	}
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
		if c.leader != nil {
			c.forward(frame) // the leader has to know it, too; its answer does not matter
		}
	case wire.OpPing, wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetEphemerals,
		wire.OpCountChildren, wire.OpMultiRead, wire.OpWhoAmI,
		wire.OpSetWatches, wire.OpSetWatches2, wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches:
		if c.leader != nil {
			c.forward(touch) // the session lives at the leader
		}
	default:
		w.remote = true
	}
	if !c.local.ask(&w, frame) {
		c.hangUp()
		return
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
	if c.local == nil {
		c.greeting = greeting
		c.f.e.knows(c, greeting.SessionID)
		c.advance()
	}
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
		if w.answered {
			c.send(&wire.ReplyHeader{Xid: w.header.Xid, Zxid: c.f.state.LastZxid(), Err: w.err})
			if w.header.Op == wire.OpCloseSession {
				c.hangUp()
				return
			}
		} else if !w.remote {
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
