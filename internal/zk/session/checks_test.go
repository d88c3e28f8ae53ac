package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// sent are the operations of a batch that are sent, as their indices among all.
func sent(ops []zk.Op) (list []int) {
	var p checkDedup
	for i := range ops {
		if !p.skip(&ops[i]) {
			list = append(list, i)
		}
	}
	return list
}

func TestACheckIsSentAgainWhenSomethingBetweenMayHaveChangedWhatItSees(t *testing.T) {
	check := func(path string, version int32) zk.Op { return zk.Op{Kind: zk.OpCheck, Path: path, Version: version} }
	for name, c := range map[string]struct {
		ops  []zk.Op
		want []int
	}{
		"the same check":             {[]zk.Op{check("/a", 1), {Kind: zk.OpDelete, Path: "/x"}, check("/a", 1), {Kind: zk.OpDelete, Path: "/y"}}, []int{0, 1, 3}},
		"another version":            {[]zk.Op{check("/a", 1), check("/a", 2), check("/a", 2), check("/a", 1)}, []int{0, 1, 3}},
		"another node":               {[]zk.Op{check("/a", 1), check("/b", 1), check("/a", 1), check("/b", 1)}, []int{0, 1}},
		"it is written between them": {[]zk.Op{check("/a", 1), {Kind: zk.OpSetData, Path: "/a"}, check("/a", 1)}, []int{0, 1, 2}},
		"it is deleted between them": {[]zk.Op{check("/a", 0), {Kind: zk.OpDelete, Path: "/a"}, check("/a", 0)}, []int{0, 1, 2}},
		"it is made between them":    {[]zk.Op{check("/a", 0), {Kind: zk.OpDelete, Path: "/a"}, {Kind: zk.OpCreate, Path: "/a"}, check("/a", 0)}, []int{0, 1, 2, 3}},
		"a child is made":            {[]zk.Op{check("/a", 0), {Kind: zk.OpCreate, Path: "/a/b"}, check("/a", 0)}, []int{0, 1}},
		"many nodes": {[]zk.Op{check("/1", 0), check("/2", 0), check("/3", 0), check("/4", 0), check("/5", 0), check("/5", 0), check("/4", 0)},
			[]int{0, 1, 2, 3, 4, 5}},
	} {
		assert.Slices(t, sent(c.ops), c.want, "%s: sent", name)
	}
}

// The ends of leases all check one node. A transaction takes as many of them as it would without.
func TestASharedCheckTakesOnePlaceInATransaction(t *testing.T) {
	var q queue
	for i := range 3 * maxBatchOps {
		q.push(&item{onlyDeletes: true, write: &zk.Write{DeletesLast: true, Ops: []zk.Op{{Kind: zk.OpCheck, Path: "/a", Version: 1}, {Kind: zk.OpDelete, Path: fmt.Sprintf("/q/n-%010d", i)}}}})
	}
	batch := q.take(maxBatchOps, conn.MaxTransaction)
	var ops []zk.Op
	for _, it := range batch {
		ops = append(ops, it.write.Ops...)
	}
	assert.That(t, len(batch) == maxBatchOps-1 && len(sent(ops)) == maxBatchOps,
		"a transaction takes %d ends as %d operations", len(batch), len(sent(ops)))
}

