package sim

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// Each test makes one interleaving happen which broke an earlier version of the design, makes sure that it did happen, and
// holds what follows against the promises. docs/internals/robustness.md has the table.

func TestAttack01AFollowerThatIsCutOffKeepsNoHeartbeatAlive(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 2, func(s *scene) {
		old := s.startBehind(0, zktest.FollowerName(1))
		next := s.startBehind(1, zktest.LeaderName)
		c := s.client(old)
		l := s.take(c, "a", "held", "ttl", "30s")
		s.zk.Follower(1).CutOff()
		cut := time.Now()
		var last time.Time // when the last success was answered
		for !s.takenOver() {
			if a := s.beat(c, l); a.status == http.StatusOK {
				last = a.received
			}
			time.Sleep(100 * time.Millisecond)
		}
		taken := time.Now()
		assert.Must(s, taken.Sub(cut) <= 5*time.Second,
			"taken over after %v only: the follower has ended its service by itself", taken.Sub(cut))
		assert.That(s, len(s.zk.Network.Links(old.name, zktest.FollowerName(1))) != 0,
			"the follower does not serve the old gateway any more")
		if last.Before(cut) || last.After(cut.Add(s.window)) {
			s.Errorf("the last success was %v after the cut; the window is %v", last.Sub(cut), s.window)
		}
		c.at = next
		s.beatUntil(c, l, 2*s.window)
		s.zk.Follower(1).Heal()
		c.release(l)
	})
}

func TestAttack02NoLeaseIsGrantedOverAPredecessorThatItsGatewayHasNotSeen(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		c := s.client(g)
		c.release(s.take(c, "a", "held", "ttl", "30s")) // the directory is there
		other := assert.Value(s.openSession("other", zktest.LeaderName))(s)
		stalled := s.observer(g)
		stalled.StallReplies()
		theirs, err := other.create(lockRoot+"/a/_c_00000000-0000-0000-0000-000000000000-lock-", "", wire.FlagEphemeral|wire.FlagSequential)
		assert.NoError(s, err)
		s.exemptions.excuse(theirs)
		asked := make(chan *lease, 1)
		go func() {
			a, l, err := s.ask(c, "a", "ttl", "30s", "async", "true")
			assert.That(s, err == nil && a.State == "waiting",
				"over a contender that its gateway has not seen: %d %s, %v", a.status, a.raw, err)
			asked <- l
		}()
		s.within(300*time.Millisecond, "ours is behind it", func() bool { return len(s.audit.contenders()) == 2 })
		time.Sleep(200 * time.Millisecond)
		assert.Must(s, s.observer(g) == stalled, "it has connected anew")
		stalled.Resume()
		l := <-asked
		if l == nil {
			s.FailNow()
		}
		assert.Equal(s, s.beat(c, l).State, "waiting", "behind another program's contender it")
		assert.NoError(s, other.delete(theirs))
		time.Sleep(100 * time.Millisecond)
		assert.Equal(s, s.beat(c, l).State, "held", "at the head of the queue it")
		other.close()
		c.release(l)
	})
}

func TestAttack03AServerThatIsBehindRemovesNothing(t *testing.T) {
	play(t, windowOutlivesSession, 1, 2, func(s *scene) {
		g := s.start(0)
		c := s.client(g)
		c.release(s.take(c, "a", "held", "ttl", "30s")) // the directory is there
		s.zk.Follower(1).Lag(zktest.Delay{Min: 3 * time.Second, Max: 3 * time.Second})
		time.Sleep(4 * time.Second)
		l := s.take(c, "a", "held", "ttl", "30s")
		created := s.audit.find(l.path).czxid
		// Its observer finds only the follower, which has not heard of the contender.
		s.zk.Network.Part(g.name, zktest.LeaderName)
		s.observer(g).Cut()
		assert.Must(s, s.zk.Follower(1).Zxid() < created, "the follower knows the contender already")
		for range 30 {
			if a := s.beat(c, l); a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
				s.Fatalf("a heartbeat is answered %d %s", a.status, a.raw)
			}
			time.Sleep(200 * time.Millisecond)
		}
		assert.That(s, s.there(l), "the contender is gone")
		s.zk.Network.Join(g.name, zktest.LeaderName)
		s.beatUntil(c, l, 10*time.Second)
		c.release(l)
	})
}

