package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk"
)

// Each kind of operation, lost on the way there ("failed") and on the way back
// ("failed but persisted"): the answer is what really happened, both times.
func TestALostWriteIsAnsweredWithWhatReallyHappened(t *testing.T) {
	const marker = "the-lost-one"
	kinds := []struct {
		name    string
		op      func(dir string) zk.Op
		applied func(p *fixture.Probe, dir string, r zk.Result) error
	}{
		{"sequential create", func(dir string) zk.Op {
			return zk.Op{Kind: zk.OpCreate, Path: dir + "/write-" + marker + "-", Data: []byte("x"), Sequential: true}
		}, func(p *fixture.Probe, dir string, r zk.Result) error {
			return sameNode(p, r.Paths[0], dir+"/write-"+marker+"-0000000001", r.Zxid)
		}},
		{"plain create", func(dir string) zk.Op {
			return zk.Op{Kind: zk.OpCreate, Path: dir + "/" + marker, Data: []byte("lease")}
		}, func(p *fixture.Probe, dir string, r zk.Result) error {
			return sameNode(p, r.Paths[0], dir+"/"+marker, r.Zxid)
		}},
		{"ephemeral create", func(dir string) zk.Op {
			return zk.Op{Kind: zk.OpCreate, Path: dir + "/" + marker, Ephemeral: true}
		}, func(p *fixture.Probe, dir string, r zk.Result) error {
			return sameNode(p, r.Paths[0], dir+"/"+marker, r.Zxid)
		}},
		{"delete", func(dir string) zk.Op {
			return zk.Op{Kind: zk.OpDelete, Path: dir + "/there", Version: 0, Data: []byte(marker)}
		}, nil},
		{"set", func(dir string) zk.Op {
			return zk.Op{Kind: zk.OpSetData, Path: dir + "/there", Data: []byte(marker), Version: 0}
		}, func(_ *fixture.Probe, _ string, r zk.Result) error {
			if r.Versions[0] != 1 {
				return fmt.Errorf("version %d", r.Versions[0])
			}
			return nil
		}},
	}
	for _, kind := range kinds {
		for _, persisted := range []bool{false, true} {
			name := kind.name + " failed"
			if persisted {
				name += " but persisted"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				through, proxy, layout, p := faulty(t)
				dir := fixture.LocksDir(t, p, "l")
				p.Create(dir+"/there", "")
				s := openSession(t, through, layout, 1)
				match := fixture.About("/locks/")
				if persisted {
					proxy.FailReply(1, match)
				} else {
					proxy.FailRequest(1, match)
				}
				op := kind.op(dir)
				counter := proxy.CountOps()
				r := write(t, s, op)
				before := p.Children(dir)
				if !persisted {
					assert.Must(t, r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrNotApplied), "%+v, want NotDone(ErrNotApplied)", r)
					assert.Equal(t, counter.Counts().Reads(), 0, "reads, but the guard's version says that nothing has committed")
					assert.Must(t, slices.Equal(before, []string{"there"}) && p.Stat(dir+"/there").Version == 0,
						"something was done: %v", before)
				} else {
					mustBeDone(t, r)
					if kind.applied != nil {
						assert.NoError(t, kind.applied(p, dir, r))
					} else if len(before) != 0 {
						t.Fatalf("%v is there", before)
					}
				}
				mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/next"}))
			})
		}
	}
}

