package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestTheEndOfAHeldLeaseAndItsNoteAreOneTransaction(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "me"})
		waiter := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: 10 * time.Second})
		waiter.finished()
		g.mustRelease(l)
		if kinds := s.lastEnd(); !slices.Equal(kinds, []zk.OpKind{zk.OpCheck, zk.OpCreate, zk.OpDelete}) {
			t.Errorf("operations %v: the note stands before the end, so that a gateway that sees the end may rely on it", kinds)
		}
		<-waiter.done
		e := g.notedFor(l)
		if len(e) != 1 || e[0].Reason != locks.ReasonReleased || e[0].Owner != "me" || len(e[0].Parts) != 1 || e[0].Parts[0].Lock != "deploy" || e[0].Parts[0].FencingToken != l.FencingToken {
			t.Errorf("%+v", e)
		}
		gone := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Minute})
		g.mustRelease(gone)
		if kinds := s.lastEnd(); !slices.Equal(kinds, []zk.OpKind{zk.OpDelete}) {
			t.Errorf("operations %v: a lease that never held lets go of nothing", kinds)
		}
		group := g.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b", Mode: locks.Shared}}, TTL: time.Minute})
		g.mustRelease(group)
		if e := g.notedFor(group); len(e) != 1 || len(e[0].Parts) != 2 || e[0].Parts[1].Lock != "b" || e[0].Parts[1].Mode != locks.Shared {
			t.Errorf("of a group: %+v", e)
		}
		assert.That(t, len(g.outbox.gone) == 0, "told once more: %+v", g.outbox.gone)
	})
}

func TestAttack19AnEndIsDecidedAgainAfterASubscription(t *testing.T) {
	for name, end := range map[string]func(g *gate, l locks.Lease) locks.Reason{
		"a release": func(g *gate, l locks.Lease) locks.Reason { g.mustRelease(l); return locks.ReasonReleased },
		"an expiry": func(g *gate, l locks.Lease) locks.Reason { time.Sleep(11 * time.Second); return locks.ReasonExpired },
		"a break": func(g *gate, l locks.Lease) locks.Reason {
			assert.Nil(t, g.m.Break(g.t.Context(), locks.BreakRequest{ID: l.ID}))
			return locks.ReasonRevoked
		},
		"a destruction": func(g *gate, l locks.Lease) locks.Reason {
			_, err := g.m.Destroy(g.t.Context(), locks.DestroyRequest{Lock: "deploy"})
			assert.Nil(t, err)
			return locks.ReasonDestroyed
		},
	} {
		t.Run(name, in(withOutbox, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
			s.subscribe()
			assert.Must(t, s.node("/lockkeeper/outbox/"+l.ID).data == nil, "noted already")
			reason := end(g, l)
			synctest.Wait()
			e := g.notedFor(l)
			assert.Must(t, len(e) == 1 && e[0].Reason == reason && len(s.names("/lockkeeper/locks/deploy")) == 0, "%+v", e)
			assert.That(t, g.outbox.results[0].Outcome == zk.Conflict && g.outbox.version == 1,
				"decided with version %d: %+v", g.outbox.version, g.outbox.results)
			assert.That(t, len(g.outbox.gone) == 0, "told once more: %+v", g.outbox.gone)
		}))
	}
}

func TestEndsWaitUntilTheOutboxKnowsItsWebhooks(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		g.outbox.with(func() { g.outbox.known, g.outbox.stale = false, true })
		released := make(chan error, 1)
		go func() { released <- g.release(l) }()
		pass(500 * time.Millisecond)
		assert.Must(t, len(s.names("/lockkeeper/locks/deploy")) == 1, "ended, and no record says where to deliver the end")
		_, err := g.heartbeat(l)
		wantCode(t, err, locks.CodeUnavailable)
		g.outbox.with(func() { g.outbox.stale = false })
		g.outbox.Look()
		err = <-released
		assert.That(t, err == nil && len(g.notedFor(l)) == 1, "%v", err)
	})
}

func TestAnExpiryThatWaitsForTooLongIsNone(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
		g.outbox.with(func() { g.outbox.known, g.outbox.stale = false, true })
		pass(10*time.Second + settleWithin + time.Second)
		g.wantState(l, locks.Held, "")
		_, err := g.heartbeat(l)
		assert.Nil(t, err)
		g.outbox.with(func() { g.outbox.stale = false })
		g.outbox.Look()
		time.Sleep(9 * time.Second)
		g.wantState(l, locks.Held, "")
	})
}

