package manager

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// shut writes over a contender and hides it at once, as a stranger with ADMIN does: set and setAcl right behind each other.
func (s *fakeStore) shut(t *testing.T, path string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, _, _, err := s.tx([]zk.Op{{Kind: zk.OpSetData, Path: path, Data: []byte("closed"), Version: -1}})
	assert.NoError(t, err)
	s.hidden = func(p string) bool { return p == path }
}

func (s *fakeStore) refuseWrites(refused func(op *zk.Op) bool) {
	s.set(func() {
		s.refuse = func(w *zk.Write) (int, error) {
			for i := range w.Ops {
				if refused(&w.Ops[i]) {
					return i, zk.ErrNoAuth
				}
			}
			return -1, nil
		}
	})
}

// soon is when a lease was granted. Where that never comes, virtual time would pass without end.
func soon(t *testing.T, granted <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-granted:
		return at
	case <-time.After(10 * time.Minute):
		t.Fatal("the lease behind it is not granted")
		return time.Time{}
	}
}

func TestALeaseWhoseContenderIsClosedIsHeldOnAndStillEndsAtItsTTL(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		s.shut(t, l.Znode)
		synctest.Wait()
		for range 4 {
			time.Sleep(10 * time.Second)
			_, err := g.heartbeat(l)
			assert.Nil(t, err, "heartbeat")
		}
		q := g.lockState("deploy")
		assert.That(t, len(q.Hazards) == 1, "the queue does not tell of it: %+v", q.Hazards)
		next := g.patient()
		before := time.Now()
		at := soon(t, next)
		assert.That(t, about(at.Sub(before), 20*time.Second), "it ended %v after its last heartbeat", at.Sub(before))
		g.wantState(l, locks.Ended, locks.ReasonExpired)
		assert.That(t, s.node(l.Znode).data == nil, "its contender is there")
	})
}

func TestALeaseWhoseContenderIsClosedIsReleased(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		s.shut(t, l.Znode)
		g.mustRelease(l)
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
	})
}

// What the record said is not known to a successor: it takes the longest TTL, and the client may release the lease.
func TestASuccessorKeepsALeaseWhoseContenderIsClosed(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		s.shut(t, l.Znode)
		g.crash()
		next := s.gateway(t)
		time.Sleep(2 * time.Minute)
		_, err := next.heartbeat(l)
		assert.Nil(t, err, "heartbeat")
		next.mustRelease(l)
	})
}

// ZooKeeper sends no event about a node that may not be read.
func TestTheEndOfAClosedContenderIsNoticed(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		s.shut(t, l.Znode)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		time.Sleep(5 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonRemoved)
	})
}

// A heartbeat that another gateway wrote before the record was hidden may have promised a whole TTL.
func TestAHiddenWriteExtendsTheLeaseByOneTTL(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		next := g.patient()
		begun := time.Now()
		time.Sleep(15 * time.Second)
		s.shut(t, l.Znode)
		at := soon(t, next)
		assert.That(t, about(at.Sub(begun), 35*time.Second), "it ended after %v", at.Sub(begun))
	})
}

// Only the record is refused, so the contender can be deleted: the lease ends, without the delay.
func TestALockDelayThatCannotBeWrittenDoesNotKeepTheLeaseFromEnding(t *testing.T) {
	for _, on := range []locks.DelayOn{locks.DelayOnExpiry, locks.DelayAlways} {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(delaying(on))
			s.refuseWrites(func(op *zk.Op) bool { return op.Kind == zk.OpSetData && op.Path == l.Znode })
			if on == locks.DelayAlways {
				g.mustRelease(l)
				return
			}
			next := g.patient()
			before := time.Now()
			at := soon(t, next)
			assert.That(t, about(at.Sub(before), 10*time.Second), "it ended after %v", at.Sub(before))
			g.wantState(l, locks.Ended, locks.ReasonExpired)
		})
	}
}

// An end whose write was lost, of a record that is hidden by then: the lease stays ended.
func TestAnEndThatMayBeInAHiddenRecordIsNotTakenBack(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(delaying(locks.DelayOnExpiry))
		s.set(func() {
			s.vague = writeTo(l.Znode)
			s.hidden = func(p string) bool { return p == l.Znode }
		})
		time.Sleep(12 * time.Second)
		s.set(func() { s.vague = nil })
		time.Sleep(5 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

func TestAReleaseInAClosedDirectoryIsAnsweredWithTheReason(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		s.refuseWrites(func(op *zk.Op) bool { return strings.HasPrefix(op.Path, g.m.opt.Root+"/locks/deploy/") })
		begun := time.Now()
		e := wantCode(t, g.release(l), locks.CodeUnavailable)
		assert.That(t, strings.Contains(e.Detail, "ACL of the lock's directory") && time.Since(begun) <= 2*time.Second,
			"%v later: %+v", time.Since(begun), e)
		_, err := g.acquire(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Async: true})
		e = wantCode(t, err, locks.CodeUnavailable)
		assert.That(t, strings.Contains(e.Detail, "ACL"), "%+v", e)
		other := g.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Minute})
		g.mustRelease(other)
		s.set(func() { s.refuse = nil })
		time.Sleep(3 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonReleased)
	})
}

// The node is closed after it was read, so the gateway does not know. The event of its deletion never comes.
func TestAWaiterBehindAContenderThatWasClosedUnnoticedIsGranted(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		next := g.patient()
		s.set(func() { s.hidden = func(p string) bool { return p == l.Znode } })
		g.mustRelease(l)
		before := time.Now()
		at := soon(t, next)
		assert.That(t, at.Sub(before) <= 3*time.Second, "granted after %v", at.Sub(before))
	})
}
