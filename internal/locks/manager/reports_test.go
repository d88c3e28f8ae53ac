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
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestEveryGatewayTellsTheSameStory(t *testing.T) {
	ends := map[string]struct {
		end  func(one, two *gate)
		want string
	}{
		"released": {func(one, _ *gate) { one.mustRelease(one.mustHold(deploy())) }, "released"},
		"expired":  {func(one, _ *gate) { one.mustHold(deploy()) }, "expired"},
		"cancelled": {func(one, two *gate) {
			holder := two.mustHold(deploy())
			one.mustRelease(one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Async: true}))
			two.mustRelease(holder)
		}, "cancelled"},
		"wait elapsed": {func(one, two *gate) {
			holder := two.mustHold(deploy())
			_, err := one.acquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Second})
			wantCode(one.t, err, locks.CodeWaitElapsed)
			two.mustRelease(holder)
		}, "wait_elapsed"},
		"unclaimed": {func(one, two *gate) {
			holder := two.mustHold(deploy())
			one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: 2 * time.Second, Async: true})
			two.mustRelease(holder)
		}, "unclaimed"},
		"broken by its own gateway": {func(one, _ *gate) {
			assert.Nil(one.t, one.breakLease(one.mustHold(deploy()), "burnt down"))
		}, "revoked burnt down"},
		"broken by another gateway": {func(one, two *gate) {
			l := one.mustHold(deploy())
			assert.Nil(one.t, two.breakLease(l, "burnt down"))
			time.Sleep(10 * time.Millisecond)
			_, err := one.heartbeat(l)
			e := wantCode(one.t, err, locks.CodeEnded)
			assert.That(one.t, e.Reason == locks.ReasonRevoked && strings.Contains(e.Detail, "burnt down"), "its client is told %+v", e)
		}, "revoked burnt down"},
		"reaped by another gateway": {func(one, two *gate) {
			one.mustHold(deploy())
			a, err := two.m.Reap(two.t.Context(), locks.ReapRequest{Lock: "deploy", Reason: "old", Client: "10.0.0.7"})
			assert.That(one.t, err == nil && len(a.Reaped) == 1, "%+v %v", a, err)
		}, "revoked old"},
		"destroyed by another gateway": {func(one, two *gate) {
			l := one.mustHold(deploy())
			a, err := two.m.Destroy(two.t.Context(), locks.DestroyRequest{Lock: "deploy", Reason: "no more", Client: "10.0.0.7"})
			assert.That(one.t, err == nil && a.Ended == 1, "%+v %v", a, err)
			time.Sleep(10 * time.Millisecond)
			one.wantState(l, locks.Ended, locks.ReasonDestroyed)
			n := len(one.tells(events.LockDestroyed))
			assert.That(one.t, n == 1, "its destruction is told %d times", n)
		}, "destroyed no more"},
		"deleted by another program": {func(one, _ *gate) {
			l := one.mustHold(deploy())
			one.s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		}, "removed"},
		"expired with a lock delay": {func(one, two *gate) {
			one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Second, LockDelay: 20 * time.Second})
			two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			time.Sleep(5 * time.Second)
			told := two.reasons("deploy")
			assert.That(one.t, len(told) == 1, "its place stays, and its end is told as %v", told)
		}, "expired"},
		"several locks": {func(one, two *gate) {
			l := one.mustHold(locks.AcquireRequest{TTL: time.Hour, Group: []locks.Want{{Lock: "deploy"}, {Lock: "other"}}})
			assert.Nil(one.t, two.breakLease(l, "burnt down"))
			time.Sleep(10 * time.Millisecond)
			wantSameStory(one.t, "other", one, two)
		}, "revoked burnt down"},
	}
	for name, test := range ends {
		t.Run(name, in(fleetScene, func(t *testing.T, s *fakeStore) {
			one, two, three := s.gateway(t), s.gateway(t), s.gateway(t)
			talk(one, two, three)
			test.end(one, two)
			time.Sleep(time.Minute)
			last := three.mustHold(deploy())
			three.mustRelease(last)
			time.Sleep(time.Minute)
			wantSameStory(t, "deploy", one, two, three)
			told := one.reasons("deploy")
			assert.That(t, slices.Contains(told, test.want), "told %q, want %q", told, test.want)
		}))
	}
}

