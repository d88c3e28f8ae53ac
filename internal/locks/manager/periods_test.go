package manager

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/periods"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const periodsOfDeploy = "/lockkeeper/periods/default,deploy"

func daily(on locks.DoneOn) locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second, Owner: "me", OncePer: 24 * time.Hour, Period: "p1", DoneOn: on}
}

// once acquires for a period.
func (g *gate) once(req locks.AcquireRequest) locks.AcquireResult {
	g.t.Helper()
	res, err := g.m.Acquire(g.t.Context(), req)
	assert.Must(g.t, err == nil, "%v", err)
	return res
}

// mustBeDone acquires for a period that is done.
func (g *gate) mustBeDone(req locks.AcquireRequest, by locks.Lease) {
	g.t.Helper()
	res := g.once(req)
	assert.Must(g.t, res.Done != nil && res.Lease.ID == "", "it is not done: %+v", res)
	assert.That(g.t, res.Done.LeaseID == by.ID && res.Done.By == by.Owner && res.Done.Lock == "deploy" && !res.Done.At.IsZero(), "%+v", res.Done)
}

func TestWhichEndsLeaveAPeriodDone(t *testing.T) {
	ends := []struct {
		name        string
		end         func(*gate, locks.Lease)
		onGrant     bool
		onRelease   bool
		onlyRelease bool // it goes with done_on=release alone
	}{
		{"released", func(g *gate, l locks.Lease) { g.mustRelease(l); g.mustRelease(l) }, true, true, false},
		{"released as not done", func(g *gate, l locks.Lease) {
			assert.Nil(g.t, g.m.Release(locks.WithUndone(g.t.Context()), locks.Anonymous, l.ID, l.Token))
		}, false, false, true},
		{"expired", func(*gate, locks.Lease) { time.Sleep(11 * time.Second) }, true, false, false},
		{"revoked by force", func(g *gate, l locks.Lease) {
			_, err := g.m.Revoke(g.t.Context(), locks.RevokeRequest{Lock: "deploy", ForceAfter: time.Second})
			assert.Nil(g.t, err)
			time.Sleep(2 * time.Second)
		}, true, false, false},
		{"broken", func(g *gate, l locks.Lease) {
			assert.Nil(g.t, g.m.Break(g.t.Context(), locks.BreakRequest{ID: l.ID}))
		}, true, false, false},
		{"destroyed", func(g *gate, l locks.Lease) { assert.Value(g.destroy(""))(g.t) }, true, false, false},
		{"deleted by another program", func(g *gate, l locks.Lease) {
			g.s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
			synctest.Wait()
		}, true, false, false},
	}
	for _, c := range ends {
		for _, on := range []locks.DoneOn{"", locks.DoneOnRelease} {
			if c.onlyRelease && on == "" {
				continue
			}
			for _, delayed := range []bool{false, true} { // its end deletes the contender, or closes its record
				t.Run(c.name+" "+string(on), in(withGateways, func(t *testing.T, s *fakeStore, g, other *gate) {
					req := daily(on)
					if delayed {
						req.AtLeast = 30 * time.Second
					}
					l := g.once(req).Lease
					assert.Must(t, l.State == locks.Held && l.Period == "p1" && l.OncePer == 24*time.Hour && l.DoneOn != "", "%+v", l)
					c.end(g, l)
					synctest.Wait()
					assert.MustEqual(t, g.look(l).State, locks.Ended)
					time.Sleep(31 * time.Second)
					done := c.onGrant && on == "" || c.onRelease && on != ""
					for _, asked := range []*gate{g, other} {
						if done {
							asked.mustBeDone(daily(on), l)
							asked.mustBeDone(daily(on), l)
						}
					}
					if !done {
						again := other.once(daily(on)).Lease
						assert.Equal(t, again.State, locks.Held)
					}
					next := daily(on)
					next.Period, next.Lock = "p2", "deploy"
					next.Wait = time.Minute
					assert.Equal(t, g.once(next).Lease.State, locks.Held)
					checkAll(t, s, g, other)
				}))
			}
		}
	}
}

