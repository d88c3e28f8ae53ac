package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

func TestWithAKeyThePlaceOfAClientThatGoesAwayIsKept(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	holder := g.hold("deploy", "ttl=1m")
	key := apitest.Key("a-fresh-random-key-0001")
	ctx, hangUp := context.WithCancel(t.Context())
	gone := g.acquiring(ctx, "deploy", "ttl=1m&wait=forever&owner=me", key)
	id := g.awaitLock(patience, "deploy", 1, 1).Waiters[0].LeaseID
	hangUp()
	gone.answered(patience)
	testkit.Never(t, 1500*time.Millisecond, func() bool {
		q, a, err := g.Lock(t.Context(), "deploy")
		return err != nil || a.Status != http.StatusOK || q.QueueLength != 1 || q.Waiters[0].LeaseID != id
	}, "the place is given up")
	again := g.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m&owner=me", key)
	elapse(t, 100*time.Millisecond) // let it arrive before the release, mostly; either order must do
	g.letGo(holder.Token)
	again.answered(patience)
	expect(t, again.a, again.err, http.StatusOK, "")
	assert.That(t, again.lease.LeaseID == id && again.lease.State == api.StateHeld && again.a.Header.Get("Idempotency-Replayed") == "true",
		"the repeat got %s", again.a.Body)
}