func TestAPostmortemIsTheSameAtEveryGatewayAndOutlivesTheOneThatRanTheLease(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		talk(one, two)
		first := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Owner: "me"})
		next := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "you", Async: true})
		time.Sleep(5 * time.Second)
		assert.Value(one.heartbeat(first))(t)
		broken := one.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		assert.NoError(t, two.breakLease(broken, "burnt down"))
		time.Sleep(25 * time.Second)
		two.wantState(next, locks.Held, "")
		assert.Value(two.heartbeat(next))(t)
		var late *gate
		same := func(when string) {
			t.Helper()
			for i, g := range []*gate{two, late} {
				if g == nil {
					continue
				}
				p := g.mustPostmortem(first)
				if p.Reason != locks.ReasonExpired || p.Owner != "me" || p.TTL != 20*time.Second || !about(p.HeldFor, 25*time.Second) || !about(p.LastHeartbeat, 20*time.Second) ||
					p.FencingToken != first.FencingToken || p.Next == nil || p.Next.LeaseID != next.ID || p.Next.Owner != "you" || !about(time.Since(p.EndedAt), p.EndedAgo) {
					t.Errorf("%s: gateway %d says %+v, next %+v", when, i, p, p.Next)
				}
				if p := g.mustPostmortem(broken); p.Reason != locks.ReasonRevoked || p.Detail != "burnt down" || p.TTL != time.Hour || p.FencingToken != broken.FencingToken {
					t.Errorf("%s: gateway %d says %+v", when, i, p)
				}
			}
		}
		same("while it lives")
		late = s.gateway(t)
		late.hears(one, time.Millisecond)
		late.hears(two, time.Millisecond)
		time.Sleep(time.Second)
		same("told to one that came later")
		one.crash()
		time.Sleep(time.Minute)
		same("after its death")
		for _, g := range []*gate{two, late} {
			_, err := g.heartbeat(first)
			assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonExpired, "its client is told")
		}
	})
}

func TestAnEndIsToldAtMostASecondLateWhenTheReportDoesNotCome(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		stream := two.hears(one, time.Millisecond)
		l := one.mustHold(deploy())
		waiter := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		before := len(two.story("deploy"))
		stream.stalled.Store(true)
		one.mustRelease(l)
		ended := time.Now()
		two.wantState(waiter, locks.Held, "") // nothing but the telling waits
		other := two.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		if told := two.story("other"); len(told) != 2 {
			t.Errorf("another lock's events wait too: %v", told)
		}
		two.mustRelease(other)
		third := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		time.Sleep(time.Until(ended.Add(reports.HoldBack - time.Millisecond)))
		if told := two.story("deploy"); len(told) != before {
			t.Errorf("told too early: %v", told[before:])
		}
		time.Sleep(2 * time.Millisecond)
		wantWords(t, two.story("deploy")[before:], "lease.removed "+l.ID+" exclusive unknown ", "lease.granted "+waiter.ID+" exclusive  ", "lease.queued "+third.ID+" exclusive  ")
		for _, e := range two.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(append(endTypes, events.LeaseGranted)...)}, ring) {
			if e.LeaseID == waiter.ID && !e.Time.Equal(ended.UTC()) || e.LeaseID == l.ID && e.Type == events.LeaseRemoved && !e.Time.Equal(ended.UTC()) {
				t.Errorf("%v is said to have happened at %v, it was at %v", e.Type, e.Time, ended)
			}
		}
		_, err := two.postmortem(l)
		assert.That(t, err != nil, "a postmortem of an end that no gateway reported")
		stream.stalled.Store(false)
		time.Sleep(time.Second)
		assert.Equal(t, two.mustPostmortem(l).Reason, locks.ReasonReleased, "the word that came late is not remembered")
		if told := two.story("deploy")[before:]; len(told) != 3 {
			t.Errorf("told again: %v", told)
		}
	})
}

func TestNothingIsDelayedWhereNoPeerCanKnow(t *testing.T) {
	fleetScene(t, func(t *testing.T, s *fakeStore) {
		one := s.gateway(t)
		l := one.mustHold(deploy())
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		wantWords(t, one.tells(endTypes...), "lease.removed removed")
		two := s.gateway(t)
		l = two.mustHold(deploy())
		time.Sleep(reports.ConnectWithin) // no gateway follows it: it has no address that works
		two.mustRelease(l)
		wantWords(t, one.tells(endTypes...), "lease.removed removed", "lease.removed unknown")
	})
}

