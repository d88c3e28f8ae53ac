package manager

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// Leases of several locks, and of other modes than exclusive.

func both(wait time.Duration) locks.AcquireRequest {
	return locks.AcquireRequest{TTL: 30 * time.Second, Wait: wait, Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}}
}

// passed lets the answers of ZooKeeper come, and tells whether an acquire is over.
func (p *pending) passed() bool {
	time.Sleep(20 * time.Millisecond)
	return p.finished()
}

func alone_(lock string) locks.AcquireRequest {
	return locks.AcquireRequest{Lock: lock, TTL: 30 * time.Second}
}

// waiting is how many contenders there are in these queues.
func (s *fakeStore) waiting(names ...string) (n int) {
	for _, lock := range names {
		n += len(s.names("/lockkeeper/locks/" + lock))
	}
	return n
}

func TestAGroupIsGrantedWhenItIsFirstInAllItsQueues(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		a, b := g.mustHold(alone_("a")), g.mustHold(alone_("b"))
		p := g.begin(both(locks.WaitForever))
		assert.Must(t, !p.passed(), "granted while both are held")
		next := g.begin(locks.AcquireRequest{Lock: "b", TTL: 30 * time.Second, Wait: locks.WaitForever})
		next.passed()
		g.mustRelease(a)
		assert.Must(t, !p.passed(), "granted while b is held")
		g.mustRelease(b)
		assert.Must(t, p.passed() && p.err == nil, "not granted: %v", p.err)
		l := p.lease
		if l.State != locks.Held || len(l.Locks) != 2 || l.Lock != "" || l.FencingToken <= b.FencingToken ||
			l.Locks[0].FencingToken != l.FencingToken || l.Locks[1].Lock != "b" || l.Locks[1].Znode == "" {
			t.Errorf("%+v", l)
		}
		checkAll(t, s, g)
		assert.Must(t, !next.passed(), "b was granted twice")
		assert.Value(g.heartbeat(l))(t)
		writes := s.committed()
		g.mustRelease(l)
		assert.That(t, s.committed() == writes+1, "released in %d transactions", s.committed()-writes)
		assert.Must(t, next.passed() && next.err == nil, "b was not passed on: %v", next.err)
		g.mustHold(alone_("a"))
		checkAll(t, s, g)
		want := []string{"lease.granted a", "lease.granted b", "lease.released a", "lease.released b"}
		var told []string
		for _, e := range g.told() {
			if e.LeaseID == l.ID && e.Type.String() != "lease.queued" {
				told = append(told, e.Type.String()+" "+e.Lock)
			}
		}
		assert.That(t, slices.Equal(told, want), "told %v, want %v", told, want)
	})
}

func TestAGroupThatIsTriedTakesAllOrNothing(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		b := g.mustHold(alone_("b"))
		_, err := g.acquire(both(0))
		e := wantCode(t, err, locks.CodeHeldByOther)
		assert.That(t, len(e.Holders) == 1 && e.Holders[0].LeaseID == b.ID, "holders %+v", e.Holders)
		_, err = g.acquire(both(time.Second))
		wantCode(t, err, locks.CodeWaitElapsed)
		assert.Equal(t, s.waiting("a", "b"), 1, "contenders, want that of b alone")
		g.mustHold(alone_("a"))
	})
}

func TestTheSameLockTwiceIsRefusedByName(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.layout.Namespaces["twin"] = zk.Namespace{Root: "/lockkeeper/locks"}
		g := s.gateway(t)
		for _, group := range [][]locks.Want{{{Lock: "a"}, {Lock: "b"}, {Lock: "a", Mode: locks.Shared}}, {{Lock: "b"}, {Lock: "c"}, {NS: "twin", Lock: "b"}}} {
			_, err := g.acquire(locks.AcquireRequest{Group: group})
			assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "locks[2].lock", "field")
		}
		_, err := g.acquire(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {NS: "nowhere", Lock: "b"}}})
		assert.Equal(t, wantCode(t, err, locks.CodeNamespaceUnknown).Field, "locks[1].ns", "field")
		_, err = g.acquire(locks.AcquireRequest{Group: make([]locks.Want, locks.MaxGroup+1)})
		assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "locks", "field")
		assert.Equal(t, len(s.names("/lockkeeper/locks")), 0, "locks were made")
	})
}

