package sim

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// Interleavings that the recipes must withstand; see attacks_test.go.

// several acquires several locks at once; it must be answered as wanted.
func (s *scene) several(c *client, want string, wishes []wish, parameters ...string) *lease {
	s.Helper()
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	path, body := ask(wishes, query)
	a, err := c.send(time.Minute, http.MethodPost, path, query, nil, body)
	assert.Must(s, err == nil && a.State == want, "several: %d %s, %v", a.status, a.raw, err)
	l := newLease(wishes, a, time.Duration(a.TTL)*time.Millisecond)
	s.believe(l, a)
	return l
}

// downgrade makes a lease shared at once.
func (s *scene) downgrade(c *client, l *lease) {
	s.Helper()
	l.fencing = s.beat(c, l).FencingToken
	assert.Must(s, c.downgrade(l) && l.wishes[0].mode == shared, "the downgrade is not answered with success")
}

// fence asks whether a token is current.
func (s *scene) fence(c *client, lock string, token int64) answer {
	s.Helper()
	a, err := c.do(5*time.Second, http.MethodGet, "/v1/locks/"+lock+"/fence", url.Values{"fencing_token": {fmt.Sprint(token)}}, nil)
	if err == nil && a.status == http.StatusOK {
		s.judgeFence(lock, token, a)
	}
	return a
}

// limit sets how many permits a lock has.
func (s *scene) limit(c *client, lock string, n int) {
	s.Helper()
	a, err := c.do(5*time.Second, http.MethodPut, "/v1/locks/"+lock, url.Values{"limit": {fmt.Sprint(n)}}, nil)
	assert.Must(s, err == nil && a.status == http.StatusOK, "a limit of %d: %d %s, %v", n, a.status, a.raw, err)
}

// stays says that a lease waits, and goes on doing so for a second.
func (s *scene) stays(c *client, l *lease, state, what string) {
	s.Helper()
	for range 10 {
		a := s.beat(c, l)
		assert.Must(s, a.status == http.StatusOK && a.State == state, "%s: it is %d %s", what, a.status, a.State)
		time.Sleep(100 * time.Millisecond)
	}
}

// The writer's gateway is told of the replacement and of the end of what it replaces one after the other.
func TestAttack04ADowngradeLetsNoWriterIn(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		holder, early, writer, late := s.client(one), s.client(two), s.client(two), s.client(two)
		l := s.take(holder, "a", "held", "ttl", "30s")
		reader := s.take(early, "a", "waiting", "ttl", "30s", "async", "true", "mode", "shared")
		w := s.take(writer, "a", "waiting", "ttl", "30s", "async", "true")
		behind := s.take(late, "a", "waiting", "ttl", "30s", "async", "true", "mode", "shared")
		replaced := s.counting(state.TxnCreate, lockRoot+"/a/read-")
		s.downgrade(holder, l)
		assert.Must(s, replaced() != 0, "nothing was downgraded")
		s.within(time.Second, "the reader before the writer is let in", func() bool { return s.beat(early, reader).State == "held" })
		s.stays(writer, w, "waiting", "a writer behind a lease that is shared now")
		s.stays(late, behind, "waiting", "a reader behind the writer")
		holder.release(l)
		early.release(reader)
		s.within(time.Second, "the writer's turn comes", func() bool { return s.beat(writer, w).State == "held" })
		writer.release(w)
		late.release(behind)
	})
}

// The gateways of both holders go, and the one that takes over has never seen the old limit.
func TestAttack10ALoweredLimitTakesNothingFromHolders(t *testing.T) {
	play(t, sessionOutlivesWindow, 3, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		a, b, c := s.client(one), s.client(two), s.client(one)
		s.limit(a, "a", 3)
		permit := []string{"mode", "semaphore", "permits", "1", "ttl", "30s"}
		x := s.take(a, "a", "held", permit...)
		y := s.take(b, "a", "held", permit...)
		s.limit(a, "a", 1)
		z := s.take(c, "a", "waiting", append(permit, "async", "true")...)
		assert.Must(s, z.wishes[0].limit == 1, "the next client has a limit of %d", z.wishes[0].limit)
		three := s.start(2)
		s.die(one)
		s.die(two)
		a.at, b.at, c.at = three, three, three
		time.Sleep(s.timeout + time.Second)
		for _, l := range []*lease{x, y} {
			assert.Equal(s, s.beatUntil(b, l, 3*s.window).State, "held", "the successor thinks that a holder")
		}
		assert.That(s, s.takenOver(), "no gateway has taken over")
		a.release(x)
		s.stays(c, z, "waiting", "one permit is taken, and the limit is one")
		b.release(y)
		s.within(time.Second, "its turn comes", func() bool { return s.beat(c, z).State == "held" })
		c.release(z)
		s.within(time.Minute, "the lock is removed with its settings", func() bool {
			c.remove("a")
			return len(s.below(settingsRoot)) == 0
		})
	})
}

