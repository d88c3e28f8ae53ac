package manager

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// The tests of this file each defend one rule of the package that others would let pass when it is taken out.

// A promise window that was once larger is waited for by a successor.
func TestASuccessorWaitsForTheLargestWindowEverRecorded(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.layout.LargestWindow = time.Minute
		one, two := s.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		one.crash()
		time.Sleep(10*time.Second + time.Minute + 18*time.Second)
		two.wantState(l, locks.Held, "")
		time.Sleep(5 * time.Second)
		two.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// The fencing token is the base plus the czxid, and it stays that when the
// contender's data was written and another gateway reads it.
func TestAFencingTokenKeepsItsValueThroughWritesAndTakeovers(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.layout.FenceBase = 1 << 40
		one, two := s.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		want := int64(1<<40) + s.node(l.Znode).stat.Czxid
		assert.Must(t, l.FencingToken == want, "token %d, want %d", l.FencingToken, want)
		assert.Value(one.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, time.Minute))(t)
		one.crash()
		time.Sleep(12 * time.Second)
		beat, err := two.heartbeat(l)
		assert.Must(t, err == nil && beat.FencingToken == l.FencingToken, "%+v %v", beat, err)
		// At most one contender of a lock travels in one transaction.
		for _, w := range s.writes {
			if writeTo("/deploy/write-")(w) && w.Ops[len(w.Ops)-1].Kind == zk.OpCreate && !slices.Equal(w.Queues, []string{"/lockkeeper/locks/deploy"}) {
				t.Errorf("a create for queues %q", w.Queues)
			}
		}
	})
}

// X is succeeded by Y, Y by Z: the leases of X are Z's, and the entries stay while one of them lives.
func TestLeasesBelongToTheEndOfTheChain(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Minute})
		two := s.gateway(t)
		one.crash()
		time.Sleep(12 * time.Second)
		assert.Value(two.heartbeat(l))(t)
		three := s.gateway(t)
		time.Sleep(2 * time.Minute)
		two.crash()
		time.Sleep(2 * time.Minute)
		beat, err := three.heartbeat(l)
		assert.Must(t, err == nil && beat.FencingToken == l.FencingToken, "%+v %v", beat, err)
		time.Sleep(2 * time.Minute)
		assert.MustEqual(t, len(s.names("/lockkeeper/succession")), 2, "entries while a lease needs two")
		four := s.gateway(t)
		_, err = four.heartbeat(l)
		assert.Must(t, err != nil && wantCode(t, err, locks.CodeNotOwner) != nil, "the answer is not that another gateway runs it")
		three.mustRelease(l)
		time.Sleep(3 * time.Minute)
		names := s.names("/lockkeeper/succession")
		assert.That(t, len(names) == 0, "left behind: %v", names)
	})
}

// A gateway that leaves no contender is not taken over.
func TestAGatewayWithoutLeasesIsNotSucceeded(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.crash()
		time.Sleep(20 * time.Second)
		id, err := recipe.NewGatewayID(rand.Reader)
		assert.NoError(t, err)
		invented := assert.Value(recipe.NewLeaseID(two.m.fleet.id, id, rand.Reader))(t)
		_, err = two.m.Lease(t.Context(), locks.LeaseRequest{ID: string(invented)})
		wantCode(t, err, locks.CodeNotFound)
		time.Sleep(5 * time.Second)
		names := s.names("/lockkeeper/succession")
		assert.That(t, len(names) == 0, "entries %v", names)
	})
}

// The next session is there, with its fence open, and cannot take the former
// one's leases over yet. Nothing is said or done about them until it has.
func TestLeasesOfAFormerSessionWaitForTheTakeover(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		foreign := s.foreignAt("/lockkeeper/locks/queued")
		short := g.mustHold(locks.AcquireRequest{Lock: "short", TTL: 10 * time.Second})
		queued := g.mustAcquire(locks.AcquireRequest{Lock: "queued", TTL: time.Minute, Async: true})
		s.set(func() { s.refuse = refusing(writeTo("/succession/"), -1, zk.ErrUnavailable) })
		g.session().expire()
		time.Sleep(time.Second)
		assert.Must(t, g.m.Trusted(), "no next session")
		_, err := g.heartbeat(short)
		wantCode(t, err, locks.CodeUnavailable)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: foreign, Version: -1})
		time.Sleep(time.Minute)
		g.wantState(queued, locks.Waiting, "")
		g.wantState(short, locks.Held, "")
		s.set(func() { s.refuse = nil })
		time.Sleep(2 * time.Second)
		for _, l := range []locks.Lease{short, queued} {
			beat, err := g.heartbeat(l)
			assert.Must(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		}
	})
}