func TestAttack05AContenderThatMayNotBeReadIsWaitedFor(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		c := s.client(g)
		c.release(s.take(c, "a", "held", "ttl", "30s")) // the directory is there
		other, err := s.openSession("other", zktest.LeaderName)
		assert.NoError(s, err)
		assert.NoError(s, other.Must(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("other:secret")}, nil))
		var created wire.PathRecord
		err = other.Must(wire.OpCreate, &wire.CreateRequest{Path: lockRoot + "/a/_c_00000000-0000-0000-0000-000000000000-lock-", Flags: wire.FlagSequential,
			ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}}, &created)
		assert.NoError(s, err)
		s.exemptions.excuse(created.Path)
		// No event tells of it: only the number that is missing does.
		l := s.take(c, "a", "waiting", "ttl", "30s", "async", "true")
		for range 10 {
			time.Sleep(time.Second)
			a := s.beat(c, l)
			assert.Must(s, a.State == "waiting", "behind a contender that may not be read a lease is %s: %d %s", a.State, a.status, a.raw)
			assert.NoError(s, other.Must(wire.OpExists, &wire.ReadRequest{Path: created.Path}, nil))
		}
		assert.NoError(s, other.delete(created.Path))
		other.close()
		s.within(20*time.Second, "its turn comes", func() bool {
			time.Sleep(300 * time.Millisecond)
			return s.beat(c, l).State == "held"
		})
		c.release(l)
	})
}

func TestAttack08NoGatewayEndsAContenderThatOnlyLooksLikeOurs(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		g := s.start(0)
		s.start(1)
		c := s.client(g)
		c.release(s.take(c, "a", "held", "ttl", "5s"))
		other := assert.Value(s.openSession("other", zktest.LeaderName))(s)
		like := newForeign(s.world, likenessFrom)
		theirs, err := other.create(lockRoot+"/a/"+like.likeName(), `{"v":1,"ttl_ms":1000,"enqueued_ms":1}`, wire.FlagSequential)
		assert.NoError(s, err)
		other.close()
		if c, ok := recipe.Parse("otherone", theirs[strings.LastIndex(theirs, "/")+1:]); !ok || !c.Ours {
			s.Fatal("it does not look like one of another fleet's")
		}
		time.Sleep(3 * time.Minute)
		got := s.audit.find(theirs)
		assert.That(s, got != nil && got.gone.IsZero(), "a contender of another fleet was ended")
		assert.That(s, !s.takenOver(), "a gateway has succeeded another fleet's gateway")
		a, _, _ := s.ask(c, "a", "ttl", "5s")
		assert.That(s, a.status == http.StatusConflict, "behind it a try is answered %d", a.status)
		s.exemptions.excuse(theirs)
		s.administer(func(admin *session) { _ = admin.delete(theirs) })
		c.release(s.take(c, "a", "held", "ttl", "5s", "wait", "5s"))
	})
}

func TestAttack13AKeyThatStallsAtOneGatewayQueuesOnceAtAnother(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c := s.client(one)
		created := s.counting(state.TxnCreate, lockRoot+"/a/")
		stalled := s.writer(one)
		stalled.Stall()
		answered := make(chan answer, 1)
		first := s.client(one)
		go func() {
			a, _, _ := s.ask(first, "a", "ttl", "10s", "key", "twice", "owner", "twice")
			answered <- a
		}()
		time.Sleep(500 * time.Millisecond)
		assert.Must(s, created() == 0, "the first request is not on its way any more")
		c.at = two
		l := s.take(c, "a", "held", "ttl", "10s", "key", "twice", "owner", "twice")
		stalled.Resume()
		a := <-answered
		time.Sleep(3 * time.Second)
		assert.That(s, a.status != http.StatusOK || a.LeaseID == l.id, "the first request has got %s, the second one %+v", a.LeaseID, l)
		assert.Equal(s, created(), 1, "contenders for one key")
		s.beatUntil(c, l, 5*time.Second)
		c.release(l)
	})
}

