package manager

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// aheadClock is the clock of a gateway whose wall clock is ahead of the others'.
type aheadClock struct {
	zk.Clock
	by time.Duration
}

func (c aheadClock) Now() zk.Instant {
	now := c.Clock.Now()
	return zk.At(now.Boot(), now.Wall()+c.by)
}

func forTwoHours(async bool) locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", Owner: "mia", Purpose: "load test", For: 2 * time.Hour, Async: async}
}

func (s *fakeStore) now() time.Time { return s.clock.Now().Calendar() }

func TestAReservationNeedsNoHeartbeatAndEndsAtItsTime(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(forTwoHours(false))
		assert.That(t, l.TTL == 2*time.Hour && l.ReservedFor == 2*time.Hour && l.ExpiresIn == 2*time.Hour && l.FailoverSafe && l.Purpose == "load test", "%+v", l)
		pass(time.Second)
		ends := g.look(l).EndsAt
		assert.That(t, s.recordOf(l).Reserve.EndsAt().Equal(ends), "the record says %+v, and the lease %s", s.recordOf(l).Reserve, ends)
		pass(time.Hour - time.Second)
		beat, err := g.heartbeat(l)
		assert.That(t, err == nil && beat.TTL == time.Hour && beat.ExpiresIn == time.Hour, "a heartbeat extends nothing: %+v, %v", beat, err)
		pass(time.Hour - time.Millisecond)
		g.wantState(l, locks.Held, "")
		pass(time.Millisecond + clockTick)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
		p := g.mustPostmortem(l)
		assert.That(t, p.Purpose == "load test" && p.TTL == 2*time.Hour && p.HeldFor/time.Second == 7200, "%+v", p)
		assert.Equal(t, g.countOf(events.LeaseEnding, l), 1, "announcements")
	})
}

func TestTheEndOfAReservationIsAnnounced(t *testing.T) {
	for span, before := range map[time.Duration]time.Duration{2 * time.Hour: 10 * time.Minute, time.Hour: 6 * time.Minute, 10 * time.Second: time.Second} {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			req := forTwoHours(false)
			req.For = span
			l := g.mustHold(req)
			pass(span - before - time.Millisecond)
			assert.Equal(t, g.countOf(events.LeaseEnding, l), 0, "too early")
			pass(time.Millisecond)
			assert.Equal(t, g.countOf(events.LeaseEnding, l), 1, "announcements")
			g.mustUpdate(l, locks.UpdateRequest{For: span}) // a moved end is announced again
			pass(span - before + clockTick)
			assert.Equal(t, g.countOf(events.LeaseEnding, l), 2, "announcements after the end was moved")
		})
	}
}

func TestAReservationUntilATimeEndsThenWaitingOrNot(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		until := s.now().Add(time.Hour)
		holds := locks.AcquireRequest{Lock: "deploy", Owner: "mia", Until: until}
		l := g.mustHold(holds)
		assert.That(t, l.EndsAt.Equal(until) && l.ReservedFor == 0, "%+v", l)
		short, long := holds, holds
		short.Until, short.Async = until.Add(-time.Minute), true
		long.Until, long.Async = until.Add(time.Minute), true
		first, second := g.mustAcquire(short), g.mustAcquire(long)
		waits := g.begin(locks.AcquireRequest{Lock: "deploy", Owner: "mia", Until: until.Add(-time.Second), Wait: locks.WaitForever})
		pass(59*time.Minute + clockTick)
		g.wantState(first, locks.Ended, locks.ReasonExpired) // its place in the queue is no use any more
		pass(58*time.Second - clockTick)
		g.mustHold(locks.AcquireRequest{Lock: "other"}) // ZooKeeper answers
		pass(time.Second + clockTick)
		assert.Must(t, waits.finished(), "a request waits for a reservation whose time is over")
		assert.Equal(t, wantCode(t, waits.err, locks.CodeEnded).Reason, locks.ReasonExpired)
		pass(time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
		g.wantState(second, locks.Held, "")
		pass(time.Minute)
		g.wantState(second, locks.Ended, locks.ReasonExpired)
	})
}

func TestAnAsyncReservationKeepsItsPlaceAndItsGrantWithoutItsClient(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", Owner: "ci", For: 5 * time.Hour})
		ticket := g.mustAcquire(forTwoHours(true))
		polled := g.begin(func() locks.AcquireRequest { // its client waits, so its place is kept like any other
			req := forTwoHours(false)
			req.Wait, req.IdempotencyKey = locks.WaitForever, "0123456789abcdef"
			return req
		}())
		synctest.Wait()
		other := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Hour})
		pass(time.Hour)
		g.wantState(ticket, locks.Waiting, "")
		assert.That(t, g.look(ticket).TTL == 2*time.Hour && g.look(ticket).EndsAt.IsZero(), "%+v", g.look(ticket))
		g.wantState(other, locks.Ended, locks.ReasonExpired)
		polled.stop()
		pass(waitingClock + clockTick)
		assert.Equal(t, g.lock().QueueLength, 1, "a reservation whose client is gone still waits")
		g.mustRelease(l)
		g.wantState(ticket, locks.Held, "")
		pass(2*time.Hour - time.Second)
		g.wantState(ticket, locks.Held, "")
		pass(time.Second + clockTick)
		g.wantState(ticket, locks.Ended, locks.ReasonExpired)
	})
}