// Attack 12: another client deletes one of a lease's contenders. A contender behind
// the others must not wait for ever, and the lease must not live on without it.
func TestALeaseThatLosesOneContenderEndsWhole(t *testing.T) {
	for _, lock := range []string{"a", "b"} {
		t.Run(lock, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(both(0))
			waits := []*pending{g.begin(locks.AcquireRequest{Lock: "a", Wait: locks.WaitForever}), g.begin(locks.AcquireRequest{Lock: "b", Wait: locks.WaitForever})}
			time.Sleep(20 * time.Millisecond)
			i := slices.IndexFunc(l.Locks, func(k locks.LeaseLock) bool { return k.Lock == lock })
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Locks[i].Znode, Version: -1})
			for _, w := range waits {
				assert.Must(t, w.passed() && w.err == nil, "not passed on: %v", w.err)
			}
			g.wantState(l, locks.Ended, locks.ReasonRemoved)
			_, err := g.heartbeat(l)
			assert.That(t, err != nil, "a heartbeat was answered")
		}))
	}
}

// While its other contenders cannot be deleted, no request is told that the lease waits or is held.
func TestALeaseThatHasLostAContenderHasEndedForItsClient(t *testing.T) {
	for _, state := range []locks.State{locks.Held, locks.Waiting} {
		t.Run(string(state), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			if state == locks.Waiting {
				g.mustHold(alone_("a"))
			}
			req := both(0)
			req.Async = true
			l := g.mustAcquire(req)
			assert.Must(t, l.State == state, "state %s, want %s", l.State, state)
			s.set(func() { s.refuse = refusing(begins(zk.OpDelete), 0, zk.ErrNoAuth) })
			told := make(chan error, 1)
			go func() {
				_, err := g.m.AwaitChange(t.Context(), locks.Anonymous, l.ID, l.Token, time.Minute)
				told <- err
			}()
			synctest.Wait()
			s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: l.Locks[1].Znode, Version: -1})
			pass(time.Second)
			select {
			case err := <-told:
				wantCode(t, err, locks.CodeEnded)
			default:
				t.Error("a heartbeat that waits for news is not told")
			}
			assert.Equal(t, s.waiting("b"), 0, "contenders in b")
			for _, token := range []string{l.Token, ""} {
				v := assert.Value(g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: token}))(t, "look")
				assert.That(t, v.State == locks.Ended && v.Reason == locks.ReasonRemoved, "shown as %s (%s)", v.State, v.Reason)
			}
			_, err := g.heartbeat(l)
			e := wantCode(t, err, locks.CodeEnded)
			assert.Equal(t, e.Reason, locks.ReasonRemoved, "a heartbeat is told")
			page := assert.Value(g.m.Leases(t.Context(), locks.LeaseFilter{Owner: l.Owner}))(t, "list")
			assert.That(t, !slices.ContainsFunc(page.Items, func(v locks.Lease) bool { return v.ID == l.ID }), "it is in the list")
			s.set(func() { s.refuse = nil })
			pass(2 * deleteRetry)
			g.wantState(l, locks.Ended, locks.ReasonRemoved)
		}))
	}
}

func TestAnAcquireWhoseLeaseHasLostAContenderIsAnswered(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(alone_("a"))
		p := g.begin(both(locks.WaitForever))
		assert.Must(t, !p.passed(), "granted while a is held")
		s.set(func() { s.refuse = refusing(begins(zk.OpDelete), 0, zk.ErrNoAuth) })
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/b/" + s.names("/lockkeeper/locks/b")[0], Version: -1})
		assert.Must(t, p.passed(), "it waits for a lease that never will be granted")
		assert.Equal(t, wantCode(t, p.err, locks.CodeEnded).Reason, locks.ReasonRemoved, "the acquire is told")
		s.set(func() { s.refuse = nil })
		pass(2 * deleteRetry)
		assert.Equal(t, s.waiting("a", "b"), 1, "contenders, want that of the holder of a")
	})
}

