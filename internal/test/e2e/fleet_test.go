package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

func TestASecondGatewaySendsRequestsToTheOwnerAndTakesOverWhenThatOneIsKilled(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	p := netfault.NewT(t, addr, netfault.Framed())
	one := startGateway(t, addr+chroot)
	two := startGateway(t, p.Addr()+chroot)
	f := newForeign(t, addr, chroot)
	var leases []api.Lease
	var tokens []string
	for i := range 30 {
		lease := one.hold(fmt.Sprint("lock-", i), "ttl=1m&owner=me&metadata=m")
		waiter := one.queue(lease.Lock, "ttl=1m&owner=you")
		leases, tokens = append(leases, lease, waiter), append(tokens, lease.Token, waiter.Token)
	}
	first := leases[0]
	two.awaitLock(patience, first.Lock, 1, 1) // both see one queue

	beat := two.beat(first.Token, api.StateHeld)
	assert.That(t, beat.FencingToken == first.FencingToken, "the fencing token was %d and is %d", first.FencingToken, beat.FencingToken)
	one.beat(first.Token, api.StateHeld)
	_, a, err := two.Acquire(t.Context(), first.Lock)
	expect(t, a, err, http.StatusConflict, "held_by_other")

	c := watchTraffic(p)
	one.kill()
	began := time.Now()
	eventually(t, patience, func() error {
		_, a, err := two.Lease(t.Context(), first.LeaseID)
		return answeredWith(a, err, http.StatusOK)
	}, "the other gateway has taken over")
	two.hears(tokens, leases)
	t.Logf("taken over after %v", time.Since(began))
	writes, _, _ := c.take()
	assert.That(t, len(writes) == 1 && strings.Contains(writes[0], "/succession/"),
		"the takeover of %d leases cost %d writes:\n%s", len(leases), len(writes), strings.Join(writes, "\n"))
	entries := f.children("/lockkeeper/succession")
	assert.That(t, len(entries) == 1, "succession: %v", entries)
	two.unchanged(leases...)
	two.letGo(first.Token)
	next := two.beatUntil(tokens[1], api.StateHeld)
	assert.That(t, next.FencingToken > first.FencingToken, "fencing token %d follows %d", next.FencingToken, first.FencingToken)
}

// hears waits until the gateway confirms all leases in one bulk heartbeat. It may be unavailable for a while, and no lease may
// be lost or changed.
func (g *gateway) hears(tokens []string, leases []api.Lease) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		bulk, a, err := g.Heartbeats(g.t.Context(), tokens)
		if err := answeredWith(a, err, http.StatusOK); err != nil {
			return err
		}
		for i, item := range bulk.Items {
			switch {
			case item.Problem == nil:
				if item.State != leases[i].State || item.FencingToken != leases[i].FencingToken || item.Position != leases[i].Position {
					g.t.Fatalf("a lease was %+v and is %+v", leases[i], item)
				}
			case item.Problem.Status == http.StatusServiceUnavailable:
				return unexpected(a)
			default:
				g.t.Fatalf("a lease is lost: %+v", item.Problem)
			}
		}
		return nil
	}, "the gateway answers for all leases")
}

// beatUntil heartbeats until the lease is in that state.
func (g *gateway) beatUntil(token string, state api.State) (beat api.Heartbeat) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		var a *apitest.Answer
		var err error
		beat, a, err = g.Heartbeat(g.t.Context(), token)
		if err == nil && beat.State != state {
			err = unexpected(a)
		}
		return err
	}, "the lease is %s", state)
	return beat
}

func TestTheSameKeyAtTwoGatewaysAtOnceQueuesOnce(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := []*gateway{startGateway(t, addr+chroot), startGateway(t, addr+chroot)}
	f := newForeign(t, addr, chroot)
	for i := range 25 {
		lock, key := fmt.Sprint("lock-", i), apitest.Key(fmt.Sprintf("a-fresh-random-key-%d", i))
		var asked []*pending
		for range 2 {
			for _, g := range gateways {
				asked = append(asked, g.acquiring(t.Context(), lock, "ttl=1m&wait=20s&owner=me", key))
			}
		}
		created, id := 0, ""
		for _, p := range asked {
			p.answered(patience)
			assert.NoError(t, p.err)
			switch {
			case p.a.Status == http.StatusCreated:
				created++
			case p.a.Status == http.StatusOK:
			default:
				t.Errorf("answered %d %s", p.a.Status, p.a.Body)
			}
			if got := p.lease.LeaseID; got != "" && id != "" && got != id {
				t.Errorf("two leases: %s and %s", id, got)
			} else if got != "" {
				id = got
			}
		}
		names := f.children("/lockkeeper/locks/" + lock)
		assert.Must(t, created == 1 && len(names) == 1, "%d were told that they had created it, and the queue is %v", created, names)
	}
}

