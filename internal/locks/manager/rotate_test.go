package manager

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

// lastZxid is that of the last transaction.
func (s *fakeStore) lastZxid() (zxid int64) {
	s.set(func() { zxid = s.zxid })
	return zxid
}

var (
	oldSecretKey = layout.TokenKey{ID: "k1", Key: []byte("0123456789abcdef")}
	newSecretKey = layout.TokenKey{ID: "k2", Key: []byte("a key that is new")}
)

// rotateTo puts a state of the secret into force at a gateway.
func (g *gate) rotateTo(zxid int64, r *layout.Rotation, keys ...layout.TokenKey) {
	g.t.Helper()
	assert.Must(g.t, g.m.fleet.keyring.Take(&layout.Secret{Keys: keys, Rotation: r, Zxid: zxid}), "the state is old")
}

func TestTokensFollowTheSecret(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		old := g.mustHold(deploy())
		assert.That(t, strings.Contains(old.Token, ".k1."), "%s", old.Token)
		g.rotateTo(1, &layout.Rotation{Key: "k2", Phase: layout.Accepting}, oldSecretKey, newSecretKey)
		_, err := g.heartbeat(old)
		assert.NoError(t, err)
		g.rotateTo(2, &layout.Rotation{Key: "k2", Phase: layout.Signing}, newSecretKey, oldSecretKey)
		between := g.mustHold(locks.AcquireRequest{Lock: "between", TTL: time.Minute})
		assert.That(t, strings.Contains(between.Token, ".k2."), "%s", between.Token)
		byOld := func(l locks.Lease) locks.Lease {
			return withToken(l, tokenBy(oldSecretKey, l.ID))
		}
		_, err = g.heartbeat(byOld(between))
		assert.NoError(t, err) // another gateway may have made such a token until all sign with the new key

		g.rotateTo(3, &layout.Rotation{Key: "k2", Phase: layout.Retiring, Cut: s.lastZxid()}, newSecretKey, oldSecretKey)
		young := g.mustHold(locks.AcquireRequest{Lock: "young", TTL: time.Minute})
		for _, l := range []locks.Lease{old, between, byOld(between), young} {
			_, err = g.heartbeat(l)
			assert.NoError(t, err)
		}
		_, err = g.heartbeat(byOld(young))
		wantCode(t, err, locks.CodeTokenWrong)

		g.rotateTo(4, nil, newSecretKey)
		_, err = g.heartbeat(old)
		wantCode(t, err, locks.CodeTokenWrong)
		_, err = g.heartbeat(young)
		assert.NoError(t, err)
		assert.That(t, !g.m.fleet.keyring.Take(&layout.Secret{Keys: []layout.TokenKey{oldSecretKey}, Zxid: 3}), "an older state is taken in")
		_, err = g.heartbeat(young)
		assert.NoError(t, err)
	})
}

// tokenBy is a lease's token by a key.
func tokenBy(key layout.TokenKey, id string) string {
	return record.NewTokens([]layout.TokenKey{key}, nil).Make(recipe.LeaseID(id))
}

// A gateway that is cut off may not know the newest key. It does not tell a client that its token is wrong.
func TestAGatewayThatIsCutOffRefusesNoTokenOfAKeyThatItDoesNotKnow(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		later := withToken(l, tokenBy(newSecretKey, l.ID))
		_, err := g.heartbeat(later)
		wantCode(t, err, locks.CodeTokenWrong)
		s.set(func() { s.away = true })
		defer s.set(func() { s.away = false })
		pass(2 * fakeWindow)
		_, err = g.heartbeat(later)
		wantCode(t, err, locks.CodeUnavailable)
		_, err = g.heartbeat(withToken(l, "lk1."+l.ID+".k1.AAAAAAAAAAAAAAAAAAAAAA"))
		wantCode(t, err, locks.CodeTokenWrong)
	})
}

// A gateway counts the leases that it runs until a transaction, its own and those that it has taken over, and those of dead gateways that
// have no owner yet.
func TestOldLeasesAreCounted(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		count := func(g *gate, cut int64, last locks.OldLeases) locks.OldLeases {
			t.Helper()
			found, ok := g.m.OldLeases(t.Context(), cut, s.lastZxid(), last)
			assert.Must(t, ok, "it cannot count")
			return found
		}
		a := one.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Minute})
		b := one.mustHold(locks.AcquireRequest{Lock: "b", TTL: time.Minute})
		two.mustHold(locks.AcquireRequest{Lock: "c", TTL: time.Minute})
		cut := s.lastZxid()
		one.mustHold(locks.AcquireRequest{Lock: "d", TTL: time.Minute})
		found := count(one, cut, locks.OldLeases{})
		assert.That(t, found.N == 2 && len(found.Some) == 2 && found.Unowned == 0, "%+v", found)
		one.mustRelease(a)
		pass(time.Second)
		again := count(one, cut, found)
		assert.That(t, again.N > 0, "one is left, and %+v was counted", again)
		one.mustRelease(b)
		pass(time.Second)
		assert.Equal(t, count(one, cut, again).N, 0, "leases of the first gateway")
		assert.Equal(t, count(two, cut, locks.OldLeases{}).N, 1, "leases of the second")
		assert.Equal(t, count(one, s.lastZxid(), locks.OldLeases{}).N, 1, "leases until later")

		two.crash()
		pass(time.Minute)
		assert.Equal(t, count(one, cut, locks.OldLeases{}).N, 1, "leases of the successor")
	})
}
