package session

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

func TestTheTrustWindowClosesByEitherClock(t *testing.T) {
	const window = 10 * time.Second
	for _, c := range []struct {
		name       string
		boot, wall time.Duration
		open       bool
	}{
		{"both clocks inside", 9 * time.Second, 9 * time.Second, true},
		{"both at the end", window, window, false},
		{"suspended: boot time has passed, the wall clock was set back", window, 0, false},
		{"restored: boot time stands still", 0, window, false},
		{"the wall clock was set back an hour", 9 * time.Second, -time.Hour, true},
		{"the wall clock was set forward", time.Second, time.Hour, false},
	} {
		f := newTrustWindow(window)
		start := zk.At(time.Hour, 1e6*time.Hour)
		f.committed(1, start, 7)
		now := zk.At(start.Boot()+c.boot, start.Wall()+c.wall)
		if got := f.Open(now); got != c.open {
			t.Errorf("%s: open is %v, want %v (margin %v)", c.name, got, c.open, f.Margin(now))
		}
	}
}

func TestTheTrustWindowIsClosedBeforeAnythingHasCommitted(t *testing.T) {
	f := newTrustWindow(time.Hour)
	if now := zk.At(time.Second, time.Second); f.Open(now) || !f.TrustedUntil().IsZero() {
		t.Errorf("margin %v, trusted until %v", f.Margin(now), f.TrustedUntil())
	}
}

func TestAnOlderTransactionNeverMovesTheTrustWindowBack(t *testing.T) {
	f := newTrustWindow(10 * time.Second)
	newer, older := zk.At(20*time.Second, 20*time.Second), zk.At(15*time.Second, 15*time.Second)
	f.committed(2, newer, 2)
	f.committed(1, older, 1)
	got, want := f.TrustedUntil(), newer.Add(10*time.Second)
	assert.Equal(t, got, want, "trusted until")
}

func TestATrustWindowThatWasClosedForGoodIsNotOpenedByACommit(t *testing.T) {
	f := newTrustWindow(10 * time.Second)
	now := zk.At(time.Hour, time.Hour)
	f.committed(1, now, 1)
	f.Close()
	f.committed(2, now, 2)
	assert.That(t, !f.Open(now), "it is open")
}

func TestOnCommitTellsTheLastCommitAndEveryLaterOne(t *testing.T) {
	f := newTrustWindow(time.Second)
	f.committed(1, zk.At(1, 1), 11)
	var got []int64
	f.OnCommit(func(_ zk.Instant, zxid int64) { got = append(got, zxid) })
	f.committed(2, zk.At(2, 2), 12)
	assert.That(t, len(got) == 2 && got[0] == 11 && got[1] == 12, "told of %v, want 11 and 12", got)
}

func TestASessionsTrustWindowRunsOnTheInjectedClock(t *testing.T) {
	cfg := fixture.Config(t)
	clock := fixture.NewManualClock(zk.At(time.Hour, 1e6*time.Hour))
	cfg.Clock = clock
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	assert.Must(t, s.TrustWindow().Open(clock.Now()), "it is closed right after the session was opened")
	clock.Advance(0, zk.DefaultPromiseWindow) // the machine slept: only the wall clock shows it
	assert.That(t, !s.TrustWindow().Open(clock.Now()), "it is open after a window of wall time")
	assert.Value(s.Barrier(fixture.Context(t)))(t)
	assert.Equal(t, s.TrustWindow().Margin(clock.Now()), zk.DefaultPromiseWindow, "after a commit its margin")
}

func TestNeitherReadsNorRefusalsMoveTheTrustWindow(t *testing.T) {
	cfg := fixture.Config(t)
	clock := fixture.NewManualClock(zk.At(time.Hour, 1e6*time.Hour))
	cfg.Clock = clock
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	clock.Advance(4*time.Second, 4*time.Second) // of ten; a third of the real ones is far away
	assert.MustEqual(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot}).Outcome, zk.NotDone)
	assert.Value(s.Exists(fixture.Context(t), zk.DefaultRoot))(t)
	got, want := s.TrustWindow().Margin(clock.Now()), 6*time.Second
	assert.Equal(t, got, want, "margin")
	assert.Equal(t, s.LastAnswer(), clock.Now(), "the last answer was at")
}