func TestWithAnIdentityNoOtherClientReadsSecretsOrJoinsTheFleet(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	write := func(line string) string {
		file := filepath.Join(t.TempDir(), "auth")
		assert.NoError(t, os.WriteFile(file, []byte(line+"\n"), 0o600))
		return file
	}
	g := startGateway(t, addr+chroot, "--zk-auth-file="+write("digest fleet:sesame"))
	lease := g.hold("deploy", "ttl=1m&owner=me", apitest.Key("a-fresh-random-key-0001"))
	f := newForeign(t, addr, chroot)

	unreadable := []string{"/lockkeeper/secret"}
	for _, key := range f.children("/lockkeeper/keys") {
		unreadable = append(unreadable, "/lockkeeper/keys/"+key)
	}
	assert.That(t, len(unreadable) == 2, "keys: %v", unreadable)
	for _, path := range unreadable {
		_, _, err := f.Get(chroot + path)
		assert.Equal(t, err, zk.ErrNoAuth, "a stranger reads %s", path)
	}
	for _, path := range []string{"/lockkeeper", "/lockkeeper/version", "/lockkeeper/guards", "/lockkeeper/gateways", "/lockkeeper/succession", "/lockkeeper/fence_base"} {
		_, _, err := f.Get(chroot + path)
		assert.Nil(t, err, "a stranger may look at %s", path)
		_, err = f.Set(chroot+path, []byte("x"), -1)
		assert.Equal(t, err, zk.ErrNoAuth, "a stranger writes %s", path)
	}
	for _, path := range []string{"/lockkeeper/guards", "/lockkeeper/gateways"} {
		for _, id := range f.children(path) {
			assert.Equal(t, f.Delete(chroot+path+"/"+id, -1), zk.ErrNoAuth, "a stranger deletes %s/%s", path, id)
		}
	}
	acl, _, err := f.GetACL(chroot + "/lockkeeper/version")
	assert.NoError(t, err)
	// ZooKeeper shows a digest's user and not its password.
	fleet := func(a zk.ACL) bool {
		return a.Scheme == "digest" && strings.HasPrefix(a.ID, "fleet:") && a.Perms == zk.PermAll
	}
	others := func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms == zk.PermRead }
	assert.That(t, len(acl) == 2 && slices.ContainsFunc(acl, fleet) && slices.ContainsFunc(acl, others),
		"the ACL of the version is %+v", acl)
	// Where programs share a queue, every program can queue in it.
	lock := zk.NewLock(f.Conn, chroot+"/lockkeeper/locks/deploy", zk.WorldACL(zk.PermAll))
	locked := make(chan error, 1)
	go func() { locked <- lock.Lock() }()
	g.awaitLock(patience, "deploy", 1, 1)
	g.letGo(lease.Token)
	assert.Nil(t, <-locked, "go-zookeeper's lock")
	g.awaitLock(patience, "deploy", 1, 0)
	assert.Nil(t, lock.Unlock())

	for name, line := range map[string]string{"another password": "digest fleet:tahini", "another user": "digest fleat:sesame"} {
		code, out := exitCode(t, "--zk="+addr+chroot, "--listen="+freeAddr(t), "--zk-auth-file="+write(line))
		assert.That(t, code == 78 && strings.Contains(out, "error: ") && strings.Contains(out, "hint: "),
			"%s: exit code %d\n%s", name, code, out)
		assert.That(t, !strings.Contains(out, "tahini") && !strings.Contains(out, "sesame"), "%s: a password is printed\n%s", name, out)
	}
	code, out := exitCode(t, "--zk="+addr+chroot, "--listen="+freeAddr(t))
	assert.That(t, code == 78, "without an identity: exit code %d\n%s", code, out)
	g.letGo(g.hold("after", "").Token)
}
