package manager

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// A transition that the tables of package lifecycle do not have, and a state that its phases do not allow, are found by CheckAll,
// with the lease's id.
func TestCheckAllReturnsForbiddenStates(t *testing.T) {
	for name, spoil := range map[string]func(*leaseTable, *lease){
		"a grant that was acknowledged and is unclaimed": func(leases *leaseTable, l *lease) {
			l.SetGrant(leases, lifecycle.GrantAcknowledged)
			l.SetGrant(leases, lifecycle.GrantUnclaimed)
		},
		"a deletion of a lease that does not end": func(leases *leaseTable, l *lease) { l.SetChange(leases, lifecycle.ChangeDeleting) },
	} {
		m := anyone{New(Options{Logger: slog.New(slog.DiscardHandler)})}
		l := &lease{heapIndex: -1, taker: m.leases.takers.one("", nil), State: lifecycle.New(lifecycle.Creating, lifecycle.RecordCurrent)}
		l.q, l.contender = &queues.Queue{}, &recipe.Contender{LeaseID: "7"}
		m.leases.byID.Put(l)
		m.leases.counts.enter(l)
		assert.That(t, m.CheckAll() == nil, "%s: before: %v", name, m.CheckAll())
		spoil(m.leases, l)
		err := m.CheckAll()
		assert.That(t, err != nil && strings.Contains(err.Error(), "lease 7"), "%s: %v", name, err)
	}
}

// A function that releases what its caller holds breaks what the caller has read; the monitor alone does so, visibly.
func TestOnlyTheMonitorLocks(t *testing.T) {
	files := assert.Value(filepath.Glob("*.go"))(t)
	for _, file := range files {
		if file == "monitor.go" || file == "manager.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := assert.Value(os.ReadFile(file))(t)
		for _, call := range []string{"m.mu.", "m.unlock()"} {
			assert.That(t, !strings.Contains(string(text), call), "%s says %s: run it with do, locked or outside", file, call)
		}
	}
}

func TestEffectsFollowTheUnlockInTheirOrder(t *testing.T) {
	var (
		m     monitor
		order []string
	)
	woken := make(chan struct{})
	note := func(what string) func() {
		return func() {
			if !m.mu.TryLock() {
				t.Errorf("%s runs under the lock", what)
				return
			}
			m.mu.Unlock()
			select {
			case <-woken:
			default:
				t.Errorf("%s runs before the waiters are woken", what)
			}
			order = append(order, what)
		}
	}
	m.do(func() {
		m.effect(note("first"))
		m.effect(note("second"))
		m.wake(woken)
		m.outside(func() { order = append(order, "outside") })
		m.effect(note("third"))
		order = append(order, "inside")
	})
	assert.Equal(t, strings.Join(order, " "), "first second outside inside third")
}

func TestLeasesAreCountedByStateAndMode(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		counts := func(step string, want map[locks.LeaseKind]int) {
			t.Helper()
			for kind, n := range g.m.Info(t.Context()).Kinds {
				assert.That(t, n == want[kind], "%s: %d are %v, want %d", step, n, kind, want[kind])
				delete(want, kind)
			}
			assert.That(t, len(want) <= 0, "%s: %v is not counted", step, want)
			checkAll(t, s, g)
		}
		counts("at first", map[locks.LeaseKind]int{})
		writer := g.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Hour})
		reader := g.begin(locks.AcquireRequest{Lock: "a", Mode: locks.Shared, TTL: time.Hour, Wait: locks.WaitForever})
		group := g.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "b", Mode: locks.Shared}, {Lock: "c"}}, TTL: time.Hour})
		alone := g.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "d", Mode: locks.Shared}}, TTL: time.Hour})
		counts("taken", map[locks.LeaseKind]int{{State: locks.Held, Mode: locks.Exclusive}: 1, {State: locks.Waiting, Mode: locks.Shared}: 1, {State: locks.Held, Mode: locks.Several}: 1, {State: locks.Held, Mode: locks.Shared}: 1})
		assert.Value(g.downgrade(writer))(t)
		<-reader.done
		counts("downgraded", map[locks.LeaseKind]int{{State: locks.Held, Mode: locks.Shared}: 3, {State: locks.Held, Mode: locks.Several}: 1})
		g.mustRelease(group)
		g.mustRelease(alone)
		g.mustRelease(writer)
		counts("released", map[locks.LeaseKind]int{{State: locks.Held, Mode: locks.Shared}: 1})
	})
}

func TestEqualOwnersAreInMemoryOnceAndTheCallersMemoryIsNotKept(t *testing.T) {
	var n takers
	request := "owner=worker-17&ttl=30s"
	given := request[len("owner="):strings.IndexByte(request, '&')]
	first := n.name(given)
	assert.That(t, first == "worker-17" && unsafe.StringData(first) != unsafe.StringData(given),
		"%q, in the request's memory: %v", first, unsafe.StringData(first) == unsafe.StringData(given))
	assert.That(t, unsafe.StringData(n.name(strings.Clone("worker-17"))) == unsafe.StringData(first), "an equal name is in memory twice")
	for i := range 10 * len(n) { // more than there are places
		name := fmt.Sprint("worker-", i)
		assert.Must(t, n.name(name) == name, "%q has become %q", name, n.name(name))
	}
	assert.Equal(t, n.name(""), "", "no name has become")
	shared := n.one("worker", nil)
	account := quota.NewAccounts(quota.PrincipalLimits{}).Of("token:ci")
	assert.That(t, n.one("worker", nil) == shared, "equal takers are in memory twice")
	mine := n.one("worker", account)
	assert.That(t, mine.owner == "worker" && mine.account == account && shared.account == nil, "%+v, %+v", mine, shared)
	const owners = 100
	kept := 0
	for i := range owners { // a few may want one place
		owner := fmt.Sprint("of-ci-", i)
		alone, charged := n.one(owner, nil), n.one(owner, account)
		if n.one(owner, nil) == alone && n.one(owner, account) == charged {
			kept++
		}
	}
	assert.That(t, kept > owners/2, "of %d owners %d are shared by leases that are charged and those that are not yet", owners, kept)
}

func TestEveryReasonFitsIntoItsByte(t *testing.T) {
	for _, reason := range []locks.Reason{"", locks.ReasonReleased, locks.ReasonCancelled, locks.ReasonExpired, locks.ReasonUnclaimed, locks.ReasonRemoved, locks.ReasonWaitElapsed, locks.ReasonUnknown} {
		assert.Equal(t, (&lease{why: postmortem.CauseOf(reason)}).reason(), reason, "%q has become", reason)
	}
}
