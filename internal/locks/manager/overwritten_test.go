package manager

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (s *fakeStore) overwrite(path, data string) {
	s.foreign(zk.Op{Kind: zk.OpSetData, Path: path, Data: []byte(data), Version: -1})
}

// Curator's Revoker, or the recipe in ZooKeeper's documentation, asks the holder of a lease: it is told, and no write
// that fails, or fails and is done all the same, costs the record.
func TestAHolderAskedByAnotherProgramIsToldAndKeepsItsRecord(t *testing.T) {
	faults := map[string]func(s *fakeStore){
		"none":               func(*fakeStore) {},
		"refused":            func(s *fakeStore) { s.refuse = refusing(once(s.t, rewrites), -1, zk.ErrNotApplied) },
		"lost":               func(s *fakeStore) { s.vague, s.drop = once(s.t, rewrites), true },
		"lost but persisted": func(s *fakeStore) { s.vague = once(s.t, rewrites) },
	}
	for _, data := range []string{"__REVOKE__", "unlock", "gibberish", ""} {
		for name, fault := range faults {
			t.Run(fmt.Sprintf("%q %s", data, name), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "me", Metadata: "build 7", Hold: "outer"})
				s.set(func() { fault(s) })
				s.overwrite(l.Znode, data)
				synctest.Wait()
				time.Sleep(time.Second)
				asked := g.asked(l)
				want := 0
				if data == "__REVOKE__" || data == "unlock" {
					want = 1
				}
				if told := len(g.tells(events.LeaseRevokeRequested)); told != want || want == 1 && !strings.Contains(asked.Reason, data) || asked.Forced {
					t.Errorf("told %d times, and its holder: %+v", told, asked)
				}
				time.Sleep(time.Second)
				r, ok := record.Parse(s.node(l.Znode).data)
				if !ok || r.Owner != "me" || r.Metadata != "build 7" || r.LeaseTTL() != time.Minute || len(r.Holds) != 1 || (r.Revoke != nil) != (want == 1) {
					t.Errorf("the record is %s", s.node(l.Znode).data)
				}
				time.Sleep(50 * time.Second)
				g.wantState(l, locks.Held, "")
				g.mustRelease(l)
			}))
		}
	}
}

// Its owner dies before it could write the record back: a successor finds only the other program's words.
func TestAnOverwrittenRecordIsARevocationForTheSuccessorToo(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 5 * time.Second, Owner: "me"})
		s.set(func() { s.refuse = refusing(rewrites, -1, zk.ErrNotApplied) })
		s.overwrite(l.Znode, "__REVOKE__")
		synctest.Wait()
		one.crash()
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Hour) // far beyond its TTL, which no gateway knows
		asked := two.asked(l)
		assert.That(t, strings.Contains(asked.Reason, "__REVOKE__"), "its holder is told %+v", asked)
		r, ok := record.Parse(s.node(l.Znode).data)
		if !ok || r.LeaseTTL() != locks.MaxTTL || r.Revoke == nil {
			t.Errorf("the record is %s", s.node(l.Znode).data)
		}
	})
}

// A program that writes without end wins, and the lease goes on.
func TestARecordIsWrittenBackABoundedNumberOfTimes(t *testing.T) {
	for _, ns := range []string{"", "all"} {
		scene(t, func(t *testing.T, s *fakeStore) {
			s.dialects()
			g := s.gateway(t)
			l := g.mustHold(locks.AcquireRequest{NS: ns, Lock: "deploy", TTL: time.Minute})
			path := l.Znode
			if ns != "" {
				path = s.member(t, l, 3)
			}
			before := s.node(path).stat.Version
			const times = 3 * maxRestores
			for range times {
				s.overwrite(path, "__REVOKE__")
				synctest.Wait()
				time.Sleep(100 * time.Millisecond)
			}
			n := int(s.node(path).stat.Version-before) - times
			assert.That(t, n == maxRestores, "written back %d times", n)
			g.asked(l)
			time.Sleep(50 * time.Second)
			g.wantState(l, locks.Held, "")
			g.mustRelease(l)
		})
	}
}

// member is the path of the k-th contender of a lease in its queue.
func (s *fakeStore) member(t *testing.T, l locks.Lease, k int) string {
	t.Helper()
	dir := l.Znode[:strings.LastIndexByte(l.Znode, '/')]
	for _, name := range s.names(dir) {
		if strings.Contains(name, l.ID) && strings.Contains(name, fmt.Sprintf(".m%dof3", k)) {
			return dir + "/" + name
		}
	}
	t.Fatalf("no member %d of %s", k, l.ID)
	return ""
}

