package zk

import (
	"context"
	"errors"
	"testing"
)

func lookAt(t *testing.T, s *Session, id string) Guard {
	t.Helper()
	g, found := s.Guards(testContext(t), []string{id})[id]
	if !found {
		t.Fatalf("the guard of %s could not be looked at", id)
	}
	return g
}

func depose(t *testing.T, s *Session, id string, polled Guard) Result {
	t.Helper()
	result := make(chan Result, 2)
	s.Takeover(testContext(t), id, &polled, func(r Result) { result <- r })
	return await(t, result)
}

func TestEachTransactionOfAGatewayMovesItsGuard(t *testing.T) {
	cfg := testConfig(t)
	layout := openLayout(t, cfg)
	one, two := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
	before := lookAt(t, one, two.ID())
	if !before.There || lookAt(t, one, two.ID()) != before {
		t.Errorf("%+v, then another", before)
	}
	if _, err := two.Barrier(testContext(t)); err != nil { // a bare guard write
		t.Fatal(err)
	}
	after := lookAt(t, one, two.ID())
	if after.Version != before.Version+1 || after.Czxid != before.Czxid {
		t.Errorf("%+v after %+v", after, before)
	}
	if g := lookAt(t, one, gatewayID(3)); g != (Guard{}) {
		t.Errorf("a gateway that never was has the guard %+v", g)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found := one.Guards(ctx, []string{two.ID()}); len(found) != 0 {
		t.Errorf("without time something was found: %v", found)
	}
}

// Whoever looked long ago, or at a server that is behind, deposes nobody who has
// written since.
func TestAGatewayIsDeposedAtTheGuardThatWasPolled(t *testing.T) {
	cfg := testConfig(t)
	layout := openLayout(t, cfg)
	s, deaf := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
	p := newProbe(t, cfg)
	polled := lookAt(t, s, deaf.ID())
	if _, err := deaf.Barrier(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for _, stale := range []Guard{polled, {}} {
		r := depose(t, s, deaf.ID(), stale)
		want := ErrBadVersion
		if !stale.There {
			want = ErrNodeExists
		}
		if r.Outcome != NotDone || !errors.Is(r.Err, want) || r.Culprit == 0 {
			t.Errorf("polled %+v: %+v, want %v", stale, r, want)
		}
	}
	if _, err := deaf.Barrier(testContext(t)); err != nil {
		t.Fatalf("the gateway that has written does not write any more: %v", err)
	}
	mustBeDone(t, depose(t, s, deaf.ID(), lookAt(t, s, deaf.ID())))
	if r := write(t, deaf, Op{Kind: OpCreate, Path: DefaultRoot + "/locks/zombie"}); r.Outcome != NotDone {
		t.Errorf("the deposed gateway writes: %+v", r)
	}
	await(t, deaf.Done())
	if !errors.Is(deaf.Err(), ErrDeposed) || deaf.Fence().Open(deaf.cfg.Clock.Now()) {
		t.Errorf("its session says %v, its fence is open: %v", deaf.Err(), deaf.Fence().Open(deaf.cfg.Clock.Now()))
	}
	if data, err := p.get(DefaultRoot + "/succession/" + deaf.ID()); err != nil || data != s.ID() {
		t.Errorf("the succession says %q, %v", data, err)
	}
}

// A registration without a guard is that of a gateway that cannot write.
func TestAGatewayWithoutAGuardIsDeposedWhileItHasNone(t *testing.T) {
	cfg := testConfig(t)
	layout := openLayout(t, cfg)
	s, maimed := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
	p := newProbe(t, cfg)
	p.delete(DefaultRoot + "/guards/" + maimed.ID())
	mustBeDone(t, depose(t, s, maimed.ID(), lookAt(t, s, maimed.ID())))
	if p.stat(DefaultRoot+"/gateways/"+maimed.ID()) != nil {
		t.Error("its registration is there")
	}
}

// To ZooKeeper version -1 is any version.
func TestNobodyIsDeposedAtTheVersionThatMeansAny(t *testing.T) {
	if ops, err := endGuard(&Guard{There: true, Version: -1}, "/guards/x"); err == nil {
		t.Errorf("%v", ops)
	}
	if ops, err := endGuard(&Guard{There: true, Version: -2}, "/guards/x"); err != nil || len(ops) != 1 || ops[0].Version != -2 {
		t.Errorf("%v %v", ops, err)
	}
}

// Nothing answers its writes, so it hears of its deposition by the succession
// alone.
func TestASessionThatIsAbandonedTrustsNothingAnyMore(t *testing.T) {
	direct, through, proxy := faulty(t)
	s := openSession(t, through, openLayout(t, direct), 1)
	proxy.Stall()
	defer proxy.Heal()
	unanswered := submit(t, s, &Write{Ops: []Op{{Kind: OpCreate, Path: DefaultRoot + "/locks/a"}}})
	s.Abandon()
	if s.Fence().Open(s.cfg.Clock.Now()) {
		t.Error("its fence is open")
	}
	if r := await(t, unanswered); r.Outcome == Done {
		t.Errorf("%+v", r)
	}
	await(t, s.Done())
	if !errors.Is(s.Err(), ErrDeposed) {
		t.Errorf("its session says %v, want ErrDeposed", s.Err())
	}
}

// What is being closed ends in good order, whoever has seen its registration go.
func TestAbandoningASessionThatClosesSpoilsNothing(t *testing.T) {
	cfg := testConfig(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	closed := make(chan error, 1)
	go func() { closed <- s.Close(testContext(t)) }()
	eventually(t, "it is closing", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closing
	})
	s.Abandon()
	if err := await(t, closed); err != nil {
		t.Errorf("closing says %v", err)
	}
}
