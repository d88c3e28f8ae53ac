package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"lockkeeper/internal/test/chaos/check"
)

// client is one client: it wants one lock after the other, in ever different ways, until it is told to stop. What it has then,
// it lets go of.
type client struct {
	*caller
	*Recorder
	id       int
	attempts int
}

func newClient(w *World, id int, seed uint64) *client {
	rng := rand.New(rand.NewPCG(seed, uint64(id)))
	return &client{caller: newCaller(w.ways, rng), Recorder: w.Recorder, id: id}
}

const (
	beatWithin = 3 * time.Second
	patience   = 40 * time.Second // with an acquire that is not answered
)

// live goes on until stop is closed. ctx ends everything at once, and is for tests that have failed.
func (c *client) live(ctx context.Context, stop <-chan struct{}) {
	defer c.close()
	for ctx.Err() == nil {
		select {
		case <-stop:
			return
		default:
		}
		c.attempt(ctx, stop)
		sleep(ctx, c.upTo(time.Second))
	}
}

func (c *client) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

func (c *client) chance(percent int) bool { return c.rng.IntN(100) < percent }

// attempt wants one lock once.
func (c *client) attempt(ctx context.Context, stop <-chan struct{}) {
	w := c.wish()
	var token string
	var held bool
	switch n := c.rng.IntN(100); {
	case n < 15:
		token, held = c.acquire(ctx, w, "", time.Second*5)
	case n < 30:
		token, held = c.acquire(ctx, w, c.key(), time.Second*5)
	case n < 45:
		wait := time.Second + c.upTo(7*time.Second)
		token, held = c.acquire(ctx, w, "", wait+4*time.Second, "wait", wait.String())
	case n < 65:
		wait := time.Second + c.upTo(7*time.Second)
		token, held = c.acquire(ctx, w, c.key(), wait+4*time.Second, "wait", wait.String())
	default:
		token, held = c.acquire(ctx, w, c.key(), time.Second*5, "async", "true")
	}
	if token == "" {
		return
	}
	if !held && !c.inLine(ctx, stop, w, token) {
		return
	}
	c.hold(ctx, stop, w, token)
}

func (c *client) key() string { return fmt.Sprintf("%016x%016x", c.rng.Uint64(), c.rng.Uint64()) }

// acquire sends an acquire, and with a key repeats it until there is an answer. Without a key an acquire that was not
// answered is forgotten: what it has left ends by itself.
func (c *client) acquire(ctx context.Context, w wish, key string, within time.Duration, more ...string) (token string, held bool) {
	for began := c.now(); ctx.Err() == nil && c.now()-began < patience; {
		a := c.ask(ctx, w, check.Acquire, within, "POST", w.query(more...), "", key)
		switch {
		case a.ok():
			return a.Token, a.State == "held"
		case !a.again() || key == "":
			return "", false
		}
		sleep(ctx, a.pause())
	}
	return "", false
}

// ask sends a request about a wish and writes down what became of it.
func (c *client) ask(ctx context.Context, w wish, kind check.Kind, within time.Duration, method, path, token, key string) answer {
	o := w.op(c.id, kind)
	o.Sent = c.now()
	a := c.send(ctx, within, method, path, token, key, nil)
	o.Done = c.now()
	a.into(&o)
	c.did(o)
	return a
}

func (a *answer) into(o *check.Op) {
	o.Via, o.Status, o.Code, o.Reason, o.State = a.via, a.status, a.Code, a.Reason, a.State
	o.LeaseID, o.Token, o.Number, o.Left = a.LeaseID, a.FencingToken, a.number(), time.Duration(a.ExpiresInMS)*time.Millisecond
}

func (c *client) beat(ctx context.Context, w wish, token string) answer {
	return c.ask(ctx, w, check.Heartbeat, beatWithin, "POST", "/v1/leases/self/heartbeat", token, "")
}

// inLine waits with a ticket, by long polls or heartbeats, until it is granted. Some lose patience, some just go away.
func (c *client) inLine(ctx context.Context, stop <-chan struct{}, w wish, token string) bool {
	until := c.now() + 2*time.Second + c.upTo(28*time.Second)
	leaves := c.chance(20) // without a word
	rev := ""
	for ctx.Err() == nil {
		select {
		case <-stop:
			c.letGo(ctx, w, token)
			return false
		default:
		}
		if c.now() > until {
			if !leaves {
				c.letGo(ctx, w, token)
			}
			return false
		}
		var a answer
		if c.chance(50) {
			path := "/v1/leases/self"
			if rev != "" {
				path += "?wait=2s&since=" + rev
			}
			a = c.ask(ctx, w, check.Poll, 2*time.Second+beatWithin, "GET", path, token, "")
			rev = a.Rev
		} else {
			a = c.beat(ctx, w, token)
			if a.ok() {
				sleep(ctx, c.upTo(w.ttl/4))
			}
		}
		switch {
		case a.ok() && a.State == "held":
			a = c.beat(ctx, w, token) // a grant during a lost answer has to be claimed
			if a.ok() && a.State == "held" {
				return true
			}
		case a.ok() && a.State == "waiting":
		case a.again():
			sleep(ctx, a.pause())
		default:
			return false // it has ended
		}
	}
	return false
}

// hold keeps a lease for a while, and lets go of it. Some just stop.
func (c *client) hold(ctx context.Context, stop <-chan struct{}, w wish, token string) {
	until := c.now() + 200*time.Millisecond + c.upTo(3*time.Second)
	if c.chance(15) {
		until += 15 * time.Second // to live through something
	}
	for ctx.Err() == nil && c.now() < until {
		pause := w.ttl/4 + c.upTo(w.ttl/8)
		if left := until - c.now(); left < pause {
			pause = max(left, 0)
		}
		select {
		case <-stop:
			until = 0
			continue
		case <-time.After(pause):
		}
		for ctx.Err() == nil {
			a := c.beat(ctx, w, token)
			if a.ok() {
				break
			}
			if !a.again() {
				return // it has ended
			}
			sleep(ctx, a.pause())
		}
	}
	if c.chance(8) {
		return // dead
	}
	c.letGo(ctx, w, token)
	if c.chance(10) {
		c.beat(ctx, w, token) // a heartbeat that comes too late
	}
}

// letGo releases, and repeats it until there is an answer.
func (c *client) letGo(ctx context.Context, w wish, token string) {
	for ctx.Err() == nil {
		a := c.ask(ctx, w, check.Release, 5*time.Second, "DELETE", "/v1/leases/self", token, "")
		if !a.again() {
			return
		}
		sleep(ctx, a.pause())
	}
}