func TestWhatIsHeldBackIsBounded(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		two.hears(one, time.Millisecond).stalled.Store(true)
		one.mustRelease(one.mustHold(deploy()))
		for range reports.MaxDelayedOfLock / 2 {
			one.mustRelease(one.mustAcquire(deploy()))
		}
		told := two.reasons("deploy")
		assert.That(t, len(told) >= reports.MaxDelayedOfLock/4, "%d ends are told at the bound of a lock", len(told))
		for i := range reports.MaxDelayed/3 + 100 {
			one.mustRelease(one.mustHold(locks.AcquireRequest{Lock: fmt.Sprint("lock-", i), TTL: time.Minute}))
		}
		synctest.Wait()
		two.m.mu.Lock()
		n := two.m.reports.Size().Delayed
		two.m.mu.Unlock()
		assert.That(t, n <= reports.MaxDelayed, "%d events are held back", n)
		checkAll(t, s, two)
		time.Sleep(2 * time.Second)
		two.m.mu.Lock()
		defer two.m.mu.Unlock()
		assert.Equal(t, two.m.reports.Size(), reports.Sizes{}, "is still kept")
	})
}

// A peer report explains an end: it grants, ends and keeps no lease.
func TestPeerReportsEndNothing(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		talk(one, two)
		l := one.mustHold(deploy())
		waiter := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		name := base(l.Znode)
		for _, kind := range []reports.Kind{reports.Termination, reports.Confirmed, reports.Ended, reports.Destroyed, reports.Withdrawn, "future"} {
			for _, id := range []string{l.ID, waiter.ID, "", "nonsense"} {
				for _, g := range []*gate{one, two} {
					from := map[*gate]*gate{one: two, two: one}[g]
					g.m.Receive(from.id(), append(reports.Encode([]reports.Report{
						{Kind: kind, Lease: recipe.LeaseID(id), NS: "default", Lock: "deploy", Name: name, Reason: locks.ReasonExpired, Words: "a lie", Ended: 1, Held: 5,
							Next: &reports.Next{Name: "x", After: 1}},
						{Kind: reports.Ended, Owner: strings.Repeat("x", locks.MaxOwner+1)},
					}), []byte("{")))
				}
			}
		}
		time.Sleep(2 * time.Second)
		one.wantState(l, locks.Held, "")
		two.wantState(waiter, locks.Waiting, "")
		for _, g := range []*gate{one, two} {
			lock, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
			assert.That(t, err == nil && len(lock.Holders) == 1 && lock.Holders[0].LeaseID == l.ID && len(lock.Waiters) == 1,
				"the queue is %+v %v", lock, err)
			told := g.tells(endTypes...)
			assert.That(t, len(told) <= 0, "told %v", told)
		}
		_, err := one.heartbeat(l)
		assert.Nil(t, err, "its heartbeat")
		_, err = one.postmortem(l)
		assert.That(t, err != nil, "a postmortem of a lease that lives")
		one.mustRelease(l)
		time.Sleep(2 * time.Second)
		two.wantState(waiter, locks.Held, "")
		assert.Slices(t, one.reasons("deploy"), []string{"released"}, "its own gateway tells")
		told := two.reasons("deploy")
		assert.That(t, len(told) == 1, "another one tells %q", told)
	})
}

func TestAnEndThatWasAnnouncedAndNotDoneExplainsNothing(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		talk(one, two)
		l := one.mustHold(deploy())
		s.set(func() {
			s.refuse = func(w *zk.Write) (int, error) {
				if len(w.Ops) > 0 && w.Ops[0].Path == l.Znode {
					return 0, zk.ErrNoAuth
				}
				return 0, nil
			}
		})
		assert.Must(t, two.breakLease(l, "burnt down") != nil, "broken")
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Second)
		one.wantState(l, locks.Held, "")
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		time.Sleep(2 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonRemoved)
		wantSameStory(t, "deploy", one, two)
	})
}

// The report comes before the replica shows the contender.
func TestAReportThatComesBeforeTheContenderWaitsForItsEnd(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		talk(one, two)
		gone := make(chan struct{})
		two.w.insert(func() { <-gone })
		l := one.mustHold(deploy())
		one.mustRelease(l)
		time.Sleep(5 * time.Second)
		told := two.story("deploy")
		assert.Must(t, len(told) <= 0, "told %v", told)
		close(gone)
		wantSameStory(t, "deploy", one, two)
		assert.Equal(t, two.mustPostmortem(l).Reason, locks.ReasonReleased)
		two.m.mu.Lock()
		defer two.m.mu.Unlock()
		assert.Equal(t, two.m.reports.Size().Reports, 0, "reports are kept")
	})
}

