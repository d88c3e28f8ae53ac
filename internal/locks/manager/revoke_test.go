package manager

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) revoke(reason string, force time.Duration) (locks.RevokeAnswer, error) {
	return g.m.Revoke(g.t.Context(), locks.RevokeRequest{Lock: "deploy", Reason: reason, ForceAfter: force})
}

func (g *gate) mustRevoke(reason string, force time.Duration) locks.RevokeAnswer {
	g.t.Helper()
	answer := assert.Value(g.revoke(reason, force))(g.t, "revoke")
	synctest.Wait()
	return answer
}

// asksNone checks that a revocation is refused because no holder can be asked, for a reason with these words.
func (g *gate) asksNone(words string) *locks.Error {
	g.t.Helper()
	_, err := g.revoke("why", time.Second)
	e := wantCode(g.t, err, locks.CodeNothingToAsk)
	assert.That(g.t, strings.Contains(e.Detail, words), "%q does not tell %q", e.Detail, words)
	synctest.Wait()
	return e
}

// asked is what the holder of a lease is told with its heartbeat.
func (g *gate) asked(l locks.Lease) locks.Revocation {
	g.t.Helper()
	h := assert.Value(g.heartbeat(l))(g.t, "heartbeat")
	if h.Revoke == nil {
		return locks.Revocation{}
	}
	return *h.Revoke
}

func TestAHolderLearnsThatItIsAskedToRelease(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for i, asker := range []*gate{one, two} {
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me"})
			seen := one.look(l)
			assert.MustEqual(t, one.asked(l), locks.Revocation{}, "no administrator has asked, and its holder is told")
			lock := assert.Value(one.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"}))(t)
			polled := make(chan *locks.Revocation, 2)
			go func() {
				v, _ := one.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Wait: time.Minute, Since: seen.Rev})
				polled <- v.Revoke
			}()
			go func() {
				v, _ := one.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy", Wait: time.Minute, Since: lock.Rev})
				polled <- v.Holders[0].Revoke
			}()
			synctest.Wait()
			answer := asker.mustRevoke("a deployment waits", 0)
			if len(answer.Asked) != 1 || len(answer.Not) != 0 || answer.Asked[0].LeaseID != l.ID || answer.Asked[0].Owner != "me" ||
				answer.Asked[0].Revoke == nil || answer.Asked[0].Revoke.Reason != "a deployment waits" || answer.Asked[0].Revoke.Forced {
				t.Fatalf("gateway %d: %+v", i, answer)
			}
			assert.Equal(t, one.asked(l), locks.Revocation{Reason: "a deployment waits"}, "gateway %d: its holder is told", i)
			for range 2 {
				told := <-polled
				assert.That(t, told != nil && told.Reason == "a deployment waits", "gateway %d: a long poll is told %+v", i, told)
			}
			for _, g := range []*gate{one, asker} {
				list := g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevokeRequested)}, ring)
				assert.That(t, len(list) != 0 && list[len(list)-1].LeaseID == l.ID && list[len(list)-1].Detail == "a deployment waits",
					"gateway %d: told %+v", i, list)
			}
			time.Sleep(30 * time.Minute)
			one.wantState(l, locks.Held, "") // asking alone ends nothing
			one.mustRelease(l)
		}
	})
}

func TestALockWithoutAHolderHasNoneToAsk(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		e := g.asksNone("no lease holds the lock")
		assert.That(t, len(e.Holders) == 0, "%+v", e)
		g.m.mu.Lock()
		defer g.m.mu.Unlock()
		assert.That(t, g.m.replica.Namespaces[locks.DefaultNamespace].Find("deploy") == nil, "the question has left a queue behind")
	})
}

func TestAWaiterIsNotAsked(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		waiter := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		answer := g.mustRevoke("why", 10*time.Second)
		assert.Must(t, len(answer.Asked) == 1 && answer.Asked[0].LeaseID == holder.ID, "%+v", answer)
		assert.Equal(t, g.asked(waiter), locks.Revocation{}, "the revocation of a waiter")
		time.Sleep(11 * time.Second)
		g.wantState(holder, locks.Ended, locks.ReasonRevoked)
		g.wantState(waiter, locks.Held, "")
	})
}

