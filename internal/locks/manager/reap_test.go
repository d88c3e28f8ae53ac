package manager

import (
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

func (g *gate) mustReap(req locks.ReapRequest) locks.ReapAnswer {
	g.t.Helper()
	req.Lock = "deploy"
	answer := assert.Value(g.m.Reap(g.t.Context(), req))(g.t, "reap")
	synctest.Wait()
	return answer
}

func TestAReapEndsWhatMatchesFromTheTail(t *testing.T) {
	foreign, ours := true, false
	for name, test := range map[string]struct {
		req  locks.ReapRequest
		want string // in the order of their ends
	}{
		"everything":      {locks.ReapRequest{}, "young foreign other reader me holder"},
		"older":           {locks.ReapRequest{OlderThan: 90 * time.Second}, "reader me holder"},
		"just as old":     {locks.ReapRequest{OlderThan: 20 * time.Second}, "young foreign other reader me holder"},
		"too old":         {locks.ReapRequest{OlderThan: time.Hour}, ""},
		"by owner":        {locks.ReapRequest{Owner: "me"}, "me"},
		"by other owner":  {locks.ReapRequest{Owner: "other"}, "other"},
		"held":            {locks.ReapRequest{State: locks.Held}, "holder"},
		"waiting":         {locks.ReapRequest{State: locks.Waiting, OlderThan: 90 * time.Second}, "reader me"},
		"shared":          {locks.ReapRequest{Mode: locks.Shared}, "reader"},
		"exclusive":       {locks.ReapRequest{Mode: locks.Exclusive, OlderThan: 90 * time.Second}, "me holder"},
		"foreign":         {locks.ReapRequest{Foreign: &foreign}, "foreign"},
		"ours":            {locks.ReapRequest{Foreign: &ours, OlderThan: time.Minute}, "other reader me holder"},
		"foreign by me":   {locks.ReapRequest{Foreign: &foreign, Owner: "me"}, ""},
		"nothing at once": {locks.ReapRequest{State: locks.Held, Owner: "me"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dry := range []bool{true, false} {
				scene(t, func(t *testing.T, s *fakeStore) {
					s.skew = -100 * time.Hour // ZooKeeper's clock is not ours
					g := s.gateway(t)
					names := map[string]string{}
					add := func(name string, req locks.AcquireRequest) {
						req.Lock, req.TTL, req.Async = "deploy", time.Hour, len(names) > 0
						names[g.mustAcquire(req).Znode] = name
					}
					add("holder", locks.AcquireRequest{Owner: "x"})
					add("me", locks.AcquireRequest{Owner: "me"})
					add("reader", locks.AcquireRequest{Mode: locks.Shared})
					stay := time.AfterFunc(0, func() {})
					defer stay.Stop()
					keep := func(d time.Duration) {
						for ; d > 0; d -= 10 * time.Second {
							g.keepAll()
							time.Sleep(10 * time.Second)
						}
					}
					keep(30 * time.Second)
					names[s.otherLease(t, "deploy", 0, `{"v":1,"owner":"other","ttl_ms":3600000}`)] = "other"
					names[s.foreignContender()] = "foreign"
					keep(40 * time.Second)
					add("young", locks.AcquireRequest{})
					keep(30 * time.Second)
					s.mu.Lock()
					before := len(s.writes)
					s.mu.Unlock()
					req := test.req
					req.DryRun = dry
					answer := g.mustReap(req)
					var reaped, deleted []string
					for _, c := range answer.Reaped {
						reaped = append(reaped, names[c.Znode])
						assert.That(t, req.OlderThan <= 0 || c.AgeKnown && c.Age >= req.OlderThan && c.Age <= 2*time.Minute,
							"%s is shown as %v old", names[c.Znode], c.Age)
					}
					s.mu.Lock()
					for _, w := range s.writes[before:] {
						for _, op := range w.Ops {
							if op.Kind == zk.OpDelete {
								deleted = append(deleted, names[op.Path])
							}
						}
					}
					s.mu.Unlock()
					if got := strings.Join(reaped, " "); got != test.want || len(answer.Not) != 0 || answer.More || answer.DryRun != dry {
						t.Errorf("dry %v: reaped %q, want %q: %+v", dry, got, test.want, answer)
					}
					assert.That(t, (!dry || len(deleted) == 0) && (dry || slices.Equal(deleted, reaped)),
						"dry %v: deleted %v", dry, deleted)
				})
			}
		})
	}
}

// keepAll moves the clocks of all leases, as their clients' heartbeats do.
func (g *gate) keepAll() {
	g.m.mu.Lock()
	defer g.m.unlock()
	for _, l := range g.m.leases.byID {
		l.extend(g.m, g.m.clock.Now().Boot(), time.Hour)
	}
}

// The waiters go before the holder: none of them is let in on the way.
func TestNobodyIsGrantedByAReapWhoIsReapedHimself(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		var leases []locks.Lease
		for i := range 40 {
			g := []*gate{one, two}[i%2]
			leases = append(leases, g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true}))
		}
		answer := two.mustReap(locks.ReapRequest{Reason: "a test"})
		assert.Must(t, len(answer.Reaped) == len(leases) && len(answer.Not) == 0, "%d reaped, %d not", len(answer.Reaped), len(answer.Not))
		for _, g := range []*gate{one, two} {
			assert.Equal(t, len(g.tells(events.LeaseGranted)), 1, "grants are told")
		}
		two.wantState(leases[1], locks.Ended, locks.ReasonRevoked)
	})
}

