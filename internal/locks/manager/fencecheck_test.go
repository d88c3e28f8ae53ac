package manager

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
)

func (g *gate) fence(token int64) (locks.FenceAnswer, error) {
	return g.m.Fence(g.t.Context(), locks.FenceRequest{Lock: "deploy", Token: token})
}

// current reports whether a gateway says "current", as an adapter passes it on.
func (g *gate) current(token int64) bool {
	a, err := g.fence(token)
	return err == nil && a.Current && g.m.StillValid(a.Term)
}

func (g *gate) wantFence(token int64, reason string, highest int64) {
	g.t.Helper()
	a, err := g.fence(token)
	assert.That(g.t, err == nil && a.Current == (reason == "") && a.Reason == reason && a.Highest == highest,
		"token %d: %+v %v, want reason %q, highest %d", token, a, err, reason, highest)
	assert.That(g.t, !a.Current || g.m.StillValid(a.Term), "token %d: the answer stands on nothing", token)
}

func TestAFencingTokenIsCurrentWhileItsLeaseIsHeld(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		both := func(token int64, reason string, highest int64) {
			t.Helper()
			one.wantFence(token, reason, highest)
			two.wantFence(token, reason, highest)
		}
		both(1500, fenceUnknown, 0)
		a := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		both(a.FencingToken, "", a.FencingToken)
		both(a.FencingToken+1, fenceUnknown, a.FencingToken)
		both(a.FencingToken-1, fenceSuperseded, a.FencingToken)
		b := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		waits := s.node(b.Znode).stat.Czxid
		two.wantFence(waits, fenceWaiting, a.FencingToken)
		one.mustRelease(a)
		both(waits, "", waits)
		both(a.FencingToken, fenceSuperseded, waits)
		two.mustRelease(b)
		two.wantFence(waits, fenceEnded, waits)
		one.wantFence(a.FencingToken, fenceEnded, a.FencingToken) // one never ran the other lease
	})
}

// Attack 18. Rule: "current" is said after a transaction that was sent after the
// question, in a replica that has come to it.
func TestALaggingGatewayDoesNotCallATokenCurrentWhoseSuccessorWrites(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		a := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		assert.Must(t, two.current(a.FencingToken), "not current")
		two.w.hold()
		one.mustRelease(a)
		b := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		assert.Must(t, !two.current(a.FencingToken), "a token is called current whose successor is writing")
		two.w.release()
		two.wantFence(a.FencingToken, fenceSuperseded, b.FencingToken)
		two.wantFence(b.FencingToken, "", b.FencingToken)
	})
}

// Attack 18, the other way round: the token of the new holder is asked of a gateway that has not seen it. Rule: a token
// above what the replica has come to needs the barrier.
func TestATokenThatIsNewToAGatewayIsNotRefusedFromMemory(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		a := two.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		two.mustRelease(a)
		two.w.hold()
		b := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		answered := make(chan locks.FenceAnswer, 1)
		go func() {
			answer, err := two.fence(b.FencingToken)
			assert.Nil(t, err)
			answered <- answer
		}()
		time.Sleep(100 * time.Millisecond)
		testkit.Nothing(t, answered, "answered by a gateway that has not seen it")
		two.w.release()
		answer := <-answered
		assert.That(t, answer.Current, "%+v", answer)
	})
}

// The same for one who waited when the gateway last looked, and holds by now: by
// the word of another gateway, or of the one that has deposed this one.
func TestAHolderThatWaitedAMomentAgoIsNotRefusedFromMemory(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		a := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		b := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		token := s.node(b.Znode).stat.Czxid
		two.wantFence(token, fenceWaiting, a.FencingToken)
		two.w.hold()
		one.mustRelease(a)
		one.wantState(b, locks.Held, "")
		answer, err := two.fence(token)
		assert.Must(t, err != nil || answer.Current, "the holder's token is refused: %+v", answer)
		two.w.release()
	})
}

