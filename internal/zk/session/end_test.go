package session

import (
	"context"
	"encoding/binary"
	"errors"
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
	direct, through, proxy := fixture.Faulty(t)
	layout := openLayout(t, direct)
	p := fixture.NewProbe(t, direct)
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
