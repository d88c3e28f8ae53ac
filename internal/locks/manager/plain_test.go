package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

const plainPath = "/lockkeeper/locks/deploy"

// plain does what a program does that locks with an ephemeral node in the lock's place.
func (s *fakeStore) plain(path, data string) (czxid int64) {
	s.set(func() { s.by = "" })
	czxid, _ = s.foreign(zk.Op{Kind: zk.OpCreate, Ephemeral: true, Path: path, Data: []byte(data)})
	return czxid
}

func (s *fakeStore) gone(path string) {
	s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: path, Version: -1})
}

func TestAPlainNodeInTheLocksPlaceIsItsHolder(t *testing.T) {
	for _, started := range []string{"before", "after"} {
		t.Run(started, in(scene, func(t *testing.T, s *fakeStore) {
			var g *gate
			if started == "after" {
				g = s.gateway(t)
			}
			czxid := s.plain(plainPath, "host-7")
			if started == "before" {
				g = s.gateway(t)
			}
			time.Sleep(time.Minute)
			v := g.lock()
			assert.Must(t, v.State == locks.LockHeld && len(v.Holders) == 1 && v.QueueLength == 0, "%+v", v)
			h := v.Holders[0]
			if f := h.Foreign; f == nil || f.Program != "" || f.Kind != locks.KindEphemeralNode || string(f.Data) != "host-7" || f.Session != 1 {
				t.Errorf("%+v", h.Foreign)
			}
			if h.Znode != plainPath || h.Mode != locks.Exclusive || h.FencingToken != czxid || !h.AgeKnown || h.Age < 59*time.Second || h.Age > 61*time.Second {
				t.Errorf("%+v", h)
			}
			s.foreignSeen(zk.Op{Kind: zk.OpSetData, Path: plainPath, Data: []byte("host-8"), Version: -1})
			data := g.lock().Holders[0].Foreign.Data
			assert.That(t, string(data) == "host-8", "its data is shown as %q", data)
			page, err := g.m.Locks(t.Context(), locks.LockFilter{})
			assert.That(t, err == nil && len(page.Items) == 1 && page.Items[0].State == locks.LockHeld, "%+v, %v", page, err)
			s.gone(plainPath)
			v = g.lock()
			assert.That(t, v.State == locks.LockFree && len(v.Holders) == 0, "when it is gone: %+v", v)
			g.mustHold(deploy())
		}))
	}
}

func TestAPlainNodeIsToldLikeAnyContender(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.plain(plainPath, "")
		time.Sleep(time.Second)
		s.gone(plainPath)
		var told []string
		for _, e := range g.told() {
			if e.Lock == "deploy" && !strings.HasPrefix(fmt.Sprint(e.Type), "node.") {
				told = append(told, fmt.Sprint(e.Type, " ", e.Path(), " ", e.Foreign, " ", e.Reason))
			}
		}
		want := []string{"lease.queued " + plainPath + " true ", "lease.granted " + plainPath + " true ", "lease.removed " + plainPath + " true removed"}
		assert.That(t, slices.Equal(told, want), "told %q", told)
	})
}

// grantedOneByOne releases each waiter's lease once it holds, and fails when two hold at once or one is never granted.
func (g *gate) grantedOneByOne(waiters []*pending) {
	g.t.Helper()
	for left := slices.Clone(waiters); len(left) > 0; {
		time.Sleep(time.Second)
		at := slices.IndexFunc(left, (*pending).finished)
		assert.Must(g.t, at >= 0, "none of %d is granted", len(left))
		p := left[at]
		left = slices.Delete(left, at, at+1)
		assert.Must(g.t, p.err == nil && p.lease.State == locks.Held && !slices.ContainsFunc(left, (*pending).finished),
			"%+v, %v; another one is answered: %v", p.lease, p.err, slices.ContainsFunc(left, (*pending).finished))
		g.mustRelease(p.lease)
	}
}

// The rule that is attacked: the lock is not granted while the plain node is there.
func TestAcquiresThatWaitForAPlainNodeAreGrantedOnceItIsGone(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.plain(plainPath, "")
		time.Sleep(time.Second)
		var waiters []*pending
		for range 5 {
			req := deploy()
			req.Wait = locks.WaitForever
			waiters = append(waiters, g.begin(req))
			synctest.Wait()
		}
		writes := s.committed()
		time.Sleep(time.Minute)
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: plainPath, Data: []byte("still here"), Version: -1})
		time.Sleep(time.Second)
		for i, p := range waiters {
			assert.Must(t, !p.finished(), "%d: %+v, %v", i, p.lease, p.err)
		}
		assert.That(t, s.committed() == writes, "while they waited %d writes were made", s.committed()-writes)
		s.gone(plainPath)
		g.grantedOneByOne(waiters)
	})
}

