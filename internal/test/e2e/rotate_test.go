package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/secret"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/layout"
)

// rotation is where a rotation is asked for.
type rotation struct {
	t     *testing.T
	where []string
}

func (r rotation) command(args ...string) (code int, out string) {
	r.t.Helper()
	return exitCode(r.t, slices.Concat([]string{"secret"}, args, r.where)...)
}

func (r rotation) status() (s secret.Status) {
	r.t.Helper()
	code, out := r.command("status", "-o", "json")
	_, body, _ := strings.Cut(out, "{")
	assert.Must(r.t, code == 0 && json.Unmarshal([]byte("{"+body), &s) == nil, "exit code %d\n%s", code, out)
	return s
}

func (r rotation) awaitPhase(phase layout.Phase) {
	r.t.Helper()
	eventually(r.t, patience, func() error {
		if s := r.status(); s.Rotation == nil || s.Rotation.Phase != phase {
			return fmt.Errorf("%+v", s.Rotation)
		}
		return nil
	}, "the rotation is %s", phase)
}

// churn is clients that take leases and let them go, at all gateways, and what they were answered that they should not have been.
type churn struct {
	cycles atomic.Int64

	mu  sync.Mutex
	bad []string
}

func (c *churn) run(ctx context.Context, lock string, at, elsewhere *gateway) {
	for ctx.Err() == nil {
		lease, a, err := at.Acquire(ctx, lock, apitest.Query("ttl=1m"))
		if !c.fits(ctx, a, err, "acquire", http.StatusCreated) {
			continue
		}
		_, a, err = elsewhere.Heartbeat(ctx, lease.Token)
		c.fits(ctx, a, err, "heartbeat", http.StatusOK)
		for ctx.Err() == nil {
			a, err := elsewhere.Release(ctx, lease.Token)
			if c.fits(ctx, a, err, "release", http.StatusNoContent) {
				c.cycles.Add(1)
				break
			}
		}
	}
}

// fits notes an answer that is neither what was asked for nor one to repeat the request.
func (c *churn) fits(ctx context.Context, a *apitest.Answer, err error, what string, want int) bool {
	switch {
	case ctx.Err() != nil || err != nil:
		return false
	case a.Status == want:
		return true
	case a.Status != http.StatusServiceUnavailable && a.Status != http.StatusConflict: // by an earlier acquire whose outcome was unknown
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bad = append(c.bad, fmt.Sprintf("%s: %d %s", what, a.Status, a.Body))
	}
	return false
}

// spin waits until so many cycles have passed from now on.
func (c *churn) spin(t *testing.T, n int64) {
	t.Helper()
	from := c.cycles.Load()
	eventually(t, patience, func() error {
		if c.cycles.Load() < from+n {
			return fmt.Errorf("%d cycles", c.cycles.Load()-from)
		}
		return nil
	}, "clients go on")
}