func TestAWriteThatSharesACheckHasResultsAndCulpritsOfItsOwn(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "l")
	const n = 20
	version := p.Stat(zk.DefaultRoot + "/webhooks").Version
	var answers []<-chan zk.Result
	for i := range n {
		node := fmt.Sprintf("%s/n%d", dir, i)
		ops := []zk.Op{{Kind: zk.OpCheck, Path: zk.DefaultRoot + "/webhooks", Version: version}, {Kind: zk.OpCreate, Path: node}, {Kind: zk.OpSetData, Path: node, Version: 0}}
		if i == n/2 {
			ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: dir + "/missing"})
		}
		answers = append(answers, submit(t, s, &zk.Write{Ops: ops}))
	}
	counter := proxy.CountOps()
	proxy.Heal()
	for i, answer := range answers {
		r := fixture.Await(t, answer)
		switch {
		case i == n/2:
			assert.That(t, r.Outcome == zk.NotDone && r.Culprit == 3 && errors.Is(r.Err, zk.ErrNoNode), "the bad one: %+v", r)
		case r.Outcome != zk.Done || r.Paths[1] != fmt.Sprintf("%s/n%d", dir, i) || r.Paths[0] != "" || r.Versions[2] != 1:
			t.Errorf("write %d: %+v", i, r)
		}
	}
	multi := counter.Take()[netfault.OpMulti]
	assert.That(t, multi <= 6, "%d transactions", multi)
}

func TestAnEndThatIsNotedElsewhereStandsWhereADeletionAloneDoes(t *testing.T) {
	dir := zk.DefaultRoot + "/locks/l/"
	end := func(note, node string) *item {
		return &item{onlyDeletes: true, write: &zk.Write{DeletesLast: true, Ops: []zk.Op{{Kind: zk.OpCheck, Path: "/w"}, {Kind: zk.OpCreate, Path: "/outbox/" + note}, {Kind: zk.OpDelete, Path: dir + node}}}}
	}
	head, tail := end("9-0000000009", "a-0000000001"), end("1-0000000001", "b-0000000007")
	plain := &item{onlyDeletes: true, write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: dir + "c-0000000004"}}}}
	create := &item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "d"}}}}
	batch := []*item{head, plain, tail, create}
	deletesLast(batch)
	assert.That(t, slices.Equal(batch, []*item{create, tail, plain, head}), "the order is not from the queue's tail")
	two := &item{onlyDeletes: true, write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: dir + "e-0000000009"}, {Kind: zk.OpDelete, Path: "/other/e-0000000002"}}}}
	batch = []*item{head, two, tail, create}
	deletesLast(batch)
	assert.That(t, slices.Equal(batch, []*item{create, two, tail, head}),
		"with one of several queues: the order is not from the queue's tail")
}

func lookAt(t *testing.T, s *Session, id string) zk.Guard {
	t.Helper()
	g, found := s.Guards(fixture.Context(t), []string{id})[id]
	assert.Must(t, found, "the guard of %s could not be looked at", id)
	return g
}

func depose(t *testing.T, s *Session, id string, polled zk.Guard) zk.Result {
	t.Helper()
	result := make(chan zk.Result, 2)
	s.Takeover(fixture.Context(t), id, &polled, func(r zk.Result) { result <- r })
	return fixture.Await(t, result)
}

func TestEachTransactionOfAGatewayMovesItsGuard(t *testing.T) {
	cfg := fixture.Config(t)
	layout := openLayout(t, cfg)
	one, two := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
	before := lookAt(t, one, two.ID())
	assert.That(t, before.There && lookAt(t, one, two.ID()) == before, "%+v, then another", before)
	if _, err := two.Barrier(fixture.Context(t)); err != nil { // a guard-only write
		t.Fatal(err)
	}
	after := lookAt(t, one, two.ID())
	assert.That(t, after.Version == before.Version+1 && after.Czxid == before.Czxid, "%+v after %+v", after, before)
	assert.Equal(t, lookAt(t, one, fixture.GatewayID(3)), zk.Guard{}, "a gateway that never was has the guard")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found := one.Guards(ctx, []string{two.ID()})
	assert.That(t, len(found) == 0, "without time something was found: %v", found)
}