func TestATryAtAPlainNodeIsToldItsHolder(t *testing.T) {
	for _, known := range []bool{true, false} {
		for name, req := range map[string]locks.AcquireRequest{
			"try":       {},
			"async":     {Async: true},
			"shared":    {Mode: locks.Shared},
			"semaphore": {Mode: locks.Semaphore, Limit: 3},
			"keyed":     {IdempotencyKey: "abcdefghijklmnop"},
			"group":     {Group: []locks.Want{{Lock: "other"}, {Lock: "deploy"}}},
			"wait":      {Wait: 3 * time.Second},
		} {
			t.Run(name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				if !known {
					g.w.hold() // what is created now is news to the replica
				}
				s.plain(plainPath, "host-7")
				if known {
					time.Sleep(time.Second)
				} else {
					go func() { time.Sleep(500 * time.Millisecond); g.w.releaseSoon() }()
				}
				if req.TTL = time.Minute; req.Group == nil {
					req.Lock = "deploy"
				}
				begun := time.Now()
				_, err := g.acquire(req)
				code := locks.CodeHeldByOther
				if req.Wait > 0 {
					code = locks.CodeWaitElapsed
				}
				e := wantCode(t, err, code)
				if strings.Contains(e.Detail, "async") != req.Async || req.Wait == 0 && !strings.Contains(e.Detail, "ephemeral node") {
					t.Errorf("told: %s", e.Detail)
				}
				assert.That(t, len(e.Holders) == 1 && e.Holders[0].Foreign != nil && e.Holders[0].Znode == plainPath, "%+v", e)
				took := time.Since(begun)
				assert.That(t, (req.Wait <= 0 || took == req.Wait) && took <= 4*time.Second, "answered after %v", took)
				names := s.names("/lockkeeper/locks")
				assert.That(t, len(names) <= 2 && s.node(plainPath).stat.EphemeralOwner != 0, "in the lock root: %v", names)
				s.gone(plainPath)
				time.Sleep(time.Second)
				assert.That(t, g.m.requests.obstructed == 0, "%d still wait", g.m.requests.obstructed)
				req.Wait, req.Async = 0, false
				g.mustHold(req)
			}))
		}
	}
}

func TestATryThatCannotFindOutWhatStandsThereIsNotKeptWaiting(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.w.hold()
		s.plain(plainPath, "")
		begun := time.Now()
		_, err := g.acquire(deploy())
		wantCode(t, err, locks.CodeUnavailable)
		if took := time.Since(begun); took > answerWithin+time.Second || g.m.requests.obstructed != 0 {
			t.Errorf("it took %v, and %d wait", took, g.m.requests.obstructed)
		}
		g.w.release()
	})
}

// The node comes between our look and our create, again and again.
func TestAnAcquireThatFindsAnotherPlainNodeGoesOnWaiting(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.plain(plainPath, "")
		time.Sleep(time.Second)
		var waiters []*pending
		for range 3 {
			req := deploy()
			req.Wait = time.Hour
			waiters = append(waiters, g.begin(req))
			synctest.Wait()
		}
		again := 4
		s.beforeWrites(func(w *zk.Write) {
			if again > 0 && len(w.Ops) > 0 && w.Ops[len(w.Ops)-1].Kind == zk.OpCreate && s.nodes[plainPath] == nil {
				again--
				s.by = ""
				s.tx([]zk.Op{{Kind: zk.OpCreate, Ephemeral: true, Path: plainPath}})
			}
		})
		for again > 0 {
			s.gone(plainPath)
			time.Sleep(time.Second)
			for i, p := range waiters {
				assert.Must(t, !p.finished(), "%d is answered while a plain node stands there: %+v, %v", i, p.lease, p.err)
			}
		}
		s.gone(plainPath)
		g.grantedOneByOne(waiters)
		assert.That(t, g.m.requests.obstructed == 0, "%d still wait", g.m.requests.obstructed)
	})
}

