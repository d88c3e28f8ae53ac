package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const deploySettings = "/lockkeeper/settings/default,deploy"

// permits asks for some of a semaphore's permits, and stays; limit 0 takes the lock's.
func permits(n, limit int) locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", Mode: locks.Semaphore, Permits: n, Limit: limit, TTL: time.Hour, Async: true}
}

func (g *gate) configure(limit int) (locks.Lock, error) {
	return g.m.Configure(g.t.Context(), locks.SettingsRequest{Lock: "deploy", Limit: limit})
}

func (g *gate) mustConfigure(limit int) {
	g.t.Helper()
	lock, err := g.configure(limit)
	assert.Must(g.t, err == nil && lock.Limit == limit && !lock.LimitAgreed, "configure %d: %+v %v", limit, lock, err)
	synctest.Wait()
}

func (g *gate) remove() error { return g.m.Remove(g.t.Context(), locks.Anonymous, "", "deploy") }

func (g *gate) lock() locks.Lock {
	g.t.Helper()
	lock := assert.Value(g.m.Lock(g.t.Context(), locks.LockRequest{Lock: "deploy", Consistent: true}))(g.t)
	return lock
}

func (g *gate) wantLimit(limit int, agreed bool) {
	g.t.Helper()
	if lock := g.lock(); lock.Limit != limit || lock.LimitAgreed != agreed {
		g.t.Errorf("limit %d, agreed %v; want %d, %v", lock.Limit, lock.LimitAgreed, limit, agreed)
	}
}

// checkPermits verifies that what holds by ZooKeeper's names at no time exceeds
// the limit that the last of them was enqueued under.
func checkPermits(t *testing.T, s *fakeStore, g *gate) {
	t.Helper()
	var q recipe.Queue
	for _, name := range s.names("/lockkeeper/locks/deploy") {
		if c, ok := recipe.Parse(g.m.fleet.id, name); ok {
			q.Insert(&c)
		}
	}
	used := 0
	for c := range q.Holders() {
		used += int(c.Permits)
		assert.That(t, used <= int(c.Limit), "%s holds: %d permits of %d", c.Name, used, c.Limit)
	}
}

func TestTheFirstAcquireOfASemaphoreAgreesOnItsLimit(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		_, err := one.acquire(permits(1, 0))
		assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "limit", "field")
		a := one.mustHold(permits(2, 3))
		assert.That(t, a.Limit == 3 && a.Permits == 2, "%+v", a)
		one.wantLimit(3, true)
		two.wantLimit(3, true)
		_, err = two.acquire(permits(1, 4))
		assert.Equal(t, wantCode(t, err, locks.CodeSettingsDiffer).Limit, 3, "the limit in force is told as")
		_, err = two.acquire(permits(4, 0))
		assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "permits", "field")
		b := two.mustHold(permits(1, 0)) // takes the lock's
		assert.That(t, b.Limit == 3, "%+v", b)
		assert.Equal(t, two.mustAcquire(permits(1, 3)).State, locks.Waiting)
		checkPermits(t, s, one)
	})
}

// A lock's limit is what is agreed upon while it is in use; idle, it is forgotten
// with the lock. One that was set stays.
func TestWhatWasAgreedGoesWithTheIdleLockAndWhatWasSetStays(t *testing.T) {
	for _, set := range []bool{false, true} {
		t.Run(map[bool]string{false: "agreed", true: "set"}[set], in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			a := g.mustHold(permits(1, 3))
			if set {
				g.mustConfigure(3)
			}
			time.Sleep(2 * idleLock)
			g.wantLimit(3, !set)
			g.mustRelease(a)
			time.Sleep(idleLock + 3*sweepEvery)
			left := s.names("/lockkeeper/settings")
			assert.That(t, (len(left) == 1) == set && len(s.names("/lockkeeper/locks")) == 0,
				"left: settings %v, locks %v", left, s.names("/lockkeeper/locks"))
			if set {
				g.wantLimit(3, false)
				return
			}
			g.wantLimit(0, false)
			g.mustHold(permits(1, 7))
			g.wantLimit(7, true)
		}))
	}
}

// Settings of a lock whose directory is gone already are swept all the same.
func TestAgreedSettingsOfALockWithoutADirectoryAreSwept(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: deploySettings},
			zk.Op{Kind: zk.OpCreate, Path: deploySettings + "/limit-3", Data: settings.AgreedData()},
			zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/settings/nowhere,deploy"}, // not ours to judge
			zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/settings/default,empty"})
		g := s.gateway(t)
		g.wantLimit(3, true)
		time.Sleep(idleLock + 3*sweepEvery)
		assert.Slices(t, s.names("/lockkeeper/settings"), []string{"nowhere,deploy"}, "left")
		locks := s.names("/lockkeeper/locks")
		assert.That(t, len(locks) == 0, "locks: %v", locks)
	})
}