func TestTheWindowStartsWhenATransactionIsSentAndNotWhenItIsAnswered(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	clock := fixture.NewManualClock(zk.At(time.Hour, 1e6*time.Hour))
	through.Clock = clock
	s := openSession(t, through, openLayout(t, direct), 1)
	hit := proxy.HoldReply(1, fixture.About("/locks/x"))
	sent := clock.Now()
	result := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/x"}}})
	fixture.Await(t, hit.Fired())
	clock.Advance(3*time.Second, 3*time.Second)
	proxy.Heal()
	r := mustBeDone(t, fixture.Await(t, result))
	assert.That(t, r.SentAt == sent, "sent at %v, want %v", r.SentAt, sent)
	got, want := s.TrustWindow().Margin(clock.Now()), 7*time.Second
	assert.Equal(t, got, want, "margin")
}

// An idle gateway's trust window stays open through guard-only writes, and a gateway
// with nothing but refused transactions keeps it open the same way.
func TestTheTrustWindowStaysOpenWhetherIdleOrRefused(t *testing.T) {
	const window = time.Second
	for _, busy := range []bool{false, true} {
		t.Run(map[bool]string{false: "idle", true: "refused"}[busy], func(t *testing.T) {
			direct, through, proxy := fixture.Faulty(t)
			through.PromiseWindow = window
			s := openSession(t, through, openLayout(t, through), 1)
			dir := fixture.LocksDir(t, fixture.NewProbe(t, direct), "l")
			// The machine's own delay: how long a request was under way, and how late the test looked.
			var mu sync.Mutex
			var delay time.Duration
			late := func(since time.Time) {
				mu.Lock()
				defer mu.Unlock()
				delay = max(delay, time.Since(since))
			}
			var underWay sync.Map
			proxy.Observe(func(f netfault.Frame) netfault.Action {
				if f.Dir == netfault.Requests {
					underWay.Store(f.Xid(), time.Now())
				} else if sent, ok := underWay.Load(f.Xid()); ok {
					late(sent.(time.Time))
				}
				return netfault.Forward
			})
			stop := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for busy {
					// Nothing but refusals, one after the other.
					var ra, rb zk.Result
					var both sync.WaitGroup
					both.Go(func() { ra = attempt(s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir}}}) })
					both.Go(func() {
						rb = attempt(s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCheck, Path: dir, Version: 9}, {Kind: zk.OpDelete, Path: dir}}})
					})
					both.Wait()
					if ra.Outcome != zk.NotDone || rb.Outcome != zk.Conflict {
						t.Errorf("outcomes %v and %v", ra, rb)
						return
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			lowest, looked := window, time.Now()
			for over := time.After(3 * window); over != nil; {
				select {
				case <-tick.C:
					late(looked)
					looked = time.Now()
					lowest = min(lowest, s.TrustWindow().Margin(zk.SystemClock{}.Now()))
				case <-over:
					over = nil
				}
			}
			close(stop)
			fixture.Await(t, ended)
			mu.Lock()
			defer mu.Unlock()
			if lowest+3*delay <= 0 { // to send, to answer, to hear
				t.Errorf("the trust window was closed: its lowest margin was %v of %v, on a machine that is late by %v", lowest, window, delay)
			}
		})
	}
}

// A follower that is cut off from its peers goes on answering pings and reads while the leader expires its sessions.
func TestAnsweredPingsDoNotKeepTheTrustWindowOpen(t *testing.T) {
	const window = 2 * time.Second
	// The follower must not notice for longer than the window lasts.
	ensemble := zkreal.StartEnsembleT(t, 3, zkreal.WithoutFsync(), zkreal.WithSyncLimit(20))
	follower := ensemble.Followers()[0]
	cfg := zk.Config{Servers: []string{ensemble.Addr(follower)}, CreateRoot: true, PromiseWindow: window, SessionTimeout: time.Second}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	idle := cfg
	idle.SessionTimeout = 30 * time.Second
	bystander := fixture.NewProbe(t, idle)
	assert.Value(s.Barrier(fixture.Context(t)))(t)
	ensemble.CutPeers(follower)
	cut := zk.SystemClock{}.Now()   // what commits was sent before
	pings := make(chan struct{}, 1) // answered on the session's own connection
	ensemble.Client(follower).Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Replies && f.Index > 0 && f.Xid() == -2 {
			select {
			case pings <- struct{}{}:
			default:
			}
		}
		return netfault.Forward
	})
	open := func() bool { return s.TrustWindow().Open(zk.SystemClock{}.Now()) }
	fixture.Eventually(t, "the trust window closes", func() bool { return !open() })
	fixture.Await(t, pings)
	assert.That(t, bystander.Stat(zk.DefaultRoot) != nil, "the follower has lost its data")
	assert.That(t, !open(), "pings and reads have opened the trust window")
	if until, most := s.TrustWindow().TrustedUntil(), cut.Add(window); until.Boot() > most.Boot() {
		t.Errorf("the trust window was open until %v, want %v at most: %v after the cut", until, most, window)
	}
	ensemble.HealPeers(follower)
}

