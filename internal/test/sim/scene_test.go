package sim

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// scene is a world in which everything is done by a script: one interleaving, made to happen.
type scene struct {
	*testing.T
	*world
	clients []*client
	weather *weather
}

// What the seed of a scene says about time: see newWorld.
const (
	sessionOutlivesWindow = 3 // a session timeout of 4 s, a promise window of 2 s
	windowOutlivesSession = 1 // 2 s and 5 s
)

// play runs a script and judges it as any run.
func play(t *testing.T, seed uint64, gateways, servers int, script func(s *scene)) {
	t.Helper()
	playIn(t, Plan{Seed: seed, Gateways: gateways, Servers: servers}, script)
}

// playIn is play in a world that a plan describes.
func playIn(t *testing.T, plan Plan, script func(s *scene)) {
	t.Helper()
	defer steady()()
	cryptotest.SetGlobalRandom(t, plan.Seed)
	var out Outcome
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, plan)
		s := &scene{T: t, world: w, weather: &weather{w: w}}
		s.scripted = true
		defer func() { // also when the script gives up: nothing may be left in the bubble
			for _, c := range s.clients {
				c.close()
			}
			s.weather.clear()
			out = s.end()
			if t.Failed() {
				t.Log("\n" + out.Text())
			}
		}()
		script(s)
	})
	out.judge()
	for _, v := range out.Violations {
		t.Error(v)
	}
}

// start starts a gateway and waits until it answers.
func (s *scene) start(number int) *gateway {
	s.Helper()
	g := s.startGateway(number)
	time.Sleep(time.Second)
	return g
}

// startBehind starts a gateway that can reach one server alone.
func (s *scene) startBehind(number int, server string) *gateway {
	s.Helper()
	for _, other := range s.zk.Servers() {
		if other != server {
			s.zk.Network.Part(s.next(number), other)
		}
	}
	return s.start(number)
}

// next is the name that a gateway will have.
func (s *scene) next(number int) string {
	return "gw" + string(rune('0'+number)) + "." + string(rune('1'+s.gateways.lives[number]))
}

// die kills a gateway.
func (s *scene) die(g *gateway) {
	g.claimEnd()
	g.kill()
}

// client is one that asks g alone until told otherwise.
func (s *scene) client(g *gateway) *client {
	c := newClient(s.world, len(s.clients))
	c.at, c.fixed = g, true
	s.clients = append(s.clients, c)
	return c
}

// writer and observer are a gateway's two connections with ZooKeeper.
func (s *scene) writer(g *gateway) *zktest.Link   { return s.link(g, wire.OpMulti) }
func (s *scene) observer(g *gateway) *zktest.Link { return s.link(g, wire.OpAddWatch) }

func (s *scene) link(g *gateway, op wire.Op) *zktest.Link {
	s.Helper()
	for _, l := range s.linksToZooKeeper(g) {
		if l.Sent(op) > 0 {
			return l
		}
	}
	s.Fatalf("%s has no connection on which it has sent operation %d", g.name, op)
	return nil
}

// ask acquires once. Parameters are pairs.
func (s *scene) ask(c *client, lock string, parameters ...string) (answer, *lease, error) {
	s.Helper()
	query, header := url.Values{}, http.Header{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i] == "key" {
			header.Set("Idempotency-Key", "key-of-the-attempt-"+parameters[i+1])
			continue
		}
		query.Set(parameters[i], parameters[i+1])
	}
	a, err := c.do(time.Minute, http.MethodPost, "/v1/locks/"+lock+"/leases", query, header)
	if err != nil || a.Token == "" {
		return a, nil, err
	}
	claimed := claim{mode: cmp.Or(mode(query.Get("mode")), exclusive)}
	if claimed.mode == semaphore {
		_, _ = fmt.Sscan(query.Get("permits")+" "+query.Get("limit"), &claimed.permits, &claimed.limit)
	}
	l := newLease([]wish{{lock, claimed}}, a, time.Duration(a.TTL)*time.Millisecond)
	s.believe(l, a)
	return a, l, nil
}

// take acquires and must be answered as wanted: held or waiting.
func (s *scene) take(c *client, lock, state string, parameters ...string) *lease {
	s.Helper()
	a, l, err := s.ask(c, lock, parameters...)
	assert.Must(s, err == nil && l != nil && a.State == state, "%s: %d %s, %v", lock, a.status, a.raw, err)
	return l
}

// beat sends one heartbeat.
func (s *scene) beat(c *client, l *lease, parameters ...string) answer {
	s.Helper()
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	a, err := c.do(2*time.Second, http.MethodPost, "/v1/leases/self/heartbeat", query, l.header())
	if err == nil && a.status == http.StatusOK {
		s.believe(l, a)
	}
	return a
}

// beatUntil heartbeats every 300 ms until it is answered with success; nothing else than 503 or no answer may come before.
func (s *scene) beatUntil(c *client, l *lease, atMost time.Duration) answer {
	s.Helper()
	for began := time.Now(); ; time.Sleep(300 * time.Millisecond) {
		a := s.beat(c, l)
		switch {
		case a.status == http.StatusOK:
			return a
		case a.status != 0 && a.status != http.StatusServiceUnavailable:
			s.Fatalf("a heartbeat is answered %d %s", a.status, a.raw)
		case time.Since(began) > atMost:
			s.Fatalf("no heartbeat is answered with success in %v", atMost)
		}
	}
}

// there says whether a contender is there.
func (s *scene) there(l *lease) bool {
	places := s.audit.places(l.id)
	return len(places) > 0 && !slices.ContainsFunc(places, func(c contender) bool { return !c.gone.IsZero() })
}

// within waits until something is so.
func (s *scene) within(atMost time.Duration, what string, so func() bool) {
	s.Helper()
	for began := time.Now(); !so(); time.Sleep(10 * time.Millisecond) {
		assert.Must(s, time.Since(began) <= atMost, "not within %v: %s", atMost, what)
	}
}

// exists says whether there is anything at or below a path.
func (s *scene) below(path string) (found []string) {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	for p := range s.audit.nodes {
		if strings.HasPrefix(p, path+"/") {
			found = append(found, p)
		}
	}
	return found
}

// takenOver says whether a gateway has been succeeded.
func (s *scene) takenOver() bool { return len(s.below("/lockkeeper/succession")) > 0 }

// counting counts the operations of a kind that are committed from now on at or below a path.
func (s *scene) counting(kind state.TxnKind, path string) func() int {
	n := 0
	s.zk.OnCommit(func(txn *state.Txn) {
		for _, op := range txn.Ops {
			if op.Kind == kind && strings.HasPrefix(op.Path, path) {
				s.audit.mu.Lock()
				n++
				s.audit.mu.Unlock()
			}
		}
	})
	return func() int {
		s.audit.mu.Lock()
		defer s.audit.mu.Unlock()
		return n
	}
}
