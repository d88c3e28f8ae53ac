package manager

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// beatFor heartbeats a lease that another gateway runs.
func (g *gate) beatFor(l locks.Lease) (locks.Heartbeat, error) {
	return g.m.HeartbeatFor(g.t.Context(), locks.Anonymous, l.Token)
}

func (g *gate) mustBeatFor(l locks.Lease, state locks.State) locks.Heartbeat {
	g.t.Helper()
	beat, err := g.beatFor(l)
	assert.Must(g.t, err == nil && beat.State == state && beat.LeaseID == l.ID, "%+v %v, want %s", beat, err, state)
	assert.Must(g.t, state != locks.Held || g.m.StillValid(beat.Term), "no session confirms it")
	synctest.Wait()
	return beat
}

// writesTo counts the committed writes that touch a path.
func (s *fakeStore) writesTo(path string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		if writeTo(path)(w) {
			n++
		}
	}
	return n
}

// Attack 22: the owner reaches ZooKeeper, and no client reaches the owner.
func TestALeaseLivesOnByHeartbeatsThatOthersWriteDown(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two, three := s.gateway(t), s.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 30 * time.Second, Metadata: "mine"})
		before := s.writesTo(l.Znode)
		for i := range 10 {
			time.Sleep(25 * time.Second)
			beat := []*gate{two, three}[i%2].mustBeatFor(l, locks.Held)
			assert.Must(t, beat.ExpiresIn == 30*time.Second && beat.TTL == 30*time.Second && beat.FencingToken == l.FencingToken,
				"%+v", beat)
		}
		assert.Equal(t, s.writesTo(l.Znode)-before, 10, "writes for 10 heartbeats")
		synctest.Wait()
		v := one.look(l)
		assert.That(t, v.State == locks.Held && about(v.ExpiresIn, 30*time.Second) && v.Metadata == "mine", "at its owner: %+v", v)
		beat, err := one.heartbeat(l)
		assert.That(t, err == nil && beat.ExpiresIn == 30*time.Second, "%+v %v", beat, err)
		time.Sleep(29 * time.Second)
		one.wantState(l, locks.Held, "")
		time.Sleep(2 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonExpired)
		_, err = two.beatFor(l)
		assert.That(t, err != nil, "a heartbeat of a lease that has ended is answered with success")
	})
}

// At the gateway that runs it nothing is written.
func TestAHeartbeatAtTheOwnerIsNotWritten(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		before := s.writesTo(l.Znode)
		g.mustBeatFor(l, locks.Held)
		n := s.writesTo(l.Znode)
		assert.That(t, n == before, "%d writes", n-before)
	})
}

// Attack 33: the owner has not heard of the heartbeat when the lease's time is over. Rule: its deletion names the
// version that it has applied, and "not done" has it held again.
func TestAnExpiryLosesAgainstAHeartbeatThatWasWrittenBefore(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Minute} {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 30 * time.Second, LockDelay: delay})
			time.Sleep(29 * time.Second)
			one.w.hold()
			two.mustBeatFor(l, locks.Held)
			time.Sleep(2 * time.Second) // its owner has it expire, in vain
			one.w.release()
			one.wantState(l, locks.Held, "")
			time.Sleep(27 * time.Second)
			one.wantState(l, locks.Held, "")
			assert.Value(one.heartbeat(l))(t)
			time.Sleep(31 * time.Second)
			one.wantState(l, locks.Ended, locks.ReasonExpired)
		})
	}
}

// Attack 34. Rule: a version is seen only with what follows from its data. Another program has written over the
// heartbeat before its owner read it: what the owner reads is newer than what it knew by two writes.
func TestAHeartbeatThatWasWrittenOverIsNotSwallowed(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		time.Sleep(29 * time.Second)
		one.w.hold()
		two.mustBeatFor(l, locks.Held)
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Data: []byte("somebody's"), Version: -1})
		one.w.release()
		time.Sleep(28 * time.Second)
		one.wantState(l, locks.Held, "")
		time.Sleep(3 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// The same while the owner shortens the TTL in the record: what was promised is the longer one.
func TestAHeartbeatThatWasWrittenOverPromisedTheLongestTTL(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		assert.Value(one.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, 20*time.Second))(t)
		for range 5 {
			time.Sleep(10 * time.Second)
			assert.Value(one.heartbeat(l))(t)
		}
		time.Sleep(9 * time.Second)
		one.w.hold()
		beat := two.mustBeatFor(l, locks.Held)
		assert.Must(t, beat.ExpiresIn == time.Minute, "%+v: the record does not have the longer TTL any more", beat)
		time.Sleep(3 * time.Second) // the shorter one is to be written, in vain
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Data: []byte("somebody's"), Version: -1})
		one.w.release()
		time.Sleep(56 * time.Second)
		one.wantState(l, locks.Held, "")
	})
}