func TestForceEndsTheLeaseOfAHolderThatDoesNotRelease(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, asker := range []*gate{one, two} {
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			asker.mustRevoke("the node goes down", 20*time.Second)
			if asked := one.asked(l); !asked.Forced || asked.ForceIn <= 19*time.Second || asked.ForceIn > 20*time.Second {
				t.Fatalf("its holder is told %+v", asked)
			}
			if h, _ := one.heartbeat(l); h.ExpiresIn > h.Revoke.ForceIn {
				t.Errorf("its holder is told that it has %v, and that it is ended in %v", h.ExpiresIn, h.Revoke.ForceIn)
			}
			time.Sleep(19 * time.Second)
			one.wantState(l, locks.Held, "")
			time.Sleep(2 * time.Second)
			one.wantState(l, locks.Ended, locks.ReasonRevoked)
			_, err := one.heartbeat(l)
			if e := wantCode(t, err, locks.CodeEnded); e.Reason != locks.ReasonRevoked || !strings.Contains(e.Detail, "the node goes down") {
				t.Errorf("its holder is told %+v", e)
			}
			assert.Equal(t, wantCode(t, one.release(l), locks.CodeEnded).Reason, locks.ReasonRevoked, "a release is told")
			e := one.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevoked)}, 1)
			assert.That(t, len(e) == 1 && e[0].LeaseID == l.ID && e[0].Reason == "revoked" && e[0].Detail == "the node goes down",
				"told %+v", e)
		}
	})
}

func TestAskedAgainTheLastWordsAndTheEarliestForceCount(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, asker := range []*gate{one, two} {
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			want := func(reason string, forced bool, in time.Duration) {
				t.Helper()
				synctest.Wait()
				asked := one.asked(l)
				assert.That(t, asked.Reason == reason && asked.Forced == forced && asked.ForceIn <= in && asked.ForceIn >= in-time.Second,
					"its holder is told %+v, want %q in %v", asked, reason, in)
			}
			asker.mustRevoke("please", 0)
			want("please", false, 0)
			asker.mustRevoke("soon", time.Minute)
			want("soon", true, time.Minute)
			time.Sleep(10 * time.Second)
			asker.mustRevoke("soon", time.Minute) // a repeat changes nothing
			want("soon", true, 50*time.Second)
			asker.mustRevoke("some time", 5*time.Minute)
			want("some time", true, 50*time.Second)
			asker.mustRevoke("never mind", 0)
			want("never mind", true, 50*time.Second)
			asker.mustRevoke("now", 30*time.Second)
			want("now", true, 30*time.Second)
			one.mustRelease(l)
		}
	})
}

func TestForceSurvivesATakeoverAndCountsAnew(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.mustRevoke("the node goes down", time.Minute)
		time.Sleep(40 * time.Second)
		one.crash()
		time.Sleep(11 * time.Second) // taken over
		synctest.Wait()
		asked := two.asked(l)
		assert.Must(t, asked.Reason == "the node goes down" && asked.Forced, "its holder is told %+v", asked)
		// The old gateway may have confirmed it for a promise window more.
		most := time.Minute + fakeWindow
		assert.That(t, asked.ForceIn <= most && asked.ForceIn >= most-5*time.Second, "force in %v, want %v", asked.ForceIn, most)
		time.Sleep(asked.ForceIn + time.Second)
		two.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}