func TestAnExpiryAtAnotherVersionLeavesNoNote(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
		time.Sleep(9900 * time.Millisecond)
		g.w.hold() // it does not see what is written
		path := "/lockkeeper/locks/deploy/" + s.names("/lockkeeper/locks/deploy")[0]
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: path, Data: s.node(path).data, Version: -1})
		pass(200 * time.Millisecond)
		assert.Must(t, len(g.outbox.results) != 0, "no expiry was tried: nothing is shown")
		assert.That(t, len(s.outbox()) == 0 && len(s.names("/lockkeeper/locks/deploy")) == 1,
			"outbox %q: a lease that goes on is told to have ended", s.outbox())
		g.w.release()
		g.mustRelease(l)
		e := g.notedFor(l)
		assert.That(t, len(e) == 1 && e[0].Reason == locks.ReasonReleased && len(g.outbox.gone) == 0, "%+v", e)
	})
}

func TestAnEndWhoseAnswerIsLostIsNotedOnce(t *testing.T) {
	for _, persisted := range []bool{true, false} {
		withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			adopted := g.outbox.adopted
			s.set(func() { s.vague, s.drop = writeTo("/outbox/"), !persisted })
			released := make(chan error, 1)
			go func() { released <- g.release(l) }()
			time.Sleep(100 * time.Millisecond)
			s.set(func() { s.vague = nil })
			assert.Nil(t, <-released)
			synctest.Wait()
			assert.That(t, len(s.outbox()) == 1 && len(s.names("/lockkeeper/locks/deploy")) == 0 && len(g.outbox.gone) == 0,
				"persisted %v: outbox %q, told otherwise %+v", persisted, s.outbox(), g.outbox.gone)
			assert.That(t, g.outbox.results[0].Outcome == zk.Unknown && (adopted == g.outbox.adopted || persisted), "%+v", g.outbox.results)
		})
	}
}

func TestALockIsReleasedWhateverTheOutboxRefuses(t *testing.T) {
	destroy := func(g *gate, _ locks.Lease) error {
		_, err := g.m.Destroy(g.t.Context(), locks.DestroyRequest{Lock: "deploy"})
		return err
	}
	for name, end := range map[string]func(g, other *gate, l locks.Lease) error{
		"a release":                  func(g, _ *gate, l locks.Lease) error { return g.release(l) },
		"a destruction":              func(g, _ *gate, l locks.Lease) error { return destroy(g, l) },
		"a destruction of another's": func(_, other *gate, l locks.Lease) error { return destroy(other, l) },
		"a break of another's": func(_, other *gate, l locks.Lease) error {
			return other.m.Break(other.t.Context(), locks.BreakRequest{ID: l.ID})
		},
	} {
		notingScene(t, func(t *testing.T, s *fakeStore) {
			s.peerReports = true
			g, other := s.notingGateway(t), s.notingGateway(t)
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/outbox/" + l.ID, Data: []byte("is there")})
			began := time.Now()
			if err := end(g, other, l); err != nil || time.Since(began) > 10*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(began)) // or its own end has come
			}
			if len(s.names("/lockkeeper/locks/deploy")) != 0 || string(s.node("/lockkeeper/outbox/"+l.ID).data) != "is there" {
				t.Errorf("%s: outbox %q", name, s.outbox())
			}
		})
	}
}

func TestAnEndThatDoesNotFitBesideItsNoteGoesWithoutOne(t *testing.T) {
	for name, end := range map[string]func(g, other *gate, l locks.Lease) error{
		"a release": func(g, _ *gate, l locks.Lease) error { return g.release(l) },
		"a break of another's": func(_, other *gate, l locks.Lease) error {
			return other.m.Break(other.t.Context(), locks.BreakRequest{ID: l.ID})
		},
	} {
		withOutboxes(t, func(t *testing.T, s *fakeStore, g, other *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			for _, each := range []*gate{g, other} {
				each.outbox.with(func() { each.outbox.verbose = true })
			}
			err := end(g, other, l)
			assert.That(t, err == nil && len(s.names("/lockkeeper/locks/deploy")) == 0, "%s: %v", name, err)
		})
	}
}