// Attack 10. Rule: the limit is in the contender's name, as it was when it came.
func TestALoweredLimitTakesNoPermitBackAlsoAfterATakeover(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustConfigure(3)
		a := one.mustHold(permits(1, 0))
		b := two.mustHold(permits(1, 0))
		one.mustConfigure(1)
		c := one.mustAcquire(permits(1, 0))
		assert.Must(t, c.State == locks.Waiting && c.Limit == 1, "a newcomer: %+v", c)
		two.crash()
		for range 90 {
			time.Sleep(time.Second)
			assert.Value(one.heartbeat(c))(t)
		}
		one.wantState(a, locks.Held, "")
		one.wantState(b, locks.Held, "")
		beat, err := one.heartbeat(b)
		assert.Must(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		one.wantState(c, locks.Waiting, "")
		one.mustRelease(a)
		one.wantState(c, locks.Waiting, "")
		one.mustRelease(b)
		one.wantState(c, locks.Held, "")
	})
}

// Attack 48. The settings are swept and made anew with another limit, at the same version, and the gateway that is
// asked has not seen it. Rule: the limit is in the path that the transaction checks.
func TestALimitThatWasMadeAnewIsNotExceededThroughALaggingGateway(t *testing.T) {
	for _, given := range []int{3, 0} {
		t.Run(fmt.Sprint("limit=", given), in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
			two.mustRelease(two.mustHold(permits(1, 3)))
			version := s.node(deploySettings + "/limit-3").stat.Version
			two.w.hold()
			time.Sleep(idleLock + 3*sweepEvery) // swept by one; two's fence stays open, its replica stands still
			two.w.release()
			two.wantLimit(0, false)
			two.mustRelease(two.mustHold(permits(1, 3)))
			two.w.hold()
			assert.NoError(t, one.remove())
			a := one.mustHold(permits(1, 1))
			now := s.node(deploySettings + "/limit-1").stat.Version
			assert.Must(t, now == version, "version %d, was %d: the scene shows nothing", now, version)
			p := two.begin(permits(1, given))
			time.Sleep(100 * time.Millisecond)
			checkPermits(t, s, one)
			two.w.release()
			<-p.done
			checkPermits(t, s, one)
			one.wantState(a, locks.Held, "")
			if given != 0 {
				assert.Equal(t, wantCode(t, p.err, locks.CodeSettingsDiffer).Limit, 1, "limit")
			} else if p.err != nil || p.lease.State != locks.Waiting || p.lease.Limit != 1 {
				t.Errorf("%+v %v", p.lease, p.err)
			}
		}))
	}
}

// The replica may be behind: no request is refused for what it shows before it has
// come up to the present. Rule: sized again after a barrier.
func TestNoAcquireIsRefusedForALimitThatIsNoMore(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustConfigure(3)
		two.w.hold()
		one.mustConfigure(5)
		p := two.begin(permits(5, 5))
		time.Sleep(100 * time.Millisecond)
		two.w.release()
		<-p.done
		assert.Must(t, p.err == nil && p.lease.State == locks.Held && p.lease.Limit == 5, "%+v %v", p.lease, p.err)
	})
}

// Two gateways agree upon a limit at the same moment: one of them is too late, and decides again.
func TestTwoAcquiresAtOnceAgreeOnOneLimit(t *testing.T) {
	for _, limits := range [][2]int{{3, 3}, {3, 4}} {
		t.Run(fmt.Sprint(limits), in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
			p, q := one.begin(permits(1, limits[0])), two.begin(permits(1, limits[1]))
			<-p.done
			<-q.done
			var refused int
			for _, err := range []error{p.err, q.err} {
				if err != nil {
					wantCode(t, err, locks.CodeSettingsDiffer)
					refused++
				}
			}
			assert.That(t, (refused == 1) == (limits[0] != limits[1]) && refused <= 1, "%v, %v", p.err, q.err)
			left := s.names(deploySettings)
			assert.That(t, len(left) == 1, "settings %v", left)
		}))
	}
}

// Another client empties or fills the settings between decision and transaction,
// each time anew: the acquire comes to an end, and nothing of it stays behind.
func TestAnAcquireWhoseLimitNeverStandsStillGivesUp(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustConfigure(3)
		s.mu.Lock()
		s.refuse = func(w *zk.Write) (int, error) {
			for i, op := range w.Ops {
				if op.Kind == zk.OpCheck {
					return i, zk.ErrNoNode
				}
			}
			return 0, nil
		}
		s.mu.Unlock()
		_, err := g.acquire(permits(1, 0))
		wantCode(t, err, locks.CodeUnavailable)
		names := s.names("/lockkeeper/locks/deploy")
		assert.That(t, len(names) == 0, "left behind: %v", names)
	})
}

