package manager

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// Two writers of one record: whoever reads an older version starts over, and what
// the other one wrote stays.
func TestTwoGatewaysThatAskAtOnceBothCount(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two, three := s.gateway(t), s.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me", Metadata: "build 7"})
		done := make(chan error, 2)
		for _, g := range []*gate{two, three} {
			go func() {
				force := time.Minute
				if g == three {
					force = 0
				}
				_, err := g.revoke(fmt.Sprint(force), force)
				done <- err
			}()
		}
		for range 2 {
			assert.Nil(t, <-done)
		}
		synctest.Wait()
		asked := one.asked(l)
		assert.That(t, asked.Forced, "its holder is told %+v", asked)
		r, ok := record.Parse(s.node(l.Znode).data)
		assert.That(t, ok && r.Owner == "me" && r.Metadata == "build 7" && r.TTL == time.Hour.Milliseconds() && r.Enqueued != 0,
			"the record is %+v", r)
	})
}

// What this release does not know in a record stays when it asks the holder.
func TestAskingChangesNothingElseInARecord(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		path := s.otherLease(t, "deploy", recipe.Exclusive, `{"v":1,"owner":"me","ttl_ms":5000,"enqueued_ms":1763766246123,"x":{"y":[1,2]},"z":9007199254740991}`)
		g.mustRevoke("why", 0)
		const want = `{"enqueued_ms":1763766246123,"owner":"me","revoke":{"reason":"why"},"ttl_ms":5000,"v":1,"x":{"y":[1,2]},"z":9007199254740991}`
		got := string(s.node(path).data)
		assert.That(t, got == want, "written is\n\t%s\nwant\n\t%s", got, want)
	})
}

// otherLease makes the contender of a lease that a gateway runs which is not
// part of the test.
func (s *fakeStore) otherLease(t *testing.T, lock string, mode recipe.Mode, data string) string {
	t.Helper()
	const other = "/lockkeeper/gateways/"
	id := assert.Value(recipe.NewGatewayID(rand.Reader))(t)
	fleet, _ := recipe.ParseFleetID(s.layout.FleetID)
	lease := assert.Value(recipe.NewLeaseID(fleet, id, rand.Reader))(t)
	s.foreign(zk.Op{Kind: zk.OpCreate, Path: other + string(id)})
	c := recipe.Contender{LeaseID: lease, Mode: mode}
	_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/" + lock + "/" + c.Prefix(), Sequential: true, Data: []byte(data)})
	return paths[0]
}

func TestAllHoldersAreAskedAndEachAtMostMaxReapAtATime(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		var paths []string
		for range locks.MaxReap + 7 {
			paths = append(paths, s.otherLease(t, "deploy", recipe.Shared, `{"v":1,"ttl_ms":5000}`))
		}
		asked := func() (n int) {
			for _, p := range paths {
				if r, _ := record.Parse(s.node(p).data); r.Revoke != nil {
					n++
				}
			}
			return n
		}
		answer := g.mustRevoke("why", 0)
		assert.Must(t, len(answer.Asked) == locks.MaxReap && answer.More && asked() == locks.MaxReap,
			"%d asked, more %v, %d written", len(answer.Asked), answer.More, asked())
		answer = g.mustRevoke("why", 0)
		assert.That(t, len(answer.Asked) == locks.MaxReap && !answer.More && asked() == locks.MaxReap+7,
			"the second time %d asked, more %v, %d written", len(answer.Asked), answer.More, asked())
	})
}

// A tree read lists names. What was written while the observer had no connection
// is found all the same.
func TestARevocationThatTheStreamHasMissedIsFound(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.w.disconnect()
		two.mustRevoke("the node goes down", 20*time.Second)
		if one.w.reconnect(); true {
			synctest.Wait()
		}
		asked := one.asked(l)
		assert.Must(t, asked.Reason == "the node goes down" && asked.Forced, "its holder is told %+v", asked)
		time.Sleep(21 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}

// Another gateway writes the record between an own write and its answer.
func TestARevocationBehindAnOwnWriteIsFound(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		one, two := h.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		var once atomic.Bool
		h.hooks.Store(&hooks{result: func(w *zk.Write, _ *zk.Result) {
			if len(w.Ops) == 1 && w.Ops[0].Kind == zk.OpSetData && !once.Swap(true) {
				_, err := two.revoke("why", time.Minute)
				assert.Nil(t, err)
				time.Sleep(100 * time.Millisecond) // its event comes before this write's answer
			}
		}})
		assert.Value(one.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, time.Hour))(t)
		asked := one.asked(l)
		assert.That(t, once.Load() && asked.Reason == "why" && asked.Forced, "its holder is told %+v", asked)
	})
}