// Otherwise every gateway would look a thousand times a second for as long as ZooKeeper is away.
func TestAnOverdueGuardWriteThatCannotBeSentIsNotLookedForAllTheTime(t *testing.T) {
	cfg := fixture.Config(t)
	layout := openLayout(t, cfg)
	living, ended := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
	closeSession(t, ended)
	for name, change := range map[string]func(w *writer){
		"no connection": func(w *writer) { w.conn = ended.conn },
		"under way":     func(w *writer) { w.guarding = true },
		"bumping":       func(w *writer) { w.mode = bumping },
		"closing":       func(w *writer) { w.closing = true },
	} {
		w := newWriter(facts{cfg: &cfg, window: 9 * time.Second, conn: living.conn})
		w.lastCommit = time.Now().Add(-time.Minute)
		assert.MustEqual(t, w.nextLook(time.Now()), time.Millisecond, "the next look at what is overdue is in")
		if change(w); w.nextLook(time.Now()) != w.window/3 {
			t.Errorf("%s: the next look is in %v", name, w.nextLook(time.Now()))
		}
	}
}

// Every row of the policy about writes is met for real, as package conn's own test does for the others.
func TestEveryRowOfThePolicyAboutWrites(t *testing.T) {
	meet := map[conn.Request]func(*testing.T, conn.Rule, fixture.Try){
		conn.ReqDelete: meetInWrite, conn.ReqSet: meetInWrite, conn.ReqCheck: meetInWrite, conn.ReqGuard: meetGuard, conn.ReqMulti: meetRegistering,
	}
	for _, row := range conn.Policy() {
		for _, how := range fixture.Tries {
			if meet[row.Request] == nil {
				continue
			}
			t.Run(fmt.Sprintf("%d %v %s", row.Request, row.Err, how), func(t *testing.T) {
				t.Parallel()
				meet[row.Request](t, row, how)
			})
		}
	}
}

// meetInWrite makes an operation of a Write fail. What was lost before is a
// transaction that would have been refused, or was refused, just the same.
func meetInWrite(t *testing.T, row conn.Rule, how fixture.Try) {
	through, proxy, layout, p := faulty(t)
	dir := fixture.LocksDir(t, p, "l")
	s := openSession(t, through, layout, 1)
	op := zk.Op{Kind: zk.OpDelete, Path: dir + "/n"}
	switch row.Request {
	case conn.ReqSet:
		op.Kind = zk.OpSetData
	case conn.ReqCheck:
		op.Kind = zk.OpCheck
	}
	if row.Err != zk.ErrNoNode {
		p.Create(op.Path, "")
	}
	switch row.Err {
	case zk.ErrBadVersion:
		op.Version = 7
	case zk.ErrNotEmpty:
		p.Create(op.Path+"/child", "")
	case zk.ErrNoAuth:
		guarded := op.Path
		if row.Request == conn.ReqDelete {
			guarded = dir
		}
		p.SetACL(guarded, gozk.WorldACL(gozk.PermRead))
	}
	if how != fixture.First {
		how.Lose(proxy, fixture.About("/n"))
		r := write(t, s, op)
		assert.Must(t, r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrNotApplied), "lost: %+v, want NotDone(ErrNotApplied)", r)
	}
	r := write(t, s, op)
	want := zk.NotDone
	if row.First == conn.DecideAgain {
		want = zk.Conflict
	}
	assert.That(t, r.Outcome == want && errors.Is(r.Err, row.Err), "%+v, want outcome %d with %v", r, want, row.Err)
}