func TestALockDelayIsNotedWhenItBegins(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(delaying(locks.DelayAlways))
		g.mustRelease(l)
		assert.That(t, len(s.outbox()) == 1 && len(s.names("/lockkeeper/locks/deploy")) == 1, "outbox %q", s.outbox())
		pass(testDelay + time.Second)
		assert.That(t, len(g.outbox.results) == 1 && len(g.outbox.gone) == 0 && len(s.names("/lockkeeper/locks/deploy")) == 0,
			"told %+v, %+v", g.outbox.results, g.outbox.gone)
	})
}

func TestATakeoverOfADelayTellsNothing(t *testing.T) {
	withOutboxes(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		l := g.mustHold(delaying(locks.DelayAlways))
		g.mustRelease(l)
		adopted := other.outbox.adopted
		g.crash()
		pass(5 * time.Minute)
		if len(s.names("/lockkeeper/locks/deploy")) != 0 || len(s.outbox()) != 1 || len(other.outbox.gone)+len(other.outbox.noted) != 0 {
			t.Errorf("outbox %q, told %+v %+v", s.outbox(), other.outbox.gone, other.outbox.noted)
		}
		n := other.outbox.adopted - adopted
		assert.That(t, n >= 2, "it is looked %d times for what was left: when its gateway is gone, and by the successor", n)
		assert.That(t, other.m.Delivers(l.ID), "no gateway delivers what the dead one left")
	})
}

func TestTheLeaseOfAnotherGatewayIsNotedByTheGatewayThatEndsIt(t *testing.T) {
	notingScene(t, func(t *testing.T, s *fakeStore) {
		s.peerReports = true
		g, other := s.notingGateway(t), s.notingGateway(t)
		talk(g, other)
		held := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		waits := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Hour})
		s.subscribe()
		g.w.hold() // the word is quicker than its watch
		for _, l := range []locks.Lease{waits, held} {
			assert.NoError(t, other.m.Break(t.Context(), locks.BreakRequest{ID: l.ID, Reason: "stuck"}))
		}
		synctest.Wait()
		g.w.release()
		if len(g.outbox.gone) != 0 {
			t.Errorf("the gateway that ran it tells the end as well: %+v", g.outbox.gone[0])
		}
		if e := other.notedFor(held); len(e) != 1 || e[0].Reason != locks.ReasonRevoked || e[0].Words != "stuck" || e[0].Parts[0].Lock != "deploy" {
			t.Errorf("%+v", e)
		}
		assert.That(t, slices.Equal(s.outbox(), []string{held.ID}), "outbox %q", s.outbox())
	})
}

// Who sees one lock of an ephemeral lease go does not know whose it is to tell of the others.
func TestEachLockOfAnEphemeralLeaseIsToldByItselfWhenItsGatewayDies(t *testing.T) {
	withOutbox(t, func(t *testing.T, s *fakeStore, dead *gate) {
		others := []*gate{s.notingGateway(t), s.notingGateway(t), s.notingGateway(t)}
		l := dead.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}, {Lock: "c"}}, Ephemeral: true, TTL: time.Hour})
		dead.crash()
		pass(time.Minute)
		told := map[string]int{}
		for _, g := range others {
			for _, e := range g.outbox.gone {
				if e.LeaseID != l.ID || e.Reason != locks.ReasonGatewayLeft || len(e.Parts) != 1 || told[e.Parts[0].Lock] != 0 || e.Part < 1 || e.Part > 3 {
					t.Errorf("%+v", e)
				}
				told[e.Parts[0].Lock] = e.Part
			}
		}
		assert.That(t, len(told) == 3 && told["a"]+told["b"]+told["c"] == 6, "told of %v", told)
	})
}