// Of those that wait for one period, one is granted; the others are told at their turn that it was done.
func TestAWaiterWhosePeriodBecomesDoneIsToldSo(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		l := g.once(daily(locks.DoneOnRelease)).Lease
		waiting := daily(locks.DoneOnRelease)
		waiting.Wait = time.Minute
		var line []*pending
		for _, at := range []*gate{g, other, g} {
			p := at.begin(waiting)
			p.finished()
			line = append(line, p)
		}
		ticket := waiting
		ticket.Wait, ticket.Async = 0, true
		kept := other.once(ticket).Lease
		g.mustRelease(l)
		for _, p := range line {
			<-p.done
			assert.That(t, p.err == nil && p.lease.ID == "", "%+v %v", p.lease, p.err)
		}
		time.Sleep(time.Second)
		other.wantState(kept, locks.Ended, locks.ReasonDone)
		assert.Equal(t, g.lockState("deploy").State, locks.LockFree)
		checkAll(t, s, g, other)
	})
}

// The holder crashes, and its gateway with it: with done_on=release the next one in line does the work.
func TestACrashFreesAPeriodThatOnlyAReleaseMakesDone(t *testing.T) {
	for _, on := range []locks.DoneOn{locks.DoneOnGrant, locks.DoneOnRelease} {
		t.Run(string(on), in(withGateway, func(t *testing.T, s *fakeStore, one *gate) {
			l := one.once(daily(on)).Lease
			one.crash()
			two := s.gateway(t)
			waiting := daily(on)
			waiting.Wait = time.Hour
			res := assert.Value(two.m.Acquire(t.Context(), waiting))(t)
			if on == locks.DoneOnGrant {
				assert.That(t, res.Done != nil && res.Done.LeaseID == l.ID, "%+v", res)
			} else {
				assert.That(t, res.Done == nil && res.Lease.State == locks.Held, "%+v", res)
			}
			checkAll(t, s, two)
		}))
	}
}

// The gateway dies between the entry and the grant. Its successor finds the lease's own id, and grants.
func TestASuccessorGrantsALeaseWhosePeriodHasItsID(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.once(daily("")).Lease
		one.crash()
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		beat, err := two.heartbeat(l)
		assert.That(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		assert.Equal(t, two.look(l).Period, "p1")
		two.mustBeDone(daily(""), l)
	})
}

// A successor reads the record of the periods before it knows that the lease holds. Until then it says of a holder's lease neither that it
// waits nor that it holds.
func TestASuccessorThatAsksForThePeriodRefusesNoDowngrade(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.once(daily("")).Lease
		h := s.hooked()
		h.hooks.Store(&hooks{read: func(path string) {
			if strings.Contains(path, zk.NodePeriods) {
				time.Sleep(100 * time.Millisecond)
			}
		}})
		one.crash()
		two := h.gateway(t)
		for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(time.Millisecond) {
			v, err := two.downgrade(l)
			if err == nil {
				assert.That(t, v.State == locks.Held && v.Mode == locks.Shared, "%+v", v)
				return
			}
			assert.Must(t, codeOf(err) != locks.CodeNotHeld, "after %v: %v", time.Since(began), err)
		}
		t.Fatal("no downgrade within 20 s")
	})
}

// The write of the entry fails, or its answer is lost: it is read and decided again.
func TestTheEntryOfAPeriodSurvivesFaults(t *testing.T) {
	for name, fault := range map[string]func(*fakeStore, func(*zk.Write) bool){
		"refused": func(s *fakeStore, hit func(*zk.Write) bool) {
			s.refuse = func(w *zk.Write) (int, error) {
				if hit(w) {
					return -1, zk.ErrNotApplied
				}
				return -1, nil
			}
		},
		"lost":               func(s *fakeStore, hit func(*zk.Write) bool) { s.vague, s.drop = hit, true },
		"lost but persisted": func(s *fakeStore, hit func(*zk.Write) bool) { s.vague = hit },
	} {
		for _, on := range []locks.DoneOn{locks.DoneOnGrant, locks.DoneOnRelease} {
			t.Run(name+" "+string(on), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				hits := 0
				break_ := func() {
					once := false
					s.mu.Lock()
					fault(s, func(w *zk.Write) bool {
						hit := !once && writesPeriods(w)
						if hit {
							once = true
							hits++
						}
						return hit
					})
					s.mu.Unlock()
				}
				break_()
				req := daily(on)
				req.Wait = time.Minute
				l := g.once(req).Lease
				assert.MustEqual(t, l.State, locks.Held)
				break_()
				g.mustRelease(l)
				g.mustBeDone(daily(on), l)
				assert.That(t, hits == 2 || hits == 1 && on == locks.DoneOnGrant, "%d faults", hits)
				checkAll(t, s, g)
			}))
		}
	}
}