// A replacement's czxid is newer than that of a writer that waits.
func TestAttack11ADowngradeKeepsItsFencingToken(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		holder, writer := s.client(one), s.client(two)
		l := s.take(holder, "a", "held", "ttl", "30s")
		token := s.beat(holder, l).FencingToken
		w := s.take(writer, "a", "waiting", "ttl", "30s", "async", "true")
		s.downgrade(holder, l)
		s.die(one)
		time.Sleep(s.timeout + time.Second)
		holder.at = two
		if got := s.beatUntil(holder, l, 2*s.window); got.FencingToken != token {
			s.Errorf("the successor says that its token is %d; it was %d", got.FencingToken, token)
		}
		assert.That(s, s.takenOver(), "no gateway has taken over")
		a := s.fence(holder, "a", token)
		assert.That(s, a.Current, "its token is not current: %s", a.raw)
		holder.release(l)
		s.within(time.Second, "the writer's turn comes", func() bool { return s.beat(writer, w).State == "held" })
		if got := s.beat(writer, w).FencingToken; got <= token {
			s.Errorf("behind %d the writer has %d", token, got)
		}
		writer.release(w)
	})
}

func TestAttack12ALeaseThatLosesOneContenderEndsWhole(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c, next := s.client(one), s.client(two)
		wishes := []wish{{"b", claim{mode: exclusive}}, {"a", claim{mode: exclusive}}}
		l := s.several(c, "held", wishes, "ttl", "30s")
		n := s.take(next, "b", "waiting", "ttl", "30s", "async", "true")
		broken := s.audit.at(l.id, "a").path
		s.exemptions.excuse(broken)
		s.administer(func(admin *session) { assert.NoError(s, admin.delete(broken)) })
		s.within(time.Second, "the rest of it ends, too", func() bool { return !s.audit.at(l.id, "b").gone.IsZero() })
		a := s.beat(c, l)
		assert.That(s, a.status == http.StatusGone, "it is answered %d %s", a.status, a.raw)
		s.within(time.Second, "the next one has the lock", func() bool { return s.beat(next, n).State == "held" })
		next.release(n)
	})
}

// The same, and its gateway is gone when it happens.
func TestAttack12ALeaseThatHasLostOneContenderIsEndedByTheSuccessor(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one := s.start(0)
		c := s.client(one)
		l := s.several(c, "held", []wish{{"b", claim{mode: exclusive}}, {"a", claim{mode: exclusive}}}, "ttl", "30s")
		s.die(one)
		broken := s.audit.at(l.id, "a").path
		s.exemptions.excuse(broken)
		s.administer(func(admin *session) { assert.NoError(s, admin.delete(broken)) })
		next := s.client(s.start(1))
		n := s.take(next, "b", "held", "ttl", "30s", "wait", "50s")
		assert.That(s, !s.audit.at(l.id, "b").gone.IsZero(), "what is left of it is there")
		next.release(n)
	})
}

func TestAttack15ARepeatedReleaseLetsOneHoldGo(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one := s.start(0)
		c := s.client(one)
		l := s.take(c, "a", "held", "ttl", "30s", "hold", "outer")
		l.reentrant, l.holds = true, []string{"outer"}
		for range 2 {
			assert.Must(s, c.addHold(l), "no hold is added")
		}
		writes := s.counting(state.TxnSetData, lockRoot+"/a/")
		lost := s.zk.Network.LoseReply(one.name, func(op wire.Op) bool { return op == wire.OpMulti })
		inner := l.holds[2]
		assert.Must(s, c.releaseHold(l, inner), "the release of a hold ends the lease")
		s.zk.Network.Revoke(lost)
		assert.Equal(s, writes(), 1, "writes for one release")
		for range 3 { // and late repeats
			a, err := c.do(5*time.Second, http.MethodDelete, "/v1/leases/self", url.Values{"hold": {inner}}, l.header())
			assert.That(s, err == nil && a.status == http.StatusNoContent, "a repeat is answered %d %s, %v", a.status, a.raw, err)
		}
		c.look(l)
		// A successor knows which of them is gone.
		two := s.start(1)
		s.die(one)
		time.Sleep(s.timeout + time.Second)
		c.at = two
		s.beatUntil(c, l, 2*s.window)
		if a, err := c.do(5*time.Second, http.MethodDelete, "/v1/leases/self", url.Values{"hold": {inner}}, l.header()); err != nil || a.status != http.StatusNoContent {
			s.Errorf("a repeat at the successor is answered %d %s, %v", a.status, a.raw, err)
		}
		c.look(l)
		assert.That(s, s.there(l), "a repeated release has ended the lease")
		c.release(l)
	})
}