// The same while no gateway looks: the one that ran the lease is dead.
func TestASuccessorEndsWholeWhatHasLostAContender(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(both(0))
		w := two.begin(locks.AcquireRequest{Lock: "b", Wait: locks.WaitForever})
		time.Sleep(20 * time.Millisecond)
		one.crash()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Locks[0].Znode, Version: -1})
		time.Sleep(10*time.Second + fakeWindow + 5*time.Second)
		assert.Must(t, w.passed() && w.err == nil, "not passed on: %v; %v", w.err, s.names("/lockkeeper/locks/b"))
	})
}

func TestAGroupOutlivesItsGatewayAndItsSession(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{TTL: time.Minute, Owner: "me", Group: []locks.Want{{Lock: "a"}, {Lock: "b", Mode: locks.Shared}, {Lock: "c"}}})
		ticket := one.mustAcquire(locks.AcquireRequest{TTL: time.Minute, Async: true, Group: []locks.Want{{Lock: "c"}, {Lock: "d"}}})
		one.crash()
		time.Sleep(11 * time.Second)
		for range 3 {
			assert.Value(two.heartbeat(l))(t)
			assert.Value(two.heartbeat(ticket))(t)
			v := two.look(l)
			assert.That(t, v.FencingToken == l.FencingToken && v.Owner == "me" && fmt.Sprint(v.Locks) == fmt.Sprint(l.Locks),
				"%+v\nwas %+v", v, l)
			checkAll(t, s, two)
			two.session().expire()
			pass(5 * time.Second)
		}
		w := two.look(ticket)
		assert.That(t, w.State == locks.Waiting && w.Position == 1 && w.Locks[1].Position == 0, "ticket %+v", w)
		two.mustRelease(l)
		two.wantState(ticket, locks.Held, "")
		two.mustRelease(ticket)
		assert.Equal(t, s.waiting("a", "b", "c", "d"), 0, "contenders are left")
	})
}

// The create of a group in pairs: failed, and failed but persisted.
func TestAGroupWhoseCreateIsLostIsThereOnceOrNotAtAll(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(both(0)))
			req := both(0)
			req.IdempotencyKey = "abcdefghijklmnop"
			s.set(func() { s.vague, s.drop = writeTo("/locks/a/"), !persisted })
			p := g.begin(req)
			p.passed()
			time.Sleep(2 * time.Second)
			s.set(func() { s.vague = nil })
			assert.Must(t, p.passed(), "not answered")
			time.Sleep(5 * time.Second)
			l, err := g.acquire(req)
			for range 5 {
				if err == nil {
					break
				}
				time.Sleep(time.Second)
				l, err = g.acquire(req)
			}
			assert.Must(t, err == nil && l.State == locks.Held, "%+v, %v", l, err)
			assert.Equal(t, s.waiting("a", "b"), 2, "contenders")
			g.mustRelease(l)
			assert.Equal(t, s.waiting("a", "b"), 0, "contenders are left")
		})
	})
}

// Directories come and go under a group's create.
func TestAGroupFindsItsDirectoriesSweptOrMade(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(both(0)))
		g.w.hold()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/a", Version: -1})
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/c"})
		p := g.begin(locks.AcquireRequest{Wait: locks.WaitForever, Group: []locks.Want{{Lock: "a"}, {Lock: "b"}, {Lock: "c"}}})
		p.passed()
		g.w.release()
		assert.Must(t, p.passed() && p.err == nil, "%v", p.err)
		g.mustRelease(p.lease)
	})
}

func TestReadersHoldTogetherAndWritersAlone(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		read := locks.AcquireRequest{Lock: "deploy", TTL: 30 * time.Second, Mode: locks.Shared}
		first, second := one.mustHold(read), two.mustHold(read)
		assert.That(t, first.Mode == locks.Shared && first.FencingToken < second.FencingToken, "%+v, %+v", first, second)
		writer := one.begin(locks.AcquireRequest{Lock: "deploy", TTL: 30 * time.Second, Wait: locks.WaitForever})
		writer.passed()
		_, err := two.acquire(read)
		if e := wantCode(t, err, locks.CodeHeldByOther); len(e.Holders) != 2 || e.Holders[0].Mode != locks.Shared {
			t.Errorf("holders %+v", e.Holders) // fair: it stands behind the writer
		}
		late := []*pending{two.begin(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared, Wait: locks.WaitForever}), one.begin(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared, Wait: locks.WaitForever})}
		checkAll(t, s, one, two)
		one.mustRelease(first)
		assert.Must(t, !writer.passed(), "a writer beside a reader")
		two.mustRelease(second)
		assert.Must(t, writer.passed() && writer.err == nil, "%v", writer.err)
		for _, p := range late {
			assert.Must(t, !p.passed(), "a reader beside the writer")
		}
		checkAll(t, s, one, two)
		one.mustRelease(writer.lease)
		for _, p := range late {
			assert.Must(t, p.passed() && p.err == nil, "%v", p.err)
		}
	})
}

