package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/compat"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// What the protocols promise is tested with gateways and a ZooKeeper, in internal/test/authtest, and with what real clients have
// sent, in internal/test/e2e.

func withCompat(o *Options) {
	o.Compat = compat.Options{Names: compat.Names(), Hold: time.Hour, FleetLockLimit: 2}
}

// foreign sends what clients of other programs send, and returns status and body.
func (g *gateway) foreign(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	q := assert.Value(http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body)))(t)
	q.Header.Set("fleet-lock-protocol", "true")
	a := assert.Value(http.DefaultClient.Do(q))(t)
	defer a.Body.Close()
	return a.StatusCode, string(assert.Value(io.ReadAll(a.Body))(t))
}

const (
	rebooting = `{"client_params":{"id":"m","group":"default"}}`
	planning  = `{"ID":"9d1c","Operation":"OperationTypePlan","Who":"me@laptop"}`
)

// requests of both protocols, one for each route.
var foreignRequests = [][3]string{
	{"POST", "/compat/fleetlock/v1/pre-reboot", rebooting}, {"POST", "/compat/fleetlock/v1/steady-state", rebooting},
	{"LOCK", "/compat/terraform/prod", planning}, {"POST", "/compat/terraform/prod", planning}, {"PUT", "/compat/terraform/prod", planning},
	{"UNLOCK", "/compat/terraform/prod", planning}, {"DELETE", "/compat/terraform/prod", planning},
}

func free(_ context.Context, req locks.LockRequest) (locks.Lock, error) {
	return locks.Lock{NS: req.NS, Name: req.Lock, State: locks.LockFree}, nil
}

func TestNoProtocolOfOtherProgramsIsServedUnlessItIsAskedFor(t *testing.T) {
	for _, name := range []string{"", compat.FleetLock, compat.Terraform} {
		g := serve(t, func(o *Options) { withCompat(o); o.Compat.Names = []string{name} })
		g.lock = free
		for _, r := range foreignRequests {
			want := 404
			if strings.HasPrefix(r[1], "/compat/"+name+"/") {
				want = 200
			}
			status, body := g.foreign(t, r[0], r[1], r[2])
			assert.Equal(t, status, want, "with %q: %s %s: %s", name, r[0], r[1], body)
		}
	}
}

// A machine whose slot is not recognized would take another one, and one that comes back would not release it.
func TestAHolderWhoseRecordIsNotReadIsNotTakenForAnother(t *testing.T) {
	g := serve(t, withCompat)
	reads := 0
	g.lock = func(_ context.Context, req locks.LockRequest) (locks.Lock, error) {
		reads++
		assert.That(t, req.Consistent, "the queue is read from memory")
		return locks.Lock{NS: req.NS, Name: req.Lock, HolderCount: 1, Holders: []locks.Contender{{NS: req.NS, LeaseID: someID, Znode: "/lockkeeper/locks/x/permit-y"}}}, nil
	}
	for _, r := range foreignRequests {
		reads = 0
		status, body := g.foreign(t, r[0], r[1], r[2])
		assert.That(t, status == 503 && strings.Contains(body, "cannot be read"), "%s %s: %d %s", r[0], r[1], status, body)
		assert.Equal(t, reads, looks, "reads of the queue")
	}
	for _, call := range g.asked() {
		assert.That(t, !strings.HasPrefix(call, "Acquire") && !strings.HasPrefix(call, "Release") && !strings.HasPrefix(call, "Break"), "%s", call)
	}
}

func TestAllPagesOfTheHoldersAreRead(t *testing.T) {
	g := serve(t, withCompat)
	other, mine := locks.Contender{NS: "default", LeaseID: "other", FencingToken: 7, Metadata: "x"}, locks.Contender{NS: "default", LeaseID: someID, FencingToken: 8, Metadata: rebooting, EndsAt: time.Unix(1_790_000_000, 0)}
	g.lock = func(_ context.Context, req locks.LockRequest) (locks.Lock, error) {
		page := locks.Lock{HolderCount: 2, Holders: []locks.Contender{other}, NextCursor: "more"}
		if req.Cursor == "more" {
			page.Holders, page.NextCursor = []locks.Contender{mine}, ""
		}
		return page, nil
	}
	released := ""
	g.releaseFor = func(token string) error { released = token; return nil }
	status, body := g.foreign(t, "POST", "/compat/fleetlock/v1/steady-state", rebooting)
	assert.That(t, status == 200 && strings.Contains(released, someID), "%d %s, released %q", status, body, released)
}

// A lease of the API has metadata of its client's choice. It is no slot and no lock of the protocols, whose leases are reservations.
func TestALeaseOfTheAPIIsNotTakenForOneOfAProtocol(t *testing.T) {
	g := serve(t, withCompat)
	metadata := planning
	g.lock = func(_ context.Context, req locks.LockRequest) (locks.Lock, error) {
		return locks.Lock{NS: req.NS, Name: req.Lock, HolderCount: 1, Holders: []locks.Contender{{NS: req.NS, LeaseID: someID, FencingToken: 7, Owner: "api", Metadata: metadata}}}, nil
	}
	status, body := g.foreign(t, "LOCK", "/compat/terraform/prod", planning)
	assert.That(t, status == 423 && strings.Contains(body, "me@laptop"), "%d %s", status, body)
	metadata = rebooting
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{}, &locks.Error{Code: locks.CodeHeldByOther}
	}
	status, body = g.foreign(t, "POST", "/compat/fleetlock/v1/pre-reboot", rebooting)
	assert.That(t, status == 409 && strings.Contains(body, "failed_lock_semaphore_full"), "%d %s", status, body)
	status, body = g.foreign(t, "POST", "/compat/fleetlock/v1/steady-state", rebooting)
	assert.That(t, status == 200, "%d %s", status, body)
	for _, call := range g.asked() {
		assert.That(t, !strings.HasPrefix(call, "Update") && !strings.HasPrefix(call, "Release"), "%s", call)
	}
}

// A gateway that is cut off from ZooKeeper must not say that a lock is held.
func TestAGrantOfAnotherProtocolIsAnsweredWhileTheGatewayIsTrusted(t *testing.T) {
	g := serve(t, withCompat)
	g.lock = free
	g.untrusted.Store(true)
	for _, r := range foreignRequests[:5] {
		if strings.HasSuffix(r[1], "steady-state") {
			continue
		}
		status, body := g.foreign(t, r[0], r[1], r[2])
		assert.Equal(t, status, 503, "%s %s: %s", r[0], r[1], body)
	}
}

// "The limit is the one that the lock has": an acquire that names another one is refused.
func TestTheLimitOfAGroupIsThatOfItsLock(t *testing.T) {
	g := serve(t, withCompat)
	g.lock = free
	var limits []int
	g.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		limits = append(limits, req.Limit)
		assert.That(t, req.Mode == locks.Semaphore && req.Wait == 0 && req.Metadata == rebooting && req.Owner == "m", "%+v", req)
		if req.Limit != 0 {
			return locks.AcquireResult{}, &locks.Error{Code: locks.CodeSettingsDiffer, Limit: 5}
		}
		return locks.AcquireResult{Lease: held()}, nil
	}
	status, body := g.foreign(t, "POST", "/compat/fleetlock/v1/pre-reboot", rebooting)
	assert.That(t, status == 200 && len(limits) == 2 && limits[0] == 2 && limits[1] == 0, "%d %s %v", status, body, limits)
}
