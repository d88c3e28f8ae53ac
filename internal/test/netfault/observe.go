package netfault

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Action is what an observer wants done with the frame it was shown.
type Action int

// The actions. Of several observers' answers the first that is not Forward counts.
const (
	Forward Action = iota // pass it on
	Swallow               // leave it out; the connection goes on without it
	Hold                  // it and what follows it in its direction on this connection waits for the next Heal
	Cut                   // leave it out and end this connection at both ends
)

// Observer is shown every frame just before it is passed on: in order for one direction of one connection, and from
// several goroutines at once otherwise. It must not block, and must not Close the proxy.
type Observer func(Frame) Action

// Observe adds an observer and returns what takes it away again. Only a Framed proxy has frames to show.
func (p *Proxy) Observe(o Observer) (remove func()) {
	if !p.framed {
		panic("netfault: Observe needs a proxy made with Framed()")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observers = append(slices.Clone(p.observers), &o)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.observers = slices.DeleteFunc(slices.Clone(p.observers), func(have *Observer) bool { return have == &o })
	}
}

// observe asks the observers. It also returns how many heals there had been before they were asked: a Heal that comes
// right after an observer has said Hold must count.
func (p *Proxy) observe(f Frame) (Action, int) {
	p.mu.Lock()
	observers, heals := p.observers, p.heals
	p.mu.Unlock()
	action := Forward
	for _, o := range observers {
		if a := (*o)(f); action == Forward {
			action = a
		}
	}
	return action, heals
}

// Counts is how many requests of each kind were passed on.
type Counts map[Op]int

// Writes is how many of them were transactions on nodes.
func (c Counts) Writes() int { return c.sum(Op.Write) }

// Reads is how many of them read nodes.
func (c Counts) Reads() int { return c.sum(Op.Read) }

func (c Counts) sum(of func(Op) bool) int {
	n := 0
	for op, count := range c {
		if of(op) {
			n += count
		}
	}
	return n
}

// String is "2 multi, 1 ping", in the order of the operation codes.
func (c Counts) String() string {
	var parts []string
	for _, op := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%d %v", c[op], op))
	}
	return strings.Join(parts, ", ")
}

// Counter counts requests by operation. A request counts before it reaches the server, so a client that has a reply finds the
// request counted.
type Counter struct {
	mu     sync.Mutex
	counts Counts
}

// CountOps counts from now on what clients send through p.
func (p *Proxy) CountOps() *Counter {
	c := &Counter{counts: Counts{}}
	p.Observe(c.observe)
	return c
}

func (c *Counter) observe(f Frame) Action {
	if f.Dir == Requests {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.counts[f.Op()]++
	}
	return Forward
}

// Counts is a copy of the present counts.
func (c *Counter) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Take returns the counts and starts again from zero.
func (c *Counter) Take() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.counts
	c.counts = Counts{}
	return taken
}

// IsOp matches requests of the given kinds, on any connection.
func IsOp(ops ...Op) func(Frame) bool {
	return func(f Frame) bool { return slices.Contains(ops, f.Op()) }
}

// Trigger is a fault that strikes once, at one exact request.
type Trigger struct {
	match func(Frame) bool
	at    Direction
	do    Action
	fired chan struct{}

	mu   sync.Mutex
	left int   // matching requests until the one that is meant
	conn int64 // where its reply is awaited
	xid  int32
}

// FailRequest is "failed": the n-th request (from 1) that matches is not passed on, and its connection ends.
func (p *Proxy) FailRequest(n int, match func(Frame) bool) *Trigger {
	return p.trigger(n, match, Requests, Cut)
}

// FailReply is "failed but persisted": the n-th request that matches is executed, and its connection ends when the reply
// arrives here, which proves the execution.
func (p *Proxy) FailReply(n int, match func(Frame) bool) *Trigger {
	return p.trigger(n, match, Replies, Cut)
}

// HoldRequest is "late": the n-th request that matches, and what follows it on its connection, is passed on at the next
// Heal, even if CutClients has ended the client's side meanwhile.
func (p *Proxy) HoldRequest(n int, match func(Frame) bool) *Trigger {
	return p.trigger(n, match, Requests, Hold)
}

// HoldReply lets the n-th request that matches be executed and holds its reply, and what follows it, until the next Heal.
func (p *Proxy) HoldReply(n int, match func(Frame) bool) *Trigger {
	return p.trigger(n, match, Replies, Hold)
}

func (p *Proxy) trigger(n int, match func(Frame) bool, at Direction, do Action) *Trigger {
	t := &Trigger{match: match, at: at, do: do, left: n, fired: make(chan struct{})}
	p.Observe(t.observe)
	return t
}

// Fired is closed when the fault strikes.
func (t *Trigger) Fired() <-chan struct{} { return t.fired }

func (t *Trigger) observe(f Frame) Action {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f.Dir == Requests && t.left > 0 && t.match(f):
		t.left--
		if t.left > 0 {
			return Forward
		}
		if t.at == Requests {
			close(t.fired)
			return t.do
		}
		t.conn, t.xid = f.Conn, f.Xid()
	case f.Dir == Replies && t.conn == f.Conn && t.conn != 0 && t.xid == f.Xid():
		t.conn = 0
		close(t.fired)
		return t.do
	}
	return Forward
}
