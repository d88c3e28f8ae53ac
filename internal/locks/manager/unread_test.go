package manager

import (
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// A waiting lease has been taken over, and its record has not been read: the longest TTL is assumed. Whoever polls it is not
// told that its place is kept for so long: the record may say less, and the clock goes by that as soon as it is read.
func TestNoPlaceIsPromisedForLongerThanTheRecordOfAnAdoptedLeaseSays(t *testing.T) {
	const ttl = 4 * time.Second
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: ttl, Async: true})
		one.crash()
		h := s.hooked()
		h.failReads(l.Znode)
		two := h.gateway(t)
		time.Sleep(11 * time.Second) // taken over
		asked := time.Now()
		if v, err := two.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token}); err == nil {
			t.Errorf("%v is promised of a lease whose TTL is %v and which nobody has read", v.ExpiresIn, ttl)
		} else {
			wantCode(t, err, locks.CodeUnavailable)
		}
		took := time.Since(asked)
		assert.That(t, took <= settleWithin+time.Second, "answered after %v", took)
		time.AfterFunc(200*time.Millisecond, func() { h.hooks.Store(&hooks{}) })
		v, err := two.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token}) // is answered when it has been read
		assert.Must(t, err == nil && v.State == locks.Waiting && v.TTL == ttl && v.ExpiresIn > 0 && v.ExpiresIn <= ttl, "%+v, %v", v, err)
		pass(v.ExpiresIn - 10*time.Millisecond)
		two.wantState(l, locks.Waiting, "")
	})
}

// A look without the token waits for the record, too: before, neither owner nor TTL is known, nor that the lease holds.
func TestAnAdoptedLeaseIsNotShownBeforeItsRecordHasBeenRead(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one := s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Owner: "me"})
		one.crash()
		h := s.hooked()
		h.hooks.Store(&hooks{get: func(path string) error {
			if path == l.Znode {
				return zk.ErrUnavailable
			}
			return nil
		}})
		two := h.gateway(t)
		time.Sleep(11 * time.Second) // taken over
		asked := time.Now()
		_, err := two.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID})
		wantCode(t, err, locks.CodeUnavailable)
		took := time.Since(asked)
		assert.That(t, took <= settleWithin+time.Second, "answered after %v", took)
		time.AfterFunc(200*time.Millisecond, func() { h.hooks.Store(&hooks{}) })
		v := two.look(l) // is answered when it has been read
		assert.That(t, v.State == locks.Held && v.TTL == l.TTL && v.Owner == "me" && v.FencingToken == l.FencingToken, "%+v", v)
		checkAll(t, s, two)
	})
}

// A lease has ended and its place stays for its lock delay, which only its record tells, and its gateway is gone. An administrator
// frees the place at a gateway that has not read the record: nobody is told that the lease was taken back, for it had ended before.
func TestAPlaceThatIsFreedUnreadEndsNoLeaseASecondTime(t *testing.T) {
	for name, c := range map[string]struct {
		byName bool
		group  bool
	}{
		"by the lease":     {},
		"by the contender": {byName: true},
		"a group":          {group: true},
	} {
		t.Run(name, func(t *testing.T) {
			withOutbox(t, func(t *testing.T, s *fakeStore, one *gate) {
				h := s.hooked()
				two := h.gateway(t)
				req := delaying("")
				if c.group {
					req.Lock, req.Group = "", []locks.Want{{Lock: "deploy"}, {Lock: "other"}}
				}
				l := one.mustHold(req)
				if c.group {
					l.Znode = l.Locks[0].Znode
				}
				time.Sleep(10*time.Second + 100*time.Millisecond)
				one.wantState(l, locks.Ended, locks.ReasonExpired)
				one.crash()
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/outbox/" + l.ID, Version: -1}) // it has been told
				end := locks.BreakRequest{ID: l.ID, Reason: "enough"}
				if c.byName {
					end = locks.BreakRequest{Lock: "deploy", Name: base(l.Znode), Reason: "enough"}
				}
				assert.NoError(t, two.m.Break(t.Context(), end))
				assert.Equal(t, two.lockState("deploy").State, locks.LockFree)
				assert.Equal(t, two.countOf(events.LeaseRevoked, l), 0, "events tell that it was taken back")
				if list := two.notedFor(l); len(list) > 0 {
					t.Errorf("its end is noted once more: %+v", list[0])
				}
				names := s.outbox()
				assert.That(t, len(names) <= 0, "in the outbox: %v", names)
				_, err := two.heartbeat(l)
				assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonExpired, "its client is told")
			})
		})
	}
}