// A look of long ago, or at a server that is behind, deposes no gateway that has written since.
func TestAGatewayIsDeposedAtTheGuardThatWasPolled(t *testing.T) {
	cfg := fixture.Config(t)
	layout := openLayout(t, cfg)
	s, stalled := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
	p := fixture.NewProbe(t, cfg)
	polled := lookAt(t, s, stalled.ID())
	assert.Value(stalled.Barrier(fixture.Context(t)))(t)
	for _, stale := range []zk.Guard{polled, {}} {
		r := depose(t, s, stalled.ID(), stale)
		want := zk.ErrBadVersion
		if !stale.There {
			want = zk.ErrNodeExists
		}
		assert.That(t, r.Outcome == zk.NotDone && errors.Is(r.Err, want) && r.Culprit != 0, "polled %+v: %+v, want %v", stale, r, want)
	}
	assert.Value(stalled.Barrier(fixture.Context(t)))(t, "the gateway that has written does not write any more")
	mustBeDone(t, depose(t, s, stalled.ID(), lookAt(t, s, stalled.ID())))
	assert.Equal(t, write(t, stalled, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/zombie"}).Outcome, zk.NotDone,
		"the deposed gateway writes")
	fixture.Await(t, stalled.Done())
	assert.That(t, errors.Is(stalled.Err(), zk.ErrDeposed) && !stalled.TrustWindow().Open(stalled.cfg.Clock.Now()),
		"its session says %v, its trust window is open: %v", stalled.Err(), stalled.TrustWindow().Open(stalled.cfg.Clock.Now()))
	data, err := p.Get(zk.DefaultRoot + "/succession/" + stalled.ID())
	assert.That(t, err == nil && data == s.ID(), "the succession says %q, %v", data, err)
}

// A registration without a guard is that of a gateway that cannot write.
func TestAGatewayWithoutAGuardIsDeposedWhileItHasNone(t *testing.T) {
	cfg := fixture.Config(t)
	layout := openLayout(t, cfg)
	s, maimed := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
	p := fixture.NewProbe(t, cfg)
	p.Delete(zk.DefaultRoot + "/guards/" + maimed.ID())
	mustBeDone(t, depose(t, s, maimed.ID(), lookAt(t, s, maimed.ID())))
	assert.That(t, p.Stat(zk.DefaultRoot+"/gateways/"+maimed.ID()) == nil, "its registration is there")
}

// To ZooKeeper version -1 is any version.
func TestNoGatewayIsDeposedAtTheVersionThatMeansAny(t *testing.T) {
	ops, err := endGuard(&zk.Guard{There: true, Version: -1}, "/guards/x")
	assert.That(t, err != nil, "%v", ops)
	ops, err = endGuard(&zk.Guard{There: true, Version: -2}, "/guards/x")
	assert.That(t, err == nil && len(ops) == 1 && ops[0].Version == -2, "%v %v", ops, err)
}

// Nothing answers its writes, so it hears of its deposition by the succession alone.
func TestASessionThatIsAbandonedTrustsNothingAnyMore(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	s := openSession(t, through, openLayout(t, direct), 1)
	proxy.Stall()
	defer proxy.Heal()
	unanswered := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/a"}}})
	s.Abandon()
	assert.That(t, !s.TrustWindow().Open(s.cfg.Clock.Now()), "its trust window is open")
	r := fixture.Await(t, unanswered)
	assert.That(t, r.Outcome != zk.Done, "%+v", r)
	fixture.Await(t, s.Done())
	assert.That(t, errors.Is(s.Err(), zk.ErrDeposed), "its session says %v, want ErrDeposed", s.Err())
}

// What is being closed ends in good order, also when its registration was seen to go.
func TestAbandoningASessionThatClosesSpoilsNothing(t *testing.T) {
	cfg := fixture.Config(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	closed := make(chan error, 1)
	go func() { closed <- s.Close(fixture.Context(t)) }()
	fixture.Eventually(t, "it is closing", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closing
	})
	s.Abandon()
	assert.Nil(t, fixture.Await(t, closed), "closing says")
}

func TestASessionDoesNotRegisterUnderALayoutThatHasChanged(t *testing.T) {
	for _, node := range []string{zk.NodePromiseWindow, zk.NodeFenceBase} {
		cfg := fixture.Config(t)
		layout := openLayout(t, cfg)
		p := fixture.NewProbe(t, cfg)
		data, err := p.Get(zk.DefaultRoot + node)
		assert.NoError(t, err)
		p.Set(zk.DefaultRoot+node, data)
		_, err = Open(fixture.Context(t), cfg, layout, fixture.GatewayID(1), nil)
		assert.That(t, errors.Is(err, zk.ErrBadVersion), "%s changed: %v, want ErrBadVersion", node, err)
		assert.That(t, p.Stat(zk.DefaultRoot+"/gateways/"+fixture.GatewayID(1)) == nil, "it has registered")
		openSession(t, cfg, openLayout(t, cfg), 2)
	}
}

// Registering, lost on the way there and on the way back.
func TestALostRegistrationIsFoundOrRepeated(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		direct, through, proxy := fixture.Faulty(t)
		layout := openLayout(t, direct)
		if persisted {
			proxy.FailReply(1, fixture.About("/gateways/"))
		} else {
			proxy.FailRequest(1, fixture.About("/gateways/"))
		}
		s := openSession(t, through, layout, 1)
		p := fixture.NewProbe(t, direct)
		stat := p.Stat(s.registration)
		assert.That(t, stat != nil && stat.Version == 0 && p.Stat(s.guard) != nil, "persisted %v: registration %+v", persisted, stat)
		mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/x"}))
	}
}

