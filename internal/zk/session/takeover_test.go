package session

import (
	"context"
	"errors"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
)

func takeOver(t *testing.T, s *Session, dead string) zk.Result {
	t.Helper()
	result := make(chan zk.Result, 2)
	s.Takeover(fixture.Context(t), dead, nil, func(r zk.Result) { result <- r })
	return fixture.Await(t, result)
}

func TestAGatewayIsSucceededByExactlyOne(t *testing.T) {
	for _, state := range []string{"gone", "registered", "guard left", "registration left"} {
		t.Run(state, func(t *testing.T) {
			cfg := fixture.Config(t)
			layout := openLayout(t, cfg)
			p := fixture.NewProbe(t, cfg)
			a, b := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
			dead := fixture.GatewayID(3)
			var stalled *Session
			switch state {
			case "registered":
				stalled = openSession(t, cfg, layout, 3)
			case "guard left":
				p.Create(zk.DefaultRoot+"/guards/"+dead, "")
			case "registration left":
				p.Create(zk.DefaultRoot+"/gateways/"+dead, "")
			}
			results := make(chan zk.Result, 2)
			for _, s := range []*Session{a, b} {
				s.Takeover(fixture.Context(t), dead, nil, func(r zk.Result) { results <- r })
			}
			done, lost := 0, 0
			for range 2 {
				switch r := fixture.Await(t, results); {
				case r.Outcome == zk.Done:
					done++
				case r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrNodeExists) && r.Culprit == 0:
					lost++
				default:
					t.Errorf("%+v", r)
				}
			}
			assert.That(t, done == 1 && lost == 1, "%d won and %d lost, want one each", done, lost)
			assert.That(t, p.Stat(zk.DefaultRoot+"/guards/"+dead) == nil && p.Stat(zk.DefaultRoot+"/gateways/"+dead) == nil,
				"its guard or registration is still there")
			data, err := p.Get(zk.DefaultRoot + "/succession/" + dead)
			assert.That(t, err == nil && (data == a.ID() || data == b.ID()), "the succession says %q, %v", data, err)
			if stalled != nil {
				assert.That(t, write(t, stalled, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/zombie"}).Outcome != zk.Done,
					"the deposed gateway still writes")
				fixture.Await(t, stalled.Done())
				assert.That(t, errors.Is(stalled.Err(), zk.ErrDeposed), "its session says %v, want ErrDeposed", stalled.Err())
			}
		})
	}
}

// The versions that were seen are part of the transaction, so one who looked
// at an old state cannot depose a gateway that is alive.
func TestAGatewayThatWritesMeanwhileIsNotTakenOver(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	layout := openLayout(t, direct)
	alive := openSession(t, direct, layout, 1)
	s := openSession(t, through, layout, 2)
	hit := proxy.HoldRequest(1, fixture.About("/succession/"))
	results := make(chan zk.Result, 2)
	s.Takeover(fixture.Context(t), alive.ID(), nil, func(r zk.Result) { results <- r })
	fixture.Await(t, hit.Fired())
	if _, err := alive.Barrier(fixture.Context(t)); err != nil { // its guard moves
		t.Fatal(err)
	}
	proxy.Heal()
	r := fixture.Await(t, results)
	assert.That(t, r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrBadVersion), "%+v, want NotDone(ErrBadVersion)", r)
	_, err := alive.Barrier(fixture.Context(t))
	assert.Nil(t, err, "the living gateway no longer writes")
}

func TestATakeoverIsDecidedAgainWhenTheDeadGatewaysNodesComeOrGoMeanwhile(t *testing.T) {
	for _, comes := range []bool{false, true} {
		direct, through, proxy := fixture.Faulty(t)
		layout := openLayout(t, direct)
		p := fixture.NewProbe(t, direct)
		s := openSession(t, through, layout, 1)
		dead := fixture.GatewayID(2)
		guard := zk.DefaultRoot + "/guards/" + dead
		if !comes {
			p.Create(guard, "")
		}
		hit := proxy.HoldRequest(1, fixture.About("/succession/"))
		results := make(chan zk.Result, 2)
		s.Takeover(fixture.Context(t), dead, nil, func(r zk.Result) { results <- r })
		fixture.Await(t, hit.Fired())
		if comes {
			p.Create(guard, "")
		} else {
			p.Delete(guard)
		}
		proxy.Heal()
		mustBeDone(t, fixture.Await(t, results))
		assert.That(t, p.Stat(guard) == nil, "the guard is there after the takeover")
	}
}

func TestALostTakeoverIsAnsweredWithWhatReallyHappened(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		direct, through, proxy := fixture.Faulty(t)
		layout := openLayout(t, direct)
		p := fixture.NewProbe(t, direct)
		s := openSession(t, through, layout, 1)
		dead := fixture.GatewayID(2)
		if persisted {
			proxy.FailReply(1, fixture.About("/succession/"))
		} else {
			proxy.FailRequest(1, fixture.About("/succession/"))
		}
		r := takeOver(t, s, dead)
		there := p.Stat(zk.DefaultRoot+"/succession/"+dead) != nil
		assert.That(t, there == persisted && (r.Outcome == zk.Done) == persisted, "persisted %v: entry %v, %+v", persisted, there, r)
	}
}

func TestATakeoverEndsWithItsContext(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	s := openSession(t, through, openLayout(t, direct), 1)
	proxy.Stall()
	ctx, cancel := context.WithCancel(context.Background())
	results := make(chan zk.Result, 2)
	s.Takeover(ctx, fixture.GatewayID(2), nil, func(r zk.Result) { results <- r })
	cancel()
	r := fixture.Await(t, results)
	assert.That(t, r.Outcome == zk.NotDone && r.Err != nil && strings.Contains(r.Err.Error(), fixture.GatewayID(2)), "%+v", r)
	proxy.Heal()
}