// Attack 23 is promised only for clients that take all they need at once: then
// no lease waits for ever, whatever the order of names.
func TestGroupsNeverDeadlock(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), in(scene, func(t *testing.T, s *fakeStore) {
			random := rand.New(rand.NewPCG(seed, 7))
			gates := []*gate{s.gateway(t), s.gateway(t)}
			names := strings.Split("abcdef", "")
			done := make(chan error)
			const clients, rounds = 12, 6
			for range clients {
				g := gates[random.IntN(len(gates))]
				var groups [][]locks.Want
				for range rounds {
					random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
					var group []locks.Want
					for _, name := range names[:1+random.IntN(4)] {
						group = append(group, locks.Want{Lock: name, Mode: []locks.Mode{locks.Exclusive, locks.Shared}[random.IntN(2)]})
					}
					groups = append(groups, group)
				}
				pause := time.Duration(random.IntN(1000)) * time.Millisecond
				go func() {
					done <- func() error {
						for _, group := range groups {
							res, err := g.m.Acquire(context.Background(), locks.AcquireRequest{TTL: time.Hour, Wait: 10 * time.Minute, Group: group})
							if err != nil {
								return err
							}
							time.Sleep(pause)
							if err := g.release(res.Lease); err != nil {
								return err
							}
						}
						return nil
					}()
				}()
			}
			for range clients {
				assert.Nil(t, <-done)
			}
			checkAll(t, s, gates...)
		}))
	}
}

// The largest that there can be: the most locks, with the longest names and
// metadata that takes six bytes a character in the record, and a downgrade of all.
func TestTheLargestGroupFitsATransaction(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		req := locks.AcquireRequest{TTL: time.Minute, Metadata: strings.Repeat("<", locks.MaxMetadata), Owner: strings.Repeat("<", locks.MaxOwner)}
		for i := range locks.MaxGroup {
			req.Group = append(req.Group, locks.Want{Lock: strings.Repeat("x", 198) + fmt.Sprintf("%02d", i)})
		}
		l := g.mustHold(req)
		assert.Value(g.downgrade(l))(t)
		g.mustRelease(l)
		for _, w := range s.writes {
			size := 0
			for _, op := range w.Ops {
				size += len(op.Path) + len(op.Data)
			}
			assert.That(t, size <= 200<<10, "a transaction of %d bytes", size)
		}
	})
}

// A lease that waits for one lock holds none, also where it stands first.
func TestAGroupThatWaitsHoldsNothing(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		gates := []*gate{s.gateway(t), s.gateway(t)}
		b := gates[0].mustHold(alone_("b"))
		p := gates[0].begin(both(locks.WaitForever))
		p.passed()
		for _, g := range gates {
			v := assert.Value(g.m.Lock(t.Context(), locks.LockRequest{Lock: "a"}))(t)
			if v.State != locks.LockQueued || len(v.Holders) != 0 || v.QueueLength != 1 || len(v.Waiters) != 1 || v.Waiters[0].Position != 1 ||
				!slices.Equal(v.Waiters[0].Group, []string{"b"}) {
				t.Errorf("%+v", v)
			}
		}
		gates[0].mustRelease(b)
		assert.Must(t, p.passed(), "not granted")
		for _, g := range gates {
			v, _ := g.m.Lock(t.Context(), locks.LockRequest{Lock: "a"})
			assert.That(t, v.State == locks.LockHeld && len(v.Holders) == 1 && len(v.Waiters) == 0, "%+v", v)
		}
		checkAll(t, s, gates...)
	})
}