func TestAnIdThatIsTakenIsRefused(t *testing.T) {
	cfg := fixture.Config(t)
	layout := openLayout(t, cfg)
	openSession(t, cfg, layout, 1)
	_, err := Open(fixture.Context(t), cfg, layout, fixture.GatewayID(1), nil)
	assert.That(t, errors.Is(err, zk.ErrNodeExists), "%v, want ErrNodeExists", err)
	for _, id := range []string{"", "short", "UPPERCASE1234", "a/b/c/d/e/f/g"} {
		_, err := Open(fixture.Context(t), cfg, layout, id, nil)
		assert.That(t, err != nil, "id %q was accepted", id)
	}
}

func TestNoOtherClientChangesTheACLOfAnyNodeOfAFleetWithAnIdentity(t *testing.T) {
	cfg := fixture.Config(t)
	other := fixture.NewProbe(t, cfg)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := zk.DefaultRoot + "/locks/deploy"
	paths := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir}, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-", Sequential: true})).Paths
	paths = append(paths, s.registration, s.guard)
	for _, name := range []string{"", zk.NodeVersion, zk.NodeSecret, zk.NodeFenceBase, zk.NodePromiseWindow, zk.NodeNamespaces + "/default", zk.NodeLocks, zk.NodeSettings,
		zk.NodeNamespaces, zk.NodeGateways, zk.NodeGuards, zk.NodeSuccession, zk.NodeKeys, zk.NodeOutbox, zk.NodeWebhooks} {
		paths = append(paths, zk.DefaultRoot+name)
	}
	for _, path := range paths {
		err := other.TrySetACL(path, gozk.DigestACL(gozk.PermAll, "evil", "x"))
		assert.That(t, errors.Is(err, gozk.ErrNoAuth), "setACL on %s by another client: %v, want ErrNoAuth", path, err)
	}
	other.Create(dir+"/foreign-0000000001", "") // queueing needs no setACL
}

// Without an identity another client may do everything but keep others out of the queues.
func TestQueuesOfAFleetWithoutAnIdentityCannotBeClosed(t *testing.T) {
	cfg := fixture.Config(t)
	other := fixture.NewProbe(t, cfg)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := zk.DefaultRoot + "/locks/deploy"
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir}, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-"}))
	for _, path := range []string{zk.DefaultRoot + "/locks", dir, dir + "/write-"} {
		assert.ErrorIs(t, other.TrySetACL(path, gozk.DigestACL(gozk.PermAll, "evil", "x")), gozk.ErrNoAuth,
			"setACL on %s by another client", path)
	}
}
