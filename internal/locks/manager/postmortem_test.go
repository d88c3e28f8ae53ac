package manager

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) postmortem(l locks.Lease) (locks.Postmortem, error) {
	return g.m.Postmortem(g.t.Context(), locks.Anonymous, l.ID)
}

func (g *gate) mustPostmortem(l locks.Lease) locks.Postmortem {
	g.t.Helper()
	p := assert.Value(g.postmortem(l))(g.t, "postmortem")
	return p
}

// about reports whether a span is what it should be, to a tenth of a second.
func about(is, want time.Duration) bool { return (is - want).Abs() < 100*time.Millisecond }

func TestAPostmortemTellsHowALeaseEndedAndWhoCameNext(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Owner: "one"})
		if p, err := g.postmortem(first); err == nil {
			t.Errorf("of a lease that lives: %+v", p)
		} else {
			wantCode(t, err, locks.CodeNotFound)
		}
		second := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "two", Wait: locks.WaitForever})
		second.finished()
		time.Sleep(10 * time.Second)
		if _, err := g.heartbeat(first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(21 * time.Second)
		<-second.done
		time.Sleep(4 * time.Second)
		p := g.mustPostmortem(first)
		if p.LeaseID != first.ID || p.NS != "default" || p.Lock != "deploy" || p.Mode != locks.Exclusive || p.Owner != "one" || p.Reason != locks.ReasonExpired ||
			p.FencingToken != first.FencingToken || p.TTL != 20*time.Second {
			t.Errorf("%+v", p)
		}
		if !about(p.HeldFor, 30*time.Second) || !about(p.WaitedFor, 0) || !about(p.LastHeartbeat, 20*time.Second) || !about(p.EndedAgo, 5*time.Second) ||
			!about(time.Since(p.EndedAt), p.EndedAgo) || p.EndedAt.Location() != time.UTC {
			t.Errorf("held for %v after %v, heartbeat %v before the end, ended %v ago at %v", p.HeldFor, p.WaitedFor, p.LastHeartbeat, p.EndedAgo, p.EndedAt)
		}
		if p.Next == nil || p.Next.LeaseID != second.lease.ID || p.Next.Owner != "two" || p.Next.FencingToken != second.lease.FencingToken || !about(p.Next.After, 0) {
			t.Errorf("next %+v", p.Next)
		}
		g.mustRelease(second.lease)
		p = g.mustPostmortem(second.lease)
		if p.Reason != locks.ReasonReleased || !about(p.WaitedFor, 30*time.Second) || !about(p.HeldFor, 5*time.Second) || p.LastHeartbeat != 0 || p.Next != nil {
			t.Errorf("%+v", p)
		}
		time.Sleep(3 * time.Second)
		third := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "three"})
		p = g.mustPostmortem(second.lease)
		assert.That(t, p.Next != nil && p.Next.LeaseID == third.ID && about(p.Next.After, 3*time.Second), "next %+v", p.Next)
		assert.Equal(t, g.mustPostmortem(first).Next.LeaseID, second.lease.ID, "the next of the first has become")
		time.Sleep(endedLife + time.Minute)
		_, err := g.postmortem(first)
		wantCode(t, err, locks.CodeNotFound)
		_, err = g.m.Postmortem(t.Context(), locks.Anonymous, "nonsense")
		wantCode(t, err, locks.CodeNotFound)
	})
}

func TestWhoCameNextMayBeAnotherProgramOrAnotherGatewaysClient(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		zxid, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-", Sequential: true})
		synctest.Wait()
		third := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "elsewhere", Async: true})
		one.mustRelease(first)
		p := one.mustPostmortem(first)
		assert.That(t, p.Next != nil && p.Next.LeaseID == "" && p.Next.FencingToken == zxid, "next %+v", p.Next)
		fourth := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Async: true})
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: paths[0], Version: -1})
		if _, err := two.heartbeat(third); err != nil {
			t.Fatal(err)
		}
		two.mustRelease(third)
		one.wantState(fourth, locks.Held, "")
		p = two.mustPostmortem(third)
		assert.That(t, p.Next != nil && p.Next.LeaseID == fourth.ID && p.Next.FencingToken != 0, "next %+v", p.Next)
		_, err := one.postmortem(third)
		wantCode(t, err, locks.CodeNotOwner) // its own gateway knows better
	})
}

// A gateway that did not run a lease has seen it go, and says so when the one
// that did is there no more.
func TestAPostmortemByAWitnessSaysWhatWasSeen(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "me"})
		if _, err := two.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"}); err != nil { // a client reads the lock
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		one.mustRelease(l)
		next := two.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.crash()
		time.Sleep(15 * time.Second)
		p := two.mustPostmortem(l)
		if p.Reason != locks.ReasonUnknown || p.Owner != "me" || p.TTL != time.Minute || p.FencingToken != l.FencingToken || !about(p.HeldFor, 10*time.Second) ||
			!about(p.EndedAgo, 15*time.Second) || p.Next == nil || p.Next.LeaseID != next.ID {
			t.Errorf("%+v, next %+v", p, p.Next)
		}
		_, err := two.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonUnknown)
	})
}

func TestWhoNeverHeldHasNoNext(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(deploy())
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true})
		time.Sleep(7 * time.Second)
		g.mustRelease(ticket)
		g.mustRelease(first)
		g.mustHold(deploy())
		p := g.mustPostmortem(ticket)
		if p.Reason != locks.ReasonCancelled || p.HeldFor != 0 || !about(p.WaitedFor, 7*time.Second) || p.Next != nil || p.FencingToken != 0 {
			t.Errorf("%+v", p)
		}
	})
}

// What an entry of an ended lease takes is stated in postmortem.go.
func TestAnEndedLeaseTakesLittleMemory(t *testing.T) {
	const entries, stated = 20_000, 470
	var h postmortem.Log
	before := live()
	for i := range entries {
		id := recipe.LeaseID(strings.Repeat("x", recipe.LeaseIDLen-6) + fmt.Sprintf("%06d", i))
		h.Add(id, postmortem.End{NS: "default", Lock: strings.Clone(fmt.Sprintf("many-%06d", i)), Held: 1})
	}
	after := live()
	runtime.KeepAlive(&h)
	if per := (after - before) / entries; per > stated {
		t.Errorf("%d bytes, more than %d", per, stated)
	} else {
		t.Logf("%d bytes", per)
	}
}