func TestAReapEndsAtMostMaxReapAndSaysSo(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for range locks.MaxReap + 5 {
			g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		}
		answer := g.mustReap(locks.ReapRequest{})
		assert.Must(t, len(answer.Reaped) == locks.MaxReap && answer.More, "%d reaped, more %v", len(answer.Reaped), answer.More)
		if answer := g.mustReap(locks.ReapRequest{}); len(answer.Reaped) != 5 || answer.More || s.waiting("deploy") != 0 {
			t.Errorf("then %d reaped, more %v", len(answer.Reaped), answer.More)
		}
	})
}

// What is written between the look and the end may match no longer.
func TestAReapHitsOnlyWhatItHasLookedAt(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		changed := s.foreignContender()
		other := s.otherLease(t, "deploy", 0, `{"v":1,"owner":"me","ttl_ms":3600000}`)
		gone := s.foreignContender()
		synctest.Wait()
		s.beforeWrites(func(w *zk.Write) {
			if len(w.Ops) == 3 && w.Ops[0].Kind == zk.OpDelete {
				s.tx([]zk.Op{{Kind: zk.OpSetData, Path: changed, Version: -1}, {Kind: zk.OpSetData, Path: other, Version: -1},
					{Kind: zk.OpDelete, Path: gone, Version: -1}})
			}
		})
		answer := g.mustReap(locks.ReapRequest{})
		if len(answer.Reaped) != 0 || len(answer.Not) != 2 || answer.Not[0].Contender.Znode != other || answer.Not[1].Contender.Znode != changed {
			t.Errorf("%+v", answer)
		}
		assert.Equal(t, s.waiting("deploy"), 2, "are left")
	})
}

// A contender whose ACL hides it has an age all the same.
func TestAHiddenContenderIsReapedByItsAge(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.hidden = func(p string) bool { return strings.HasPrefix(p, foreignName) }
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy"})
		old := s.foreignContender()
		time.Sleep(time.Minute)
		young := s.foreignContender()
		time.Sleep(10 * time.Second)
		g := s.gateway(t)
		time.Sleep(2 * time.Second)
		answer := g.mustReap(locks.ReapRequest{OlderThan: 30 * time.Second})
		if len(answer.Reaped) != 1 || path.Base(answer.Reaped[0].Znode) != path.Base(old) || s.node(young).stat.Czxid == 0 || s.node(old).stat.Czxid != 0 {
			t.Errorf("%+v", answer)
		}
	})
}

func TestAReapIsRefusedWhereItMakesNoSense(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for field, req := range map[string]locks.ReapRequest{
			"lock": {}, "older_than": {Lock: "deploy", OlderThan: -1}, "mode": {Lock: "deploy", Mode: "x"}, "state": {Lock: "deploy", State: locks.Ended},
			"owner": {Lock: "deploy", Owner: strings.Repeat("x", locks.MaxOwner+1)}, "reason": {Lock: "deploy", Reason: "\x00"},
		} {
			_, err := g.m.Reap(t.Context(), req)
			e := wantCode(t, err, locks.CodeInvalid)
			assert.That(t, e.Field == field, "%s: %v", field, e)
		}
	})
}