// The gateway's observer stands still: what it remembers is that the lease is held.
func TestAttack18AGatewayThatIsBehindDoesNotSayThatATokenIsCurrent(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		one, behind := s.start(0), s.start(1)
		holder, next, asker := s.client(one), s.client(one), s.client(behind)
		l := s.take(holder, "a", "held", "ttl", "30s")
		token := s.beat(holder, l).FencingToken
		a := s.fence(asker, "a", token)
		assert.Must(s, a.Current, "a holder's token is not current: %s", a.raw)
		stalled := s.observer(behind)
		stalled.StallReplies()
		holder.release(l)
		n := s.take(next, "a", "held", "ttl", "30s") // it is at work
		assert.Must(s, s.observer(behind) == stalled, "it has connected anew")
		for range 3 {
			a := s.fence(asker, "a", token)
			assert.That(s, a.status != http.StatusOK || !a.Current, "the token of a lease that has ended is current: %s", a.raw)
		}
		stalled.Resume()
		s.within(10*time.Second, "it has caught up", func() bool {
			a := s.fence(asker, "a", token)
			return a.status == http.StatusOK && !a.Current
		})
		next.release(n)
	})
}

func TestAttack27ALeaseThatHasEndedIsNotRevivedByASuccessor(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c, next := s.client(one), s.client(two)
		l := s.take(c, "a", "held", "ttl", "2s", "lock_delay", "20s")
		s.ledger.agree(l.id, terms{delay: 20 * time.Second})
		n := s.take(next, "a", "waiting", "ttl", "30s", "async", "true")
		s.within(5*time.Second, "it expires", func() bool {
			s.beat(next, n)
			return !s.audit.at(l.id, "a").closed.IsZero()
		})
		ended := time.Now()
		assert.Must(s, s.there(l), "its place is gone")
		s.die(one)
		c.at = two
		// A client that does not know yet asks all the time, before its successor has read anything and for a second after it has
		// taken over; then now and then.
		var takenOver time.Time
		for time.Since(ended) < 20*time.Second {
			assert.Must(s, s.beat(c, l).status != http.StatusOK, "a lease that has expired is alive")
			assert.Must(s, s.beat(next, n).State != "held", "the next one holds after %v", time.Since(ended))
			if takenOver.IsZero() && s.takenOver() {
				takenOver = time.Now()
			}
			if takenOver.IsZero() || time.Since(takenOver) < time.Second {
				time.Sleep(2 * time.Millisecond)
			} else {
				time.Sleep(100 * time.Millisecond)
			}
		}
		assert.That(s, !takenOver.IsZero(), "no gateway has taken over")
		s.within(30*time.Second, "the delay is over", func() bool { return s.beat(next, n).State == "held" })
		next.release(n)
	})
}

// More than one transaction may have, from the tail, while others go on.
func TestAttack28ALargeQueueIsDestroyedInPieces(t *testing.T) {
	const many, most = 300, 256 << 10
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		c, bystander := s.client(s.start(0)), s.client(s.gateways.at(0))
		l := s.take(bystander, "b", "held", "ttl", "5s")
		c.release(s.take(c, "a", "held", "ttl", "5s")) // the directory is there
		other := assert.Value(s.openSession("other", zktest.LeaderName))(s)
		for range many {
			path := assert.Value(other.create(lockRoot+"/a/"+strings.Repeat("x", 1000)+"-lock-", "", wire.FlagSequential))(s)
			s.exemptions.excuse(path)
		}
		other.close()
		bytes, pieces, last := 0, 0, ""
		s.zk.OnCommit(func(txn *state.Txn) {
			size := 0
			for _, op := range txn.Ops {
				if op.Kind != state.TxnDelete || !strings.HasPrefix(op.Path, lockRoot+"/a/") || strings.HasSuffix(op.Path, "/lockkeeper-sweep") {
					continue // the last is created with the directory's removal, which shows that it is one
				}
				size += len(op.Path)
				if number := op.Path[len(op.Path)-10:]; last != "" && number > last {
					s.Errorf("%s goes after %s", number, last)
				} else {
					last = number
				}
			}
			if bytes += size; size > 0 {
				pieces++
			}
			assert.That(s, size <= most, "%d bytes in one transaction", size)
		})
		done, _ := s.exemptions.intervene(intervention{lock: "a", contenders: true}, true)
		gone := make(chan answer, 1)
		go func() {
			a, _ := c.do(time.Minute, http.MethodPost, "/v1/locks/a/destroy", url.Values{"reason": {"a test"}}, nil)
			gone <- a
		}()
		var a answer
		for a.status == 0 {
			select {
			case a = <-gone:
			case <-time.After(time.Second):
				s.beatUntil(bystander, l, 2*time.Second)
			}
		}
		done()
		assert.That(s, a.status == http.StatusOK && bytes > most && pieces >= 2,
			"%d %s: %d bytes in %d pieces", a.status, a.raw, bytes, pieces)
		left := s.below(lockRoot + "/a")
		assert.That(s, len(left) <= 0, "%d are left", len(left))
		bystander.release(l)
	})
}