// The report finds the contender that a downgrade is about to replace; it is about the replacement.
func TestAReportAboutALeaseThatHasJustBeenDowngradedIsNotLostWithItsFormerContender(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} { // with a delay its place stays
		withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			talk(one, two)
			req := deploy()
			if delay > 0 {
				req.LockDelay, req.LockDelayOn = delay, locks.DelayAlways
			}
			l := one.mustHold(req)
			gone := make(chan struct{})
			two.w.insert(func() { <-gone })
			assert.Value(one.m.Downgrade(t.Context(), locks.Anonymous, l.ID, l.Token))(t)
			one.mustRelease(l)
			time.Sleep(100 * time.Millisecond)
			close(gone)
			time.Sleep(5 * time.Second)
			wantSameStory(t, "deploy", one, two)
			told := two.reasons("deploy")
			assert.That(t, slices.Contains(told, "released"), "told %q", told)
			two.m.mu.Lock()
			defer two.m.mu.Unlock()
			assert.Equal(t, two.m.reports.Size().Reports, 0, "reports are kept")
		})
	}
}

func TestAnotherProgramsContenderIsToldAsTakenBackByAll(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		talk(one, two)
		one.mustRelease(one.mustHold(deploy()))
		time.Sleep(time.Second)
		path := s.foreignContender()
		synctest.Wait()
		gone := make(chan struct{}) // the word is quicker than the watch, as it is where ZooKeeper is some way off
		two.w.insert(func() { <-gone })
		assert.NoError(t, one.breakNamed(base(path)))
		time.Sleep(10 * time.Millisecond)
		close(gone)
		time.Sleep(time.Second)
		wantSameStory(t, "deploy", one, two)
		told := two.reasons("deploy")
		assert.That(t, slices.Contains(told, "revoked stuck"), "told %q", told)
	})
}

func TestAFollowerGoesOnWhereItWasAndIsToldAllWhenItHasLostItsPlace(t *testing.T) {
	fleetScene(t, func(t *testing.T, s *fakeStore) {
		one := s.gateway(t)
		told := func(since string) (ids []string, at string) {
			for {
				lines, next, more := one.m.News(since)
				for _, r := range reports.Decode(lines) {
					ids = append(ids, string(r.Lease))
				}
				if since = next; more != nil {
					return ids, next
				}
			}
		}
		var want []string
		end := func(n int) {
			for range n {
				l := one.mustHold(deploy())
				one.mustRelease(l)
				want = append(want, l.ID)
			}
		}
		end(3 * reports.FeedBatch)
		one.m.mu.Lock()
		kept := one.m.reports.Size().Notices
		one.m.mu.Unlock()
		assert.That(t, kept <= 0, "%d notices are kept though no gateway follows", kept)
		ids, at := told("")
		assert.That(t, slices.Equal(ids, want), "%d ends told, want %d", len(ids), len(want))
		end(3)
		ids, _ = told(at)
		assert.That(t, slices.Equal(ids, want[len(want)-3:]), "told %d ends, want the last three", len(ids))
		for _, lost := range []string{"another." + at, at + ".x", at + ".1.2", "x"} {
			ids, _ := told(lost)
			assert.That(t, len(ids) >= len(want), "from %s: told %d ends, want %d", lost, len(ids), len(want))
		}
		one.m.mu.Lock()
		for i := range 3 * reports.MaxNotices {
			one.m.reports.Tell(reports.Notice{Kind: reports.Ended, Lease: recipe.LeaseID(fmt.Sprint("forgotten", i))})
		}
		kept = one.m.reports.Size().Notices
		one.m.unlock()
		assert.That(t, kept <= 2*reports.MaxNotices, "%d notices are kept", kept)
		ids, _ = told(at)
		assert.Equal(t, len(ids), len(want), "ends that a follower far behind is sent")
		assert.NoError(t, one.m.Drain(t.Context()))
		lines, _, more := one.m.News(at)
		assert.That(t, len(lines) != 0 || more == nil, "a gateway that is going does not say so")
	})
}

