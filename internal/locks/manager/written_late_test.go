package manager

import (
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// bigdata's rule: while the marker is there nobody is granted the lock.
func TestNobodyIsToldByAnotherGatewayToHoldALockThatIsMarkedAsInvalid(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(deploy())
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		s.plain(plainPath+queues.InvalidSuffix, "")
		time.Sleep(time.Second)
		one.mustRelease(first)
		time.Sleep(time.Second)
		one.wantState(l, locks.Waiting, "")
		_, err := two.beatFor(l)
		wantCode(t, err, locks.CodeUnavailable)
		s.gone(plainPath + queues.InvalidSuffix)
		time.Sleep(time.Second)
		one.wantState(l, locks.Held, "")
		two.mustBeatFor(l, locks.Held)
	})
}

// An expiry is on its way when the owner reads the heartbeat before which it comes too late.
func TestALeaseWhoseExpiryCameTooLateHasAllThatTheHeartbeatPromised(t *testing.T) {
	for name, told := range map[string]bool{"held, with a shorter TTL by now": false, "told to hold, and waiting": true} {
		t.Run(name, func(t *testing.T) {
			withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, one *gate) {
				l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
				first, state := l, locks.Held
				if told {
					l, state = one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true}), locks.Waiting
				} else if _, err := one.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, 5*time.Second); err != nil {
					t.Fatal(err)
				}
				beaten := false
				s.mu.Lock()
				s.refuse = func(w *zk.Write) (int, error) {
					if beaten || !writeTo(l.Znode)(w) || w.Ops[0].Kind != zk.OpDelete {
						return -1, nil
					}
					beaten = true
					data, _, refused := beatenRecord(s.nodes[l.Znode].data, true)
					assert.That(t, refused == nil, "%v", refused)
					if told {
						s.tx([]zk.Op{{Kind: zk.OpDelete, Path: first.Znode, Version: -1}})
					}
					s.tx([]zk.Op{{Kind: zk.OpSetData, Path: l.Znode, Data: data, Version: 0}})
					s.by = ""
					s.tx([]zk.Op{{Kind: zk.OpCreate, Ephemeral: true, Path: plainPath + queues.InvalidSuffix}}) // and no grant follows
					return -1, nil
				}
				s.mu.Unlock()
				h.hooks.Store(&hooks{result: func(_ *zk.Write, res *zk.Result) {
					if res.Err != nil {
						time.Sleep(100 * time.Millisecond)
					}
				}})
				for !s.reads(&beaten) {
					time.Sleep(time.Second)
				}
				time.Sleep(59 * time.Minute)
				one.wantState(l, state, "")
			})
		})
	}
}

// An end that others want to be told of is decided anew when they have become more. A heartbeat that was read meanwhile
// is not swallowed by the version that came with it.
func TestAnExpiryThatIsSentAgainDoesNotSwallowAHeartbeat(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		beaten := false
		s.mu.Lock()
		s.refuse = func(w *zk.Write) (int, error) {
			if beaten || !writeTo(l.Znode)(w) {
				return -1, nil
			}
			beaten = true
			data, _, _ := beatenRecord(s.nodes[l.Znode].data, true)
			s.tx([]zk.Op{{Kind: zk.OpSetData, Path: l.Znode, Data: data, Version: 0}})
			return 0, zk.ErrNotApplied
		}
		s.mu.Unlock()
		h.hooks.Store(&hooks{result: func(_ *zk.Write, res *zk.Result) {
			if res.Err != nil {
				time.Sleep(100 * time.Millisecond) // it is read first
				*res = zk.Result{Outcome: zk.Conflict, Culprit: -1}
			}
		}})
		for !s.reads(&beaten) {
			time.Sleep(time.Second)
		}
		time.Sleep(59 * time.Minute)
		one.wantState(l, locks.Held, "")
		time.Sleep(2 * time.Minute)
		one.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// A lease ends whole: what has lost a part is not held again by a heartbeat.
func TestALeaseThatHasLostAPartWhileItExpiredIsNotRevivedByAHeartbeat(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: time.Hour})
		first, second := l.Locks[0].Znode, l.Locks[1].Znode
		beaten, lost := false, false
		s.beforeWrites(func(w *zk.Write) {
			if !beaten && writeTo(first)(w) {
				beaten = true
				data, _, _ := beatenRecord(s.nodes[first].data, true)
				s.tx([]zk.Op{{Kind: zk.OpSetData, Path: first, Data: data, Version: 0}})
			}
		})
		h.hooks.Store(&hooks{result: func(_ *zk.Write, res *zk.Result) {
			if res.Err != nil && !lost {
				lost = true
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: second, Version: -1})
				time.Sleep(100 * time.Millisecond) // the replica shows it first
			}
		}})
		for !s.reads(&beaten) {
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		one.wantState(l, locks.Ended, locks.ReasonExpired) // as was told of its part when the replica lost that
		names := s.names("/lockkeeper/locks/a")
		assert.That(t, len(names) == 0, "what is left of it: %v", names)
	})
}