// A settings directory that is empty (an operator deleted the limit) is in no request's way.
func TestAnEmptySettingsDirectoryIsFilledAnew(t *testing.T) {
	for _, by := range []string{"acquire", "configure"} {
		t.Run(by, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: deploySettings})
			if by == "acquire" {
				g.mustHold(permits(1, 2))
			} else {
				g.mustConfigure(2)
			}
			g.wantLimit(2, by == "acquire")
		}))
	}
}

func TestALimitIsChangedInOneTransactionAndOneOfTwoChangesLasts(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		gates := []*gate{s.gateway(t), s.gateway(t)}
		for _, first := range []int{0, 2} { // without settings, and with
			if first != 0 {
				gates[0].mustConfigure(first)
			} else if err := gates[0].remove(); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					_, err := gates[i%2].configure(10 + i)
					assert.Nil(t, err, "configure")
				})
			}
			wg.Wait()
			left := s.names(deploySettings)
			assert.That(t, len(left) == 1, "limits %v", left)
		}
		gates[0].mustConfigure(4)
		before := s.written()
		gates[0].mustConfigure(4)
		assert.Equal(t, s.written(), before, "a repeat writes: %d, then", before)
		assert.Slices(t, s.names(deploySettings), []string{"limit-4"})
		_, err := gates[0].configure(0)
		assert.That(t, err != nil, "limit 0")
		_, err = gates[0].configure(locks.MaxLimit + 1)
		assert.That(t, err != nil, "a limit that is too large")
	})
}

// written counts the writes with operations of their own.
func (s *fakeStore) written() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		if len(w.Ops) > 0 {
			n++
		}
	}
	return n
}

// A sweep that was decided when a limit had been agreed upon does not take one
// that has been set since. Rule: what was set has another version.
func TestASweepDoesNotTakeALimitThatHasBeenSetSince(t *testing.T) {
	for _, how := range []string{"set", "removed and set"} {
		t.Run(how, in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
			two.mustRelease(two.mustHold(permits(1, 3)))
			two.w.hold()
			if how != "set" {
				assert.NoError(t, one.remove())
			}
			one.mustConfigure(3)
			two.m.mu.Lock()
			ops := two.m.fleet.settings.Sweep(two.m.replica.Namespaces[locks.DefaultNamespace].Find("deploy"))
			two.m.mu.Unlock()
			assert.Must(t, slices.ContainsFunc(ops, func(op zk.Op) bool { return strings.HasSuffix(op.Path, "limit-3") }),
				"%v: the scene shows nothing", ops)
			s.mu.Lock()
			_, _, _, _, err := s.tx(ops)
			s.mu.Unlock()
			assert.That(t, err != nil, "the sweep took what was set")
			two.w.release()
			one.wantLimit(3, false)
		}))
	}
}

// A sweep does not take settings from under a lease that has just come.
func TestASweepDoesNotTakeTheSettingsOfALockThatIsInUseAgain(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		two.mustRelease(two.mustHold(permits(1, 3)))
		two.w.hold()
		one.mustHold(permits(1, 3))
		two.m.mu.Lock()
		ops := two.m.fleet.settings.Sweep(two.m.replica.Namespaces[locks.DefaultNamespace].Find("deploy"))
		two.m.mu.Unlock()
		s.mu.Lock()
		_, _, _, _, err := s.tx(ops)
		s.mu.Unlock()
		assert.That(t, errors.Is(err, zk.ErrNotEmpty), "%v: %v", ops, err)
		two.w.release()
	})
}

func TestALockIsRemovedWithItsSettingsUnlessItIsInUse(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		assert.Nil(t, one.remove(), "a lock that never was")
		one.mustConfigure(2)
		a := one.mustHold(permits(1, 0))
		e := wantCode(t, two.remove(), locks.CodeLockInUse)
		assert.That(t, len(e.Holders) == 1 && e.Holders[0].LeaseID == a.ID, "%+v", e)
		two.w.hold()
		one.mustRelease(a)
		removed := make(chan error, 1)
		go func() { removed <- two.remove() }() // its replica is behind, and comes up to the present
		time.Sleep(100 * time.Millisecond)
		two.w.release()
		assert.Nil(t, <-removed)
		left := append(s.names("/lockkeeper/settings"), s.names("/lockkeeper/locks")...)
		assert.That(t, len(left) == 0, "left: %v", left)
		assert.Nil(t, two.remove(), "repeated")
		one.mustConfigure(2) // settings alone
		err := two.remove()
		assert.That(t, err == nil && len(s.names("/lockkeeper/settings")) == 0, "%v, left: %v", err, s.names("/lockkeeper/settings"))
		if locks := s.names("/lockkeeper/locks"); len(locks) != 0 {
			t.Errorf("left: %v", locks)
		}
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy"}, zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/stray"})
		wantCode(t, two.remove(), locks.CodeLockInUse)
	})
}