// A release that comes when another program has deleted the contender, which its gateway has not seen yet, makes no period done. So
// its client is not told that it has released the lease.
func TestAReleaseOfALeaseThatIsGoneMakesNoPeriodDone(t *testing.T) {
	for _, delay := range []time.Duration{0, 2 * time.Second} {
		for _, on := range []locks.DoneOn{locks.DoneOnGrant, locks.DoneOnRelease} {
			t.Run(fmt.Sprint(delay, " ", on), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				req := daily(on)
				req.LockDelay = delay
				l := g.once(req).Lease
				assert.MustEqual(t, l.State, locks.Held)
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
				err := g.release(l)
				synctest.Wait()
				if on == locks.DoneOnGrant {
					g.mustBeDone(daily(on), l)
					return
				}
				e := wantCode(t, err, locks.CodeEnded)
				assert.Equal(t, e.Reason, locks.ReasonRemoved)
				assert.Equal(t, g.once(daily(on)).Lease.State, locks.Held, "the period is not done")
			}))
		}
	}
}

func writesPeriods(w *zk.Write) bool {
	for _, op := range w.Ops {
		if op.Path == periodsOfDeploy && op.Kind != zk.OpDelete {
			return true
		}
	}
	return false
}

// Another gateway writes the record between read and write.
func TestAnEntryIsWrittenAtTheVersionThatWasRead(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		taken := periods.Record{Periods: []periods.Period{{Name: "p1", LeaseID: "other", Owner: "it", DoneOn: locks.DoneOnGrant, Done: true, At: 1, Until: 1 << 60}}}
		g.mustRelease(g.once(func() locks.AcquireRequest { r := daily(""); r.Period = "p0"; return r }()).Lease)
		reached, held := make(chan struct{}), make(chan struct{})
		h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
			if writesPeriods(w) {
				h.hooks.Store(&hooks{})
				close(reached)
				return held
			}
			return nil
		}})
		p := g.begin(daily(""))
		<-reached // it has read, and writes
		assert.Must(t, !p.finished(), "it is granted before its entry is written")
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: periodsOfDeploy, Data: taken.Encode(), Version: -1})
		close(held)
		<-p.done
		assert.That(t, p.err == nil && p.res.Done != nil && p.res.Done.By == "it", "granted, although the period was done: %+v %v", p.res, p.err)
	})
}

func TestALockKeepsSoManyPeriodsAndNoMore(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		named := func(i int) locks.AcquireRequest {
			r := daily("")
			r.Period = "p" + strconv.Itoa(i)
			return r
		}
		for i := range locks.MaxPeriods {
			g.mustRelease(g.once(named(i)).Lease)
		}
		_, err := g.acquire(named(64))
		wantCode(t, err, locks.CodeTooManyPeriods)
		res := g.once(named(0))
		assert.That(t, res.Done != nil, "it was forgotten: %+v", res)
		assert.Nil(t, g.m.ForgetPeriod(t.Context(), locks.PeriodsRequest{Principal: locks.Anonymous, Lock: "deploy", Period: "p1"}))
		wantCode(t, g.m.ForgetPeriod(t.Context(), locks.PeriodsRequest{Principal: locks.Anonymous, Lock: "deploy", Period: "p1"}), locks.CodeNoPeriod)
		g.mustRelease(g.once(named(1)).Lease) // once more, by hand
		_, err = g.acquire(named(64))
		wantCode(t, err, locks.CodeTooManyPeriods)
		time.Sleep(49 * time.Hour)
		assert.Equal(t, g.once(named(64)).Lease.State, locks.Held)
	})
}

// The record of a lock's periods outlives the lock, so the bound on known locks does not bound these records by itself.
func TestSoManyLocksHaveARecordOfPeriodsAndNoMore(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Locks: 3}
		g := s.gateway(t)
		of := func(i int) locks.AcquireRequest {
			r := daily("")
			r.Lock, r.Period = "deploy"+strconv.Itoa(i), "p"
			return r
		}
		for i := range 3 {
			g.mustRelease(g.once(of(i)).Lease)
			time.Sleep(3 * time.Minute) // the lock is known no more
		}
		_, err := g.acquire(of(3))
		e := wantCode(t, err, locks.CodeTooManyLocks)
		assert.That(t, strings.Contains(e.Detail, "3 locks have a record of their periods"), "%s", e.Detail)
		assert.That(t, g.once(of(0)).Done != nil, "it was forgotten")
		again := of(1)
		again.Period = "q"
		g.mustRelease(g.once(again).Lease)
		g.mustRelease(g.mustHold(locks.AcquireRequest{Lock: "deploy4", TTL: time.Hour}))
	})
}

