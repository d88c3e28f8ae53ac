package manager

import (
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// A program that writes into a queue can give its contender the name of a lease that stands elsewhere. The contender is
// shown as another program's, its fencing token is its own, and what is done to it is not done to the lease.
func TestAContenderWithACopiedLeaseIDIsNotTheLease(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me", Metadata: "mine"})
		const other = "/lockkeeper/locks/other"
		prefix := strings.TrimRight(path.Base(l.Znode), "0123456789")
		_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: other}, zk.Op{Kind: zk.OpCreate, Path: other + "/" + prefix, Sequential: true, Data: []byte("theirs")})
		time.Sleep(time.Second)
		look := func(lock string) locks.Contender {
			v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: lock})
			assert.Must(t, err == nil && len(v.Holders) == 1, "%s: %+v, %v", lock, v, err)
			assert.That(t, v.State == locks.LockHeld, "%s is %s", lock, v.State)
			return v.Holders[0]
		}
		c := look("other")
		if c.LeaseID != "" || c.Owner != "" || c.Metadata != "" || c.ExpiresIn != 0 || c.Foreign == nil || c.Foreign.Kind != locks.KindCopiedID || string(c.Foreign.Data) != "theirs" {
			t.Errorf("the copy is shown as %+v, %+v", c, c.Foreign)
		}
		assert.That(t, c.FencingToken != l.FencingToken && c.FencingToken != 0,
			"the copy has the fencing token %d, the lease %d", c.FencingToken, l.FencingToken)
		if own := look("deploy"); own.LeaseID != l.ID || own.Owner != "me" || own.Foreign != nil || own.FencingToken != l.FencingToken {
			t.Errorf("the lease is shown as %+v", own)
		}
		if f, err := g.m.Fence(t.Context(), locks.FenceRequest{Lock: "other", Token: l.FencingToken}); err != nil || f.Current {
			t.Errorf("the lease's fencing token in the copy's lock: %+v, %v", f, err)
		}
		_, err := g.m.Revoke(t.Context(), locks.RevokeRequest{Lock: "other", Reason: "leave", ForceAfter: time.Second})
		assert.That(t, strings.Contains(wantCode(t, err, locks.CodeNothingToAsk).Detail, "break ends it"), "revoked: %v", err)
		time.Sleep(5 * time.Second)
		assert.Equal(t, g.asked(l), locks.Revocation{}, "the lease was asked")
		assert.Nil(t, g.m.Break(t.Context(), locks.BreakRequest{Lock: "other", Name: path.Base(paths[1])}), "breaking the copy")
		synctest.Wait()
		names := s.names(other)
		assert.That(t, len(names) == 0, "the copy stands: %q", names)
		g.wantState(l, locks.Held, "")
	})
}