// A lock with every dialect's names has more than one slot in its lease: what is
// asked of the locks after it is found by the lock, not by the slot.
func TestASemaphoreAfterALockOfSeveralNamesHasItsOwnLimit(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.dialects()
		g := s.gateway(t)
		l := g.mustHold(locks.AcquireRequest{TTL: time.Minute, Group: []locks.Want{{NS: "all", Lock: "x"},
			{Lock: "y", Mode: locks.Semaphore, Limit: 3, Permits: 2}, {Lock: "z", Mode: locks.Semaphore, Limit: 7}}})
		y, z := l.Locks[1], l.Locks[2]
		assert.That(t, y.Limit == 3 && y.Permits == 2 && z.Limit == 7 && z.Permits == 1, "%+v %+v", y, z)
	})
}

// To a gateway that ends what stands before another one's group, the group holds when the replica shows the end in all of its
// queues, and not sooner: what the writer was told may be taken together with what is not shown yet.
func TestAnotherGatewaysGroupHoldsOnlyWhenAllEndsBeforeItAreShown(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first, second := one.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Hour}), one.mustHold(locks.AcquireRequest{Lock: "c", TTL: time.Hour})
		group := two.begin(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "c"}}, TTL: time.Hour, Wait: locks.WaitForever})
		time.Sleep(100 * time.Millisecond)
		one.w.hold()
		one.mustRelease(first)
		one.mustRelease(second)
		one.w.release()
		<-group.done
		synctest.Wait()
		granted, shown := -1, -1
		for i, e := range one.told() {
			switch {
			case e.Type == events.LeaseGranted && e.LeaseID == group.lease.ID && granted < 0:
				granted = i
			case e.Type == events.NodeDeleted && e.Path() == second.Znode:
				shown = i
			}
		}
		assert.That(t, granted >= 0 && shown >= 0 && granted >= shown, "the grant is event %d, the end before it event %d", granted, shown)
		two.mustRelease(group.lease)
	})
}

// The observer lists a queue after the other when its connection is back. In the first one the group leads by now; in the
// second one, which is not listed yet, it is gone.
func TestAnotherGatewaysGroupHoldsOnlyByATreeThatIsReadWhole(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		holder := one.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Hour})
		group := one.begin(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "c"}}, TTL: time.Hour, Wait: locks.WaitForever})
		time.Sleep(100 * time.Millisecond)
		two.w.disconnect()
		one.w.hold()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/c/" + s.names("/lockkeeper/locks/c")[0], Version: -1})
		one.mustRelease(holder)
		two.w.insert(func() {
			two.w.change(zk.NodeRemoved, holder.Znode, true, math.MaxInt64)
			dir := path.Dir(holder.Znode)
			two.w.sink.Apply([]zk.Change{{Kind: zk.DirListed, Root: two.w.rootOf(holder.Znode), Dir: two.w.dir(dir), Listed: true, Zxid: math.MaxInt64, Created: 2}})
		})
		two.w.reconnect()
		one.w.release()
		<-group.done
		wantCode(t, group.err, locks.CodeEnded)
		wantWords(t, two.tells(events.LeaseGranted), "lease.granted") // the holder's
	})
}

func TestAnotherGatewaysGroupThatCameToHoldUnobservedIsToldOnce(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		holder := one.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Hour})
		group := one.begin(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "c"}}, TTL: time.Hour, Wait: locks.WaitForever})
		time.Sleep(100 * time.Millisecond)
		two.w.disconnect()
		one.mustRelease(holder)
		<-group.done
		two.w.reconnect()
		wantWords(t, two.tells(events.LeaseGranted), "lease.granted", "lease.granted", "lease.granted") // the group's in each lock
		third := s.gateway(t)
		wantWords(t, third.tells(leaseTypes...)) // how it was at the start is no news
		for _, g := range []*gate{two, third} {
			lock, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "c"})
			assert.Must(t, err == nil && len(lock.Holders) == 1, "%+v %v", lock, err)
			assert.That(t, lock.Holders[0].HeldLonger, "the group may have held before it was seen: %+v", lock.Holders[0])
		}
	})
}