// meetGuard makes the guarding operations fail.
func meetGuard(t *testing.T, row conn.Rule, how fixture.Try) {
	direct, through, proxy := fixture.Faulty(t)
	auth := &zk.DigestAuth{User: "fleet", Password: "secret"}
	direct.Auth, through.Auth = auth, auth
	layout := openLayout(t, direct)
	p := fixture.NewProbe(t, direct)
	dir := fixture.LocksDir(t, p, "l")
	var a fixture.Assassin
	through.Dial = a.Dial
	s := openSession(t, through, layout, 1)
	switch row.Err {
	case zk.ErrNoNode:
		p.Delete(s.registration)
	case zk.ErrBadVersion:
		p.Set(s.registration, "meddled")
	case zk.ErrNoAuth:
		for _, path := range []string{s.registration, s.guard} {
			p.SetACL(path, gozk.WorldACL(gozk.PermRead))
		}
	case zk.ErrSessionGone:
		a.Strike(t)
	}
	how.Lose(proxy, fixture.About("/n"))
	result := make(chan zk.Result, 1)
	err := s.Submit(&zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/n"}}, Done: func(r zk.Result) { result <- r }})
	if row.Err == zk.ErrBadVersion {
		r := fixture.Await(t, result)
		if how == fixture.First && r.Outcome != zk.Done || how != fixture.First && (r.Outcome != zk.NotDone || !errors.Is(r.Err, zk.ErrNotApplied)) {
			t.Errorf("%+v", r)
		}
		mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/m"}))
		return
	}
	if err == nil {
		r := fixture.Await(t, result)
		assert.That(t, r.Outcome != zk.Done, "%+v", r)
	}
	fixture.Await(t, s.Done())
	switch {
	case row.Err == zk.ErrNoNode && !errors.Is(s.Err(), zk.ErrDeposed), row.Err == zk.ErrSessionGone && !errors.Is(s.Err(), zk.ErrSessionGone):
		t.Errorf("the session's end is %v", s.Err())
	case row.Err == zk.ErrNoAuth:
		fixture.MustBeFatal(t, "writing", s.Err(), zk.KindAuth)
	}
	assert.That(t, p.Stat(dir+"/n") == nil, "it was created")
}

// meetRegistering meets the errors of a transaction as a whole where one is repeated: when the gateway registers.
func meetRegistering(t *testing.T, row conn.Rule, how fixture.Try) {
	direct, through, proxy := fixture.Faulty(t)
	auth := &zk.DigestAuth{User: "fleet", Password: "secret"}
	direct.Auth, through.Auth = auth, auth
	layout := openLayout(t, direct)
	p := fixture.NewProbe(t, direct)
	id := fixture.GatewayID(1)
	want := row.Err
	switch row.Err {
	case zk.ErrUnavailable:
		if how == fixture.First {
			how = fixture.AfterFailed
		}
		want = nil
	case zk.ErrNodeExists:
		if how == fixture.AfterPersisted {
			want = nil // it is our own
		} else {
			p.Create(zk.DefaultRoot+"/gateways/"+id, "another's")
		}
	case zk.ErrBadVersion:
		p.Set(zk.DefaultRoot+zk.NodeFenceBase, "0")
	case zk.ErrNoNode:
		p.Delete(zk.DefaultRoot + "/guards")
	case zk.ErrNoAuth:
		through.Auth = nil
	case zk.ErrSessionGone:
		var a fixture.Assassin
		through.Dial = a.Dial
		cfg, err := through.WithDefaults()
		assert.NoError(t, err)
		c := assert.Value(conn.Open(fixture.Context(t), &cfg, func() {}))(t)
		a.Strike(t)
		fixture.Await(t, c.Over())
		s := &Session{&writer{facts: facts{cfg: &cfg, conn: c, registration: zk.DefaultRoot + "/gateways/" + id, guard: zk.DefaultRoot + "/guards/" + id}}}
		how.Lose(proxy, fixture.About("/gateways/"))
		_, err = s.register(fixture.Context(t), layout)
		assert.That(t, errors.Is(err, zk.ErrSessionGone), "registering: %v, want ErrSessionGone", err)
		return
	}
	how.Lose(proxy, fixture.About("/gateways/"))
	s, err := Open(fixture.Context(t), through, layout, id, nil)
	if err == nil {
		t.Cleanup(func() { closeSession(t, s) })
	}
	assert.That(t, errors.Is(err, want), "registering: %v, want %v", err, want)
	assert.Equal(t, p.Stat(zk.DefaultRoot+"/guards/"+id) != nil, want == nil, "the guard is there")
	if row.Err == zk.ErrNoAuth {
		fixture.MustBeFatal(t, "registering", err, zk.KindAuth)
	}
}
