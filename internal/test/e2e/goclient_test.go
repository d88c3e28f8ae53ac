package e2e

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"lockkeeper/client"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// The lease of a program that uses the Go client rides over the death of its gateway, and an administrator who breaks it stops
// the work.
func TestAGoClientGoesOnAtAnotherGatewayAndStopsWhenItsLeaseIsBroken(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := fleetOf(t, addr+chroot, 2)
	acquainted(t, gateways...)
	one, two := gateways[0], gateways[1]
	c, err := client.New(client.Config{URLs: []string{one.url(), two.url()}})
	assert.NoError(t, err)

	leases, ended := make(chan *client.Lease), make(chan error, 1)
	go func() {
		ended <- c.Do(t.Context(), "job", func(ctx context.Context, lease *client.Lease) error {
			leases <- lease
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	lease := <-leases
	_, err = c.TryAcquire(t.Context(), "job")
	var taken *client.NotAcquired
	assert.Must(t, errors.As(err, &taken) && len(taken.Holders) == 1 && taken.Holders[0].LeaseID == lease.ID(), "a second acquire: %v", err)

	one.kill()
	two.awaitOwned(lease.ID())
	eventually(t, patience, func() error {
		seen, a, err := two.Lease(t.Context(), lease.ID())
		if err == nil && (seen.State != api.StateHeld || *seen.ExpiresInMS < 25_000) {
			return &unexpectedAnswer{a}
		}
		return err
	}, "the client's heartbeats reach the other gateway")
	assert.Must(t, lease.Held(), "the lease was lost with its gateway: %v", lease.Err())

	next := make(chan *client.Lease, 1)
	go func() {
		if lease, err := c.Acquire(t.Context(), "job"); err == nil {
			next <- lease
		}
		close(next)
	}()
	two.awaitLock(patience, "job", 1, 1)
	a, err := two.Send(t.Context(), http.MethodPost, "/v1/leases/"+lease.ID()+"/break", apitest.Query("reason=maintenance"))
	expect(t, a, err, http.StatusNoContent, "")
	var lost *client.LeaseLost
	err = <-ended
	assert.Must(t, errors.As(err, &lost) && lost.Reason == "revoked", "the work ended with %v", err)
	after := <-next
	assert.Must(t, after != nil, "the next client was not granted the lock")
	assert.That(t, after.Fence() > lease.Fence(), "fencing token %d follows %d", after.Fence(), lease.Fence())
	assert.NoError(t, after.Release(t.Context()))
}