func TestForceSurvivesTheSessionOfItsGateway(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		g.mustRevoke("the node goes down", 5*time.Second)
		id := g.m.Info(t.Context()).GatewayID
		s.mu.Lock()
		session := s.sessions[id]
		s.mu.Unlock()
		session.expire()
		time.Sleep(20 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}

// Nothing ends while the gateway may not speak; force that came due meanwhile
// ends the lease right afterwards, however long it lasted.
func TestForceWaitsForTheFenceAndNoLonger(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		g.mustRevoke("the node goes down", 15*time.Second)
		s.set(func() { s.away = true })
		pass(30 * time.Second)
		assert.Must(t, s.node(l.Znode).stat.Czxid != 0, "ended while ZooKeeper was away")
		s.set(func() { s.away = false })
		time.Sleep(5 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}

// A revocation is told only when it is written: no client must know of what might be lost with the gateway.
func TestARevocationIsWrittenBeforeItIsTold(t *testing.T) {
	t.Run("refused", in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		s.mu.Lock()
		s.refuse = func(w *zk.Write) (int, error) {
			if len(w.Ops) > 0 && w.Ops[0].Kind == zk.OpSetData {
				return 0, zk.ErrNoAuth
			}
			return -1, nil
		}
		s.mu.Unlock()
		g.asksNone("ACL")
		assert.Equal(t, g.asked(l), locks.Revocation{}, "its holder is told")
		time.Sleep(time.Minute)
		g.wantState(l, locks.Held, "")
	}))
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			for _, asker := range []*gate{one, two} {
				l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
				s.set(func() { s.vague, s.drop = once(t, rewrites), !persisted })
				answer := asker.mustRevoke("why", time.Minute)
				assert.Must(t, len(answer.Asked) == 1, "%+v", answer)
				r, _ := record.Parse(s.node(l.Znode).data)
				assert.That(t, r.Revoke != nil && *r.Revoke == (record.Revocation{Reason: "why", Force: 60_000}),
					"written is %+v", r.Revoke)
				asked := one.asked(l)
				assert.That(t, asked.Reason == "why" && asked.Forced, "its holder is told %+v", asked)
				one.mustRelease(l)
			}
		})
	})
}

func TestALeaseThatEndsMeanwhileIsNotAsked(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, asker := range []*gate{one, two} {
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			gone := false
			s.beforeWrites(func(w *zk.Write) {
				if !gone && len(w.Ops) == 1 && w.Ops[0].Kind == zk.OpSetData {
					gone = true
					s.tx([]zk.Op{{Kind: zk.OpDelete, Path: l.Znode, Version: -1}})
				}
			})
			if asker.asksNone("no lease holds the lock"); !gone {
				t.Error("the lease is still there")
			}
			one.wantState(l, locks.Ended, locks.ReasonRemoved)
		}
	})
}

// The reply to the write that asks another gateway's lease is lost, and force has ended the lease when the asker reads it again: it was
// asked, perhaps, and "no holder was asked" would be wrong. In pairs: the write was done, or another client has ended the lease.
func TestALeaseThatForceEndsBeforeItsAskerKnowsMayHaveBeenAsked(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Minute} {
		for _, done := range []bool{true, false} {
			t.Run(fmt.Sprint("delay ", delay, " done ", done), in(fleetScene, func(t *testing.T, s *fakeStore) {
				h := s.hooked()
				one, two := s.gateway(t), h.gateway(t)
				talk(one, two)
				l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, LockDelay: delay})
				synctest.Wait()
				asks := func(w *zk.Write) bool {
					return len(w.Ops) == 1 && w.Ops[0].Kind == zk.OpSetData && bytes.Contains(w.Ops[0].Data, []byte("why"))
				}
				s.set(func() { s.vague, s.drop = asks, !done })
				h.hooks.Store(&hooks{result: func(w *zk.Write, _ *zk.Result) {
					if !asks(w) {
						return
					}
					s.set(func() { s.vague = nil })
					if !done {
						one.mustRelease(l)
					}
					time.Sleep(5 * time.Second)
				}})
				_, err := two.revoke("why", time.Millisecond)
				wantCode(t, err, locks.CodeOutcomeUnknown)
				one.wantState(l, locks.Ended, map[bool]locks.Reason{true: locks.ReasonRevoked, false: locks.ReasonReleased}[done])
			}))
		}
	}
}

func TestAnotherProgramsHolderCannotBeAsked(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		foreign := s.foreignContender()
		synctest.Wait()
		e := g.asksNone("break")
		assert.That(t, len(e.Holders) == 1 && e.Holders[0].Znode == foreign, "%+v", e)
		time.Sleep(time.Minute)
		n := s.node(foreign)
		assert.That(t, n.stat.Czxid != 0 && string(n.data) == "10.0.0.7", "another program's contender was touched: %+v", n)
	})
}