func (s *fakeStore) foreignAt(dir string) string {
	_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Path: dir},
		zk.Op{Kind: zk.OpCreate, Path: dir + "/_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-", Sequential: true})
	return paths[1]
}

// The way is free while the replica is not fit to act upon. The grant waits.
func TestNothingIsGrantedFromAReplicaThatIsNotCurrent(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		foreign := s.foreignAt("/lockkeeper/locks/deploy")
		l := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Async: true})
		h.hooks.Store(&hooks{stale: true})
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: foreign, Version: -1})
		time.Sleep(5 * time.Second)
		g.wantState(l, locks.Waiting, "")
		_, err := g.heartbeat(l)
		wantCode(t, err, locks.CodeUnavailable)
		h.hooks.Store(&hooks{})
		time.Sleep(time.Second)
		g.wantState(l, locks.Held, "")
	})
}

// Verify and consistent reads are true after the question, also on a gateway whose stream is behind.
func TestVerifyAndConsistentReadsSeeWhatWasAcknowledgedBefore(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		g.w.hold()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		verified, consistent := make(chan locks.Lease, 1), make(chan locks.Lock, 1)
		go func() {
			v, _ := g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Verify: true})
			verified <- v
		}()
		go func() {
			v, _ := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy", Consistent: true})
			consistent <- v
		}()
		time.Sleep(300 * time.Millisecond)
		g.w.release()
		v := <-verified
		assert.That(t, v.State != locks.Held, "verified as held after its end: %+v", v)
		assert.Equal(t, (<-consistent).State, locks.LockFree, "held after its end")
	})
}

// The loop woke late though the fence stayed open: heartbeats that waited are heard before anything expires.
func TestALateWakeExpiresNothingBeforeHeartbeatsAreHeard(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
		time.Sleep(8 * time.Second)
		s.clock.(*jumpClock).jump(5 * time.Second)
		assert.Must(t, g.m.Trusted(), "the fence is closed: that is another test")
		time.Sleep(time.Second)
		assert.Value(g.heartbeat(l))(t)
	})
}

// Clocks stop before the first heartbeat is refused: nothing expires while a handover waits for the writes under way.
func TestNothingExpiresDuringAHandover(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
		slow := one.mustHold(locks.AcquireRequest{Lock: "slow", TTL: 10 * time.Minute})
		time.Sleep(8 * time.Second)
		s.set(func() { s.loseReply = writeTo(slow.Znode) })
		go func() { _ = one.release(slow) }()
		synctest.Wait()
		assert.NoError(t, one.m.Drain(t.Context()))
		s.set(func() { s.loseReply = nil })
		assert.Must(t, s.node(l.Znode).stat.Czxid != 0, "expired while its heartbeats were refused")
		time.Sleep(2 * time.Second)
		assert.Value(two.heartbeat(l))(t)
	})
}

// An expiry was lost with its session. It is decided again: the lease is held, with what a takeover gives it.
func TestAnExpiryThatWasLostWithItsSessionIsDecidedAgain(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
		time.Sleep(9 * time.Second)
		s.set(func() { s.vague, s.drop = writeTo(l.Znode), true })
		s.set(func() { s.vague = nil; s.away = true })
		time.Sleep(1100 * time.Millisecond)
		_, err := g.heartbeat(l)
		wantCode(t, err, locks.CodeUnavailable)
		g.session().expire()
		s.set(func() { s.away = false })
		time.Sleep(5 * time.Second)
		beat, err := g.heartbeat(l)
		assert.Must(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
	})
}

// A contender with this session's id that no request of ours knows (a create
// that was given up for lost and committed after all) is ended.
func TestAnUnknownContenderOfOursIsEnded(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		id := assert.Value(recipe.NewLeaseID(g.m.fleet.id, recipe.GatewayID(g.session().ID()), rand.Reader))(t)
		name := recipe.Contender{LeaseID: id, Mode: recipe.Exclusive}
		s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/" + name.Prefix(),
			Data: []byte(`{"v":1,"ttl_ms":86400000}`)})
		time.Sleep(time.Second)
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 0, "contenders that no client can use")
		g.mustHold(deploy())
	})
}

// The lock's directory came or went, and the replica has not heard of it.
func TestADirectoryThatComesOrGoesFailsNoAcquire(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		g.w.hold()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy", Version: -1})
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/other"})
		p, q := g.begin(deploy()), g.begin(locks.AcquireRequest{Lock: "other", TTL: time.Minute})
		time.Sleep(100 * time.Millisecond)
		g.w.release()
		<-p.done
		<-q.done
		assert.Must(t, p.err == nil && q.err == nil, "%v, %v", p.err, q.err)
		// A new directory travels with its first contender alone.
		for _, w := range s.writes {
			assert.That(t, len(w.Ops) <= 1 || w.Ops[0].Path != "/lockkeeper/locks/other" || w.Alone, "it could fail a bystander")
		}
	})
}