// Two transactions are under way. The first commits and its answer is lost,
// the second never arrives: what they left behind tells them apart.
func TestLostTransactionsAreToldApartByWhatTheyLeftBehind(t *testing.T) {
	ops := map[string]func(dir string) zk.Op{
		"sequential create": func(dir string) zk.Op { return zk.Op{Kind: zk.OpCreate, Path: dir + "/new-", Sequential: true} },
		"plain create":      func(dir string) zk.Op { return zk.Op{Kind: zk.OpCreate, Path: dir + "/new", Data: []byte("mine")} },
		"ephemeral create":  func(dir string) zk.Op { return zk.Op{Kind: zk.OpCreate, Path: dir + "/new", Ephemeral: true} },
		"delete":            func(dir string) zk.Op { return zk.Op{Kind: zk.OpDelete, Path: dir + "/there"} },
		"set":               func(dir string) zk.Op { return zk.Op{Kind: zk.OpSetData, Path: dir + "/there", Version: 0} },
	}
	for first, firstOp := range ops {
		for second, secondOp := range ops {
			t.Run(first+" before "+second, func(t *testing.T) {
				t.Parallel()
				through, proxy, layout, p := faulty(t)
				a, b := fixture.LocksDir(t, p, "a"), fixture.LocksDir(t, p, "b")
				p.Create(a+"/there", "")
				p.Create(b+"/there", "")
				s := openSession(t, through, layout, 1)
				held := proxy.HoldReply(1, fixture.About(a+"/"))
				ra := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{firstOp(a)}})
				fixture.Await(t, held.Fired())
				cut := proxy.FailRequest(1, fixture.About(b+"/"))
				rb := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{secondOp(b)}})
				fixture.Await(t, cut.Fired())
				mustBeDone(t, fixture.Await(t, ra))
				r := fixture.Await(t, rb)
				assert.That(t, r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrNotApplied), "the one that never arrived: %+v", r)
			})
		}
	}
}

// The same, and before the gateway can look another program removes what the first one created. One that cannot be told
// from the other is Unknown, never answered wrongly.
func TestWhatAnotherProgramHasRemovedIsNeverTakenForNotDone(t *testing.T) {
	for name, other := range map[string]func(dir string) zk.Op{
		"nothing":         nil,
		"one of its kind": func(dir string) zk.Op { return zk.Op{Kind: zk.OpCreate, Path: dir + "/new-", Sequential: true} },
		"a delete":        func(dir string) zk.Op { return zk.Op{Kind: zk.OpDelete, Path: dir + "/there"} },
		"a set":           func(dir string) zk.Op { return zk.Op{Kind: zk.OpSetData, Path: dir + "/there", Version: -1} },
	} {
		t.Run("beside "+name, func(t *testing.T) {
			through, proxy, layout, p := faulty(t)
			a, b := fixture.LocksDir(t, p, "a"), fixture.LocksDir(t, p, "b")
			p.Create(b+"/there", "")
			s := openSession(t, through, layout, 1)
			looks := proxy.HoldRequest(1, netfault.IsOp(netfault.OpGetChildren2, netfault.OpExists))
			held := proxy.HoldReply(1, fixture.About(a+"/"))
			ra := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpCreate, Path: a + "/new-", Sequential: true}}})
			fixture.Await(t, held.Fired())
			var rb <-chan zk.Result
			if other != nil {
				cut := proxy.FailRequest(1, fixture.About(b+"/"))
				rb = submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{other(b)}})
				fixture.Await(t, cut.Fired())
			} else {
				proxy.Reset()
			}
			fixture.Await(t, looks.Fired())
			p.Delete(a + "/" + p.Children(a)[0])
			proxy.Heal()
			r := fixture.Await(t, ra)
			switch name {
			case "one of its kind":
				if r2 := fixture.Await(t, rb); r.Outcome != zk.Unknown || r2.Outcome != zk.Unknown {
					t.Errorf("%+v and %+v, want Unknown twice: they look the same", r, r2)
				}
			default: // the guard's version tells that one committed, and it was not the other
				if mustBeDone(t, r); r.Paths[0] != "" {
					t.Errorf("path %q of a node that is gone", r.Paths[0])
				}
				if rb != nil {
					r2 := fixture.Await(t, rb)
					assert.That(t, r2.Outcome == zk.NotDone && errors.Is(r2.Err, zk.ErrNotApplied), "the other one: %+v", r2)
				}
			}
			mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: b + "/next"}))
		})
	}
}

