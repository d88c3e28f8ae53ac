package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
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
			if time.Since(crashed) > 15*time.Second {
				t.Fatal("no gateway runs the lease 5 s after the session timeout")
			}
			time.Sleep(300 * time.Millisecond)
		}
		two.mustRelease(l)
		const seconds = 15
		time.Sleep(seconds * time.Second)
		entries := len(s.names("/lockkeeper/succession"))
		since := int(time.Since(crashed)/time.Second) + 1
		if entries < seconds*claimsRate || entries > 1+claimsBurst+since*claimsRate {
			t.Errorf("%d successions after %d s", entries, since)
		}
		s.remove(forged)
		time.Sleep(time.Minute)
		if left := s.names("/lockkeeper/succession"); len(left) > 0 {
			t.Errorf("%d successions are left a minute after the last contender", len(left))
		}
	})
}

// A gateway that died before this process started is an unknown id, too. Rule: few of those are taken over at once.
func TestAGatewayThatDiedBeforeThisProcessStartedIsTakenOverAmongFewForgedIDs(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one := s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		one.crash()
		time.Sleep(11 * time.Second)
		s.forge('a', claimsBurst-1)
		two := s.gatewayOn(t, narrow{s})
		time.Sleep(3 * time.Second)
		if beat, err := two.heartbeat(l); err != nil || beat.State != locks.Held {
			t.Fatalf("%+v %v", beat, err)
		}
		if n := len(s.names("/lockkeeper/succession")); n != claimsBurst {
			t.Errorf("%d successions of %d ids", n, claimsBurst)
		}
	})
}

func ids(list []vacancy) (names []string) {
	for _, v := range list {
		names = append(names, string(v.id))
	}
	return names
}

func TestTakeoversBeginInOrder(t *testing.T) {
	for _, test := range []struct {
		name string
		line []vacancy
		want []string
	}{
		{"nothing", nil, nil},
		{"known ones first", []vacancy{{"a", unknown, 1}, {"b", own, 1}, {"c", seen, 1}}, []string{"c", "b", "a"}},
		{"by their names", []vacancy{{"c", seen, 1}, {"a", seen, 1}, {"b", seen, 1}}, []string{"a", "b", "c"}},
		{"unknown ones with many contenders first", []vacancy{{"a", unknown, 1}, {"b", unknown, 3}, {"c", unknown, 2}}, []string{"b", "c", "a"}},
		{"once", []vacancy{{"a", seen, 1}, {"a", seen, 1}, {"a", unknown, 1}, {"b", unknown, 1}, {"b", unknown, 1}}, []string{"a", "b"}},
	} {
		var tk takeovers
		for _, v := range test.line {
			tk.wait(v)
		}
		if got := ids(tk.next(time.Hour)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestTakeoversAreFewAtOnceAndUnknownOnesHaveARate(t *testing.T) {
	const many = 300
	var tk takeovers
	look := func(now time.Duration) (known, strange int) {
		for i := range many {
			for _, s := range []standing{seen, unknown} {
				id := recipe.GatewayID(fmt.Sprintf("%d-%03d", s, i))
				if _, busy := tk.underWay[id]; !busy {
					tk.wait(vacancy{id: id, standing: s})
				}
			}
		}
		for _, v := range tk.next(now) {
			if v.standing == unknown {
				strange++
			} else {
				known++
			}
		}
		return known, strange
	}
	answer := func() {
		for id := range tk.underWay {
			tk.ended(id, zk.Result{Outcome: zk.NotDone, Err: errors.New("another one was quicker")})
		}
	}
	const at = 1000 * time.Second
	for _, step := range []struct {
		now            time.Duration
		answered       bool
		known, strange int
	}{
		{at, false, takeoversAtOnce, takeoversAtOnce},
		{at + time.Second, false, 0, 0}, // none has been answered
		{at + time.Second, true, takeoversAtOnce, takeoversAtOnce},
		{at + time.Second, true, takeoversAtOnce, takeoversAtOnce},
		{at + time.Second, true, takeoversAtOnce, takeoversAtOnce},
		{at + time.Second, true, takeoversAtOnce, claimsRate}, // the second's
		{at + 1999*time.Millisecond, true, takeoversAtOnce, 0},
		{at + 2*time.Second, true, takeoversAtOnce, claimsRate},
		{at + time.Hour, true, takeoversAtOnce, takeoversAtOnce},
	} {
		if step.answered {
			answer()
		}
		if known, strange := look(step.now); known != step.known || strange != step.strange {
			t.Errorf("at %v: %d known and %d unknown ones begin, want %d and %d", step.now, known, strange, step.known, step.strange)
		}
		if tk.credit > claimsBurst {
			t.Errorf("at %v: credit %d", step.now, tk.credit)
		}
	}
}

func TestTakeoversOfUnknownIDsAreOneLineASecond(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	var tk takeovers
	lines := func() int { return strings.Count(out.String(), "\n") }
	end := func(n int, s standing, outcome zk.Outcome) (alone int) {
		for i := range n {
			id := recipe.GatewayID(fmt.Sprintf("gw%03d", i))
			tk.begin(id, s)
			if tk.ended(id, zk.Result{Outcome: outcome}) {
				alone++
			}
		}
		return alone
	}
	const at = 1000 * time.Second
	if n := end(3, seen, zk.Done); n != 3 {
		t.Errorf("%d of 3 known gateways get a line", n)
	}
	tk.tell(log, at)
	if lines() != 0 {
		t.Error("a line about no unknown id")
	}
	if n := end(1, unknown, zk.Done) + end(1, own, zk.Done); n != 1 {
		t.Errorf("%d lines about one own id", n)
	}
	tk.tell(log, at)
	end(100, unknown, zk.Done)
	end(10, unknown, zk.NotDone)
	tk.tell(log, at+999*time.Millisecond)
	if lines() != 1 || !strings.Contains(out.String(), "taken=1 ") {
		t.Fatalf("%q", out.String())
	}
	tk.tell(log, at+time.Second)
	tk.tell(log, at+time.Minute)
	if lines() != 2 || !strings.Contains(out.String(), "taken=100 not_done=10 ") || strings.Contains(out.String(), "gw005") {
		t.Fatalf("%q", out.String())
	}
}

// Rule: a succession goes when no contender has the id and no other entry names it, hundreds in a second.
func TestSuccessionsAreSweptManyAtOnce(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gatewayOn(t, narrow{s})
		forged := s.forge('a', 2*claimsBurst)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(s.names("/lockkeeper/succession")); n != len(forged) {
			t.Fatalf("%d successions of %d", n, len(forged))
		}
		kept := forged[0]
		s.remove(forged[1:])
		time.Sleep(3 * time.Second)
		if left := s.names("/lockkeeper/succession"); len(left) != 1 || !strings.Contains(kept, left[0]) {
			t.Errorf("left: %v; %s has a contender", left, kept)
		}
		checkAll(t, s, g)
	})
}