// A lease comes to its turn when others have filled the record meanwhile.
func TestALeaseForWhosePeriodThereIsNoRoomIsRefusedAtItsTurn(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		req := daily("")
		req.Wait = time.Minute
		p := g.begin(req)
		p.finished()
		full := periods.Record{}
		for i := range locks.MaxPeriods {
			full.Periods = append(full.Periods, periods.Period{Name: "q" + strconv.Itoa(i), LeaseID: "other", Done: true, Until: 1 << 60})
		}
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: periodsOfDeploy, Data: full.Encode()})
		g.mustRelease(holder)
		<-p.done
		wantCode(t, p.err, locks.CodeTooManyPeriods)
	})
}

func TestARepeatOfAnAcquireThatMadeThePeriodDoneGetsItsLease(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		req := daily("")
		req.IdempotencyKey = "0123456789abcdef"
		l := g.once(req).Lease
		res := g.once(req)
		assert.That(t, res.Replayed && res.Lease.ID == l.ID && res.Lease.Token == l.Token, "%+v", res)
		req.IdempotencyKey = "fedcba9876543210"
		g.mustBeDone(req, l)
		req.Period = "p2"
		req.Wait = time.Minute
		g.mustRelease(l)
		assert.Equal(t, g.once(req).Lease.Period, "p2")
	})
}

func TestAPeriodWithoutANameIsTheWindowOfTheClock(t *testing.T) {
	assert.Equal(t, locks.WindowAt(time.Duration(time.Date(2026, 11, 22, 23, 59, 59, 9, time.UTC).UnixNano()), 24*time.Hour), "2026-11-22T00:00:00Z")
	assert.Equal(t, locks.WindowAt(time.Duration(time.Date(2026, 11, 22, 3, 29, 0, 0, time.UTC).UnixNano()), 15*time.Minute), "2026-11-22T03:15:00Z")
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		req := daily("")
		req.Period, req.OncePer = "", time.Minute
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
		l := g.once(req).Lease
		g.mustRelease(l)
		g.mustBeDone(req, l)
		time.Sleep(time.Minute)
		next := g.once(req).Lease
		assert.That(t, next.State == locks.Held && next.Period != l.Period, "%+v", next)
	})
}

// No other gateway tells in the owner's place that a lease holds that the record of the periods does not have, nor makes the
// period done.
func TestAnotherGatewayDoesNotSpeakForThePeriodOfALease(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		l := g.once(daily(locks.DoneOnRelease)).Lease
		beat, err := other.m.HeartbeatFor(t.Context(), locks.Anonymous, l.Token)
		assert.That(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		wantCode(t, other.releaseFor(l), locks.CodeUnavailable)
		assert.Nil(t, g.m.ForgetPeriod(t.Context(), locks.PeriodsRequest{Principal: locks.Anonymous, Lock: "deploy", Period: "p1"}))
		_, err = other.m.HeartbeatFor(t.Context(), locks.Anonymous, l.Token)
		wantCode(t, err, locks.CodeUnavailable)
		assert.Nil(t, other.m.ReleaseFor(locks.WithUndone(t.Context()), locks.Anonymous, l.Token))
		assert.Equal(t, other.once(func() locks.AcquireRequest { r := daily(locks.DoneOnRelease); r.Wait = time.Minute; return r }()).Lease.State, locks.Held)
	})
}

func TestAReleaseCannotTakeBackWhatTheGrantHasDone(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.once(daily("")).Lease
		err := g.m.Release(locks.WithUndone(context.Background()), locks.Anonymous, l.ID, l.Token)
		assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "done")
		assert.Equal(t, g.look(l).State, locks.Held)
	})
}

// Records of which nothing has to be kept are deleted, and no others.
func TestRecordsOfPeriodsAreSweptWhenNothingHasToBeKept(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.once(daily("")).Lease)
		time.Sleep(47 * time.Hour)
		assert.That(t, s.node(periodsOfDeploy).stat.Czxid != 0, "it is gone before its time")
		res := g.once(daily(""))
		assert.That(t, res.Done != nil, "%+v", res)
		time.Sleep(4 * time.Hour)
		assert.That(t, s.node(periodsOfDeploy).stat.Czxid == 0, "it is there after its time")
	})
}