func TestTheNoteSaysOfWhichTraceTheEndIsAPart(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, end := range map[string]func(ctx context.Context, g *gate, l locks.Lease) error{
		"a release": func(ctx context.Context, g *gate, l locks.Lease) error {
			return g.m.Release(ctx, locks.Anonymous, l.ID, l.Token)
		},
		"of its last hold": func(ctx context.Context, g *gate, l locks.Lease) error {
			return g.m.ReleaseHold(ctx, locks.Anonymous, l.ID, l.Token, "h")
		},
		"a break": func(ctx context.Context, g *gate, l locks.Lease) error {
			return g.m.Break(ctx, locks.BreakRequest{ID: l.ID})
		},
		"a reap": func(ctx context.Context, g *gate, l locks.Lease) error {
			_, err := g.m.Reap(ctx, locks.ReapRequest{Lock: "deploy"})
			return err
		},
		"a destruction": func(ctx context.Context, g *gate, l locks.Lease) error {
			_, err := g.m.Destroy(ctx, locks.DestroyRequest{Lock: "deploy"})
			return err
		},
		"an expiry": func(context.Context, *gate, locks.Lease) error { time.Sleep(2 * time.Minute); return nil },
	} {
		withOutboxes(t, func(t *testing.T, s *fakeStore, owner, other *gate) {
			for _, by := range []*gate{owner, other} {
				if by == other && (strings.HasSuffix(name, "release") || strings.HasSuffix(name, "hold")) {
					continue // requests with its token go to its gateway
				}
				l := owner.mustHold(locks.AcquireRequest{Lock: "deploy", Hold: "h", TTL: time.Minute})
				assert.NoError(t, end(locks.WithTraceParent(t.Context(), trace), by, l), "%s", name)
				synctest.Wait()
				e, want := append(owner.notedFor(l), other.notedFor(l)...), trace
				if name == "an expiry" {
					want = "" // no request has ended it
				}
				assert.That(t, len(e) == 1 && e[0].Trace == want, "%s: %+v", name, e)
			}
		})
	}
}

func TestADestroyedQueueIsNotedForItsHolders(t *testing.T) {
	withOutboxes(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		var want []string
		for i := range 3 {
			of := []*gate{g, other}[i%2]
			want = append(want, of.mustHold(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared, TTL: time.Hour}).ID)
		}
		for range 3 {
			g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Hour})
			other.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Hour})
		}
		s.subscribe()
		assert.Value(g.m.Destroy(t.Context(), locks.DestroyRequest{Lock: "deploy", Reason: "over"}))(t)
		slices.Sort(want)
		assert.Slices(t, s.outbox(), want, "outbox")
	})
}

func TestWhatAnotherClientEndsIsToldByItsGateway(t *testing.T) {
	withOutboxes(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/" + s.names("/lockkeeper/locks/deploy")[0], Version: -1})
		if len(g.outbox.gone) != 1 || g.outbox.gone[0].LeaseID != l.ID || g.outbox.gone[0].Reason != locks.ReasonRemoved || len(other.outbox.gone) != 0 {
			t.Errorf("%+v, the other one %+v", g.outbox.gone, other.outbox.gone)
		}
		// It is gone as its client lets go, too, unseen.
		l = g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		g.w.hold()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/" + s.names("/lockkeeper/locks/deploy")[0], Version: -1})
		g.mustRelease(l)
		g.w.release()
		// Or it is seen to go before the answer says that it was not the client's release that did it.
		late := g.mustHold(locks.AcquireRequest{Lock: "late", TTL: time.Hour})
		go func() { _ = g.release(late) }()
		synctest.Wait()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/late/" + s.names("/lockkeeper/locks/late")[0], Version: -1})
		pass(time.Second)
		if n := len(g.outbox.gone); n != 3 || g.outbox.gone[2].LeaseID != late.ID {
			t.Errorf("%d: %+v", n, g.outbox.gone)
			return
		}
		g.outbox.gone = g.outbox.gone[:2]
		assert.That(t, len(g.outbox.gone) == 2 && g.outbox.gone[1].LeaseID == l.ID && len(s.outbox()) == 0, "%+v", g.outbox.gone)
	})
}

