package manager

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
)

func ephemeral() locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", Ephemeral: true, TTL: time.Minute}
}

func TestAnEphemeralLeaseGoesWithItsGatewaysSession(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(ephemeral())
		assert.That(t, l.Ephemeral && !l.FailoverSafe && l.Warning != "" && l.ExpiresIn != 0 && strings.Contains(l.Znode, ".e-lock-"),
			"%+v", l)
		assert.That(t, s.node(l.Znode).owner != "", "its node is not ephemeral")
		beat, err := g.heartbeat(l)
		assert.That(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		req := ephemeral()
		req.Wait, req.Ephemeral = time.Hour, false
		next := g.begin(req)
		time.Sleep(time.Second)
		for range 2 { // the contender's end is told before that of the registration, or after
			g.session().expire()
			time.Sleep(time.Second)
			g.wantState(l, locks.Ended, locks.ReasonGatewayLeft)
			_, err := g.heartbeat(l)
			assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonGatewayLeft, "reason")
			<-next.done
			assert.Must(t, next.err == nil && next.lease.State == locks.Held, "%+v %v", next.lease, next.err)
			g.mustRelease(next.lease)
			l = g.mustHold(ephemeral())
			next = g.begin(req)
			time.Sleep(time.Second)
		}
		next.stop()
		<-next.done
	})
}

func TestAnEphemeralLeaseEndsAtHandover(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(ephemeral())
		durable := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		ends := map[string]int64{}
		s.mu.Lock()
		s.deleted = func(path string) {
			if ends[path] == 0 { // the successor deletes the registration once more
				ends[path] = s.zxid
			}
		}
		s.mu.Unlock()
		registration := "/lockkeeper/gateways/" + one.session().id
		assert.NoError(t, one.m.Drain(t.Context()))
		time.Sleep(time.Second)
		one.wantState(l, locks.Ended, locks.ReasonGatewayLeft)
		two.wantState(durable, locks.Held, "")
		s.mu.Lock()
		assert.That(t, ends[l.Znode] != 0 && ends[l.Znode] < ends[registration], "it was left to the session's end, which may be late")
		s.deleted = nil
		s.mu.Unlock()
		told := false
		for _, e := range one.told() {
			told = told || e.LeaseID == l.ID && e.Reason == string(locks.ReasonGatewayLeft)
		}
		assert.That(t, told, "no client was told why")
	})
}

// A blocking acquire whose place went with the session was not done; one with a
// key is told that its lease is over, as its repeats are.
func TestAPlaceInLineThatWentWithTheSessionIsNotAnEndedLease(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint("key=", keyed), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			req := ephemeral()
			req.Wait = time.Hour
			if keyed {
				req.IdempotencyKey = "abcdefghijklmnop"
			}
			p := g.begin(req)
			time.Sleep(time.Second)
			g.session().expire()
			<-p.done
			if !keyed {
				wantCode(t, p.err, locks.CodeUnavailable)
				return
			}
			time.Sleep(time.Second)
			for _, err := range []error{p.err, g.begin(req).wait()} {
				assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonGatewayLeft, "reason")
			}
		}))
	}
}

func (p *pending) wait() error { <-p.done; return p.err }

// Rule: a successor never runs an ephemeral lease, and deletes one that is still
// there at takeover + promise window + TTL, not before.
func TestASuccessorNeverGrantsAnEphemeralLeaseAndDeletesItInTheEnd(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		holder := two.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		req := ephemeral()
		req.Async = true
		waits := one.mustAcquire(req)
		free := one.mustHold(locks.AcquireRequest{Lock: "other", Ephemeral: true, TTL: time.Minute})
		behind := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		one.session().depose() // its ZooKeeper session lives on
		one.w.hold()
		synctest.Wait()
		taken := time.Now()
		two.mustRelease(holder)
		time.Sleep(time.Second)
		for _, l := range []locks.Lease{waits, free} {
			_, err := two.heartbeat(l)
			assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonGatewayLeft, "reason")
			two.m.mu.Lock()
			assert.That(t, two.m.leases.lease(two.m.mustID(l.ID)) == nil, "the successor runs it")
			two.m.mu.Unlock()
		}
		a, err := two.m.Fence(t.Context(), locks.FenceRequest{Lock: "other", Token: free.FencingToken})
		assert.That(t, err == nil && !a.Current && a.Reason == fenceEnded, "its token: %+v %v", a, err)
		for time.Since(taken) < fakeWindow+time.Minute-2*time.Second {
			time.Sleep(time.Second)
			assert.Must(t, s.node(waits.Znode).owner != "" && s.node(free.Znode).owner != "", "deleted after %v", time.Since(taken))
			assert.Value(two.heartbeat(behind))(t)
			two.wantState(behind, locks.Waiting, "")
		}
		time.Sleep(5 * time.Second)
		names := append(s.names("/lockkeeper/locks/other"), s.node(waits.Znode).owner)
		assert.That(t, len(names) == 1 && names[0] == "", "still there: %v", names)
		two.wantState(behind, locks.Held, "")
		_, err = two.heartbeat(free)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonGatewayLeft, "reason")
		one.w.release()
		time.Sleep(time.Second)
	})
}

