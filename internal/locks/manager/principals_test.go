package manager

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/test/assert"
)

// asked is a principal that has said who it is, with a bound on its leases of locks that begin with few.
func asked(t testing.TB, name string, leases int) locks.Principal {
	t.Helper()
	rules := assert.Value(access.New(access.Grant{NS: "*", Locks: "few*", Verbs: []access.Verb{access.Acquire}, Leases: leases, MaxTTL: 2 * time.Hour},
		access.Grant{NS: "*", Locks: "many*", Verbs: []access.Verb{access.Acquire}}))(t)
	return locks.Principal{Name: name, Rules: rules, Counts: true}
}

// used is what this gateway counts for a principal.
func (g *gate) used(name string) (leases, text int64) {
	synctest.Wait()
	g.m.do(func() { leases, text = g.m.leases.accounts.Of(name).Used() })
	return leases, text
}

func (g *gate) wantLeasesOf(name string, want int64) {
	g.t.Helper()
	leases, _ := g.used(name)
	assert.Equal(g.t, leases, want, "leases of %s", name)
}

func TestAPrincipalHasAsManyLeasesAsItsRolesGive(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		one, two := asked(t, "token:one", 4), asked(t, "token:two", 4)
		held := g.mustHold(locks.AcquireRequest{Principal: one, Lock: "few-1", TTL: time.Hour})
		g.mustAcquire(locks.AcquireRequest{Principal: one, Lock: "few-1", TTL: time.Hour, Async: true})
		group := g.mustHold(locks.AcquireRequest{Principal: one, TTL: time.Hour, Group: []locks.Want{{Lock: "few-2"}, {Lock: "few-3"}}}) // counts for two
		g.wantLeasesOf("token:one", 4)
		for _, req := range []locks.AcquireRequest{
			{Lock: "few-4", TTL: time.Hour},
			{Lock: "few-1", TTL: time.Hour, Wait: locks.WaitForever},
			{Lock: "few-4", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"},
			{TTL: time.Hour, Group: []locks.Want{{Lock: "many-1"}, {Lock: "few-4"}}},
			{Lock: "few-4", TTL: time.Hour, DryRun: true},
		} {
			req.Principal = one
			g.wantRefused(locks.CodePrincipalLimit, req)
		}
		g.mustHold(locks.AcquireRequest{Principal: one, Lock: "many-1", TTL: time.Hour})
		g.mustHold(locks.AcquireRequest{Principal: two, Lock: "few-4", TTL: time.Hour})
		g.wantLeasesOf("token:two", 1)
		for _, l := range []locks.Lease{held, group} {
			assert.Value(g.heartbeat(l))(t)
		}
		g.mustRelease(group)
		g.wantLeasesOf("token:one", 3)
		g.mustHold(locks.AcquireRequest{Principal: one, Lock: "few-5", TTL: time.Hour})
		g.mustRelease(held)
		time.Sleep(3 * time.Hour)
		g.wantLeasesOf("token:one", 0)
	})
}

func TestWhatALockDelayKeepsCountsForThePrincipal(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		one := asked(t, "token:one", 1)
		l := g.mustHold(locks.AcquireRequest{Principal: one, Lock: "few-1", TTL: time.Hour, LockDelay: time.Minute, LockDelayOn: locks.DelayAlways})
		g.mustRelease(l)
		g.wantLeasesOf("token:one", 1)
		g.wantRefused(locks.CodePrincipalLimit, locks.AcquireRequest{Principal: one, Lock: "few-2", TTL: time.Hour})
		time.Sleep(2 * time.Minute)
		g.wantLeasesOf("token:one", 0)
		g.mustHold(locks.AcquireRequest{Principal: one, Lock: "few-2", TTL: time.Hour})
	})
}

// An issuer may name millions of callers.
func TestAPrincipalThatGetsNothingIsNotKept(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		for i := range 10 {
			one := asked(t, "corp:"+strconv.Itoa(i), 1)
			g.wantRefused(locks.CodePrincipalLimit, locks.AcquireRequest{Principal: one, TTL: time.Hour, Group: []locks.Want{{Lock: "few-1"}, {Lock: "few-2"}}})
			_, err := g.acquire(locks.AcquireRequest{Principal: one, Lock: "many-1", TTL: time.Hour, DryRun: true})
			assert.NoError(t, err)
		}
		g.m.do(func() { assert.Equal(t, g.m.leases.accounts.Len(), 0, "accounts") })
	})
}

