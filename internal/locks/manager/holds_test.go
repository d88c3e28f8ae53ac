package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) addHold(l locks.Lease, hold string) (locks.Lease, error) {
	res, err := g.m.Acquire(g.t.Context(), locks.AcquireRequest{Lock: l.Lock, Token: l.Token, Hold: hold})
	assert.That(g.t, err != nil || res.HoldAdded && res.Lease.ID == l.ID && res.Lease.Token == l.Token, "hold %s: %+v", hold, res)
	return res.Lease, err
}

func (g *gate) mustAddHold(l locks.Lease, hold string) locks.Lease {
	g.t.Helper()
	v := assert.Value(g.addHold(l, hold))(g.t, "hold %s", hold)
	synctest.Wait()
	return v
}

func (g *gate) releaseHold(l locks.Lease, hold string) error {
	return g.m.ReleaseHold(g.t.Context(), locks.Anonymous, l.ID, l.Token, hold)
}

func (g *gate) mustReleaseHold(l locks.Lease, hold string) {
	g.t.Helper()
	assert.NoError(g.t, g.releaseHold(l, hold), "release of hold %s", hold)
	synctest.Wait()
}

func (g *gate) wantHolds(l locks.Lease, holds ...string) {
	g.t.Helper()
	v := g.look(l)
	assert.That(g.t, v.State == locks.Held && slices.Equal(v.Holds, holds), "%s with holds %v, want %v", v.State, v.Holds, holds)
}

func reentrant(hold string) locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", TTL: 40 * time.Second, Hold: hold}
}

func TestALeaseEndsWithItsLastHoldAndEachIsReleasedOnce(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(reentrant("a"))
		assert.That(t, slices.Equal(l.Holds, []string{"a"}), "%+v", l)
		for range 2 { // a repeat adds nothing
			v := g.mustAddHold(l, "b")
			assert.That(t, v.State == locks.Held && v.FencingToken == l.FencingToken && slices.Equal(v.Holds, []string{"a", "b"}), "%+v", v)
		}
		r := s.recordOf(l)
		assert.That(t, slices.Equal(r.Holds, []string{"a", "b"}), "answered before it was written: %+v", r)
		g.mustAddHold(l, "c")
		for range 3 {
			g.mustReleaseHold(l, "b")
			g.wantHolds(l, "a", "c")
		}
		if r := s.recordOf(l); !slices.Equal(r.Holds, []string{"a", "c"}) || !slices.Equal(r.Released, []string{"b"}) {
			t.Errorf("answered before it was written: %+v", r)
		}
		_, err := g.addHold(l, "b")
		assert.Equal(t, wantCode(t, err, locks.CodeHoldReleased).Field, "hold")
		wantCode(t, g.releaseHold(l, "d"), locks.CodeInvalid)
		g.mustReleaseHold(l, "a")
		g.wantHolds(l, "c")
		g.mustReleaseHold(l, "c")
		g.wantState(l, locks.Ended, locks.ReasonReleased)
		g.mustReleaseHold(l, "c")
		g.mustReleaseHold(l, "a")
		assert.Equal(t, g.countOf(events.LeaseUpdated, l), 4, "events of two holds added and two let go")
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 0, "contenders are left")
	})
}

func TestAPlainReleaseEndsAllHolds(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(reentrant("a"))
		g.mustAddHold(l, "b")
		g.mustRelease(l)
		g.wantState(l, locks.Ended, locks.ReasonReleased)
		g.mustReleaseHold(l, "a")
		_, err := g.addHold(l, "c")
		wantCode(t, err, locks.CodeEnded)
	})
}

// A lease that was acquired without a name has a hold that no name lets go of.
func TestANestedHoldDoesNotEndALeaseThatWasAcquiredWithoutOne(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 40 * time.Second})
		v := one.mustAddHold(l, "inner")
		assert.That(t, slices.Equal(v.Holds, []string{"inner"}), "%+v", v)
		one.mustReleaseHold(l, "inner")
		one.wantHolds(l)
		one.crash()
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		two.mustAddHold(l, "other")
		two.mustReleaseHold(l, "other")
		two.wantHolds(l)
		two.mustRelease(l)
		two.wantState(l, locks.Ended, locks.ReasonReleased)
	})
}

func TestHoldsOutliveTheirGateway(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(reentrant("a"))
		one.mustAddHold(l, "b")
		one.mustAddHold(l, "c")
		one.mustReleaseHold(l, "a")
		one.crash()
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		two.mustReleaseHold(l, "a") // late
		_, err := two.addHold(l, "a")
		wantCode(t, err, locks.CodeHoldReleased)
		two.wantHolds(l, "b", "c")
		two.mustReleaseHold(l, "b")
		two.wantHolds(l, "c")
		two.mustReleaseHold(l, "c")
		two.wantState(l, locks.Ended, locks.ReasonReleased)
	})
}