// A shorter TTL is in force at the owner, and the record has the longer one still. Rule:
// the record does not come down before what was promised under it is over.
func TestAShorterTTLWaitsForAHeartbeatThatWasWrittenDown(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		assert.Value(one.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, 5*time.Second))(t)
		time.Sleep(50 * time.Second)
		assert.MustEqual(t, two.mustBeatFor(l, locks.Held).ExpiresIn, time.Minute)
		time.Sleep(58 * time.Second)
		one.wantState(l, locks.Held, "")
		r, _ := record.Parse(s.node(l.Znode).data)
		assert.That(t, r.LeaseTTL() == time.Minute, "the record says %v", r.LeaseTTL())
		time.Sleep(3 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// Attack 31 and 33: the owner has not made the grant of which another gateway told. Rule: it counts as claimed.
func TestAGrantThatAnotherGatewayToldOfIsClaimed(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(deploy())
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		one.w.hold()
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: first.Znode, Version: -1})
		two.mustBeatFor(l, locks.Held)
		time.Sleep(5 * time.Second)
		one.w.release()
		time.Sleep(10 * time.Minute)
		one.wantState(l, locks.Held, "")
	})
}

// The owner may not grant anything for now, and reads the record meanwhile.
func TestAGrantThatComesLaterThanTheWordOfItIsClaimed(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		session := one.session()
		one.deafen(session, true)
		time.Sleep(fakeWindow + time.Second)
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: first.Znode, Version: -1})
		two.mustBeatFor(l, locks.Held)
		time.Sleep(time.Second)
		v := one.look(l)
		assert.Must(t, v.State == locks.Waiting, "%+v: its fence is open", v)
		one.deafen(session, false)
		time.Sleep(10 * time.Minute)
		one.wantState(l, locks.Held, "")
	})
}

// The same, and the owner dies before it has read a word of it: its successor reads it.
func TestASuccessorKnowsOfWhatAnotherGatewayTold(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two, three := s.gateway(t), s.gateway(t), s.gateway(t)
		first := one.mustHold(deploy())
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Minute, Async: true})
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: first.Znode, Version: -1})
		one.crash()
		time.Sleep(time.Second)
		two.mustBeatFor(l, locks.Held)
		time.Sleep(9*time.Minute + 55*time.Second)
		assert.That(t, s.there(l.Znode), "it has gone before its time")
		_ = three
	})
}

func (s *fakeStore) there(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[path] != nil
}

// The gateway that writes does not know yet that another one has taken the lease over.
// Rule: the gateway that runs the lease is sent the change.
func TestAHeartbeatThatIsWrittenAfterATakeoverReachesTheSuccessor(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		one.crash()
		time.Sleep(15 * time.Second) // taken over
		assert.Value(two.heartbeat(l))(t)
		three := s.gateway(t)
		three.w.hold()
		for range 6 {
			three.w.release()
			three.w.hold()
			time.Sleep(9 * time.Second)
			three.mustBeatFor(l, locks.Held)
		}
		three.w.release()
		time.Sleep(15 * time.Second)
		two.wantState(l, locks.Held, "")
	})
}

// A waiting lease keeps its place, and nothing is said of a grant that was not.
func TestAWaitingLeaseKeepsItsPlaceByHeartbeatsThatAreWrittenDown(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		before := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		for range 5 {
			time.Sleep(25 * time.Second)
			beat := two.mustBeatFor(l, locks.Waiting)
			assert.That(t, beat.ExpiresIn == waitingClock && beat.Position == 2 && beat.Waiters == 0 && beat.FencingToken == 0, "%+v", beat)
			two.mustBeatFor(before, locks.Waiting)
		}
		r := s.recordOf(l)
		assert.That(t, !r.Told && r.Beats == 5, "%+v", r)
		one.mustRelease(first)
		two.mustBeatFor(before, locks.Held)
		two.mustBeatFor(l, locks.Waiting)
		time.Sleep(31 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonExpired)
		one.wantState(before, locks.Held, "")
	})
}

// The replica here is behind: the owner has granted the lease, and told its client. Rule:
// who was told that it holds is never told that it waits.
func TestNoHolderIsToldByAGatewayThatIsBehindThatItWaits(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(deploy())
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		two.w.hold()
		one.mustRelease(first)
		beat, err := one.heartbeat(l)
		assert.Must(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		beat, err = two.beatFor(l)
		assert.That(t, err != nil, "%+v", beat)
		two.w.release()
		two.mustBeatFor(l, locks.Held)
	})
}