// Three gateways under load, one of them cut off from ZooKeeper while the rotation begins, and a fourth that joins in the middle.
func TestTheSecretIsRotatedUnderLoad(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	proxy := netfault.NewT(t, addr, netfault.Framed())
	file := identity(t, "fleet:sesame")
	flags := []string{"--zk-auth-file=" + file, "--promise-window=20s"} // one that is cut off stays registered for long
	one, two := startGateway(t, addr+chroot, flags...), startGateway(t, addr+chroot, flags...)
	three := startGateway(t, proxy.Addr()+chroot, append(flags, "--session-timeout=40s")...)
	acquainted(t, one, two, three)
	rotate := rotation{t, []string{"--zk=" + addr + chroot, "--zk-auth-file=" + file}}
	owner := newForeign(t, addr, chroot)
	assert.NoError(t, owner.AddAuth("digest", []byte("fleet:sesame")))
	before := readSecret(t, owner, chroot)

	var old []api.Lease
	var pulses []*pulse
	for i, g := range []*gateway{one, two, three} {
		held := g.hold(fmt.Sprint("old-", i), "ttl=2m")
		waits := g.queue(held.Lock, "ttl=2m")
		old = append(old, held, waits)
		pulses = append(pulses, two.keepAlive(held.Token), one.keepAlive(waits.Token)) // through other gateways, too
	}
	ctx, stop := context.WithCancel(t.Context())
	var load churn
	var clients sync.WaitGroup
	for i, pair := range [][2]*gateway{{one, two}, {two, one}, {three, one}, {two, three}} {
		clients.Go(func() { load.run(ctx, fmt.Sprint("churn-", i), pair[0], pair[1]) })
	}
	defer clients.Wait()
	defer stop()
	load.spin(t, 10)

	proxy.Stall()
	code, out := rotate.command("rotate", "--drop-after=0s", "--wait=0s")
	assert.That(t, code == 75 && strings.Contains(out, three.listen), "with a gateway that is cut off: exit code %d\n%s", code, out)
	code, out = rotate.command("rotate")
	assert.That(t, code == 75 && strings.Contains(out, "under way already"), "a second rotation: exit code %d\n%s", code, out)
	four := startGateway(t, addr+chroot, flags...)
	four.shows(three.listen)
	proxy.Heal()
	rotate.awaitPhase(layout.Retiring)
	load.spin(t, 10)

	after := readSecret(t, owner, chroot)
	assert.Must(t, len(after.Keys) == 2 && after.Keys[1].ID == before.Keys[0].ID, "keys %+v", after.Keys)
	oldTokens := record.NewTokens(before.Keys, nil)
	eventually(t, patience, func() error { return four.status(http.MethodGet, "/readyz", http.StatusOK) }, "the fourth gateway serves")
	for _, g := range []*gateway{one, two, three, four} {
		lease := g.hold("young-"+g.listen, "ttl=2m")
		assert.That(t, strings.Contains(lease.Token, "."+after.Keys[0].ID+"."), "%s signs with another key: %s", g.listen, lease.Token)
		for _, at := range []*gateway{one, two, three, four} {
			at.beatUntil(lease.Token, api.StateHeld)
			_, a, err := at.Heartbeat(t.Context(), oldTokens.Make(recipe.LeaseID(lease.LeaseID)))
			expect(t, a, err, http.StatusForbidden, "lease_token_wrong") // the old key makes none for a young lease
		}
		g.letGo(lease.Token)
	}
	for _, l := range old {
		one.beatUntil(l.Token, l.State)
		three.beatUntil(l.Token, l.State)
	}
	status := rotate.status()
	assert.That(t, status.Rotation != nil && status.Signing == after.Keys[0].ID, "%+v", status)
	sealStatus := sealedWith(t, one, before.Keys, two)
	assert.That(t, sealStatus != "fleet_seal_refused", "while the old key is accepted its seal is answered %s", sealStatus)

	for _, p := range pulses {
		p.halt()
		p.mustNotHaveLost(t)
	}
	for i := len(old) - 1; i >= 0; i-- {
		two.letGo(old[i].Token)
	}
	eventually(t, patience, func() error {
		if s := rotate.status(); s.Rotation != nil || len(s.Accepted) != 0 {
			return fmt.Errorf("%+v", s.Rotation)
		}
		return nil
	}, "the old key is dropped")
	load.spin(t, 10)
	stop()
	clients.Wait()
	assert.That(t, len(load.bad) == 0, "clients were answered %.2000q", load.bad)

	young := two.hold("deploy", "ttl=1m")
	for _, g := range []*gateway{one, two, three, four} {
		for _, token := range []string{old[0].Token, oldTokens.Make(recipe.LeaseID(young.LeaseID))} {
			eventually(t, patience, func() error {
				_, a, err := g.Heartbeat(t.Context(), token)
				return answeredWith(a, err, http.StatusForbidden)
			}, "%s refuses a token of the old key", g.listen)
		}
		g.beatUntil(young.Token, api.StateHeld)
		assert.Equal(t, sealedWith(t, g, before.Keys, one), "fleet_seal_refused", "a seal of the old key")
		assert.That(t, sealedWith(t, g, after.Keys[:1], one) != "fleet_seal_refused", "a seal of the new key is refused")
	}
}

func readSecret(t *testing.T, f *foreign, chroot string) *layout.Secret {
	t.Helper()
	data, _, err := f.Get(chroot + "/lockkeeper/secret")
	assert.NoError(t, err)
	return assert.Value(layout.ParseSecret(data))(t)
}

