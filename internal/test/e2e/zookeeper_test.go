package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// foreign is another program at the same ZooKeeper. Paths are below the chroot of the gateways.
type foreign struct {
	*zk.Conn
	t      testing.TB
	chroot string
}

func newForeign(t testing.TB, addr, chroot string) *foreign {
	t.Helper()
	conn, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(quiet{}))
	assert.NoError(t, err)
	t.Cleanup(conn.Close)
	go func() {
		for range events { // six of them fit; the test needs none
		}
	}()
	return &foreign{Conn: conn, t: t, chroot: chroot}
}

// foreign is another client of the gateway's ZooKeeper, which knows it by one address.
func (g *gateway) foreign(t testing.TB) *foreign {
	addr, chroot, _ := strings.Cut(g.zk, "/")
	return newForeign(t, addr, "/"+chroot)
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// children are the names below path, in order; none when there is no such node.
func (f *foreign) children(path string) []string {
	f.t.Helper()
	names, _, err := f.Children(f.chroot + path)
	assert.Must(f.t, err == nil || errors.Is(err, zk.ErrNoNode), "children of %s: %v", path, err)
	slices.Sort(names)
	return names
}

// put creates a node, a contender (ephemeral, with a number) when its name ends like one.
func (f *foreign) put(path string, data []byte) {
	f.t.Helper()
	flags := int32(0)
	if strings.HasSuffix(path, "-lock-") {
		flags = zk.FlagEphemeral | zk.FlagSequence
	}
	assert.Value(f.Create(f.chroot+path, data, flags, zk.WorldACL(zk.PermAll)))(f.t, "creating %s", path)
}

func (f *foreign) remove(path string) {
	f.t.Helper()
	assert.NoError(f.t, f.Delete(f.chroot+path, -1), "deleting %s", path)
}

func TestZkCliShowsTheContenderAndDeletingItThereEndsTheLease(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	lease := g.hold("deploy", "ttl=1m&owner=me&metadata=job")
	next := g.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m")
	g.awaitLock(patience, "deploy", 1, 1)

	dir := chroot + "/lockkeeper/locks/deploy"
	out := assert.Value(zkreal.CLI(addr, "ls "+dir, "get "+chroot+lease.Znode, "stat "+chroot+lease.Znode))(t)
	name := "write-v1." + lease.LeaseID + "-lock-0000000000"
	assert.That(t, lease.Znode == "/lockkeeper/locks/deploy/"+name && strings.Contains(out, name), "zkCli does not show %s:\n%s", name, out)
	assert.That(t, strings.Contains(out, "ephemeralOwner = 0x0\n"), "the contender is not persistent:\n%s", out)
	want := fmt.Sprintf("cZxid = 0x%x\n", lease.FencingToken)
	assert.That(t, strings.Contains(out, want), "the fencing token is no czxid (%s):\n%s", want, out)
	var data struct {
		V        int    `json:"v"`
		Owner    string `json:"owner"`
		TTL      int64  `json:"ttl_ms"`
		Metadata string `json:"metadata"`
		Enqueued int64  `json:"enqueued_ms"`
	}
	if at := strings.Index(out, `{"`); at < 0 {
		t.Errorf("no JSON:\n%s", out)
	} else if err := json.NewDecoder(strings.NewReader(out[at:])).Decode(&data); err != nil || data.V != 1 ||
		data.Owner != "me" || data.TTL != 60_000 || data.Metadata != "job" || time.Since(time.UnixMilli(data.Enqueued)) > time.Hour {
		t.Errorf("%v, data %+v in\n%s", err, data, out)
	}

	// The long poll and the waiter are answered, and nothing else is answered before.
	type polled struct {
		lease api.Lease
		at    time.Time
		err   error
	}
	answers := make(chan polled, 1)
	look, a, err := g.Lease(t.Context(), lease.LeaseID)
	expect(t, a, err, http.StatusOK, "")
	go func() {
		lease, _, err := g.Lease(t.Context(), look.LeaseID, apitest.Query("wait=1m&since="+look.Rev))
		answers <- polled{lease, time.Now(), err}
	}()
	out, err = zkreal.CLI(addr, "delete "+chroot+lease.Znode)
	assert.Must(t, err == nil, "%v\n%s", err, out)
	deleted := time.Now() // zkCli took some time to end after the deletion
	got := <-answers
	assert.That(t, got.err == nil && got.lease.State == api.StateEnded && got.lease.Reason == api.ReasonRemoved,
		"%v, the lease is %+v", got.err, got.lease)
	late := got.at.Sub(deleted)
	assert.That(t, late <= required(time.Second), "heard of it %v after zkCli had ended", late)
	granted := next.granted(patience)
	assert.That(t, granted.FencingToken > lease.FencingToken, "fencing token %d follows %d", granted.FencingToken, lease.FencingToken)
	_, a, err = g.Heartbeat(t.Context(), lease.Token)
	expect(t, a, err, http.StatusGone, "lease_ended")
	assert.That(t, a.Problem.Reason == api.ReasonRemoved, "reason %q", a.Problem.Reason)
}

func TestAForeignContenderThatTheGatewayMayNotReadIsWaitedFor(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	f := newForeign(t, addr, chroot)
	assert.NoError(t, f.AddAuth("digest", []byte("other:program")))
	// The directory is known to the gateway from its first moment, and then gets a child of which ZooKeeper tells it nothing.
	dir := "/lockkeeper/locks/shared"
	assert.Value(f.Create(f.chroot+dir, nil, 0, zk.WorldACL(zk.PermAll)))(t)
	hidden, err := f.Create(f.chroot+dir+"/_c_0123456789abcdef0123456789abcdef-lock-", nil, zk.FlagSequence, zk.AuthACL(zk.PermAll))
	assert.NoError(t, err)
	_, a, err := g.Acquire(t.Context(), "shared", apitest.Query("ttl=30s"))
	expect(t, a, err, http.StatusConflict, "held_by_other")
	waiting := g.acquiring(t.Context(), "shared", "ttl=30s&wait=1m")
	q := g.awaitLock(patience, "shared", 1, 1)
	assert.That(t, len(q.Hazards) == 1 && q.Holders[0].Foreign != nil && strings.HasSuffix(hidden, q.Holders[0].Znode),
		"the queue is shown as %+v", q)
	elapse(t, 1500*time.Millisecond) // the directory is polled meanwhile
	waiting.waits()
	f.remove(strings.TrimPrefix(hidden, chroot))
	waiting.granted(patience)
}

// Go-zookeeper's own lock and the gateway's leases on one lock directory, a hundred times each.
func TestGoZooKeepersLockAndTheGatewayExcludeEachOther(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	const rounds = 100
	var counter, inside atomic.Int64
	// Read, let others run, write: two who are inside at once lose a count.
	critical := func(who string) {
		n := inside.Add(1)
		assert.That(t, n == 1, "%s enters and %d are inside", who, n)
		seen := counter.Load()
		for range 10 {
			runtime.Gosched()
		}
		counter.Store(seen + 1)
		inside.Add(-1)
	}
	f := newForeign(t, addr, chroot)
	lock := zk.NewLock(f.Conn, chroot+"/lockkeeper/locks/both", zk.WorldACL(zk.PermAll))
	var both sync.WaitGroup
	both.Go(func() {
		for i := range rounds {
			if err := lock.Lock(); err != nil {
				t.Errorf("zk.Lock, round %d: %v", i, err)
				return
			}
			critical("go-zookeeper")
			if err := lock.Unlock(); err != nil {
				t.Errorf("zk.Unlock, round %d: %v", i, err)
				return
			}
		}
	})
	both.Go(func() {
		last := int64(0)
		for i := range rounds {
			lease, a, err := g.Acquire(t.Context(), "both", apitest.Query("ttl=1m&wait=1m"))
			if err != nil || a.Status != http.StatusCreated {
				t.Errorf("acquire, round %d: %v %+v", i, err, a)
				return
			}
			critical("the gateway's client")
			assert.That(t, lease.FencingToken > last, "fencing token %d follows %d", lease.FencingToken, last)
			last = lease.FencingToken
			if a, err := g.Release(t.Context(), lease.Token); err != nil || a.Status != http.StatusNoContent {
				t.Errorf("release, round %d: %v %+v", i, err, a)
				return
			}
		}
	})
	both.Wait()
	got := counter.Load()
	assert.That(t, got == 2*rounds, "%d of %d critical sections counted", got, 2*rounds)
}

// Many foreign creates around ours: a predecessor that the gateway has not seen yet must be waited for too.
func TestAPredecessorThatArrivedJustBeforeIsWaitedFor(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	f := newForeign(t, addr, chroot)
	dir := "/lockkeeper/locks/race"
	g.letGo(g.hold("race", "").Token) // the directory exists
	granted := 0
	for i := range 60 {
		created := make(chan string, 1)
		go func() {
			path, err := f.Create(f.chroot+dir+"/x-0123456789-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
			assert.Nil(t, err, "round %d", i)
			created <- path
		}()
		lease, a, err := g.Acquire(t.Context(), "race", apitest.Query("ttl=1m"))
		path := strings.TrimPrefix(<-created, chroot)
		assert.NoError(t, err)
		switch a.Status {
		case http.StatusCreated:
			granted++
			assert.Must(t, numberOf(lease.Znode).before(numberOf(path)), "round %d: %s was granted over %s", i, lease.Znode, path)
			g.letGo(lease.Token)
		case http.StatusConflict:
		default:
			t.Fatalf("round %d: %s", i, a.Body)
		}
		f.remove(path)
		g.awaitLock(patience, "race", 0, 0)
	}
	t.Logf("granted in %d of 60 races", granted)
}

// number is a contender's ten digits; they compare as strings here.
type number string

func numberOf(path string) number         { return number(path[len(path)-10:]) }
func (n number) before(other number) bool { return n < other }

// Attack 25, with the real programs: of two gateways one was started without the namespace, and succeeds the other.
func TestANamespaceThatOneGatewayAddsIsServedAndTakenOverByTheOther(t *testing.T) {
	t.Parallel()
	plain := onShared(t)
	inPython := apitest.Query("ns=python")
	_, a, err := plain.Acquire(t.Context(), "deploy", inPython)
	expect(t, a, err, http.StatusNotFound, "namespace_unknown")

	adds := startGateway(t, plain.zk, "--namespace=python=/app/locks:kazoo")
	l, a, err := adds.Acquire(t.Context(), "deploy", apitest.Query("ns=python&ttl=1m"))
	expect(t, a, err, http.StatusCreated, "")
	assert.That(t, strings.HasPrefix(l.Znode, "/app/locks/deploy/") && strings.Contains(l.Znode, "__lock__"),
		"its contender is %s", l.Znode)
	eventually(t, patience, func() error {
		list, _, err := plain.Namespaces(t.Context())
		want := api.NamespaceInfo{NS: "python", Root: "/app/locks", Dialect: "kazoo", Ready: true, Locks: 1}
		if err == nil && (len(list.Items) != 2 || list.Items[1] != want || !list.Items[0].Swept) {
			err = fmt.Errorf("%+v", list.Items)
		}
		return err
	}, "the running gateway has picked it up")
	_, a, err = plain.Acquire(t.Context(), "deploy", inPython)
	expect(t, a, err, http.StatusConflict, "held_by_other")

	adds.kill()
	eventually(t, patience, func() error {
		b, a, err := plain.Heartbeat(t.Context(), l.Token)
		if err == nil && (a.Status != http.StatusOK || b.State != api.StateHeld) {
			err = fmt.Errorf("%d %s", a.Status, a.Body)
		}
		assert.Must(t, a == nil || a.Status != http.StatusGone, "the lease was lost: %+v", a)
		return err
	}, "the successor runs its clock")

	// One that is started anew finds it in the record, and what contradicts the record is refused.
	for flag, says := range map[string]string{
		"python=/elsewhere:kazoo": "recorded with root /app/locks and dialect kazoo",
		"python=/app/locks:all":   "recorded with root /app/locks and dialect kazoo",
		"more=/app":               "overlap",
	} {
		cmd := exec.Command(binary(t), "--zk="+plain.zk, "--listen="+freeAddr(t), "--namespace="+flag)
		out, err := cmd.CombinedOutput()
		assert.That(t, cmd.ProcessState.ExitCode() == 78 && strings.Contains(string(out), says) && strings.Contains(string(out), "hint: "),
			"%s: %v\n%s", flag, err, out)
	}
	fresh := startGateway(t, plain.zk)
	eventually(t, patience, func() error {
		list, _, err := fresh.Namespaces(t.Context())
		if err == nil && (len(list.Items) != 2 || !list.Items[1].Ready) {
			err = fmt.Errorf("%+v", list.Items)
		}
		return err
	}, "a new gateway knows it")
}