// Attack 35. Rule: the record is read before the first success.
func TestALeaseThatIsClosedIsNotHeartbeatenByAnybody(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(delaying(""))
		time.Sleep(11 * time.Second)
		before := s.writesTo(l.Znode)
		_, err := two.beatFor(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonExpired)
		n := s.writesTo(l.Znode)
		assert.That(t, n == before, "%d writes", n-before)
	})
}

// Its owner closes the lease between the look and the write. Rule: it is written at the
// version that was read, and read again.
func TestALeaseThatIsClosedMeanwhileIsNotHeartbeaten(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(delaying(""))
		closing := s.recordOf(l)
		closing.Closed = &record.Closed{Reason: locks.ReasonExpired}
		s.beforeWrites(func(w *zk.Write) {
			if s.meanwhile = nil; writeTo(l.Znode)(w) {
				s.tx([]zk.Op{{Kind: zk.OpSetData, Path: l.Znode, Data: closing.Encode(), Version: -1}})
			}
		})
		_, err := two.beatFor(l)
		wantCode(t, err, locks.CodeEnded)
		r := s.recordOf(l)
		assert.That(t, r.Closed != nil && r.Beats == 0, "%+v", r)
	})
}

// A number before it was handed out and never seen: it may be that of a contender that may
// not be read. Rule: no client is told to hold before a listing has settled it.
func TestNoClientIsToldToHoldBehindANumberThatWasNeverSeen(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		s.set(func() { s.nodes["/lockkeeper/locks/deploy"].creates++ })
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		one.mustRelease(first)
		two.m.mu.Lock()
		q := two.m.replica.Namespaces[locks.DefaultNamespace].Find("deploy")
		q.BeginListing() // one is under way, and does not come back
		two.m.unlock()
		beat, err := two.beatFor(l)
		assert.That(t, err != nil, "%+v", beat)
		two.m.mu.Lock()
		two.m.replica.ApplyDir(q, &zk.Change{Kind: zk.DirListed, Err: zk.ErrUnavailable}, 0)
		two.m.unlock()
		_, _ = two.beatFor(l)
		synctest.Wait()
		two.mustBeatFor(l, locks.Held)
	})
}

// A downgrade of unknown fate holds up an end that time has decided, and a beat is read
// meanwhile. Rule: the deletion must not name the version that was read then.
func TestAHeartbeatThatIsReadWhileAnEndWaitsForADowngradeRevivesTheLease(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		time.Sleep(29 * time.Second)
		one.m.mu.Lock()
		own := one.m.leases.lease(one.m.mustID(l.ID))
		own.SetChange(one.m.leases, lifecycle.ChangeReplacing)
		own.end(one.m.Manager, locks.ReasonExpired, one.m.clock.Now().Boot())
		one.m.unlock()
		two.mustBeatFor(l, locks.Held)
		time.Sleep(time.Second)
		one.m.mu.Lock()
		own.replaced(one.m.Manager)
		one.m.unlock()
		time.Sleep(25 * time.Second)
		one.wantState(l, locks.Held, "")
	})
}

// What only the owner knows, only the owner answers.
func TestWhatOnlyTheOwnerKnowsNoOtherGatewayAnswers(t *testing.T) {
	for name, prepare := range map[string]func(s *fakeStore, one *gate) locks.Lease{
		"taken back by force": func(s *fakeStore, one *gate) locks.Lease {
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			one.mustRevoke("out", time.Minute)
			return l
		},
		"ephemeral": func(s *fakeStore, one *gate) locks.Lease { return one.mustHold(ephemeral()) },
		"overwritten": func(s *fakeStore, one *gate) locks.Lease {
			l := one.mustHold(deploy())
			one.w.hold()
			s.foreign(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Data: []byte(interop.CuratorRevokes), Version: -1})
			return l
		},
	} {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := prepare(s, one)
			synctest.Wait()
			before := s.writesTo(l.Znode)
			beat, err := two.beatFor(l)
			assert.That(t, err != nil, "%s: %+v", name, beat)
			n := s.writesTo(l.Znode)
			assert.That(t, n == before, "%s: %d writes", name, n-before)
			one.w.release()
		})
	}
}

func TestAQuestionWithoutForceIsPassedOn(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.mustRevoke("please", 0)
		beat := two.mustBeatFor(l, locks.Held)
		assert.That(t, beat.Revoke != nil && beat.Revoke.Reason == "please" && !beat.Revoke.Forced, "%+v", beat)
	})
}

