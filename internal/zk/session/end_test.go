package session

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
)

// A session that expires while writes are under way and while others wait.
func TestAnExpiredSessionAnswersEveryWriteAndExecutesNoneLater(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	through.SessionTimeout = time.Second
	layout := openLayout(t, direct)
	p := fixture.NewProbe(t, direct)
	dir := fixture.LocksDir(t, p, "l")
	s := openSession(t, through, layout, 1)

	proxy.Stall()
	var results []<-chan zk.Result
	for range 1000 {
		results = append(results, submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/write-", Sequential: true}}}))
	}
	barrier := make(chan error, 1)
	go func() {
		_, err := s.Barrier(context.Background())
		barrier <- err
	}()
	fixture.Eventually(t, "the server expires the session", func() bool { return p.Stat(s.guard) == nil })
	proxy.Reset() // what was held is gone with its connections
	proxy.Heal()
	fixture.Await(t, s.Done())
	assert.That(t, errors.Is(s.Err(), zk.ErrSessionGone), "Err is %v, want ErrSessionGone", s.Err())
	unknown, notDone := 0, 0
	for _, result := range results {
		select {
		case r := <-result:
			switch r.Outcome {
			case zk.Unknown:
				unknown++
			case zk.NotDone:
				notDone++
				assert.That(t, errors.Is(r.Err, zk.ErrSessionGone), "never sent, but answered %v", r.Err)
			default:
				t.Errorf("%+v", r)
			}
		default:
			t.Fatal("Done is closed and a write has no answer")
		}
	}
	assert.That(t, unknown != 0 && notDone != 0, "%d unknown, %d not done: want some of both", unknown, notDone)
	assert.ErrorIs(t, fixture.Await(t, barrier), zk.ErrSessionGone, "Barrier says")
	assert.That(t, !s.TrustWindow().Open(zk.SystemClock{}.Now()) && s.State() == "gone" && !s.Connected(),
		"trust window open or state %q", s.State())
	// A new session of the same process has a queue of its own.
	s2 := openSession(t, through, layout, 2)
	assert.Value(s2.Barrier(fixture.Context(t)))(t)
	fixture.Await(t, s.released)
	got := p.Children(dir)
	assert.That(t, len(got) == 0, "%d writes of the expired session were executed", len(got))
}

func TestCloseDeletesGuardAndRegistrationInOneTransaction(t *testing.T) {
	through, proxy, layout, p := faulty(t)
	dir := fixture.LocksDir(t, p, "l")
	s := openSession(t, through, layout, 1)
	last := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/last"}}})
	farewells, others := 0, 0
	done := make(chan struct{})
	proxy.Observe(func(f netfault.Frame) netfault.Action {
		switch {
		case f.Dir != netfault.Requests:
		case f.Op() == netfault.OpClose:
			close(done)
		case f.Op() == netfault.OpMulti && binary.BigEndian.Uint32(f.Raw[12:]) == uint32(netfault.OpDelete):
			farewells++
		case farewells > 0 && f.Op() != netfault.OpPing:
			others++
		}
		return netfault.Forward
	})
	assert.NoError(t, s.Close(fixture.Context(t)), "Close")
	mustBeDone(t, fixture.Await(t, last))
	assert.That(t, p.Stat(s.guard) == nil && p.Stat(s.registration) == nil, "guard or registration is still there after Close")
	fixture.Await(t, done)
	assert.That(t, farewells == 1 && others == 0, "%d last transactions and %d requests after them, want one and none", farewells, others)
	assert.Nil(t, s.Close(fixture.Context(t)), "a second Close")
	assert.That(t, errors.Is(s.Err(), zk.ErrSessionGone), "Err is %v, want ErrSessionGone", s.Err())
}

func TestCloseReturnsWithItsContextWhenTheServerHangs(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(*netfault.Proxy)
	}{
		{"silent", (*netfault.Proxy).Stall},
		{"refusing", (*netfault.Proxy).Cut},
		{"swallowing", (*netfault.Proxy).DropRequests},
	} {
		t.Run(c.name, func(t *testing.T) {
			direct, through, proxy := fixture.Faulty(t)
			s := openSession(t, through, openLayout(t, direct), 1)
			c.harm(proxy)
			result := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/x"}}})
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			began := time.Now()
			assert.That(t, s.Close(ctx) != nil, "Close says that all is well")
			took := time.Since(began)
			assert.That(t, took <= 15*time.Second, "Close took %v", took)
			r := fixture.Await(t, result)
			assert.That(t, r.Outcome == zk.Unknown || r.Outcome == zk.NotDone, "%+v", r)
			fixture.Await(t, s.Done())
			fixture.Await(t, s.released)
		})
	}
}

func TestASessionOutlivesARestartOfTheServer(t *testing.T) {
	server := zkreal.StartT(t, zkreal.WithoutFsync())
	cfg := zk.Config{Servers: []string{server.Addr()}, CreateRoot: true}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := zk.DefaultRoot + "/locks/l"
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir}))
	server.Stop()
	fixture.Eventually(t, "the loss is noticed", func() bool { return !s.Connected() })
	during := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/during"}}})
	server.RestartT(t)
	mustBeDone(t, fixture.Await(t, during))
	zxid, err := s.Barrier(fixture.Context(t))
	assert.That(t, err == nil && zxid != 0, "Barrier: %#x, %v", zxid, err)
	assert.That(t, s.State() == "connected" && s.TrustWindow().Open(zk.SystemClock{}.Now()), "state %q", s.State())
}

func TestReadsEndWithTheirContextAndWithTheConnection(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	s := openSession(t, through, openLayout(t, direct), 1)
	proxy.Stall()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, _, err := s.Get(ctx, zk.DefaultRoot)
	assert.That(t, errors.Is(err, context.DeadlineExceeded), "Get of a silent server: %v, want the deadline", err)
	proxy.Cut()
	fixture.Eventually(t, "the loss is noticed", func() bool { return !s.Connected() })
	_, _, err = s.Children(fixture.Context(t), zk.DefaultRoot)
	assert.That(t, errors.Is(err, zk.ErrUnavailable), "Children without a connection: %v, want ErrUnavailable", err)
	assert.That(t, s.State() == "suspended", "state %q, want suspended", s.State())
	proxy.Heal()
	fixture.Eventually(t, "the connection is back", s.Connected)
	_, err = s.Exists(fixture.Context(t), zk.DefaultRoot)
	assert.Nil(t, err, "Exists")
	_, _, err = s.Get(fixture.Context(t), zk.DefaultRoot+"/nothing")
	assert.That(t, errors.Is(err, zk.ErrNoNode), "Get of nothing: %v, want ErrNoNode", err)
	stat, err := s.Exists(fixture.Context(t), zk.DefaultRoot+"/nothing")
	assert.That(t, err == nil && stat == nil, "Exists of nothing: %v, %v", stat, err)
}

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
		through, proxy, layout, p := faulty(t)
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
		through, proxy, layout, p := faulty(t)
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