func TestTheEndsOfOtherProgramsAreToldOncePerFleet(t *testing.T) {
	notingScene(t, func(t *testing.T, s *fakeStore) {
		gates := []*gate{s.notingGateway(t), s.notingGateway(t), s.notingGateway(t)}
		const count = 30
		births := map[string]int64{}
		for i := range count {
			dir := fmt.Sprintf("/lockkeeper/locks/l%d", i)
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: dir})
			for range 2 { // one holds, one waits
				zxid, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Path: dir + "/_c_6a9ed4c8-5ba5-4b63-a1e3-96de7b4a7ccc-lock-", Sequential: true})
				births[paths[0]] = zxid
			}
		}
		pass(time.Second)
		for i := range count {
			dir := fmt.Sprintf("/lockkeeper/locks/l%d", i)
			for _, name := range slices.Backward(s.names(dir)) { // who waits goes first
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: dir + "/" + name, Version: -1})
			}
		}
		synctest.Wait()
		told := map[string]int{}
		for n, g := range gates {
			assert.That(t, len(g.outbox.gone) != 0 && len(g.outbox.gone) != count, "gateway %d tells of %d", n, len(g.outbox.gone))
			for _, e := range g.outbox.gone {
				p := e.Parts[0]
				told[p.Lock]++
				if e.Czxid != births[p.Znode] || p.Program == "" || e.Reason != locks.ReasonRemoved || !strings.HasSuffix(p.Znode, "0") {
					t.Errorf("%+v", e)
				}
			}
		}
		for i := range count {
			n := told[fmt.Sprintf("l%d", i)]
			assert.That(t, n == 1, "l%d is told %d times", i, n)
		}
	})
}

func TestAnEndOutlivesItsSession(t *testing.T) {
	for _, persisted := range []bool{true, false} {
		withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			s.set(func() { s.loseAlone(persisted, writeTo("/outbox/")) })
			go func() { _ = g.release(l) }()
			time.Sleep(100 * time.Millisecond)
			s.mu.Lock()
			s.loseReply, s.refuse = nil, nil
			session := s.sessions[g.m.GatewayID()]
			s.mu.Unlock()
			session.expire()
			pass(time.Minute)
			if !slices.Equal(s.outbox(), []string{l.ID}) || len(s.names("/lockkeeper/locks/deploy")) != 0 || len(g.outbox.gone) != 0 {
				t.Errorf("persisted %v: outbox %q, told otherwise %+v", persisted, s.outbox(), g.outbox.gone)
			}
			assert.That(t, g.m.Delivers(l.ID) && g.outbox.adopted >= 2, "persisted %v: no gateway looks for it", persisted)
		})
	}
}

func TestAnEndTellsWhoEndedALeaseOfOneLock(t *testing.T) {
	notingScene(t, func(t *testing.T, s *fakeStore) {
		s.peerReports = true
		g, other := s.notingGateway(t), s.notingGateway(t)
		talk(g, other)
		s.subscribe()
		one := func(lock string) locks.AcquireRequest { return locks.AcquireRequest{Lock: lock, TTL: time.Hour} }
		several := locks.AcquireRequest{Group: []locks.Want{{Lock: "b"}, {Lock: "c"}}, TTL: time.Hour}
		for _, c := range []struct {
			name string
			take locks.AcquireRequest
			end  func(l locks.Lease) error
			by   string
		}{
			{"a break here", one("a"), func(l locks.Lease) error {
				return g.m.Break(t.Context(), locks.BreakRequest{ID: l.ID, Client: "10.0.0.1"})
			}, "10.0.0.1"},
			{"a break at another gateway", one("a"), func(l locks.Lease) error {
				return other.m.Break(t.Context(), locks.BreakRequest{ID: l.ID, Client: "10.0.0.2"})
			}, "10.0.0.2"},
			{"a destruction", one("a"), func(locks.Lease) error {
				_, err := other.m.Destroy(t.Context(), locks.DestroyRequest{Lock: "a", Client: "10.0.0.3"})
				return err
			}, "10.0.0.3"},
			{"a break of several locks here", several, func(l locks.Lease) error {
				return g.m.Break(t.Context(), locks.BreakRequest{ID: l.ID, Client: "10.0.0.4"})
			}, ""},
			{"a break of several locks at another gateway", several, func(l locks.Lease) error {
				return other.m.Break(t.Context(), locks.BreakRequest{ID: l.ID, Client: "10.0.0.5"})
			}, ""},
			{"a release", one("a"), func(l locks.Lease) error { g.mustRelease(l); return nil }, ""},
		} {
			l := g.mustHold(c.take)
			assert.NoError(t, c.end(l), "%s", c.name)
			e := append(g.notedFor(l), other.notedFor(l)...)
			assert.That(t, len(e) >= 1 && e[0].By == c.by, "%s: %+v", c.name, e)
			time.Sleep(time.Second)
		}
	})
}