// A lease that has lost one of its contenders is ending.
func TestALeaseThatHasLostAPartIsNotHeartbeaten(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: time.Minute})
		if beat := two.mustBeatFor(l, locks.Held); beat.FencingToken == 0 || beat.FencingToken != l.Locks[0].FencingToken {
			t.Errorf("%+v, want the token %d", beat, l.Locks[0].FencingToken)
		}
		one.w.hold()
		two.w.hold()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Locks[1].Znode, Version: -1})
		beat, err := two.beatFor(l)
		assert.That(t, err != nil, "%+v", beat)
		one.w.release()
		two.w.release()
		time.Sleep(time.Second)
		one.wantState(l, locks.Ended, locks.ReasonRemoved)
	})
}

// A downgrade and a heartbeat meet: the contender that is replaced has a beat that its
// owner has not read. Rule: the replacement is at the version that was seen.
func TestADowngradeReadsAHeartbeatFirst(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		time.Sleep(29 * time.Second)
		one.w.hold()
		two.mustBeatFor(l, locks.Held)
		go func() { _, _ = one.downgrade(l) }()
		time.Sleep(100 * time.Millisecond)
		one.w.release()
		time.Sleep(20 * time.Second)
		assert.MustEqual(t, one.look(l).State, locks.Held)
		two.mustBeatFor(l, locks.Held)
		r := s.recordOf(one.look(l))
		assert.That(t, r.Beats == 2 && r.Told, "%+v", r)
	})
}

// Whatever else is in the record stays: what a newer release put there, too.
func TestABeatLeavesTheRecordAsItIs(t *testing.T) {
	data := `{"v":1,"owner":"me","ttl_ms":30000,"metadata":"{\"a\":1}","enqueued_ms":1763776000000,"holds":["h"],"later":{"n":9007199254740993}}`
	beaten, known, err := beatenRecord([]byte(data), false)
	assert.Must(t, err == nil && known.Owner == "me", "%v", err)
	if again, _, err := beatenRecord(beaten, true); err != nil || !strings.Contains(string(again), `"later":{"n":9007199254740993}`) ||
		!strings.Contains(string(again), `"beats":2`) || !strings.Contains(string(again), `"told":true`) {
		t.Errorf("%s %v", again, err)
	}
	var r record.Record
	if err := json.Unmarshal(beaten, &r); err != nil || r.Beats != 1 || r.Told || r.Holds[0] != "h" || r.Enqueued != 1763776000000 || r.TTL != 30000 {
		t.Errorf("%s", beaten)
	}
}

// Faults come in pairs: the write failed, or it failed and was done. Neither is answered with
// success, and both may be repeated.
func TestAHeartbeatWhoseWriteIsLostMayBeRepeated(t *testing.T) {
	for _, drop := range []bool{true, false} {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := one.mustHold(deploy())
			time.Sleep(29 * time.Second)
			s.set(func() { s.vague, s.drop = writeTo(l.Znode), drop })
			_, err := two.beatFor(l)
			wantCode(t, err, locks.CodeOutcomeUnknown)
			s.set(func() { s.vague = nil })
			two.mustBeatFor(l, locks.Held)
			time.Sleep(29 * time.Second)
			one.wantState(l, locks.Held, "")
		})
	}
}

// Too many at a time wait for their place, and then are told to repeat.
func TestHeartbeatsThatAreWrittenDownAreBounded(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		for range writtenWindow {
			two.m.requests.written <- struct{}{}
		}
		began := time.Now()
		_, err := two.beatFor(l)
		e := wantCode(t, err, locks.CodeUnavailable)
		assert.That(t, e.RetryAfter != 0 && time.Since(began) <= time.Second, "after %v: %+v", time.Since(began), e)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = two.m.HeartbeatFor(ctx, locks.Anonymous, l.Token)
		wantCode(t, err, locks.CodeCancelled)
		<-two.m.requests.written
		two.mustBeatFor(l, locks.Held)
		assert.That(t, len(two.m.requests.written) == writtenWindow-1, "%d places are taken", len(two.m.requests.written))
	})
}

func TestAForgedTokenIsNotWrittenDown(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		l.Token = l.Token[:len(l.Token)-2] + "xx"
		_, err := two.beatFor(l)
		wantCode(t, err, locks.CodeTokenWrong)
		l.Token = ""
		_, err = two.beatFor(l)
		wantCode(t, err, locks.CodeTokenMissing)
	})
}