// In the dialect that all programs respect, Curator's read-write lock asks the
// contender that it knows, which is not the one with the record.
func TestALeaseOfThreeNamesIsAskedByAnyOfThem(t *testing.T) {
	for k := 1; k <= 3; k++ {
		t.Run(fmt.Sprint(k), in(scene, func(t *testing.T, s *fakeStore) {
			s.dialects()
			one, two := s.gateway(t), s.gateway(t)
			l := one.mustHold(locks.AcquireRequest{NS: "all", Lock: "deploy", TTL: time.Minute, Owner: "me"})
			path := s.member(t, l, k)
			s.overwrite(path, "__REVOKE__")
			synctest.Wait()
			time.Sleep(time.Second)
			asked := one.asked(l)
			assert.That(t, strings.Contains(asked.Reason, "__REVOKE__"), "its holder is told %+v", asked)
			if r, ok := record.Parse(s.node(path).data); !ok || r.Owner != "me" {
				t.Errorf("its data is %s", s.node(path).data)
			}
			one.crash()
			time.Sleep(30 * time.Second)
			asked = two.asked(l)
			assert.That(t, strings.Contains(asked.Reason, "__REVOKE__"), "after a takeover its holder is told %+v", asked)
		}))
	}
}

// A holder of Curator's is asked as its own Revoker does, whatever becomes of the
// write, also when another client writes at the same time.
func TestARevocableHolderOfCuratorsIsAsked(t *testing.T) {
	for _, base := range []string{"lock-", "__WRIT__", "__READ__"} {
		for name, fault := range map[string]func(s *fakeStore){
			"none":               func(*fakeStore) {},
			"lost":               func(s *fakeStore) { s.vague, s.drop = once(s.t, rewrites), true },
			"lost but persisted": func(s *fakeStore) { s.vague = once(s.t, rewrites) },
			"written meanwhile": func(s *fakeStore) {
				hit := once(s.t, rewrites)
				s.meanwhile = func(w *zk.Write) {
					if hit(w) {
						s.tx([]zk.Op{{Kind: zk.OpSetData, Path: w.Ops[0].Path, Version: -1}})
					}
				}
			},
		} {
			t.Run(base+" "+name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				g.mustRelease(g.mustHold(deploy()))
				_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true,
					Path: "/lockkeeper/locks/deploy/_c_12345678-1234-1234-1234-123456789abc-" + base})
				synctest.Wait()
				s.set(func() { fault(s) })
				for range 2 {
					answer := g.mustRevoke("why", time.Second)
					if len(answer.Asked) != 1 || len(answer.Not) != 0 || answer.Asked[0].Revoke == nil || answer.Asked[0].Revoke.Forced {
						t.Errorf("%+v", answer)
					}
				}
				assert.Equal(t, string(s.node(paths[0]).data), "__REVOKE__", "its data")
				n := len(g.tells(events.LeaseRevokeRequested))
				assert.That(t, n == 1, "told %d times", n)
				v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
				assert.That(t, err == nil && len(v.Holders) == 1 && v.Holders[0].Revoke != nil, "%+v, %v", v, err)
				time.Sleep(time.Minute)
				assert.That(t, s.node(paths[0]).stat.Czxid != 0, "force is for our own leases alone")
			}))
		}
	}
}

// HBase deletes its contender at the version that it made, and a participant's name
// is what other clients read: neither is written to.
func TestOtherProgramsHoldersAreNotWrittenTo(t *testing.T) {
	for prefix, data := range map[string]string{
		"write-": "PBUF\x0a\x00", "read-": "", "x-72057594037927936-": "\x12\x34", "0123456789abcdef0123456789abcdef__lock__": "",
		"_c_0123456789abcdef0123456789abcdef-lock-": "", "_c_12345678-1234-1234-1234-123456789abc-lock-": "10.0.0.7",
		"_c_12345678-1234-1234-1234-123456789abc-latch-": "", "_c_12345678-1234-1234-1234-123456789abc-lease-": "", "host-": "",
	} {
		t.Run(prefix, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(deploy()))
			_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/" + prefix, Data: []byte(data)})
			g.asksNone("break")
			n := s.node(paths[0])
			assert.That(t, n.stat.Version == 0 && string(n.data) == data, "it was written to: %q", n.data)
		}))
	}
}

// bigdata's rule: while the marker is there no lease is granted the lock.
func TestNoClientIsToldByAnotherGatewayToHoldALockThatIsMarkedAsInvalid(t *testing.T) {
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
		t.Run(name, in(withHooks, func(t *testing.T, s *fakeStore, h *hookedStore, one *gate) {
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
		}))
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
			if !beaten && writeTo(first)(w) && w.Ops[0].Kind == zk.OpDelete {
				beaten = true
				data, _, _ := beatenRecord(s.nodes[first].data, true)
				s.tx([]zk.Op{{Kind: zk.OpSetData, Path: first, Data: data, Version: -1}})
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