// A lease comes between the look and the removal. Rule: the directory's deletion is in the transaction, and fails.
func TestALockThatIsTakenAtThisMomentIsNotRemoved(t *testing.T) {
	for _, directory := range []bool{true, false} {
		t.Run(fmt.Sprint("directory=", directory), in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
			one.mustConfigure(2)
			if directory {
				one.mustRelease(one.mustHold(permits(1, 0)))
			}
			synctest.Wait()
			var taken *pending
			var once sync.Once
			s.mu.Lock()
			s.refuse = func(w *zk.Write) (int, error) {
				if len(w.Ops) == 0 || w.Ops[len(w.Ops)-1].Kind != zk.OpDelete {
					return 0, nil
				}
				once.Do(func() {
					s.mu.Unlock()
					taken = two.begin(permits(1, 2))
					<-taken.done
					s.mu.Lock()
				})
				return 0, nil
			}
			s.mu.Unlock()
			wantCode(t, one.remove(), locks.CodeLockInUse)
			assert.Must(t, taken != nil && taken.err == nil && taken.lease.State == locks.Held, "%+v", taken)
			one.wantLimit(2, false)
		}))
	}
}

// Failed, and failed but persisted: a change whose answer is lost with the session.
func TestAChangeOfSettingsWhoseAnswerIsLostIsUnknownAndMayBeRepeated(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustConfigure(3)
			s.set(func() { s.vague, s.drop = writeTo("/limit-5"), !persisted })
			_, err := g.configure(5)
			wantCode(t, err, locks.CodeOutcomeUnknown)
			s.set(func() { s.vague = nil })
			g.wantLimit(map[bool]int{false: 3, true: 5}[persisted], false)
			g.mustConfigure(5)
		})
	})
}

// A repeat with its key finds its lease, whatever the lock's limit has become.
func TestAKeyedRepeatIsNotRefusedForALimitThatHasChanged(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		req := permits(1, 3)
		req.IdempotencyKey = "abcdefghijklmnop"
		a := one.mustHold(req)
		one.mustConfigure(5)
		assert.Equal(t, one.mustHold(req).ID, a.ID)
		_, err := two.acquire(req) // the lease is one's, and not refused for its limit
		wantCode(t, err, locks.CodeNotOwner)
	})
}

// A group's semaphores each have their own limit.
func TestAGroupCarriesTheLimitOfEachOfItsSemaphores(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustConfigure(2)
		group := func(second int) locks.AcquireRequest {
			return locks.AcquireRequest{TTL: time.Hour, Async: true, Group: []locks.Want{{Lock: "deploy", Mode: locks.Semaphore, Permits: 2},
				{Lock: "other", Mode: locks.Semaphore, Limit: second}, {Lock: "third"}}}
		}
		l := g.mustHold(group(4))
		if l.Locks[0].Limit != 2 || l.Locks[0].Permits != 2 || l.Locks[1].Limit != 4 || l.Locks[1].Permits != 1 || l.Locks[2].Limit != 0 {
			t.Errorf("%+v", l.Locks)
		}
		_, err := g.acquire(group(5))
		e := wantCode(t, err, locks.CodeSettingsDiffer)
		assert.That(t, e.Field == "locks[1].limit" && e.Limit == 4, "%+v", e)
		g.mustRelease(l)
		time.Sleep(idleLock + 3*sweepEvery)
		assert.Slices(t, s.names("/lockkeeper/settings"), []string{"default,deploy"}, "left")
	})
}

func TestALimitsNodeHasOneSpelling(t *testing.T) {
	for _, name := range []string{"limit-", "limit-0", "limit-03", "limit-+3", "limit--3", "limit-3 ", "limit-1048577", "limit-99999999999999999999", "Limit-3", "3"} {
		n, ok := queues.ParseLimit(name)
		assert.That(t, !ok, "%q is read as %d", name, n)
	}
	for _, n := range []int{1, 3, locks.MaxLimit} {
		got, ok := queues.ParseLimit(fmt.Sprint("limit-", n))
		assert.That(t, ok && got == n, "limit-%d is read as %d, %v", n, got, ok)
	}
}
