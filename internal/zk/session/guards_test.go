package session

import (
	"context"
	"errors"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
)

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

// A look of long ago, or at a server that is behind, deposes no gateway that has
// written since.
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

// Nothing answers its writes, so it hears of its deposition by the succession
// alone.
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