func TestPrincipalsWithoutABoundOfTheirOwnHaveTheOneOfAll(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.principalLimits = quota.PrincipalLimits{Leases: 2, MetadataBytes: 10}
		g := s.gateway(t)
		one := asked(t, "token:one", 3)
		first := g.mustHold(locks.AcquireRequest{Principal: one, Lock: "many-1", TTL: time.Hour, Owner: "me", Metadata: "12345678"})
		_, text := g.used("token:one")
		assert.Equal(t, text, 10)
		_, err := g.acquire(locks.AcquireRequest{Principal: one, Lock: "many-2", TTL: time.Hour, Metadata: "x"})
		e := wantCode(t, err, locks.CodePrincipalLimit)
		assert.That(t, strings.Contains(e.Detail, "token:one") && strings.Contains(e.Detail, "10 bytes"), "%s", e.Detail)
		_, err = g.update(first, locks.UpdateRequest{Metadata: new("123456789")})
		wantCode(t, err, locks.CodePrincipalLimit)
		g.mustUpdate(first, locks.UpdateRequest{Metadata: new("1")})
		g.mustHold(locks.AcquireRequest{Principal: one, Lock: "many-2", TTL: time.Hour, Owner: "me"})
		_, err = g.acquire(locks.AcquireRequest{Principal: one, Lock: "many-3", TTL: time.Hour, Owner: "me"})
		e = wantCode(t, err, locks.CodePrincipalLimit)
		assert.That(t, strings.Contains(e.Detail, "2 of at most 2 leases"), "%s", e.Detail)
		g.mustHold(locks.AcquireRequest{Principal: one, Lock: "few-1", TTL: time.Hour, Owner: "me"}) // its role has a bound of its own
		for range 5 {
			g.mustHold(locks.AcquireRequest{Lock: "free", Mode: locks.Shared, TTL: time.Hour, Metadata: "nobody was asked who this is"})
		}
	})
}

func TestATakeoverCountsTheLeasesForTheirPrincipals(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two := s.gateway(t), s.gateway(t)
		p := asked(t, "token:one", 2)
		theirs := one.mustHold(locks.AcquireRequest{Principal: p, Lock: "few-1", TTL: time.Hour, Metadata: "with more than nearly all have"})
		delayed := one.mustHold(locks.AcquireRequest{Principal: p, Lock: "few-2", TTL: time.Hour, LockDelay: time.Hour, LockDelayOn: locks.DelayAlways})
		one.mustRelease(delayed)
		s.overwrite(delayed.Znode, "another program's") // what is written back names the principal, too
		time.Sleep(5 * time.Second)
		two.wantLeasesOf("token:one", 0) // each gateway counts for itself
		one.crash()
		time.Sleep(30 * time.Second)
		two.wantLeasesOf("token:one", 2)
		two.wantRefused(locks.CodePrincipalLimit, locks.AcquireRequest{Principal: p, Lock: "few-3", TTL: time.Hour})
		two.mustRelease(theirs)
		two.mustHold(locks.AcquireRequest{Principal: p, Lock: "few-3", TTL: time.Hour})
	})
}

func TestARepeatAtThePrincipalsBoundFindsItsLease(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		req := locks.AcquireRequest{Principal: asked(t, "token:one", 1), Lock: "few-1", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"}
		first := g.mustHold(req)
		again, err := g.m.Acquire(t.Context(), req)
		assert.That(t, err == nil && again.Replayed && again.Lease.ID == first.ID, "%+v %v", again, err)
	})
}

func TestALeaseNamesThePrincipalThatTookIt(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g, other := s.gateway(t), s.gateway(t)
		p := asked(t, "token:one", 0)
		l := g.mustHold(locks.AcquireRequest{Principal: p, Lock: "few-1", TTL: time.Hour, Client: "192.0.2.1"})
		assert.That(t, l.Principal == "token:one" && l.Owner == "token:one", "%+v", l)
		named := g.mustHold(locks.AcquireRequest{Principal: p, Lock: "few-2", TTL: time.Hour, Owner: "me"})
		assert.That(t, named.Principal == "token:one" && named.Owner == "me", "%+v", named)
		for _, at := range []*gate{g, other} {
			shown := assert.Value(at.m.Lock(t.Context(), locks.LockRequest{Lock: "few-2"}))(t)
			assert.Must(t, len(shown.Holders) == 1, "%+v", shown)
			assert.That(t, shown.Holders[0].Principal == "token:one" && shown.Holders[0].Owner == "me", "%+v", shown.Holders[0])
		}
		none := g.mustHold(locks.AcquireRequest{Lock: "few-3", TTL: time.Hour, Client: "192.0.2.1"})
		assert.That(t, none.Principal == "" && none.Owner == "192.0.2.1" && s.recordOf(none).Principal == "", "%+v", none)
		anonymous := p
		anonymous.Name = locks.Anonymous.Name
		l = g.mustHold(locks.AcquireRequest{Principal: anonymous, Lock: "few-4", TTL: time.Hour, Client: "192.0.2.1"})
		assert.That(t, l.Principal == "anonymous" && l.Owner == "192.0.2.1", "%+v", l)
		synctest.Wait()
		for _, e := range g.told() {
			if e.Type == events.LeaseGranted && e.LeaseID == named.ID {
				assert.Equal(t, e.Principal, "token:one")
				return
			}
		}
		t.Error("the grant was not published")
	})
}

func TestAnotherProgramThatWritesAnotherPrincipalChangesNoAccountOfALeaseThatRuns(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(locks.AcquireRequest{Principal: asked(t, "token:one", 0), Lock: "few-1", TTL: time.Hour})
		forged := s.recordOf(l)
		forged.Principal, forged.Metadata = "token:victim", "forged"
		s.overwrite(l.Znode, string(forged.Encode()))
		synctest.Wait()
		assert.Equal(t, g.look(l).Principal, "token:one")
		g.wantLeasesOf("token:one", 1)
		g.wantLeasesOf("token:victim", 0)
		g.mustUpdate(l, locks.UpdateRequest{Metadata: new("mine")})
		assert.Equal(t, s.recordOf(l).Principal, "token:one", "written back")
	})
}