func TestARevocationIsRefusedWhereItMakesNoSense(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, test := range []struct {
			req   locks.RevokeRequest
			code  locks.Code
			field string
		}{
			{locks.RevokeRequest{Lock: "a/b"}, locks.CodeInvalid, "lock"},
			{locks.RevokeRequest{Lock: "deploy", Reason: strings.Repeat("x", locks.MaxReasonText+1)}, locks.CodeInvalid, "reason"},
			{locks.RevokeRequest{Lock: "deploy", Reason: "a\nb"}, locks.CodeInvalid, "reason"},
			{locks.RevokeRequest{Lock: "deploy", ForceAfter: locks.MaxForceAfter + 1}, locks.CodeInvalid, "force_after"},
			{locks.RevokeRequest{Lock: "deploy", ForceAfter: -1}, locks.CodeInvalid, "force_after"},
			{locks.RevokeRequest{Lock: "deploy", NS: "missing"}, locks.CodeNamespaceUnknown, "ns"},
		} {
			_, err := g.m.Revoke(t.Context(), test.req)
			e := wantCode(t, err, test.code)
			assert.That(t, e.Field == test.field, "%+v: %v", test.req, e)
		}
		s.set(func() { s.away = true })
		_, err := g.revoke("why", 0)
		wantCode(t, err, locks.CodeUnavailable)
	})
}

// An earlier force is not taken back by a later question without one, nor for the gateway that takes the lease over.
func TestAnEarlierForceStaysInTheRecord(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		for i, asker := range []*gate{one, two} {
			asker.mustRevoke(fmt.Sprint("soon ", i), time.Minute)
			asker.mustRevoke(fmt.Sprint("never mind ", i), 0)
			asker.mustRevoke(fmt.Sprint("some time ", i), time.Hour)
			if r, _ := record.Parse(s.node(l.Znode).data); r.Revoke == nil || *r.Revoke != (record.Revocation{Reason: fmt.Sprint("some time ", i), Force: 60_000}) {
				t.Errorf("written is %+v", r.Revoke)
			}
		}
	})
}

// The event of a write may come before its answer.
func TestALongPollIsWokenWhenTheRevocationIsKnown(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		h.hooks.Store(&hooks{result: func(*zk.Write, *zk.Result) { time.Sleep(100 * time.Millisecond) }})
		polled := make(chan time.Duration, 2)
		begun := time.Now()
		go func() {
			rev := l.Rev
			for {
				v, _ := g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Wait: time.Minute, Since: rev})
				if rev = v.Rev; v.Revoke != nil {
					break
				}
			}
			polled <- time.Since(begun)
		}()
		go func() {
			v, _ := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
			for v.Holders[0].Revoke == nil {
				v, _ = g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy", Wait: time.Minute, Since: v.Rev})
			}
			polled <- time.Since(begun)
		}()
		synctest.Wait()
		g.mustRevoke("why", 0)
		for range 2 {
			took := <-polled
			assert.That(t, took <= 2*time.Second, "a poll was told after %v", took)
		}
	})
}

// What a record says is read before its lease is ended: it may be another's by now.
func TestForceReadsTheRecordFirst(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		g.mustRevoke("why", 5*time.Second)
		h.failReads(l.Znode)
		id := g.m.Info(t.Context()).GatewayID
		s.mu.Lock()
		session := s.sessions[id]
		s.mu.Unlock()
		session.expire()
		time.Sleep(time.Minute)
		assert.Must(t, s.node(l.Znode).stat.Czxid != 0, "it was ended unread")
		h.hooks.Store(&hooks{})
		time.Sleep(5 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}

// The record of a lease over several locks stands in the first of them; asked for any of them, it ends in all.
func TestALeaseOfSeveralLocksIsAskedByAnyOfThem(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, asker := range []*gate{one, two} {
			l := one.mustHold(locks.AcquireRequest{TTL: time.Hour, Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}})
			before := len(asker.tells(events.LeaseRevokeRequested))
			answer, err := asker.m.Revoke(t.Context(), locks.RevokeRequest{Lock: "b", Reason: "why", ForceAfter: 10 * time.Second})
			assert.Must(t, err == nil && len(answer.Asked) == 1 && answer.Asked[0].LeaseID == l.ID, "%+v %v", answer, err)
			synctest.Wait()
			asked := one.asked(l)
			assert.That(t, asked.Reason == "why" && asked.Forced, "its holder is told %+v", asked)
			n := len(asker.tells(events.LeaseRevokeRequested)) - before
			assert.That(t, n == 2, "told %d times", n)
			time.Sleep(11 * time.Second)
			one.wantState(l, locks.Ended, locks.ReasonRevoked)
			assert.Equal(t, s.waiting("a", "b"), 0, "contenders are left")
		}
	})
}