// An end by time may be taken back; that of a lease that has lost a part may not.
func TestPeerReportsDoNotDecideHowAnEndIsMade(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: time.Hour})
		s.mu.Lock()
		s.refuse = func(w *zk.Write) (int, error) {
			for i, op := range w.Ops {
				if op.Kind == zk.OpDelete && op.Version >= 0 {
					return i, zk.ErrBadVersion // by a heartbeat, say
				}
			}
			return -1, nil
		}
		s.mu.Unlock()
		one.m.Receive(two.id(), reports.Encode([]reports.Report{{Kind: reports.Termination, Lease: recipe.LeaseID(l.ID), NS: "default", Lock: "a", Name: base(l.Locks[0].Znode), Reason: locks.ReasonExpired}}))
		s.gone(l.Locks[1].Znode)
		one.m.Receive(two.id(), reports.Encode([]reports.Report{{Kind: reports.Confirmed, Lease: recipe.LeaseID(l.ID), NS: "default", Lock: "a", Name: base(l.Locks[0].Znode), Reason: locks.ReasonExpired}}))
		time.Sleep(time.Second)
		one.wantState(l, locks.Ended, locks.ReasonRemoved)
		names := s.names("/lockkeeper/locks/a")
		assert.That(t, len(names) == 0, "what is left of it: %v", names)
	})
}

func TestNothingIsToldAfterAManagerHasStopped(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustRelease(one.mustHold(deploy()))
		late := reports.Encode([]reports.Report{{Kind: reports.Destroyed, NS: "default", Lock: "deploy", Words: "w", Zxid: 999_999}})
		destroyed := func() (n int) {
			for _, e := range one.told() {
				if e.Type == events.LockDestroyed {
					n++
				}
			}
			return n
		}
		for range maxDestructions + 1 {
			one.m.Receive(two.id(), late)
		}
		assert.Equal(t, destroyed(), 1, "are told at once, more than may wait")
		one.stop()
		assert.Equal(t, destroyed(), maxDestructions+1, "are told when it stops")
		one.m.Receive(two.id(), late)
		time.Sleep(2 * destroyWithin)
		assert.Equal(t, destroyed(), maxDestructions+1, "are told")
	})
}

// The event of another gateway's deletion comes while this gateway's own, by time, is under way: its reply tells that it was not done.
func TestAnExpiryThatCameAfterATerminationIsToldAsThat(t *testing.T) {
	last := func(w *zk.Write) int { return len(w.Ops) - 1 }
	none := func(*zk.Write) int { return -1 }
	note := func(w *zk.Write) int {
		return slices.IndexFunc(w.Ops, func(op zk.Op) bool { return op.Kind == zk.OpCreate })
	}
	for name, c := range map[string]struct {
		fails    error
		culprit  func(*zk.Write) int
		conflict bool
	}{
		"it finds no contender":    {fails: zk.ErrNoNode, culprit: last},
		"it was lost on its way":   {fails: zk.ErrNotApplied, culprit: none},
		"another check failed":     {fails: zk.ErrNotApplied, culprit: none, conflict: true},
		"its note was there first": {fails: zk.ErrNodeExists, culprit: note},
	} {
		t.Run(name, in(notingScene, func(t *testing.T, s *fakeStore) {
			h := s.hooked()
			one, two := h.gateway(t), s.gateway(t)
			time.Sleep(time.Second) // the outbox knows its webhooks
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 2 * time.Second})
			h.hooks.Store(&hooks{result: func(_ *zk.Write, res *zk.Result) {
				if res.Err != nil {
					time.Sleep(100 * time.Millisecond) // the event comes before it is known
				}
				if res.Err != nil && c.conflict {
					*res = zk.Result{Outcome: zk.Conflict, Culprit: -1}
				}
			}})
			one.m.Receive(two.id(), reports.Encode([]reports.Report{{Kind: reports.Termination, Lease: recipe.LeaseID(l.ID), NS: "default", Lock: "deploy", Name: base(l.Znode), Reason: locks.ReasonRevoked, Words: "stuck"}}))
			s.mu.Lock()
			s.refuse = func(w *zk.Write) (int, error) {
				if own := w.Ops[last(w)]; own.Path == l.Znode && own.Version >= 0 {
					s.tx([]zk.Op{{Kind: zk.OpDelete, Path: l.Znode, Version: -1}})
					return c.culprit(w), c.fails
				}
				return -1, nil
			}
			s.mu.Unlock()
			time.Sleep(2*time.Second + 50*time.Millisecond) // its contender is gone, and which end was done is not known
			v := one.look(l)
			assert.That(t, v.State == locks.Held, "its end is told before its reason is known: %+v", v)
			_, err := one.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, 0)
			wantCode(t, err, locks.CodeUnavailable)
			time.Sleep(time.Second)
			one.wantState(l, locks.Ended, locks.ReasonRevoked)
			assert.Slices(t, one.reasons("deploy"), []string{"revoked stuck"}, "told")
		}))
	}
}

