package manager

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// lost is how the answer to one write of a contender is lost, and whether it was done.
type lost struct {
	name      string
	session   bool // with the session
	persisted bool
}

var waysToLose = []lost{
	{"failed", false, false}, {"failed but persisted", false, true},
	{"failed with the session", true, false}, {"failed with the session but persisted", true, true},
}

// arm makes it happen to the next write of the lease's contender; disarm ends it.
func (w lost) arm(s *fakeStore, l locks.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !w.session:
		s.vague, s.drop = once(s.t, writeTo(l.Znode)), !w.persisted
	case w.persisted:
		s.loseReply = writeTo(l.Znode)
	default:
		s.away = true
	}
}

func (w lost) disarm(s *fakeStore, g *gate) {
	if w.session {
		g.expireSession()
	}
	s.set(func() { s.away, s.loseReply, s.vague = false, nil, nil })
	time.Sleep(5 * time.Second)
}

// expireSession ends the gateway's session under it.
func (g *gate) expireSession() {
	g.m.mu.Lock()
	session := g.m.port.Session()
	g.m.mu.Unlock()
	switch session := session.(type) {
	case *fakeSession:
		session.expire()
	case *hookedSession:
		session.expire()
	}
}

// Attack 15: the release of one of a lease's holds is repeated after its answer was lost. It lets go of one level.
func TestARepeatedReleaseOfAHoldLetsGoOfOneLevel(t *testing.T) {
	for _, way := range waysToLose {
		t.Run(way.name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(reentrant("outer"))
			g.mustAddHold(l, "middle")
			g.mustAddHold(l, "inner")
			way.arm(s, l)
			if err := g.releaseHold(l, "inner"); way.session {
				wantCode(t, err, locks.CodeOutcomeUnknown)
			} else if err != nil {
				t.Error(err)
			}
			way.disarm(s, g)
			for range 3 {
				g.mustReleaseHold(l, "inner")
				g.wantHolds(l, "outer", "middle")
			}
			r := s.recordOf(l)
			assert.That(t, slices.Equal(r.Released, []string{"inner"}) && slices.Equal(r.Holds, []string{"outer", "middle"}), "%+v", r)
		}))
	}
}

// The observer's server is behind the writer's: the event of an earlier write comes when a later one has been answered, and the
// read that it makes shows what was before that.
func TestAReadThatIsOlderThanWhatWasWrittenTakesNothingBack(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(reentrant("a"))
		g.mustAddHold(l, "b")
		g.mustAddHold(l, "c")
		s.mu.Lock()
		before := *s.nodes[l.Znode]
		s.mu.Unlock()
		past := map[string]*fakeNode{l.Znode: &before}
		g.w.hold()
		g.mustReleaseHold(l, "b")
		h.hooks.Store(&hooks{past: past})
		g.w.release()
		_, err := g.addHold(l, "b")
		assert.That(t, err != nil, "a hold that was let go is taken again")
		// It has caught up.
		h.hooks.Store(&hooks{})
		s.set(func() { s.announce(zk.NodeChanged, l.Znode) })
		synctest.Wait()
		_, err = g.addHold(l, "b")
		wantCode(t, err, locks.CodeHoldReleased)
		g.wantHolds(l, "a", "c")
	})
}

// The same of a lease of several locks whose downgrade has replaced other contenders than that with the record.
func TestAReadThatIsOlderTakesNothingBackAfterADowngrade(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "deploy", Mode: locks.Semaphore, Limit: 2}, {Lock: "other"}}, TTL: time.Hour, Hold: "a"})
		l.Lock, l.Znode = "deploy", l.Locks[0].Znode
		assert.Value(g.m.Downgrade(t.Context(), locks.Anonymous, l.ID, l.Token))(t)
		g.mustAddHold(l, "b")
		g.mustAddHold(l, "c")
		s.mu.Lock()
		before := *s.nodes[l.Znode]
		s.mu.Unlock()
		g.w.hold()
		g.mustReleaseHold(l, "b")
		h.hooks.Store(&hooks{past: map[string]*fakeNode{l.Znode: &before}})
		g.w.release()
		_, err := g.addHold(l, "b")
		assert.That(t, err != nil, "a hold that was let go is taken again")
	})
}

