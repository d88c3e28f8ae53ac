package manager

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) update(l locks.Lease, change locks.UpdateRequest) (locks.Lease, error) {
	change.ID, change.Token = l.ID, l.Token
	return g.m.Update(g.t.Context(), change)
}

func (g *gate) mustUpdate(l locks.Lease, change locks.UpdateRequest) locks.Lease {
	g.t.Helper()
	v := assert.Value(g.update(l, change))(g.t, "update %+v", change)
	synctest.Wait()
	return v
}

// recordOf is what a contender's data says in ZooKeeper.
func (s *fakeStore) recordOf(l locks.Lease) record.Record {
	s.t.Helper()
	r, ok := record.Parse(s.node(l.Znode).data)
	if !ok {
		s.t.Fatalf("%s is no record: %s", l.Znode, s.node(l.Znode).data)
	}
	return r
}

// countOf is how many events of a type were told of a lease.
func (g *gate) countOf(t events.Type, l locks.Lease) (n int) {
	for _, e := range g.told() {
		if e.Type == t && e.LeaseID == l.ID {
			n++
		}
	}
	return n
}

func text(s string) *string { return &s }

func TestAnUpdateIsWrittenBeforeItIsAnsweredAndATakeoverKeepsIt(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Owner: "me", Metadata: "m"})
		ticket := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, Owner: "you"})
		v := one.mustUpdate(l, locks.UpdateRequest{Owner: text("ci"), Metadata: text("build 7"), TTL: time.Minute})
		r := s.recordOf(l)
		assert.That(t, r.Owner == "ci" && r.Metadata == "build 7" && r.LeaseTTL() == time.Minute, "answered before it was written: %+v", r)
		if v.Owner != "ci" || v.Metadata != "build 7" || v.TTL != time.Minute || v.ExpiresIn != time.Minute || v.State != locks.Held || v.FencingToken != l.FencingToken {
			t.Errorf("answered %+v", v)
		}
		v = one.mustUpdate(l, locks.UpdateRequest{Metadata: text("")})
		assert.That(t, v.Owner == "ci" && v.Metadata == "" && v.TTL == time.Minute, "what is not named stays: %+v", v)
		v = one.mustUpdate(ticket, locks.UpdateRequest{Metadata: text("in line")})
		assert.That(t, v.State == locks.Waiting && v.Owner == "you" && v.Metadata == "in line", "a waiting lease: %+v", v)
		synctest.Wait()
		assert.Equal(t, one.countOf(events.LeaseUpdated, l), 2, "events tell of two updates")
		one.mustUpdate(l, locks.UpdateRequest{Owner: text("ci"), TTL: time.Minute})
		assert.That(t, one.countOf(events.LeaseUpdated, l) == 2, "an update that changes nothing is told")
		one.crash()
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		beat, err := two.heartbeat(l)
		assert.Must(t, err == nil && beat.TTL == time.Minute, "%+v %v", beat, err)
		v = two.look(l)
		assert.That(t, v.Owner == "ci" && v.Metadata == "" && v.TTL == time.Minute, "the successor has %+v", v)
		v = two.mustUpdate(ticket, locks.UpdateRequest{Owner: text("them")})
		assert.That(t, v.Owner == "them" && v.Metadata == "in line", "the successor has %+v", v)
		n := two.countOf(events.LeaseUpdated, l)
		assert.That(t, n == 0, "the takeover is told as %d updates", n)
	})
}

func TestAnUpdateWithAShorterTTLMovesNoDeadlineBack(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		v := g.mustUpdate(l, locks.UpdateRequest{TTL: 5 * time.Second, Owner: text("me")})
		assert.Must(t, v.TTL == 5*time.Second && v.ExpiresIn >= 59*time.Second && g.countOf(events.LeaseUpdated, l) == 1, "%+v", v)
		r := s.recordOf(l)
		assert.That(t, r.LeaseTTL() == time.Minute && r.Owner == "me", "the record has come down too early: %+v", r)
		g.mustUpdate(l, locks.UpdateRequest{Owner: text("you")})
		assert.Equal(t, s.recordOf(l).LeaseTTL(), time.Minute, "another update has brought the record down")
		time.Sleep(57 * time.Second)
		g.wantState(l, locks.Held, "")
		for range 3 {
			assert.Value(g.heartbeat(l))(t)
			time.Sleep(4 * time.Second)
		}
		r = s.recordOf(l)
		assert.That(t, r.LeaseTTL() == 5*time.Second && r.Owner == "you", "the record says %+v", r)
		pass(2 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// The answer to the write is lost while the session lives on: the record tells
// what became of it, and the client is told the truth.
func TestAnUpdateWhoseFateIsLostIsFoundOutAndDoneOnce(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
			s.set(func() { s.vague, s.drop = once(t, writeTo(l.Znode)), !persisted })
			v := g.mustUpdate(l, locks.UpdateRequest{Owner: text("ci"), TTL: time.Minute})
			assert.That(t, v.Owner == "ci" && v.TTL == time.Minute, "%+v", v)
			if n := s.node(l.Znode); n.stat.Version != 1 || s.recordOf(l).Owner != "ci" || s.recordOf(l).LeaseTTL() != time.Minute {
				t.Errorf("written %d times: %s", n.stat.Version, n.data)
			}
			if n := g.countOf(events.LeaseUpdated, l); n < 1 || n > 2 { // found in the record, and the TTL taken up
				t.Errorf("%d events", n)
			}
			time.Sleep(55 * time.Second)
			g.wantState(l, locks.Held, "")
		})
	})
}