// Another program has written over the record and the owner has died: no gateway
// knows the holds. Only a plain release ends the lease.
func TestUnknownHoldsEndWithAPlainRelease(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(reentrant("a"))
		one.crash()
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Data: []byte("__REVOKE__"), Version: -1})
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		wantCode(t, two.releaseHold(l, "a"), locks.CodeInvalid)
		two.mustAddHold(l, "a")
		two.mustReleaseHold(l, "a")
		two.wantHolds(l)
		two.mustRelease(l)
		two.wantState(l, locks.Ended, locks.ReasonReleased)
	})
}

// A group's holds and changes are in the record of its first lock's contender.
func TestALeaseOfSeveralLocksHasHoldsAndIsUpdatedAsOne(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: 40 * time.Second, Hold: "outer"})
		res, err := one.m.Acquire(t.Context(), locks.AcquireRequest{Lock: "b", Token: l.Token, Hold: "inner"})
		assert.Must(t, err == nil && res.HoldAdded && slices.Equal(res.Lease.Holds, []string{"outer", "inner"}), "%+v %v", res, err)
		_, err = one.m.Acquire(t.Context(), locks.AcquireRequest{Lock: "c", Token: l.Token, Hold: "inner"})
		wantCode(t, err, locks.CodeInvalid)
		one.mustUpdate(l, locks.UpdateRequest{Owner: text("ci"), TTL: time.Minute})
		assert.Equal(t, one.countOf(events.LeaseUpdated, l), 4, "events, not one per lock for each of two changes")
		one.crash()
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		two.mustReleaseHold(l, "outer")
		v := two.look(l)
		assert.That(t, v.Owner == "ci" && v.TTL == time.Minute && slices.Equal(v.Holds, []string{"inner"}), "%+v", v)
		two.mustReleaseHold(l, "inner")
		two.wantState(l, locks.Ended, locks.ReasonReleased)
	})
}

func TestAWaitingLeaseHasHoldsToo(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(deploy())
		req := reentrant("a")
		req.Async = true
		ticket := g.mustAcquire(req)
		v := g.mustAddHold(ticket, "b")
		assert.That(t, v.State == locks.Waiting && v.Position == 1, "%+v", v)
		g.mustReleaseHold(ticket, "a")
		g.mustRelease(first)
		g.wantHolds(ticket, "b")
		if q, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"}); err != nil || len(q.Holders) != 1 || !slices.Equal(q.Holders[0].Holds, []string{"b"}) {
			t.Errorf("the queue shows %+v %v", q, err)
		}
		again := g.mustAcquire(req)
		g.mustReleaseHold(again, "a")
		g.wantState(again, locks.Ended, locks.ReasonCancelled)
	})
}

func TestAHoldIsRefusedByTheNameOfWhatIsWrong(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(reentrant("a"))
		refused := func(field string, change func(*locks.AcquireRequest)) {
			t.Helper()
			req := locks.AcquireRequest{Lock: "deploy", Token: l.Token, Hold: "b"}
			change(&req)
			_, err := g.acquire(req)
			e := wantCode(t, err, locks.CodeInvalid)
			assert.That(t, e.Field == field, "the field is %s, want %s", e.Field, field)
		}
		refused("hold", func(r *locks.AcquireRequest) { r.Hold = "" })
		refused("hold", func(r *locks.AcquireRequest) { r.Hold = "a b" })
		refused("hold", func(r *locks.AcquireRequest) { r.Hold = "ä" })
		refused("hold", func(r *locks.AcquireRequest) { r.Hold = strings.Repeat("x", locks.MaxHoldName+1) })
		refused("hold", func(r *locks.AcquireRequest) { r.Token, r.Hold = "", "\x7f" })
		refused("lock", func(r *locks.AcquireRequest) { r.Lock = "other" })
		refused("lock", func(r *locks.AcquireRequest) { r.NS = "elsewhere" })
		refused("ttl", func(r *locks.AcquireRequest) { r.TTL = time.Minute })
		refused("wait", func(r *locks.AcquireRequest) { r.Wait = time.Minute })
		refused("async", func(r *locks.AcquireRequest) { r.Async = true })
		refused("owner", func(r *locks.AcquireRequest) { r.Owner = "me" })
		refused("metadata", func(r *locks.AcquireRequest) { r.Metadata = "m" })
		refused("Idempotency-Key", func(r *locks.AcquireRequest) { r.IdempotencyKey = "abcdefghijklmnop" })
		refused("mode", func(r *locks.AcquireRequest) { r.Mode = locks.Exclusive })
		refused("limit", func(r *locks.AcquireRequest) { r.Limit = 1 })
		refused("permits", func(r *locks.AcquireRequest) { r.Permits = 1 })
		refused("locks", func(r *locks.AcquireRequest) { r.Group = []locks.Want{{Lock: "deploy"}} })
		refused("lock_delay", func(r *locks.AcquireRequest) { r.LockDelay = time.Second })
		refused("lock_delay_on", func(r *locks.AcquireRequest) { r.LockDelayOn = locks.DelayAlways })
		refused("ephemeral", func(r *locks.AcquireRequest) { r.Ephemeral = true })
		refused("dry_run", func(r *locks.AcquireRequest) { r.DryRun = true })
		_, err := g.acquire(locks.AcquireRequest{Lock: "deploy", Token: l.Token + "x", Hold: "b"})
		wantCode(t, err, locks.CodeTokenWrong)
		assert.Equal(t, wantCode(t, g.releaseHold(l, ""), locks.CodeInvalid).Field, "hold", "the field")
		wantCode(t, g.releaseHold(withToken(l, "x"), "a"), locks.CodeTokenWrong)
		g.wantHolds(l, "a")
	})
}

