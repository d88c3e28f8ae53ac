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
// state that stands still, until the sync limit has passed; then it refuses all clients until Heal.
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
	c := &followed{f: f, client: client, peer: state.NewConn("127.0.0.1"), session: request.SessionID}
	c.peer.Deliver = c.event
	if local := f.e.cfg.LocalSessions && request.SessionID == 0 && request.HasReadOnly; local {
		c.local = newLocal(c, &request)
	}
	if c.local == nil && !c.reach() || c.local != nil && !f.e.leading.Load() {
		return // a server without a leader serves no client
	}
	defer c.hangUp()
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.conns = append(f.conns, c)
	if c.local != nil {
		c.local.greet()
	}
	f.mu.Unlock()
	if c.local == nil {
		c.listen(hello)
		f.e.came(c)
	}
	for {
		c.local.await()
		frame, err := frames.Next()
		if err != nil {
			break
		}
		c.fromClient(frame)
	}
	c.local.end()
	c.hangUp()
	c.replies.Wait()
	f.e.went(c)
	f.mu.Lock()
	f.conns = slices.DeleteFunc(f.conns, func(other *followed) bool { return other == c })
	f.state.Detach(c.peer)
	f.mu.Unlock()
}