// The same of a lease of several locks, whose end is told of each lock when that lock's contender is gone.
func TestWhichEndOfALeaseOfSeveralLocksCameFirstIsToldInEachOfThem(t *testing.T) {
	for _, first := range []locks.Reason{locks.ReasonRevoked, locks.ReasonExpired} {
		t.Run(string(first), in(fleetScene, func(t *testing.T, s *fakeStore) {
			h := s.hooked()
			one, two := h.gateway(t), s.gateway(t)
			l := one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: 2 * time.Second})
			h.hooks.Store(&hooks{result: func(w *zk.Write, _ *zk.Result) {
				if writeTo(l.ID)(w) {
					time.Sleep(100 * time.Millisecond) // the events come before it is known
				}
			}})
			one.m.Receive(two.id(), reports.Encode([]reports.Report{{Kind: reports.Termination, Lease: recipe.LeaseID(l.ID), NS: "default", Lock: "a", Name: base(l.Locks[0].Znode), Reason: locks.ReasonRevoked, Words: "stuck"}}))
			if first == locks.ReasonRevoked {
				s.mu.Lock()
				s.refuse = func(w *zk.Write) (int, error) {
					if len(w.Ops) == 2 && writeTo(l.ID)(w) {
						s.refuse = nil
						s.tx([]zk.Op{{Kind: zk.OpDelete, Path: l.Locks[1].Znode, Version: -1}, {Kind: zk.OpDelete, Path: l.Locks[0].Znode, Version: -1}})
						return 0, zk.ErrNoNode
					}
					return -1, nil
				}
				s.mu.Unlock()
			}
			time.Sleep(3 * time.Second)
			one.wantState(l, locks.Ended, first)
			want := map[locks.Reason]string{locks.ReasonRevoked: "revoked stuck", locks.ReasonExpired: "expired"}[first]
			for _, lock := range []string{"a", "b"} {
				assert.Slices(t, one.reasons(lock), []string{want}, "told of "+lock)
			}
			checkAll(t, s, one)
		}))
	}
}

// Another client ends a lease right before force does. The events of that end come before the reply to the owner's write, which
// tells that it came too late.
func TestAnEndThatCameBeforeForceIsNotToldAsARevocation(t *testing.T) {
	for name, req := range map[string]locks.AcquireRequest{
		"one lock":                  {Lock: "deploy"},
		"one lock with a delay":     {Lock: "deploy", LockDelay: time.Second},
		"several locks":             {Group: []locks.Want{{Lock: "a"}, {Lock: "deploy"}}},
		"several locks and a delay": {Group: []locks.Want{{Lock: "a"}, {Lock: "deploy"}}, LockDelay: time.Second},
	} {
		t.Run(name, in(fleetScene, func(t *testing.T, s *fakeStore) {
			h := s.hooked()
			one, two := h.gateway(t), s.gateway(t)
			talk(one, two)
			req.TTL = time.Hour
			l := one.mustHold(req)
			next := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			one.mustRevoke("why", 5*time.Second)
			h.hooks.Store(&hooks{result: func(_ *zk.Write, res *zk.Result) {
				if res.Err != nil {
					time.Sleep(100 * time.Millisecond) // the events come before it is known
				}
			}})
			gone := []zk.Op{{Kind: zk.OpDelete, Path: l.Znode, Version: -1}}
			if len(req.Group) != 0 {
				gone = []zk.Op{{Kind: zk.OpDelete, Path: l.Locks[1].Znode, Version: -1}, {Kind: zk.OpDelete, Path: l.Locks[0].Znode, Version: -1}}
			}
			s.beforeWrites(func(w *zk.Write) {
				if gone != nil && writeTo(l.ID)(w) {
					s.tx(gone)
					gone = nil
				}
			})
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.Must(t, gone == nil, "force was never due")
			one.wantState(l, locks.Ended, locks.ReasonRemoved)
			one.wantState(next, locks.Held, "")
			for _, g := range []*gate{one, two} {
				assert.Slices(t, g.reasons("deploy"), []string{"removed"}, "told")
				var order []events.Type
				for _, e := range g.told() {
					if e.Lock == "deploy" && (e.LeaseID == next.ID && e.Type == events.LeaseGranted || e.LeaseID == l.ID && e.Reason != "") {
						order = append(order, e.Type)
					}
				}
				assert.Slices(t, order, []events.Type{events.LeaseRemoved, events.LeaseGranted}, "told of its end and of the next grant")
			}
			checkAll(t, s, one, two)
		}))
	}
}
