package manager

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// unread makes the records of contenders unreadable on the observer's connection: there is very much to read before them.
func unread() *hooks {
	return &hooks{get: func(path string) error {
		if strings.Contains(path, "-lock-") {
			return zk.ErrUnavailable
		}
		return nil
	}}
}

// administration are the ends of a lease on deploy that are no client's.
var administration = map[string]func(by *gate, l locks.Lease) error{
	"a break": func(by *gate, l locks.Lease) error { return by.m.Break(by.t.Context(), locks.BreakRequest{ID: l.ID}) },
	"a reap": func(by *gate, _ locks.Lease) error {
		answer, err := by.m.Reap(by.t.Context(), locks.ReapRequest{Lock: "deploy"})
		if err == nil && len(answer.Reaped) != 1 {
			err = errors.New("nothing was reaped")
		}
		return err
	},
	"a destruction": func(by *gate, _ locks.Lease) error {
		_, err := by.m.Destroy(by.t.Context(), locks.DestroyRequest{Lock: "deploy"})
		return err
	},
}

// The records of a hundred thousand leases take a while to be read.
func TestNobodyEndsALeaseBeforeItIsKnownWhomToTell(t *testing.T) {
	for name, end := range administration {
		for _, taken := range []bool{true, false} {
			notingScene(t, func(t *testing.T, s *fakeStore) {
				h := s.hooked()
				g, by := s.notingGateway(t), h.gateway(t)
				time.Sleep(time.Second)
				l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
				h.hooks.Store(unread())
				if taken {
					g.crash()
					time.Sleep(20 * time.Second)
				}
				synctest.Wait()
				err := end(by, l)
				synctest.Wait()
				_, ends := told(l, by)
				if err != nil {
					wantCode(t, err, locks.CodeUnavailable)
					if n := len(s.names("/lockkeeper/locks/deploy")); n != 1 || len(ends) != 0 {
						t.Fatalf("%s, taken over %v: refused, and %d contenders are there; told %+v", name, taken, n, ends)
					}
					h.hooks.Store(&hooks{})
					time.Sleep(10 * time.Second)
					assert.NoError(t, end(by, l), "%s, taken over %v, repeated", name, taken)
				}
				synctest.Wait()
				if _, ends := told(l, by); len(ends) != 1 || ends[0].Notify != someURL || ends[0].Waiting || len(s.names("/lockkeeper/locks/deploy")) != 0 {
					t.Errorf("%s, taken over %v: %+v", name, taken, ends)
				}
				h.hooks.Store(&hooks{})
			})
		}
	}
}

// What may not be read at all holds up no administrator.
func TestALeaseWhoseRecordMayNotBeReadCanBeEnded(t *testing.T) {
	for name, end := range administration {
		for _, taken := range []bool{true, false} {
			notingScene(t, func(t *testing.T, s *fakeStore) {
				h := s.hooked()
				g, by := s.notingGateway(t), h.gateway(t)
				time.Sleep(time.Second)
				l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
				h.hooks.Store(&hooks{get: func(path string) error {
					if strings.Contains(path, "-lock-") {
						return zk.ErrNoAuth
					}
					return nil
				}, noAuth: "-lock-"})
				if taken {
					g.crash()
					time.Sleep(20 * time.Second)
				}
				synctest.Wait()
				assert.Nil(t, end(by, l), "%s, taken over %v", name, taken)
			})
		}
	}
}

// ZooKeeper's writer sends what was in a refused transaction with others once more, and what came later may overtake it.
func TestAGrantThatIsOvertakenByTheEndIsNotNotedThoughThePlaceStays(t *testing.T) {
	notingScene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		overtaken := make(chan struct{})
		h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
			if writeTo("-granted")(w) {
				return overtaken
			}
			return nil
		}})
		g := h.gateway(t)
		time.Sleep(time.Second)
		req := delaying(locks.DelayAlways)
		req.NotifyURL = someURL
		l := g.mustHold(req)
		g.mustRelease(l)
		close(overtaken)
		pass(5 * time.Second)
		grants, ends := told(l, g)
		assert.That(t, len(grants) == 0 && len(ends) == 1, "granted %+v, ended %+v", grants, ends)
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 1, "contenders: nothing is shown")
	})
}

func TestTheGrantOfALeaseThatIsWrittenMeanwhileIsNoted(t *testing.T) {
	notingScene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		late := make(chan struct{})
		h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
			if writeTo("-granted")(w) {
				return late
			}
			return nil
		}})
		g := h.gateway(t)
		time.Sleep(time.Second)
		req := delaying(locks.DelayAlways)
		req.TTL, req.NotifyURL = time.Hour, someURL
		l := g.mustHold(req)
		metadata := "changed"
		assert.Value(g.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: &metadata}))(t)
		h.hooks.Store(&hooks{})
		close(late)
		pass(5 * time.Second)
		grants, _ := told(l, g)
		assert.That(t, len(grants) == 1, "granted %+v", grants)
	})
}

func TestWhoFreesAPlaceThatStaysForItsDelayTellsNoSecondEnd(t *testing.T) {
	for _, name := range []string{"a break", "a reap", "a destruction"} {
		withOutboxes(t, func(t *testing.T, s *fakeStore, g, by *gate) {
			req := delaying(locks.DelayAlways)
			req.LockDelay, req.NotifyURL = time.Hour, someURL
			l := g.mustHold(req)
			g.mustRelease(l)
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/outbox/" + l.ID, Version: -1}) // it is told
			assert.NoError(t, administration[name](by, l), "%s", name)
			pass(5 * time.Second)
			if _, ends := told(l, by); len(ends) != 0 || len(by.outbox.gone)+len(g.outbox.gone) != 0 || len(s.names("/lockkeeper/locks/deploy")) != 0 {
				t.Errorf("%s: told once more: %+v, %+v, %+v", name, ends, by.outbox.gone, g.outbox.gone)
			}
			for who, gate := range map[string]*gate{"its gateway": g, "the other one": by} {
				if released, otherwise := gate.countOf(events.LeaseReleased, l), gate.countOf(events.LeaseRevoked, l)+gate.countOf(events.LeaseRemoved, l); released != 1 || otherwise != 0 {
					t.Errorf("%s: by %s the release is told %d times, another end %d times", name, who, released, otherwise)
				}
			}
		})
	}
}