// Attack 36. Rule: as above. The owner has been deposed, has not noticed, and
// within its promise window may otherwise speak.
func TestAnOwnerThatIsDeposedDoesNotCallATokenCurrent(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		a := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		assert.Must(t, g.current(a.FencingToken), "not current")
		g.w.hold()
		g.session().depose()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: a.Znode, Version: -1}) // its successor ends the lease
		assert.Must(t, g.m.Trusted(), "the fence is closed: the scene shows nothing")
		assert.Must(t, !g.current(a.FencingToken), "a token is called current whose lease has ended")
		g.w.release()
		time.Sleep(time.Minute)
	})
}

// Attack 36, its other half: the owner's session is fine, its replica is behind.
func TestAnOwnerThatIsBehindDoesNotCallATokenCurrent(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		a := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		g.w.hold()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: a.Znode, Version: -1})
		assert.Must(t, g.m.Trusted(), "the fence is closed: the scene shows nothing")
		assert.Must(t, !g.current(a.FencingToken), "a token is called current whose lease has ended")
		g.w.release()
		g.wantFence(a.FencingToken, fenceEnded, a.FencingToken)
	})
}

// Rule: an answer stands on the session of its barrier. It came in time; when it
// is written the gateway may speak no more, or is another one.
func TestACurrentTokenIsPassedOnOnlyWhileTheAnswerIsVouchedFor(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		a := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		answer, err := g.fence(a.FencingToken)
		assert.Must(t, err == nil && answer.Current && g.m.StillValid(answer.Term), "%+v %v", answer, err)
		g.session().expire()
		time.Sleep(time.Second)
		assert.Must(t, g.m.Trusted(), "no new session")
		assert.That(t, !g.m.StillValid(answer.Term), "an answer of the former session is vouched for")
		g.wantFence(a.FencingToken, "", a.FencingToken) // taken over by the new one
	})
}

// What is on its way to its end is not called current, and not ended either:
// an end that time decided may turn out not to happen.
func TestALeaseThatIsEndingIsNotCalledCurrent(t *testing.T) {
	for _, done := range []bool{true, false} {
		t.Run(map[bool]string{true: "and ends", false: "and does not"}[done], in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			a := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
			release := make(chan struct{})
			s.mu.Lock()
			s.refuse = func(w *zk.Write) (int, error) {
				if len(w.Ops) > 0 && w.Ops[0].Kind == zk.OpDelete && w.Ops[0].Path == a.Znode {
					s.mu.Unlock()
					<-release // the answer is on its way
					s.mu.Lock()
					if !done {
						return 0, zk.ErrBadVersion
					}
				}
				return 0, nil
			}
			s.mu.Unlock()
			time.Sleep(10*time.Second + 100*time.Millisecond)
			answered := make(chan locks.FenceAnswer, 1)
			go func() {
				answer, _ := g.fence(a.FencingToken)
				answered <- answer
			}()
			time.Sleep(100 * time.Millisecond)
			testkit.Nothing(t, answered, "answered about a lease that is ending")
			close(release)
			answer := <-answered
			assert.That(t, answer.Current != done, "%+v", answer)
		}))
	}
}

// A holder that another program put there has a token, too: its czxid, which is read.
func TestAnotherProgramsHolderHasACurrentToken(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		path := s.foreignContender()
		synctest.Wait()
		token := s.node(path).stat.Czxid
		g.wantFence(token, "", token)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: path, Version: -1})
		assert.That(t, !g.current(token), "current after its end")
	})
}

// A holder whose contender may not be read has a token that no gateway can tell.
func TestATokenThatCannotBeReadIsNotGuessed(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		s.set(func() { s.hidden = func(path string) bool { return path == foreignName+"0000000001" } })
		path := s.foreignContender()
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: time.Minute}) // makes the gateway list the directory
		time.Sleep(time.Second)
		_, err := g.fence(s.node(path).stat.Czxid)
		wantCode(t, err, locks.CodeUnavailable)
		p.stop()
		<-p.done
	})
}

func TestAFenceCheckRefusesWhatIsNoToken(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, req := range []locks.FenceRequest{{Lock: "deploy"}, {Lock: "deploy", Token: -1}, {Lock: "a/b", Token: 1}, {Lock: "deploy", NS: "elsewhere", Token: 1}} {
			_, err := g.m.Fence(t.Context(), req)
			var e *locks.Error
			assert.That(t, errors.As(err, &e) && e.Field != "", "%+v: %v", req, err)
		}
		assert.Equal(t, len(g.m.replica.Namespaces[locks.DefaultNamespace].Queues.Items()), 0, "queues are kept")
	})
}

