package manager

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
)

// narrow is a store whose sessions write one transaction after the other, each for writeTakes, as the real writer does with
// transactions that travel alone, and refuse a write when too many wait.
type narrow struct{ *fakeStore }

const (
	writeTakes = 5 * time.Millisecond
	writesWait = 8192
)

func (n narrow) Open(ctx context.Context, id string, registration []byte, onCommit func(zk.Instant, int64)) (term.Session, error) {
	s, err := n.fakeStore.Open(ctx, id, registration, onCommit)
	if err != nil {
		return nil, err
	}
	return &narrowSession{fakeSession: s.(*fakeSession)}, nil
}

type narrowSession struct {
	*fakeSession
	line    sync.Mutex
	free    time.Time // when the last of those that wait is done
	waiting int
}

// turn waits for the place in line of one write.
func (n *narrowSession) turn(then func()) error {
	n.line.Lock()
	defer n.line.Unlock()
	if n.waiting >= writesWait {
		return zk.ErrQueueFull
	}
	n.waiting++
	if now := time.Now(); n.free.Before(now) {
		n.free = now
	}
	n.free = n.free.Add(writeTakes)
	time.AfterFunc(time.Until(n.free), func() {
		n.line.Lock()
		n.waiting--
		n.line.Unlock()
		then()
	})
	return nil
}

func (n *narrowSession) Submit(w *zk.Write) error {
	return n.turn(func() {
		if err := n.fakeSession.Submit(w); err != nil {
			w.Done(zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1})
		}
	})
}

func (n *narrowSession) Takeover(ctx context.Context, dead string, polled *zk.Guard, done func(zk.Result)) {
	if err := n.turn(func() { n.fakeSession.Takeover(ctx, dead, polled, done) }); err != nil {
		done(zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1})
	}
}

// forge creates contenders of gateways that never existed, and returns their paths. letter is the first one of their ids.
func (s *fakeStore) forge(letter byte, ids int) []string {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	var ops []zk.Op
	if len(s.names("/lockkeeper/locks/flood")) == 0 {
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/flood"})
	}
	for i := range ids {
		gateway := []byte(string(letter) + "aaaaaaaaaaaa")
		for at, n := len(gateway)-2, i; n > 0; at, n = at-1, n/len(letters) {
			gateway[at] = letters[n%len(letters)]
		}
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Sequential: true,
			Path: fmt.Sprintf("/lockkeeper/locks/flood/write-v1.lk%s%s%s-lock-", s.layout.FleetID, gateway, strings.Repeat("a", 16))})
	}
	_, paths := s.foreign(ops...)
	return paths[len(paths)-ids:]
}

// remove takes nodes away, one transaction each.
func (s *fakeStore) remove(paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range paths {
		s.zxid++
		delete(s.nodes, p) // without tx, which looks for children among all nodes
		s.announce(zk.NodeRemoved, p)
	}
}

// Attack 45, with contenders. Rule: ids that no gateway is known to have had are taken over at a rate of their own.
func TestForgedGatewayIDsDelayNoTakeover(t *testing.T) {
	testkit.NotShort(t, "6,000 gateways")
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two := s.gateway(t), s.gatewayOn(t, narrow{s})
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		forged := s.forge('a', 6000) // whose ids all come before that of a real gateway, more likely than not
		crashed := time.Now()
		one.crash()
		for {
			began := time.Now()
			other, err := two.acquire(locks.AcquireRequest{Lock: "other", TTL: time.Minute})
			if took := time.Since(began); err != nil || other.State != locks.Held || took > 500*time.Millisecond {
				t.Fatalf("an acquire takes %v: %+v %v", took, other, err)
			}
			two.mustRelease(other)
			if beat, err := two.heartbeat(l); err == nil && beat.State == locks.Held {
				break
			}
			assert.Must(t, time.Since(crashed) <= 15*time.Second, "no gateway runs the lease 5 s after the session timeout")
			time.Sleep(300 * time.Millisecond)
		}
		two.mustRelease(l)
		const seconds = 15
		time.Sleep(seconds * time.Second)
		entries := len(s.names("/lockkeeper/succession"))
		since := int(time.Since(crashed)/time.Second) + 1
		assert.That(t, entries >= seconds*cluster.ClaimsRate && entries <= 1+cluster.ClaimsBurst+since*cluster.ClaimsRate,
			"%d successions after %d s", entries, since)
		s.remove(forged)
		time.Sleep(time.Minute)
		left := s.names("/lockkeeper/succession")
		assert.That(t, len(left) <= 0, "%d successions are left a minute after the last contender", len(left))
	})
}

// A gateway that died before this process started is an unknown id, too. Rule: few of those are taken over at once.
func TestAGatewayThatDiedBeforeThisProcessStartedIsTakenOverAmongFewForgedIDs(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		one.crash()
		time.Sleep(11 * time.Second)
		s.forge('a', cluster.ClaimsBurst-1)
		two := s.gatewayOn(t, narrow{s})
		time.Sleep(3 * time.Second)
		beat, err := two.heartbeat(l)
		assert.Must(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		n := len(s.names("/lockkeeper/succession"))
		assert.That(t, n == cluster.ClaimsBurst, "%d successions of %d ids", n, cluster.ClaimsBurst)
	})
}

// Rule: a succession goes when no contender has the id and no other entry names it, hundreds in a second.
func TestSuccessionsAreSweptManyAtOnce(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.gatewayOn(t, narrow{s})
		forged := s.forge('a', 2*cluster.ClaimsBurst)
		pass(10 * time.Second)
		n := len(s.names("/lockkeeper/succession"))
		assert.Must(t, n == len(forged), "%d successions of %d", n, len(forged))
		kept := forged[0]
		s.remove(forged[1:])
		time.Sleep(3 * time.Second)
		left := s.names("/lockkeeper/succession")
		assert.That(t, len(left) == 1 && strings.Contains(kept, left[0]), "left: %v; %s has a contender", left, kept)
	})
}
