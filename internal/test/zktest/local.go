package zktest

import (
	"slices"
	"time"

	"lockkeeper/internal/zk/wire"
)

// local is what is special about the connection of a local session. Its methods may be called on a nil one: the session is
// an ordinary one then.
//
// A follower of ZooKeeper with local sessions (localSessionsEnabled, 3.5) begins a session by itself: nothing of it is
// committed, so the client is greeted at once, and what it reads may be older than its connection; only what the client says
// it has seen bounds that. A follower that is cut off greets new clients, too.
type local struct {
	c       *followed
	id      int64
	timeout time.Duration
	auths   [][]byte  // what the client has said of itself, in case the leader has to know
	expires time.Time // when the follower ends the session unless it hears something
}

// localSessions is the first byte of their ids. No server's sessions have it.
const localSessions = 0x60

func newLocal(c *followed, hello *wire.ConnectRequest) *local {
	e := c.f.e
	timeout := min(max(time.Duration(hello.TimeoutMs)*time.Millisecond, e.cfg.Tick), 20*e.cfg.Tick)
	return &local{c: c, id: localSessions<<56 | e.locals.Add(1), timeout: timeout}
}

// greet begins the session. The follower's lock is held.
func (l *local) greet() {
	c := l.c
	c.greeted = true
	c.peer.Session, c.peer.Unlisted = l.id, true
	c.f.state.Attach(c.peer)
	passwd := make([]byte, 16)
	passwd[0] = 1
	c.send(&wire.ConnectReply{TimeoutMs: int32(l.timeout.Milliseconds()), SessionID: l.id, Passwd: passwd, HasReadOnly: true})
}

// await gives the client the session's timeout for its next request: the follower alone ends a local session.
func (l *local) await() {
	if l == nil {
		return
	}
	n := l.c.f.e.Network
	if !l.expires.IsZero() {
		n.leave(l.expires)
	}
	l.expires = n.slot(time.Now().Add(l.timeout))
	_ = l.c.client.SetReadDeadline(l.expires) // a closed one is seen by the reader
}

// end is called when no more requests come.
func (l *local) end() {
	if l != nil {
		l.c.f.e.Network.leave(l.expires)
	}
}

// dropLocals ends the service of the clients of which the leader does not know: the leader cannot tell them that it is gone. It does
// so one after the other, with the world at rest in between.
func (f *Follower) dropLocals() {
	f.mu.Lock()
	conns := slices.Clone(f.conns)
	f.mu.Unlock()
	for _, c := range conns {
		if c.local == nil {
			continue
		}
		f.mu.Lock()
		c.hangUp()
		f.mu.Unlock()
		time.Sleep(time.Nanosecond)
	}
}

// ask is called with each request before anything else: it makes sure that the leader can be asked, where it must be.
func (l *local) ask(w *waiting, frame []byte) bool {
	if l == nil {
		return true
	}
	switch {
	case w.header.Op == wire.OpAuth:
		l.auths = append(l.auths, append([]byte(nil), frame...))
	case w.header.Op == wire.OpGetEphemerals:
		w.remote = true // the copy has no such session to look for
	case w.header.Op == wire.OpCloseSession:
		w.remote, w.answered, w.err = false, true, wire.OK
	case w.remote && ephemeral(w):
		w.remote, w.answered, w.err = false, true, wire.ErrEphemeralOnLocal
	}
	if !w.remote || l.c.leader != nil {
		return true
	}
	if !l.c.reach() {
		return false
	}
	hello := wire.ConnectRequest{TimeoutMs: int32(l.timeout.Milliseconds()), Passwd: make([]byte, 16)}
	l.c.listen(hello.AppendTo(nil))
	for _, auth := range l.auths {
		l.c.forward(auth)
	}
	return true
}

// ephemeral says whether a request creates ephemeral nodes.
func ephemeral(w *waiting) bool {
	creates := func(r wire.Record) bool {
		create, ok := r.(*wire.CreateRequest)
		return ok && (create.Flags == wire.FlagEphemeral || create.Flags == wire.FlagEphemeralSequential)
	}
	d := wire.NewDecoder(w.body)
	switch w.header.Op {
	case wire.OpCreate, wire.OpCreate2:
		r := new(wire.CreateRequest)
		r.Decode(d)
		return creates(r)
	case wire.OpMulti:
		var r wire.MultiRequest
		r.Decode(d)
		for _, op := range r.Ops {
			if creates(op.Record) {
				return true
			}
		}
	}
	return false
}