// shows waits until a gateway lists another one.
func (g *gateway) shows(address string) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		if list := g.look("/v1/gateways"); !strings.Contains(list, address) {
			return fmt.Errorf("%s", list)
		}
		return nil
	}, "%s is listed", address)
}

// sealedWith is the code of the answer to a request with a seal by a key.
func sealedWith(t *testing.T, g *gateway, keys []layout.TokenKey, from *gateway) string {
	t.Helper()
	info, _, err := from.Info(t.Context())
	assert.NoError(t, err)
	r := assert.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, g.url()+"/v1/info", nil))(t)
	assert.Value(fleet.NewKeys(keys))(t).Close(&fleet.Seal{From: info.GatewayID, To: "another", Sender: "s", Number: 1}, r, nil)
	a := assert.Value(http.DefaultClient.Do(r))(t)
	defer a.Body.Close()
	var problem struct{ Code string }
	assert.NoError(t, json.NewDecoder(a.Body).Decode(&problem))
	return problem.Code
}

// A gateway with a store of its own rotates over its socket, and an operator that cannot wait drops the old key.
func TestTheSecretOfAGatewayWithItsOwnStoreIsRotatedWhileItRuns(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	rotate := rotation{t, []string{"--data-dir=" + g.dataDir}}
	code, out := rotate.command("drop", "--now")
	assert.That(t, code == 64 && strings.Contains(out, "no rotation of the secret is under way"), "exit code %d\n%s", code, out)
	old := g.hold("deploy", "ttl=20s")
	client := g.keepAlive(old.Token)
	code, out = rotate.command("rotate", "--drop-after=1h")
	assert.Must(t, code == 0 && strings.Contains(out, "the fleet signs with the new key"), "exit code %d\n%s", code, out)
	young := g.hold("report", "ttl=1m")
	key := rotate.status().Signing
	assert.That(t, strings.Contains(young.Token, "."+key+".") && !strings.Contains(old.Token, "."+key+"."), "%s, then %s", old.Token, young.Token)
	g.beat(old.Token, api.StateHeld)
	eventually(t, patience, func() error {
		if s := rotate.status(); len(s.Rotation.Some) != 1 || s.Rotation.Some[0] != old.LeaseID || s.Rotation.Leases != 1 {
			return fmt.Errorf("%+v", s.Rotation)
		}
		return nil
	}, "the status names the old lease")
	code, out = rotate.command("status")
	assert.That(t, code == 0 && strings.Contains(out, "retiring") && strings.Contains(out, old.LeaseID), "exit code %d\n%s", code, out)

	g.kill() // what was written is there
	g.restart()
	g.awaitServing()
	g.beatUntil(old.Token, api.StateHeld)
	g.beatUntil(young.Token, api.StateHeld)
	code, out = rotate.command("drop")
	assert.That(t, code == 64 && strings.Contains(out, "--now"), "without --now: exit code %d\n%s", code, out)
	client.halt()
	client.mustNotHaveLost(t)
	code, out = rotate.command("drop", "--now")
	assert.That(t, code == 0 && strings.Contains(out, "lost: the tokens of leases from before"), "exit code %d\n%s", code, out)
	eventually(t, patience, func() error {
		_, a, err := g.Heartbeat(t.Context(), old.Token)
		return answeredWith(a, err, http.StatusForbidden)
	}, "the old token is refused")
	g.beat(young.Token, api.StateHeld)

	g.letGo(young.Token)
	g.terminate() // without a gateway the command takes the steps
	code, out = rotate.command("rotate", "--drop-after=0s")
	assert.Must(t, code == 0, "exit code %d\n%s", code, out)
	now := rotate.status()
	assert.That(t, now.Signing != key && len(now.Accepted) == 1 && now.Accepted[0] == key && now.Rotation.Gateways == 0, "%+v %+v", now, now.Rotation)
	g.restart()
	g.awaitServing()
	next := g.hold("report", "ttl=1m")
	assert.That(t, strings.Contains(next.Token, "."+now.Signing+"."), "%s", next.Token)
}