func TestAttack14ATransactionThatArrivesAfterItsRepetitionDoesNothing(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 2, func(s *scene) {
		g := s.startBehind(0, zktest.FollowerName(1))
		c := s.client(g)
		created := s.counting(state.TxnCreate, lockRoot+"/a/")
		raised := s.counting(state.TxnSetData, "/lockkeeper/gateways/")
		link := s.writer(g)
		link.Stall()
		answered := make(chan answer, 1)
		go func() {
			a, _, _ := s.ask(c, "a", "ttl", "10s", "wait", "20s", "key", "late", "owner", "late")
			answered <- a
		}()
		time.Sleep(200 * time.Millisecond)
		link.CutClient(1500 * time.Millisecond) // its bytes come when the next connection has long been at work
		time.Sleep(time.Second)
		assert.That(s, raised() != 0, "the epoch was not raised before the old bytes arrived")
		a := <-answered
		again := s.client(g)
		time.Sleep(3 * time.Second)
		l := s.take(again, "a", "held", "ttl", "10s", "key", "late", "owner", "late")
		assert.That(s, a.LeaseID == "" || a.LeaseID == l.id, "one key, two leases: %s and %+v", a.LeaseID, l)
		assert.Equal(s, created(), 1, "contenders for one attempt")
		again.release(l)
	})
}

func TestAttack16ALongerTTLSurvivesAShorterOneAndItsGateway(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		g := s.start(0)
		c := s.client(g)
		l := s.take(c, "a", "held", "ttl", "5s")
		long := s.beat(c, l, "ttl", "60s")
		short := s.beat(c, l, "ttl", "5s")
		assert.Must(s, long.status == http.StatusOK && short.status == http.StatusOK,
			"heartbeats are answered %d and %d", long.status, short.status)
		s.die(g)
		s.start(1)
		time.Sleep(time.Until(long.sent.Add(60 * time.Second)))
		assert.That(s, s.takenOver(), "no gateway has taken over")
		assert.That(s, s.there(l), "the promise of the longer heartbeat was broken")
		s.within(2*time.Minute, "it ends without heartbeats", func() bool { return !s.there(l) })
	})
}

func TestAttack17AnOverwrittenContenderIsKeptAsLongAsItMayBe(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		g := s.start(0)
		c := s.client(g)
		l := s.take(c, "a", "held", "ttl", "10s")
		s.die(g)
		s.administer(func(admin *session) { assert.NoError(s, admin.set(l.path, "__REVOKE__")) })
		next := s.start(1)
		time.Sleep(10 * time.Minute)
		assert.That(s, s.takenOver(), "no gateway has taken over")
		assert.That(s, s.there(l), "a lease of unknown TTL has ended by time")
		c.at = next
		s.beatUntil(c, l, 5*time.Second)
		c.release(l)
		assert.That(s, !s.there(l), "a plain release does not end it")
	})
}

func TestAttack21ALeaseWhoseClientIsAliveOutlivesAnOutage(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		c := s.client(g)
		l := s.take(c, "a", "held", "ttl", "5s")
		s.zk.KillLeader()
		refused := 0
		for range 30 {
			if s.beat(c, l).status == http.StatusServiceUnavailable {
				refused++
			}
			time.Sleep(500 * time.Millisecond)
		}
		assert.That(s, refused >= 20, "only %d heartbeats were refused", refused)
		assert.NoError(s, s.zk.StartLeader())
		s.beatUntil(c, l, 10*time.Second)
		// And the gateway itself: nothing of it runs for twelve seconds.
		links := append(s.linksToZooKeeper(g), s.zk.Network.Links("", g.name)...)
		for _, link := range links {
			link.Stall()
		}
		time.Sleep(3 * time.Second)
		g.clock.Sleep(9 * time.Second)
		for _, link := range links {
			link.Resume()
		}
		s.beatUntil(c, l, 10*time.Second)
		c.release(l)
	})
}

func TestAttack26AnAcquireWhoseConnectionBreaksHoldsNothingForADay(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		holder, waiter := s.client(g), s.client(g)
		l := s.take(holder, "a", "held", "ttl", "1h")
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			a, _, err := s.ask(waiter, "a", "ttl", "24h", "wait", "60s")
			assert.That(s, err != nil, "its connection has not broken: %d", a.status)
		}()
		time.Sleep(time.Second)
		assert.MustEqual(s, len(s.audit.contenders()), 2, "contenders")
		for _, link := range s.zk.Network.Links(waiter.name, g.name) {
			link.Cut()
		}
		<-gone
		s.within(2*time.Second, "its place is given up", func() bool { return len(s.audit.contenders()) == 1 })
		holder.release(l)
		s.within(2*time.Second, "no client holds", func() bool { return len(s.audit.contenders()) == 0 })
	})
}