func TestWaitingForAPlainNodeEndsWithWaitCallerAndDrain(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.plain(plainPath, "")
		time.Sleep(time.Second)
		req := deploy()
		req.Wait = 10 * time.Second
		elapses := g.begin(req)
		req.Wait = locks.WaitForever
		leaves, drained := g.begin(req), g.begin(req)
		time.Sleep(5 * time.Second)
		leaves.stop()
		assert.Must(t, leaves.finished() && !elapses.finished() && !drained.finished(),
			"the one who left is not answered, or another one is")
		wantCode(t, leaves.err, locks.CodeCancelled)
		time.Sleep(5*time.Second + time.Millisecond)
		assert.Must(t, elapses.finished(), "it waits longer than it was to")
		wantCode(t, elapses.err, locks.CodeWaitElapsed)
		assert.That(t, g.m.requests.obstructed == 1, "%d wait", g.m.requests.obstructed)
		assert.NoError(t, g.m.Drain(t.Context()))
		assert.Must(t, drained.finished(), "a gateway that drains keeps a request waiting")
		wantCode(t, drained.err, locks.CodeUnavailable)
		assert.That(t, g.m.requests.obstructed == 0, "%d wait", g.m.requests.obstructed)
	})
}

// A lock whose directory was swept by one gateway is taken by a plain node at once; another gateway's sweep is on its way.
func TestASweepThatComesLateDoesNotDeleteAPlainNode(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		taken := false
		s.beforeWrites(func(w *zk.Write) {
			if len(w.Ops) > 0 && w.Ops[len(w.Ops)-1].Kind == zk.OpDelete && w.Ops[len(w.Ops)-1].Path == plainPath && !taken {
				taken = true
				s.tx([]zk.Op{{Kind: zk.OpDelete, Path: plainPath, Version: -1}})
				s.by = ""
				s.tx([]zk.Op{{Kind: zk.OpCreate, Ephemeral: true, Path: plainPath}})
			}
		})
		pass(5 * time.Minute)
		assert.That(t, taken && s.node(plainPath).stat.EphemeralOwner != 0, "taken: %v; in the lock's place: %+v", taken, s.node(plainPath))
		assert.Equal(t, g.lock().State, locks.LockHeld)
	})
}

// A program that locks with plain nodes waits for our directory to be deleted.
func TestWherePlainNodesHaveStoodOurDirectoryGoesWhenItIsEmpty(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.layout.Namespaces["theirs"] = zk.Namespace{Root: "/theirs", Dialect: "native"}
		s.nodes["/theirs"] = &fakeNode{}
		const path = "/theirs/deploy"
		one, two := s.gateway(t), s.gateway(t)
		time.Sleep(time.Second)
		s.plain(path, "")
		time.Sleep(time.Second)
		s.gone(path)
		req := locks.AcquireRequest{NS: "theirs", Lock: "deploy", TTL: time.Minute}
		one.mustHold(req)
		assert.Equal(t, string(s.node(path).data), queues.Temporary, "its data")
		s.gateway(t) // has seen no plain node
		one.crash()
		two.stop()
		refused := false // the first removal; the sweeper comes again
		s.mu.Lock()
		s.refuse = func(w *zk.Write) (int, error) {
			if len(w.Ops) > 0 && w.Ops[len(w.Ops)-1].Path == path && !refused {
				refused = true
				return 0, zk.ErrNotEmpty
			}
			return -1, nil
		}
		s.mu.Unlock()
		pass(5 * time.Minute)
		assert.That(t, refused, "no administrator removed it")
		if names := s.names("/theirs"); len(names) != 0 {
			t.Errorf("left in the lock root: %v", names)
		}
		// Where none has been seen the directory stays: a Kazoo lock makes its own only once.
		four := s.gateway(t)
		req.Lock = "kazoo"
		four.mustRelease(four.mustHold(req))
		time.Sleep(5 * time.Minute)
		if names := s.names("/theirs"); len(names) != 1 {
			t.Errorf("left in the lock root: %v", names)
		}
	})
}

func TestANewPlainNodeIsReadForARequestForThePresent(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.plain(plainPath, "")
		begun := time.Now()
		v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy", Consistent: true})
		assert.That(t, err == nil && v.State == locks.LockHeld, "%+v, %v", v, err)
		s.gone(plainPath)
		s.plain(plainPath, "")
		assert.Nil(t, g.m.Break(t.Context(), locks.BreakRequest{Lock: "deploy", Name: "deploy"}))
		took := time.Since(begun)
		assert.That(t, took <= 2*lookAfter, "it took %v", took)
	})
}