func TestAHoldWhoseAnswerWasLostIsAddedOnce(t *testing.T) {
	for _, way := range waysToLose {
		t.Run(way.name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(reentrant("outer"))
			way.arm(s, l)
			if _, err := g.addHold(l, "inner"); way.session {
				wantCode(t, err, locks.CodeOutcomeUnknown)
			} else if err != nil {
				t.Error(err)
			}
			way.disarm(s, g)
			g.mustAddHold(l, "inner")
			g.wantHolds(l, "outer", "inner")
			g.mustReleaseHold(l, "inner")
			g.wantHolds(l, "outer")
		}))
	}
}

func TestTheLastHoldsReleaseWhoseAnswerWasLostIsCarriedOut(t *testing.T) {
	for _, way := range waysToLose {
		t.Run(way.name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(reentrant("outer"))
			g.mustAddHold(l, "inner")
			g.mustReleaseHold(l, "inner")
			way.arm(s, l)
			_ = g.releaseHold(l, "outer")
			way.disarm(s, g)
			g.mustReleaseHold(l, "outer")
			g.mustReleaseHold(l, "inner")
			g.wantState(l, locks.Ended, locks.ReasonReleased)
			g.mustHold(deploy())
		}))
	}
}

// The release of a hold was lost with the session, and was done. Nothing is said
// under the next session before the record has been read.
func TestARepeatedAcquireIsAnsweredAfterTheRecordWasRead(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		req := reentrant("a")
		req.IdempotencyKey = "abcdefghijklmnop"
		l := g.mustHold(req)
		g.mustAddHold(l, "b")
		way := lost{session: true, persisted: true}
		way.arm(s, l)
		g.w.hold() // the news comes late
		wantCode(t, g.releaseHold(l, "a"), locks.CodeOutcomeUnknown)
		h.failReads(l.Znode)
		g.w.release()
		way.disarm(s, g)
		_, err := g.acquire(req)
		wantCode(t, err, locks.CodeUnavailable)
		h.hooks.Store(&hooks{})
		_, err = g.acquire(req)
		wantCode(t, err, locks.CodeHoldReleased)
	})
}

// The TTL in the record is made shorter, the answer is lost, and the observer's
// server is behind: it shows the longer one, which a successor would not find.
func TestARecordWhoseWriteWasLostIsReadFromAServerThatHasComeSoFar(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		long, short := time.Minute, 10*time.Second
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: long})
		beat := func(ttl time.Duration) error {
			_, err := g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, ttl)
			return err
		}
		recorded := func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			r, _ := record.Parse(s.nodes[l.Znode].data)
			return r.LeaseTTL()
		}
		s.mu.Lock()
		before := *s.nodes[l.Znode]
		s.mu.Unlock()
		h.hooks.Store(&hooks{past: map[string]*fakeNode{l.Znode: &before}, result: func(w *zk.Write, res *zk.Result) {
			if w.Ops[0].Kind == zk.OpSetData && w.Ops[0].Path == l.Znode {
				*res = zk.Result{Outcome: zk.Unknown, Culprit: -1}
			}
		}})
		for began := time.Now(); recorded() != short; time.Sleep(time.Second) {
			if err := beat(short); err != nil || time.Since(began) > 2*long {
				t.Fatalf("%v; the record has %v", err, recorded())
			}
		}
		time.Sleep(100 * time.Millisecond)
		assert.That(t, beat(long) != nil || recorded() == long, "%v was promised, and the record has %v", long, recorded())
		h.hooks.Store(&hooks{})
		for beat(long) != nil {
			time.Sleep(time.Second)
		}
		assert.That(t, recorded() == long, "the record has %v", recorded())
		g.wantState(l, locks.Held, "")
	})
}