// ZooKeeper has ended a session that looks alive from here. Rule: a node that goes after the registration went with it.
func TestAnEphemeralLeaseWhoseGatewayIsNoLongerRegisteredWasNotRemoved(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(ephemeral())
		session := g.session()
		if s.zxidNow()%2 == 0 { // see closeSession: the registration goes first
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/else"})
		}
		s.set(func() { s.closeSession(session.id) })
		synctest.Wait()
		g.wantState(l, locks.Ended, locks.ReasonGatewayLeft)
	})
}

func (s *fakeStore) zxidNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.zxid
}

// A deletion by another client is not taken for the session's end, and frees the session's count.
func TestAnEphemeralLeaseThatAnotherClientDeletesIsRemovedAndNoLongerCounts(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(ephemeral())
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		g.wantState(l, locks.Ended, locks.ReasonRemoved)
		session := g.session()
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.That(t, len(session.forgotten) == 1 && session.forgotten[0] == l.Znode, "forgotten: %v", session.forgotten)
	})
}

func TestWhatAnEphemeralLeaseCannotHaveIsRefusedByName(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, change := range []func(*locks.AcquireRequest){
			func(r *locks.AcquireRequest) { r.LockDelay = time.Second },
			func(r *locks.AcquireRequest) { r.LockDelay, r.LockDelayOn = time.Second, locks.DelayAlways },
		} {
			req := ephemeral()
			change(&req)
			_, err := g.acquire(req)
			assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "lock_delay", "field")
		}
	})
}

func TestATTLThatDoesNotRideOverACrashIsWarnedOf(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t) // session timeout 10s
		short := g.mustHold(locks.AcquireRequest{Lock: "short", TTL: 15*time.Second - time.Millisecond})
		assert.That(t, !short.FailoverSafe && strings.Contains(short.Warning, "15s"), "%+v", short)
		long := g.mustHold(locks.AcquireRequest{Lock: "long", TTL: 15 * time.Second})
		assert.That(t, long.FailoverSafe && long.Warning == "", "%+v", long)
		g.mustRelease(short)
		assert.Equal(t, g.look(short).Warning, "", "an ended lease warns")
	})
}

// All contenders of a group are ephemeral, and they end as one.
func TestAnEphemeralGroupEndsWhole(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b", Mode: locks.Shared}, {Lock: "c", Mode: locks.Semaphore, Limit: 2}}, Ephemeral: true, TTL: time.Minute})
		for _, k := range l.Locks {
			assert.That(t, s.node(k.Znode).owner != "", "%s is not ephemeral", k.Znode)
		}
		g.session().expire()
		time.Sleep(time.Second)
		g.wantState(l, locks.Ended, locks.ReasonGatewayLeft)
	})
}

// A downgrade's replacement goes with the session, too.
func TestADowngradedEphemeralLeaseStaysEphemeral(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(ephemeral())
		d, err := g.m.Downgrade(t.Context(), locks.Anonymous, l.ID, l.Token)
		assert.Must(t, err == nil && s.node(d.Znode).owner != "" && d.Znode != l.Znode && d.Ephemeral, "%+v %v", d, err)
		g.session().expire()
		time.Sleep(time.Second)
		g.wantState(l, locks.Ended, locks.ReasonGatewayLeft)
	})
}

// Attack 20. Rule: the ephemeral nodes of one session are capped (session.Session): more
// could keep a ZooKeeper server from starting again.
func TestEphemeralLeasesAreCapped(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	m := onZooKeeper(t, addr, chroot)
	const capped = 256 << 10
	var leases []locks.Lease
	var bytes int
	var err error
	for err == nil {
		var res locks.AcquireResult
		res, err = m.Acquire(t.Context(), locks.AcquireRequest{Lock: fmt.Sprintf("ephemeral-%s-%04d", strings.Repeat("x", 150), len(leases)), Ephemeral: true, TTL: time.Hour})
		if err == nil {
			leases = append(leases, res.Lease)
			bytes += len(chroot) + len(res.Lease.Znode)
			assert.Must(t, bytes <= capped, "%d leases with %d bytes of paths", len(leases), bytes)
		}
	}
	wantCode(t, err, locks.CodeEphemeralCap)
	assert.That(t, bytes >= capped*9/10, "refused at %d bytes of paths", bytes)
	_, err = m.Acquire(t.Context(), locks.AcquireRequest{Lock: "durable", TTL: time.Hour})
	assert.Nil(t, err, "a durable lease")
	last := leases[len(leases)-1]
	assert.NoError(t, m.Release(t.Context(), locks.Anonymous, last.ID, last.Token))
	if _, err := m.Acquire(t.Context(), locks.AcquireRequest{Lock: last.Lock, Ephemeral: true, TTL: time.Hour}); err != nil {
		var e *locks.Error
		errors.As(err, &e)
		t.Errorf("after a release: %+v", e)
	}
}