func TestBreakingAPlainNodeByTheLocksPath(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.plain(plainPath, "")
		time.Sleep(time.Second)
		req := deploy()
		req.Wait = time.Hour
		waits := g.begin(req)
		synctest.Wait()
		assert.That(t, g.m.Break(t.Context(), locks.BreakRequest{Lock: "deploy", Name: "other"}) != nil,
			"a contender that is not there was broken")
		assert.NoError(t, g.m.Break(t.Context(), locks.BreakRequest{Lock: "deploy", Name: "deploy", Reason: "it hangs"}))
		if !waits.finished() || waits.err != nil {
			time.Sleep(time.Second)
			assert.Must(t, waits.finished() && waits.err == nil, "%+v, %v", waits.lease, waits.err)
		}
		wantCode(t, g.m.Break(t.Context(), locks.BreakRequest{Lock: "deploy", Name: "deploy"}), locks.CodeNoContender)
		v := g.lock()
		assert.That(t, len(v.Holders) == 1 && strings.Contains(v.Holders[0].Znode, plainPath+"/"), "%+v", v)
	})
}

// While the replica does not look the directory is replaced by a plain node, and that by another one.
func TestWhatStandsInTheLocksPlaceIsLookedAtAgainAfterAGap(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		var czxid int64
		for range 2 {
			g.w.disconnect()
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: plainPath, Version: -1})
			czxid = s.plain(plainPath, "")
			g.w.reconnect()
			time.Sleep(time.Second)
			v := g.lock()
			assert.Must(t, v.State == locks.LockHeld && len(v.Holders) == 1 && v.Holders[0].FencingToken == czxid,
				"the node of %d: %+v", czxid, v)
		}
		told := 0
		for _, e := range g.told() {
			if e.Type == events.LeaseGranted && e.Path() == plainPath {
				told++
			}
		}
		assert.That(t, told == 2, "%d grants are told", told)
		g.w.disconnect()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: plainPath, Version: -1})
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: plainPath})
		g.w.reconnect()
		time.Sleep(time.Second)
		assert.Equal(t, g.lock().State, locks.LockFree)
		g.mustHold(deploy())
	})
}

// An administrator's request finds out what stands there, and meanwhile the session ends.
func TestALookAtANewPlainNodeMayOutliveTheSession(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		store := &slowReads{fakeStore: s}
		g := s.gatewayOn(t, store)
		s.plain(plainPath, "")
		synctest.Wait()
		store.before = func(path string) {
			if path == plainPath {
				g.session().expire()
				time.Sleep(10 * time.Millisecond)
			}
		}
		wantCode(t, g.m.Break(t.Context(), locks.BreakRequest{Lock: "deploy", Name: "deploy"}), locks.CodeUnavailable)
	})
}

// slowReads is a store whose reads on the observer's connection begin after something else.
type slowReads struct {
	*fakeStore
	before func(path string) // nil: nothing
}

func (s *slowReads) Watch(roots []zk.WatchRoot, sink zk.Sink, zxid func() int64) term.Watcher {
	return &slowReader{s.fakeStore.Watch(roots, sink, zxid), s}
}

type slowReader struct {
	term.Watcher
	s *slowReads
}

func (w *slowReader) Get(path string, reply func([]byte, wire.Stat, int64, error)) {
	if w.s.before == nil {
		w.Watcher.Get(path, reply)
		return
	}
	go func() {
		w.s.before(path)
		w.Watcher.Get(path, reply)
	}()
}

func TestATryThatWaitsForALookIsAnsweredAlsoWhenZooKeeperGoesAway(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.w.hold()
		s.plain(plainPath, "")
		try := g.begin(deploy())
		pass(100 * time.Millisecond)
		assert.Must(t, g.m.requests.obstructed == 1, "it does not wait")
		s.set(func() { s.away = true })
		s.clock.(*jumpClock).jump(2 * fakeWindow)
		g.w.release()
		time.Sleep(answerWithin)
		assert.That(t, try.finished(), "it waits for ZooKeeper to come back")
		s.set(func() { s.away = false })
		<-try.done
		wantCode(t, try.err, locks.CodeUnavailable)
		assert.That(t, g.m.requests.obstructed == 0, "%d wait", g.m.requests.obstructed)
	})
}

func TestALockInWhosePlaceAPlainNodeHasJustComeIsInUse(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.plain(plainPath, "")
		wantCode(t, g.m.Remove(t.Context(), locks.Anonymous, "", "deploy"), locks.CodeLockInUse)
		assert.That(t, s.node(plainPath).stat.EphemeralOwner != 0, "the node is gone")
	})
}