// Of two lost transactions one committed. Another program has written what the other one was to set: the version is as if that
// one had committed, the data is not.
func TestASetThatAnotherProgramOvertookIsNotDone(t *testing.T) {
	through, proxy, layout, p := faulty(t)
	a, b := fixture.LocksDir(t, p, "a"), fixture.LocksDir(t, p, "b")
	for _, dir := range []string{a, b} {
		p.Create(dir+"/there", "")
	}
	s := openSession(t, through, layout, 1)
	p.Set(b+"/there", "another program's")
	held := proxy.HoldReply(1, fixture.About(a+"/"))
	ra := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpSetData, Path: a + "/there", Data: []byte("mine"), Version: 0}}})
	fixture.Await(t, held.Fired())
	cut := proxy.FailRequest(1, fixture.About(b+"/"))
	rb := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpSetData, Path: b + "/there", Data: []byte("mine"), Version: 0}}})
	fixture.Await(t, cut.Fired())
	mustBeDone(t, fixture.Await(t, ra))
	r := fixture.Await(t, rb)
	assert.That(t, r.Outcome == zk.NotDone, "the set that another program overtook: %+v", r)
}

func TestASetOfANodeThatWasMadeAnewIsNotRuledOutByItsVersion(t *testing.T) {
	through, proxy, layout, p := faulty(t)
	a, b := fixture.LocksDir(t, p, "a"), fixture.LocksDir(t, p, "b")
	for _, dir := range []string{a, b} {
		p.Create(dir+"/there", "")
	}
	s := openSession(t, through, layout, 1)
	looks := proxy.HoldRequest(1, netfault.IsOp(netfault.OpExists))
	held := proxy.HoldReply(1, fixture.About(a+"/"))
	ra := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpSetData, Path: a + "/there", Data: []byte("mine"), Version: 0}}})
	fixture.Await(t, held.Fired())
	cut := proxy.FailRequest(1, fixture.About(b+"/"))
	rb := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpSetData, Path: b + "/there", Data: []byte("mine"), Version: 0}}})
	fixture.Await(t, cut.Fired())
	fixture.Await(t, looks.Fired())
	p.Delete(a + "/there")
	p.Create(a+"/there", "")
	p.Set(a+"/there", "another program's")
	proxy.Heal()
	mustBeDone(t, fixture.Await(t, ra))
	r := fixture.Await(t, rb)
	assert.That(t, r.Outcome == zk.NotDone, "the set that was cut off: %+v", r)
}

// A directory that may not be read tells nothing: neither does a node that is
// gone tell it was this gateway that deleted it.
func TestADirectoryThatMayNotBeReadIsNoEvidence(t *testing.T) {
	through, proxy, layout, p := faulty(t)
	a, b := zk.DefaultRoot+"/locks/a", fixture.LocksDir(t, p, "b")
	assert.NoError(t, p.TryCreate(a, "", gozk.WorldACL(gozk.PermAll&^gozk.PermRead)))
	p.Create(b+"/there", "")
	s := openSession(t, through, layout, 1)
	looks := proxy.HoldRequest(1, netfault.IsOp(netfault.OpGetChildren2, netfault.OpExists))
	held := proxy.HoldReply(1, fixture.About(a+"/"))
	ra := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpCreate, Path: a + "/new-", Sequential: true}}})
	fixture.Await(t, held.Fired())
	cut := proxy.FailRequest(1, fixture.About(b+"/"))
	rb := submit(t, s, &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpDelete, Path: b + "/there"}}})
	fixture.Await(t, cut.Fired())
	fixture.Await(t, looks.Fired())
	p.Delete(b + "/there")
	proxy.Heal()
	if r, r2 := fixture.Await(t, ra), fixture.Await(t, rb); r.Outcome != zk.Unknown || r2.Outcome != zk.Unknown {
		t.Errorf("%+v and %+v, want Unknown twice: either may have been the one that committed", r, r2)
	}
}