// The answer is lost with the session.
func TestAnUpdateThatIsLostWithTheSessionIsOutcomeUnknown(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "me"})
			s.set(func() { s.lose(persisted, writeTo(l.Znode)) })
			_, err := g.update(l, locks.UpdateRequest{Owner: text("ci")})
			wantCode(t, err, locks.CodeOutcomeUnknown)
			g.session().expire()
			s.set(func() { s.away, s.loseReply = false, nil })
			time.Sleep(5 * time.Second)
			owner := "me"
			if persisted {
				owner = "ci"
			}
			v := g.look(l)
			assert.That(t, v.Owner == owner && s.recordOf(l).Owner == owner, "%q, recorded %q", v.Owner, s.recordOf(l).Owner)
			assert.Equal(t, g.mustUpdate(l, locks.UpdateRequest{Owner: text("ci")}).Owner, "ci")
		})
	})
}

func TestAnUpdateThatZooKeeperRefusesChangesNothing(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "me"})
		s.set(func() { s.refuse = refusing(writeTo(l.Znode), 0, zk.ErrNoAuth) })
		_, err := g.update(l, locks.UpdateRequest{Owner: text("ci"), TTL: time.Hour})
		wantCode(t, err, locks.CodeUnavailable)
		v := g.look(l)
		assert.That(t, v.Owner == "me" && v.TTL == time.Minute && g.countOf(events.LeaseUpdated, l) == 0, "%+v", v)
		_, err = g.heartbeat(l)
		assert.Nil(t, err)
	})
}

func TestTwoUpdatesAtOnceAreBothThere(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy"})
		errs := make(chan error, 3)
		for _, change := range []locks.UpdateRequest{{Owner: text("ci")}, {Metadata: text("m")}, {TTL: time.Minute}} {
			go func() { _, err := g.update(l, change); errs <- err }()
		}
		for range 3 {
			assert.Nil(t, <-errs)
		}
		r := s.recordOf(l)
		assert.That(t, r.Owner == "ci" && r.Metadata == "m" && r.LeaseTTL() == time.Minute, "%+v", r)
	})
}

// Another client writes the contender right after our write, and both events come
// before the answer to ours. What the other one wrote must not be passed over.
func TestAnotherHandsWriteBesideOursIsRead(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		var done atomic.Bool
		h.hooks.Store(&hooks{result: func(w *zk.Write, _ *zk.Result) {
			if !writeTo(l.Znode)(w) || done.Swap(true) {
				return
			}
			r := s.recordOf(l)
			r.Metadata = "of another gateway"
			s.foreign(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Data: r.Encode(), Version: -1})
			time.Sleep(50 * time.Millisecond) // the events come
		}})
		g.mustUpdate(l, locks.UpdateRequest{Owner: text("ci")})
		time.Sleep(time.Second)
		v := g.look(l)
		assert.That(t, v.Metadata == "of another gateway" && v.Owner == "ci", "%+v", v)
		v = g.mustUpdate(l, locks.UpdateRequest{Owner: text("me")})
		assert.That(t, v.Metadata == "of another gateway" && v.Owner == "me", "%+v", v)
	})
}

func TestAnUpdateIsRefusedByTheNameOfWhatIsWrong(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy"})
		for _, c := range []struct {
			change locks.UpdateRequest
			field  string
		}{
			{locks.UpdateRequest{Owner: text(strings.Repeat("x", locks.MaxOwner+1))}, "owner"},
			{locks.UpdateRequest{Owner: text("a\nb")}, "owner"},
			{locks.UpdateRequest{Metadata: text(strings.Repeat("x", locks.MaxMetadata+1))}, "metadata"},
			{locks.UpdateRequest{Metadata: text("\xff")}, "metadata"},
			{locks.UpdateRequest{TTL: time.Millisecond}, "ttl"},
			{locks.UpdateRequest{TTL: locks.MaxTTL + 1}, "ttl"},
			{locks.UpdateRequest{TTL: -1}, "ttl"},
		} {
			_, err := g.update(l, c.change)
			e := wantCode(t, err, locks.CodeInvalid)
			assert.That(t, e.Field == c.field, "%+v: the field is %s", c.change, e.Field)
		}
		_, err := g.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Owner: text("x")})
		wantCode(t, err, locks.CodeTokenMissing)
		_, err = g.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token + "x", Owner: text("x")})
		wantCode(t, err, locks.CodeTokenWrong)
		g.mustRelease(l)
		_, err = g.update(l, locks.UpdateRequest{Owner: text("x")})
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonReleased, "ended by")
	})
}

// The first request with its token claims a grant that no request listened to.
func TestAnUpdateClaimsAGrant(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy"})
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		g.mustRelease(l)
		g.mustUpdate(ticket, locks.UpdateRequest{Metadata: text("here")})
		time.Sleep(40 * time.Second)
		g.wantState(ticket, locks.Held, "")
	})
}
