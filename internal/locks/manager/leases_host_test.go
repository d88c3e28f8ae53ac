package manager

import (
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

func TestLeasesAreListedByTheHostOfTheirOwners(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for lock, owner := range map[string]string{"a": "alice@ci-1", "b": "bob@x@ci-1", "c": "carol@ci-2", "d": "ci-1"} {
			g.mustHold(locks.AcquireRequest{Lock: lock, TTL: time.Minute, Owner: owner})
		}
		page := assert.Value(g.m.Leases(t.Context(), locks.LeaseFilter{Host: "ci-1"}))(t)
		assert.Must(t, len(page.Items) == 2, "%+v", page)
		for _, l := range page.Items {
			assert.That(t, l.Lock == "a" || l.Lock == "b", "%+v", l)
		}
		_, err := g.m.Leases(t.Context(), locks.LeaseFilter{Host: "a\nb"})
		assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "host")
	})
}

// Of a lease that another gateway runs this one may not know the owner; that one can say.
func TestWhatOtherGatewaysSayOfOwnersIsFound(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		other := s.gateway(t)
		l := other.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Minute, Owner: "alice@ci-1"})
		other.mustHold(locks.AcquireRequest{Lock: "b", TTL: time.Minute, Owner: "bob@ci-2"})
		said := map[string]string{l.ID: "alice@ci-1", "lkunknown": "alice@ci-1"}
		for _, req := range []locks.FindRequest{{Owner: "alice@ci-1"}, {Host: "ci-1"}} {
			assert.That(t, len(g.find(req).Contenders) == 0, "it is known without being told: %+v", g.find(req))
			req.Owners = said
			found := g.find(req).Contenders
			assert.That(t, len(found) == 1 && found[0].Lock == "a" && found[0].Owner == "alice@ci-1" && found[0].LeaseID == l.ID, "%+v", found)
		}
	})
}