// A server that has expired the session says so to reads before it hangs up.
func TestThatTheSessionHasExpiredIsNoEvidence(t *testing.T) {
	cfg := fixture.Config(t)
	q := &evidence{Conn: openSession(t, cfg, openLayout(t, cfg), 1).conn, random: backoff.Runtime{}}
	expired := fmt.Errorf("looking at /x: %w", zk.ErrSessionGone)
	err := q.retry(func(context.Context) error { return expired })
	assert.That(t, errors.Is(err, zk.ErrSessionGone) && errors.Is(q.err, zk.ErrSessionGone), "taken for an answer: %v, %v", err, q.err)
}

func sameNode(p *fixture.Probe, got, want string, zxid int64) error {
	if got != want {
		return fmt.Errorf("path %q, want %q", got, want)
	}
	if stat := p.Stat(want); stat == nil || stat.Czxid != zxid {
		return fmt.Errorf("the node is %+v, the answer says zxid %#x", stat, zxid)
	}
	return nil
}

// The connection breaks again and again, at any place, under a load of creates
// and deletes in shared transactions: no answer may differ from what is there.
func TestNoAnswerLiesWhileTheConnectionKeepsBreaking(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	through, proxy, layout, p := faulty(t)
	const locks, workers, rounds = 8, 12, 15
	for i := range locks {
		fixture.LocksDir(t, p, fmt.Sprint(i))
	}
	s := openSession(t, through, layout, 1)

	var mu sync.Mutex
	truth := make(map[string]int64) // path -> czxid of what must be there
	var running sync.WaitGroup
	for worker := range workers {
		r := rand.New(rand.NewPCG(seed, uint64(worker)+1))
		running.Go(func() {
			for round := range rounds {
				dir := fmt.Sprintf("%s/locks/%d", zk.DefaultRoot, r.IntN(locks))
				prefix := fmt.Sprintf("%s/write-w%dr%d-", dir, worker, round)
				made := attempt(s, &zk.Write{Queues: []string{dir}, Ops: []zk.Op{{Kind: zk.OpCreate, Path: prefix, Sequential: true}}})
				switch {
				case made.Outcome == zk.Done && strings.HasPrefix(made.Paths[0], prefix):
				case made.Outcome == zk.NotDone && errors.Is(made.Err, zk.ErrNotApplied):
					continue
				default:
					t.Errorf("create: %+v", made)
					return
				}
				mu.Lock()
				truth[made.Paths[0]] = made.Zxid
				mu.Unlock()
				if r.IntN(3) == 0 {
					continue
				}
				gone := attempt(s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: made.Paths[0]}}})
				switch {
				case gone.Outcome == zk.Done:
					mu.Lock()
					delete(truth, made.Paths[0])
					mu.Unlock()
				case gone.Outcome == zk.NotDone && errors.Is(gone.Err, zk.ErrNotApplied):
				default:
					t.Errorf("delete: %+v", gone)
					return
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { running.Wait(); close(finished) }()
	for over := false; !over; {
		var hit *netfault.Trigger
		switch n := 1 + random.IntN(20); random.IntN(3) {
		case 0:
			hit = proxy.FailRequest(n, netfault.IsOp(netfault.OpMulti))
		case 1:
			hit = proxy.FailReply(n, netfault.IsOp(netfault.OpMulti))
		default:
			hit = proxy.FailRequest(n, netfault.IsOp(netfault.OpMulti, netfault.OpGetChildren2, netfault.OpExists))
		}
		select {
		case <-hit.Fired():
		case <-finished:
			over = true
		}
	}
	if t.Failed() {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	there := 0
	for i := range locks {
		dir := fmt.Sprintf("%s/locks/%d", zk.DefaultRoot, i)
		for _, child := range p.Children(dir) {
			there++
			if stat := p.Stat(dir + "/" + child); stat.Czxid != truth[dir+"/"+child] {
				t.Errorf("%s has czxid %#x, the answers said %#x", child, stat.Czxid, truth[dir+"/"+child])
			}
		}
	}
	assert.That(t, there == len(truth), "%d nodes are there, the answers said %d", there, len(truth))
	t.Logf("%d bumps, %d nodes", p.Stat(s.registration).Version, there)
	assert.That(t, p.Stat(s.registration).Version != 0, "nothing was ever lost: the test tests nothing")
}