// Names that were let go count: a lease has had at most MaxHolds.
func TestALeaseHasABoundedNumberOfHoldsInItsLife(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(reentrant("hold-0"))
		for i := 1; i < locks.MaxHolds; i++ {
			g.mustAddHold(l, fmt.Sprint("hold-", i))
			if i%2 == 0 {
				g.mustReleaseHold(l, fmt.Sprint("hold-", i))
			}
		}
		_, err := g.addHold(l, "one-more")
		assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "hold")
		g.mustAddHold(l, "hold-1") // it has that one
	})
}

func TestARepeatedAcquireKnowsItsHold(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		req := reentrant("a")
		req.IdempotencyKey = "abcdefghijklmnop"
		l := one.mustHold(req)
		one.mustAddHold(l, "b")
		again := one.mustHold(req)
		assert.That(t, again.ID == l.ID && slices.Equal(again.Holds, []string{"a", "b"}), "%+v", again)
		other := req
		other.Hold = "b"
		_, err := one.acquire(other)
		wantCode(t, err, locks.CodeKeyReused)
		one.mustReleaseHold(l, "a")
		_, err = one.acquire(req)
		wantCode(t, err, locks.CodeHoldReleased) // a late repeat takes nothing
		one.crash()
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		_, err = two.acquire(req)
		wantCode(t, err, locks.CodeHoldReleased)
	})
}

func TestWhatAnAcquireAsksForIsInItsFingerprint(t *testing.T) {
	base := locks.AcquireRequest{Lock: "deploy", TTL: time.Minute}
	seen := map[string]string{record.Fingerprint(&base): "nothing"}
	for what, change := range map[string]func(*locks.AcquireRequest){
		"ttl": func(r *locks.AcquireRequest) { r.TTL = time.Hour }, "owner": func(r *locks.AcquireRequest) { r.Owner = "x" },
		"metadata": func(r *locks.AcquireRequest) { r.Metadata = "x" }, "hold": func(r *locks.AcquireRequest) { r.Hold = "x" },
		"ephemeral":  func(r *locks.AcquireRequest) { r.Ephemeral = true },
		"lock delay": func(r *locks.AcquireRequest) { r.LockDelay, r.LockDelayOn = time.Second, locks.DelayOnExpiry },
		"always":     func(r *locks.AcquireRequest) { r.LockDelay, r.LockDelayOn = time.Second, locks.DelayAlways },
	} {
		req := base
		change(&req)
		other, same := seen[record.Fingerprint(&req)]
		assert.That(t, !same, "%s and %s have one fingerprint", what, other)
		seen[record.Fingerprint(&req)] = what
	}
}

// A downgrade makes the record anew under another name: holds and changes go with
// it, and those that come at the same moment are not lost.
func TestADowngradeKeepsHoldsAndUpdates(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(reentrant("a"))
		g.mustAddHold(l, "b")
		g.mustReleaseHold(l, "a")
		errs := make(chan error, 3)
		go func() { _, err := g.m.Downgrade(t.Context(), locks.Anonymous, l.ID, l.Token); errs <- err }()
		go func() { _, err := g.update(l, locks.UpdateRequest{Owner: text("ci")}); errs <- err }()
		go func() { _, err := g.addHold(l, "c"); errs <- err }()
		for range 3 {
			assert.Nil(t, <-errs)
		}
		v := g.look(l)
		assert.That(t, v.Mode == locks.Shared && v.Owner == "ci" && slices.Equal(v.Holds, []string{"b", "c"}), "%+v", v)
		r := s.recordOf(v)
		assert.That(t, r.Owner == "ci" && slices.Equal(r.Holds, []string{"b", "c"}) && slices.Equal(r.Released, []string{"a"}), "%+v", r)
	})
}