// Of those who share a lock each has a token of its own, and each is current. One whose contender was written to since
// it was read is not taken for gone because a later one is known.
func TestEachSharedHolderHasACurrentToken(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		_, first := s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/read-", Sequential: true})
		_, second := s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/read-", Sequential: true})
		synctest.Wait()
		one, two := s.node(first[0]).stat.Czxid, s.node(second[0]).stat.Czxid
		g.wantFence(one, "", two)
		g.wantFence(two, "", two)
		s.foreignSeen(zk.Op{Kind: zk.OpSetData, Path: first[0], Data: []byte("still here"), Version: -1})
		g.wantFence(one, "", two)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: first[0], Version: -1})
		g.wantFence(one, fenceSuperseded, two)
	})
}

// A lease of several locks has one token in all of them, and it is current in none before it is granted in each.
func TestAGroupsTokenIsCurrentWhenItHoldsAllItsLocks(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		other := one.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		group := one.mustAcquire(locks.AcquireRequest{Group: []locks.Want{{Lock: "deploy"}, {Lock: "other"}}, TTL: time.Hour, Async: true})
		token := s.node(group.Locks[0].Znode).stat.Czxid
		one.wantFence(token, fenceWaiting, 0)
		two.wantFence(token, fenceWaiting, 0)
		one.mustRelease(other)
		one.wantState(group, locks.Held, "")
		one.wantFence(token, "", token)
		two.wantFence(token, "", token)
		one.mustRelease(group)
		assert.That(t, !two.current(token), "current after its end")
	})
}

// The writer was told of a holder's end before the replica shows it. Rule: who
// stands behind is neither a holder nor one who waits until it does.
func TestAContenderBehindAnEndThatOnlyTheWriterKnowsOfIsNotJudged(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		a := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		b := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		token := s.node(b.Znode).stat.Czxid
		one.wantFence(token, fenceWaiting, a.FencingToken)
		one.w.hold()
		one.mustRelease(a)
		one.m.mu.Lock()
		f := one.m.find(one.m.replica.Namespaces[locks.DefaultNamespace].Find("deploy"), token)
		one.m.mu.Unlock()
		assert.That(t, f.behind, "%+v", f)
		one.w.release()
		one.wantFence(token, "", token)
	})
}

// No event tells of a record that was written while the observer was away, and a tree read lists names.
func TestATokenIsNotCurrentWhoseLeaseEndedInAGap(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		a := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, LockDelay: time.Minute, LockDelayOn: locks.DelayAlways})
		assert.Must(t, two.current(a.FencingToken), "not current")
		two.w.disconnect()
		one.mustRelease(a)
		two.w.reconnect()
		assert.That(t, !two.current(a.FencingToken), "current, and its client let go")
		two.wantFence(a.FencingToken, fenceDelayed, a.FencingToken)
	})
}

// Of a lease of several locks the end is in the first one's contender alone.
func TestATokenOfSeveralLocksIsCurrentInNoneOfThemOnceItHasEnded(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		req := both(0)
		req.LockDelay, req.LockDelayOn = time.Minute, locks.DelayAlways
		l := one.mustHold(req)
		ask := func(g *gate) map[string]bool {
			current := map[string]bool{}
			for _, lock := range []string{"b", "a"} {
				f := assert.Value(g.m.Fence(t.Context(), locks.FenceRequest{Lock: lock, Token: l.FencingToken}))(t)
				current[lock] = f.Current
			}
			return current
		}
		for _, g := range []*gate{one, two} {
			c := ask(g)
			assert.That(t, c["a"] && c["b"], "current: %v, and it is held", c)
		}
		one.mustRelease(l)
		for _, g := range []*gate{one, two} {
			c := ask(g)
			assert.That(t, !c["a"] && !c["b"], "current: %v, and its client let go", c)
		}
	})
}