func TestAttack30AMachineThatWasSuspendedTrustsNothingItRemembers(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		c := s.client(g)
		l := s.take(c, "a", "held", "ttl", "30s")
		link := s.writer(g)
		link.Stall() // so that it cannot find out in time
		assert.MustEqual(s, s.beat(c, l).status, http.StatusOK, "before it sleeps a heartbeat is answered")
		g.clock.Sleep(time.Hour)
		assert.Equal(s, s.beat(c, l).status, http.StatusServiceUnavailable, "after an hour's sleep a heartbeat is answered")
		link.Resume()
		s.beatUntil(c, l, 10*time.Second)
		c.release(l)
	})
}

func TestAttack40AnObserverBehindACutOffServerIsNotBelieved(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 2, func(s *scene) {
		// The writer is with the leader and the observer with the follower.
		g := s.startBehind(0, zktest.LeaderName)
		s.zk.Network.Join(g.name, zktest.FollowerName(1))
		s.zk.Network.Part(g.name, zktest.LeaderName)
		s.observer(g).Cut()
		time.Sleep(2 * time.Second)
		s.zk.Network.Join(g.name, zktest.LeaderName)
		if w, o := s.writer(g).Server, s.observer(g).Server; w != zktest.LeaderName || o != zktest.FollowerName(1) {
			s.Fatalf("the writer is with %s, the observer with %s", w, o)
		}
		holder, c := s.client(g), s.client(g)
		first := s.take(holder, "a", "held", "ttl", "30s")
		l := s.take(c, "a", "waiting", "ttl", "30s", "async", "true")
		s.zk.Follower(1).CutOff()
		cut := time.Now()
		s.exemptions.excuse(first.path)
		s.administer(func(admin *session) {
			if err := admin.delete(first.path); err != nil { // an operator breaks it
				s.Fatal(err)
			}
		})
		broken := time.Now()
		var last time.Time
		s.within(4*time.Second, "the next one is granted although the follower says nothing", func() bool {
			if a := s.beat(holder, first); a.status == http.StatusOK {
				last = a.received
			}
			return s.beat(c, l).State == "held"
		})
		if last.After(broken.Add(s.window)) {
			s.Errorf("a broken lease was heartbeaten for %v", last.Sub(broken))
		}
		assert.That(s, time.Since(cut) <= 5*time.Second, "the follower has ended its service by itself")
		s.zk.Follower(1).Heal()
		c.release(l)
	})
}

// The holder's client lets go, and is answered that its contender is gone: another program has deleted it, and before it the one
// behind it. The gateway has heard of neither deletion.
func TestAttack49AWaiterThatNeverStoodFirstIsNotToldThatItHolds(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		g, other := s.start(0), s.start(1)
		holder, waiter, third := s.client(g), s.client(g), s.client(other)
		first := s.take(holder, "a", "held", "ttl", "30s")
		second := s.take(waiter, "a", "waiting", "ttl", "30s", "async", "true")
		stalled := s.observer(g)
		stalled.StallReplies()
		s.administer(func(admin *session) {
			for _, l := range []*lease{second, first} {
				s.exemptions.excuse(l.path)
				assert.NoError(s, admin.delete(l.path))
			}
		})
		now := s.take(third, "a", "held", "ttl", "30s")
		holder.release(first)
		for range 5 {
			a := s.beat(waiter, second)
			assert.That(s, a.status != http.StatusOK || a.State == "waiting", "it is told that it is %q, and %+v holds", a.State, now)
			time.Sleep(100 * time.Millisecond)
		}
		assert.Must(s, s.observer(g) == stalled, "it has connected anew")
		stalled.Resume()
		time.Sleep(100 * time.Millisecond)
		a := s.beat(waiter, second)
		assert.That(s, a.status == http.StatusGone, "its gateway has heard of its end: %d %s", a.status, a.raw)
		third.release(now)
	})
}