// One key, used for two locks, by two principals, and with another owner.
func TestAKeyIsOfOnePrincipalAndOneLock(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		req := locks.AcquireRequest{Lock: "a", TTL: time.Minute, Owner: "me", IdempotencyKey: "abcdefghijklmnop"}
		first := g.mustHold(req)
		other := req
		other.Lock = "b"
		assert.That(t, g.mustHold(other).ID != first.ID, "a key of another lock")
		stranger := req
		stranger.Principal = locks.Principal{Name: "stranger", Rules: access.Everything()}
		_, err := g.acquire(stranger)
		wantCode(t, err, locks.CodeHeldByOther)
		renamed := req
		renamed.Owner = "you"
		_, err = g.acquire(renamed)
		wantCode(t, err, locks.CodeKeyReused)
	})
}

// Another gateway joins and acquires with a key; a scan by one that has not heard of it yet leaves the key alone.
func TestAScanLeavesTheKeysOfANewcomerAlone(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		one.w.hold()
		two := s.gateway(t)
		two.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		scan := sweeper{m: one.m.Manager}
		scan.scanKeys(ctx)
		cancel()
		one.w.release()
		scan.scanKeys(t.Context())
		one.m.mu.Lock()
		defer one.m.mu.Unlock()
		assert.That(t, one.m.keys.Len() == 0, "a living gateway's key is to be swept")
	})
}

// A token that was not made with the fleet's secret opens nothing.
func TestAForgedTokenIsRefused(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		other := g.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Minute})
		forged := record.NewTokens([]layout.TokenKey{{ID: "k1", Key: []byte("another secret!!")}}, nil).Make(recipe.LeaseID(l.ID))
		for _, token := range []string{forged, other.Token, l.Token[:len(l.Token)-1], l.Token + "A", "lk1." + l.ID + "..", "x"} {
			wantCode(t, g.release(withToken(l, token)), locks.CodeTokenWrong)
		}
		g.wantState(l, locks.Held, "")
	})
}

// Very many leases end together: the line to ZooKeeper stays open for clients,
// and the other expiries come when the first ones are done.
func TestExpiriesLeaveTheLineToZooKeeperOpen(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
		crowd := func(n int) {
			g.m.mu.Lock()
			g.m.timers.expiring += n
			g.m.mu.Unlock()
		}
		crowd(expiryWindow)
		time.Sleep(12 * time.Second)
		g.wantState(l, locks.Held, "")
		crowd(-expiryWindow)
		time.Sleep(time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// A waiting lease keeps its place for its clock from the end of the poll, not from some moment while it was open.
func TestAPlaceIsKeptForItsClockFromTheEndOfAPoll(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		_, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: ticket.ID, Token: ticket.Token, Wait: 50 * time.Second, Since: ticket.Rev})
		assert.NoError(t, err)
		time.Sleep(waitingClock - time.Second)
		g.wantState(ticket, locks.Waiting, "")
		pass(2 * time.Second)
		g.wantState(ticket, locks.Ended, locks.ReasonExpired)
	})
}

// A gateway that has succeeded another one dies before it has swept the entry,
// and leaves no contender: another gateway sweeps what it left.
func TestASuccessionWhoseEndIsGoneIsSweptByOthers(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		two := s.gateway(t)
		one.crash()
		for s.node("/lockkeeper/succession/"+string(recipe.LeaseID(l.ID).Gateway())).data == nil {
			time.Sleep(10 * time.Millisecond)
		}
		two.crash()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		s.gateway(t)
		time.Sleep(time.Minute)
		left := s.names("/lockkeeper/succession")
		assert.That(t, len(left) <= 0, "left: %v", left)
	})
}

// An entry may be swept and created again while a gateway has no connection: a gateway that still saw a lease there took it over.
func TestASuccessionThatWasWrittenAgainIsReadAgain(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		dead, third := one.id(), s.gateway(t)
		one.mustHold(keyed())
		one.crash()
		time.Sleep(12 * time.Second)
		successor := func(g *gate) string {
			g.m.mu.Lock()
			defer g.m.mu.Unlock()
			owner, _ := g.m.members.OwnerOf(recipe.GatewayID(dead))
			return string(owner)
		}
		first := successor(third)
		next := two.id()
		if first == next {
			next = third.id()
		}
		for _, g := range []*gate{two, third} {
			g.w.disconnect()
		}
		entry := "/lockkeeper/succession/" + dead
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: entry, Version: -1})
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: entry, Data: []byte(next)})
		for _, g := range []*gate{two, third} {
			g.w.reconnect()
			assert.Equal(t, successor(g), next, "the gateway that runs the leases, as %s knows it", g.id())
		}
	})
}