func TestTheEndOfAReservationMoves(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(forTwoHours(false))
		pass(time.Hour)
		v := g.mustUpdate(l, locks.UpdateRequest{For: 3 * time.Hour})
		assert.That(t, v.TTL > 3*time.Hour-time.Second && v.TTL <= 3*time.Hour && v.EndsAt.Equal(s.recordOf(l).Reserve.EndsAt()), "%+v", v)
		pass(time.Hour)
		g.wantState(l, locks.Held, "")
		until := s.now().Add(10 * time.Minute)
		v = g.mustUpdate(l, locks.UpdateRequest{Until: until, Purpose: text("cleaning up")})
		assert.That(t, v.EndsAt.Equal(until) && v.Purpose == "cleaning up" && s.recordOf(l).Purpose == "cleaning up", "%+v", v)
		pass(10*time.Minute - time.Second)
		g.wantState(l, locks.Held, "")
		pass(time.Second + clockTick)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

func TestTheEndOfAReservationThatWaitsMoves(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", Owner: "ci", For: time.Hour})
		l := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Owner: "mia", Until: s.now().Add(30 * time.Minute), Async: true})
		v := g.mustUpdate(l, locks.UpdateRequest{For: 2 * time.Hour})
		assert.That(t, v.EndsAt.IsZero() && v.ReservedFor == 2*time.Hour, "%+v", v)
		pass(40 * time.Minute)
		g.mustRelease(holder)
		pass(2*time.Hour - time.Second)
		g.wantState(l, locks.Held, "")
		pass(time.Second + clockTick)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// The end that a grant sets is written after the answer. Whatever becomes of that write, the lease ends at the end that its
// client was told.
func TestTheEndOfAGrantIsWrittenAlsoWhenAWriteIsLost(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			s.vague, s.drop = once(t, rewrites), !persisted
			l := g.mustHold(forTwoHours(false))
			pass(6 * time.Second)
			ends := g.look(l).EndsAt
			assert.That(t, s.recordOf(l).Reserve.EndsAt().Equal(ends), "the record says %+v, and the lease %s", s.recordOf(l).Reserve, ends)
			pass(2*time.Hour - 10*time.Second)
			g.wantState(l, locks.Held, "")
			pass(10 * time.Second)
			g.wantState(l, locks.Ended, locks.ReasonExpired)
		})
	})
}

func TestATakeoverEndsAReservationNoEarlier(t *testing.T) {
	for name, skew := range map[string]time.Duration{"clocks agree": 0, "the successor's is ahead": clockSpare, "the successor's is behind": -clockSpare} {
		t.Run(name, func(t *testing.T) {
			withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
				l := one.mustHold(forTwoHours(false))
				ticket := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", Owner: "ada", For: time.Hour, Async: true})
				pass(time.Second)
				ends := one.look(l).EndsAt
				one.crash()
				s.clock = aheadClock{s.clock, skew}
				two := s.gateway(t)
				pass(time.Minute)
				v := two.look(l)
				assert.That(t, v.State == locks.Held && v.EndsAt.Equal(ends) && v.Purpose == "load test" && v.Owner == "mia", "%+v", v)
				pass(2*time.Hour - time.Minute - 2*time.Second)
				two.wantState(l, locks.Held, "") // the whole two hours
				pass(2*clockSpare + 2*time.Second)
				two.wantState(l, locks.Ended, locks.ReasonExpired)
				two.wantState(ticket, locks.Held, "") // it asked for nothing meanwhile
			})
		})
	}
}

// A gateway that dies between a grant and the write of its end leaves a record without one: the whole span is given again.
func TestASuccessorGivesTheWholeSpanWhereNoEndWasWritten(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		s.refuseWrites(func(op *zk.Op) bool { return op.Kind == zk.OpSetData && strings.Contains(op.Path, "deploy") })
		l := one.mustHold(forTwoHours(false))
		assert.That(t, s.recordOf(l).Reserve.Until == 0, "the end is written: %+v", s.recordOf(l).Reserve)
		one.crash()
		two := s.gateway(t)
		pass(2 * time.Hour)
		two.wantState(l, locks.Held, "")
		pass(2 * time.Minute)
		two.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

func TestAReservationIsRefusedByTheNameOfWhatIsWrong(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		hour := s.now().Add(time.Hour)
		for field, req := range map[string]locks.AcquireRequest{
			"owner":     {For: time.Hour},
			"ttl":       {For: time.Hour, Owner: "mia", TTL: time.Minute},
			"ephemeral": {For: time.Hour, Owner: "mia", Ephemeral: true},
			"for":       {For: locks.MaxReserve + 1, Owner: "mia"},
			"until":     {For: time.Hour, Until: hour, Owner: "mia"},
		} {
			req.Lock = "deploy"
			_, err := g.acquire(req)
			assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, field)
		}
		for _, until := range []time.Time{s.now().Add(-time.Second), s.now().Add(locks.MaxReserve + time.Minute), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
			_, err := g.acquire(locks.AcquireRequest{Lock: "deploy", Owner: "mia", Until: until})
			assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "until")
		}
		plain, reserved := g.mustHold(locks.AcquireRequest{Lock: "plain"}), g.mustHold(forTwoHours(false))
		for _, c := range []struct {
			l      locks.Lease
			change locks.UpdateRequest
			field  string
		}{{plain, locks.UpdateRequest{For: time.Hour}, "for"}, {plain, locks.UpdateRequest{Until: hour}, "until"}, {reserved, locks.UpdateRequest{TTL: time.Minute}, "ttl"},
			{reserved, locks.UpdateRequest{Until: s.now().Add(-time.Second)}, "until"}, {reserved, locks.UpdateRequest{For: locks.MaxReserve + 1}, "for"}} {
			_, err := g.update(c.l, c.change)
			assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, c.field)
		}
		_, err := g.m.Heartbeat(t.Context(), locks.Anonymous, reserved.ID, reserved.Token, time.Hour)
		assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "ttl")
	})
}
