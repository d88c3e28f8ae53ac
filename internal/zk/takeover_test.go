package zk

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func takeOver(t *testing.T, s *Session, dead string) Result {
	t.Helper()
	result := make(chan Result, 2)
	s.Takeover(testContext(t), dead, nil, func(r Result) { result <- r })
	return await(t, result)
}

func TestAGatewayIsSucceededByExactlyOne(t *testing.T) {
	for _, state := range []string{"gone", "registered", "guard left", "registration left"} {
		t.Run(state, func(t *testing.T) {
			cfg := testConfig(t)
			layout := openLayout(t, cfg)
			p := newProbe(t, cfg)
			a, b := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
			dead := gatewayID(3)
			var deaf *Session
			switch state {
			case "registered":
				deaf = openSession(t, cfg, layout, 3)
			case "guard left":
				p.create(DefaultRoot+"/guards/"+dead, "")
			case "registration left":
				p.create(DefaultRoot+"/gateways/"+dead, "")
			}
			results := make(chan Result, 2)
			for _, s := range []*Session{a, b} {
				s.Takeover(testContext(t), dead, nil, func(r Result) { results <- r })
			}
			done, lost := 0, 0
			for range 2 {
				switch r := await(t, results); {
				case r.Outcome == Done:
					done++
				case r.Outcome == NotDone && errors.Is(r.Err, ErrNodeExists) && r.Culprit == 0:
					lost++
				default:
					t.Errorf("%+v", r)
				}
			}
			if done != 1 || lost != 1 {
				t.Errorf("%d won and %d lost, want one each", done, lost)
			}
			if p.stat(DefaultRoot+"/guards/"+dead) != nil || p.stat(DefaultRoot+"/gateways/"+dead) != nil {
				t.Error("its guard or registration is still there")
			}
			data, err := p.get(DefaultRoot + "/succession/" + dead)
			if err != nil || data != a.ID() && data != b.ID() {
				t.Errorf("the succession says %q, %v", data, err)
			}
			if deaf != nil {
				if r := write(t, deaf, Op{Kind: OpCreate, Path: DefaultRoot + "/locks/zombie"}); r.Outcome == Done {
					t.Error("the deposed gateway still writes")
				}
				await(t, deaf.Done())
				if !errors.Is(deaf.Err(), ErrDeposed) {
					t.Errorf("its session says %v, want ErrDeposed", deaf.Err())
				}
			}
		})
	}
}

// The versions that were seen are part of the transaction, so one who looked
// at an old state cannot depose a gateway that is alive.
func TestAGatewayThatWritesMeanwhileIsNotTakenOver(t *testing.T) {
	direct, through, proxy := faulty(t)
	layout := openLayout(t, direct)
	alive := openSession(t, direct, layout, 1)
	s := openSession(t, through, layout, 2)
	hit := proxy.HoldRequest(1, about("/succession/"))
	results := make(chan Result, 2)
	s.Takeover(testContext(t), alive.ID(), nil, func(r Result) { results <- r })
	await(t, hit.Fired())
	if _, err := alive.Barrier(testContext(t)); err != nil { // its guard moves
		t.Fatal(err)
	}
	proxy.Heal()
	if r := await(t, results); r.Outcome != NotDone || !errors.Is(r.Err, ErrBadVersion) {
		t.Errorf("%+v, want NotDone(ErrBadVersion)", r)
	}
	if _, err := alive.Barrier(testContext(t)); err != nil {
		t.Errorf("the living gateway no longer writes: %v", err)
	}
}

func TestATakeoverIsDecidedAgainWhenTheDeadGatewaysNodesComeOrGoMeanwhile(t *testing.T) {
	for _, comes := range []bool{false, true} {
		direct, through, proxy := faulty(t)
		layout := openLayout(t, direct)
		p := newProbe(t, direct)
		s := openSession(t, through, layout, 1)
		dead := gatewayID(2)
		guard := DefaultRoot + "/guards/" + dead
		if !comes {
			p.create(guard, "")
		}
		hit := proxy.HoldRequest(1, about("/succession/"))
		results := make(chan Result, 2)
		s.Takeover(testContext(t), dead, nil, func(r Result) { results <- r })
		await(t, hit.Fired())
		if comes {
			p.create(guard, "")
		} else {
			p.delete(guard)
		}
		proxy.Heal()
		mustBeDone(t, await(t, results))
		if p.stat(guard) != nil {
			t.Error("the guard is there after the takeover")
		}
	}
}

func TestALostTakeoverIsAnsweredWithWhatReallyHappened(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		direct, through, proxy := faulty(t)
		layout := openLayout(t, direct)
		p := newProbe(t, direct)
		s := openSession(t, through, layout, 1)
		dead := gatewayID(2)
		if persisted {
			proxy.FailReply(1, about("/succession/"))
		} else {
			proxy.FailRequest(1, about("/succession/"))
		}
		r := takeOver(t, s, dead)
		there := p.stat(DefaultRoot+"/succession/"+dead) != nil
		if there != persisted || (r.Outcome == Done) != persisted {
			t.Errorf("persisted %v: entry %v, %+v", persisted, there, r)
		}
	}
}

func TestATakeoverEndsWithItsContext(t *testing.T) {
	direct, through, proxy := faulty(t)
	s := openSession(t, through, openLayout(t, direct), 1)
	proxy.Stall()
	ctx, cancel := context.WithCancel(context.Background())
	results := make(chan Result, 2)
	s.Takeover(ctx, gatewayID(2), nil, func(r Result) { results <- r })
	cancel()
	if r := await(t, results); r.Outcome != NotDone || r.Err == nil || !strings.Contains(r.Err.Error(), gatewayID(2)) {
		t.Errorf("%+v", r)
	}
	proxy.Heal()
}
