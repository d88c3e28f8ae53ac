package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// crossingFaults are what happens while two owners ask at once.
var crossingFaults = []Kind{CutZooKeeper, CutLate, StallZooKeeper, StallReplies, LoseRequest, LoseReply, SlowZooKeeper, PartServer, LagFollower, RestartLeader, KillGateway, LateZooKeeper}

// Two owners take two locks crosswise, at two gateways at once, each with deadlock=fail. Whatever happens meanwhile, one of the
// waits ends, and the other one is granted when its owner has released what it held.
func TestAttack64TwoOwnersThatLockCrosswiseDoNotWaitForEachOther(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			play(t, sessionOutlivesWindow, 2, 3, func(s *scene) {
				s.start(0)
				s.start(1)
				random := rand.New(rand.NewPCG(seed, 64))
				x := &crossing{scene: s, random: random, clients: [2]*client{s.client(s.gateways.at(0)), s.client(s.gateways.at(1))}}
				for round := range 6 {
					x.round(round, round%2 == 1)
				}
			})
		})
	}
}

// crossing has two clients, each with a gateway of its own.
type crossing struct {
	*scene
	random  *rand.Rand
	clients [2]*client
}

// round has both clients hold a lock and ask for the other's. In good weather one of the two waits ends and no more.
func (x *crossing) round(n int, faulty bool) {
	x.Helper()
	names := [2]string{fmt.Sprintf("a%d", n), fmt.Sprintf("b%d", n)}
	var held, waits [2]answer
	for i := range names {
		held[i] = x.until(i, names[i], fmt.Sprintf("held-%d-%d", n, i), false)
		assert.Must(x, held[i].State == "held", "%d %s", held[i].status, held[i].raw)
	}
	var all sync.WaitGroup
	if faulty {
		for range 1 + x.random.IntN(3) {
			f := Fault{Kind: crossingFaults[x.random.IntN(len(crossingFaults))], Arg: x.random.Uint64(), For: time.Duration(x.random.Int64N(int64(4 * time.Second)))}
			after := time.Duration(x.random.Int64N(int64(20 * time.Millisecond)))
			all.Go(func() {
				time.Sleep(after)
				g := x.gateways.at(f.number(x.world))
				x.trace("%v strikes %s for %v", f.Kind, g.name, f.For)
				faults[f.Kind].do(&fault{Fault: f, weather: x.weather, g: g, arg: f.Arg >> 8})
			})
		}
	}
	for i := range names {
		late := time.Duration(x.random.Int64N(int64(4 * time.Millisecond)))
		all.Go(func() {
			time.Sleep(late)
			waits[i] = x.until(i, names[1-i], fmt.Sprintf("wait-%d-%d", n, i), true)
		})
	}
	all.Wait()
	ended := func() (list []int) {
		for i := range waits {
			if waits[i].Token == "" || x.over(i, &waits[i]) {
				list = append(list, i)
			}
		}
		return list
	}
	for began := time.Now(); len(ended()) == 0; time.Sleep(500 * time.Millisecond) {
		assert.Must(x, time.Since(began) <= time.Minute, "round %d: two owners wait for each other", n)
	}
	time.Sleep(5 * time.Second)
	gone := ended()
	assert.That(x, faulty || len(gone) == 1, "round %d: both waits have ended", n)
	loser := gone[0]
	x.letGo(loser, &held[loser])
	if len(gone) == 1 {
		x.within(time.Minute, "the other wait is granted", func() bool {
			time.Sleep(300 * time.Millisecond)
			return x.look(1-loser, &waits[1-loser]).State == "held"
		})
		x.letGo(1-loser, &waits[1-loser])
	}
	x.letGo(1-loser, &held[1-loser])
}

// at has a client ask the gateway that runs in its place now.
func (x *crossing) at(i int) *client {
	x.clients[i].at = x.gateways.at(i)
	return x.clients[i]
}

// until acquires until the answer is one: a lease, a ticket, or that the wait would be one of a deadlock.
func (x *crossing) until(i int, lock, key string, crosswise bool) answer {
	x.Helper()
	query := url.Values{"owner": {fmt.Sprint(partyOwner, i)}, "ttl": {"10m"}}
	if crosswise {
		query.Set("deadlock", "fail")
		query.Set("async", "true")
	}
	header := http.Header{"Idempotency-Key": {"key-of-the-crossing-" + key}}
	for began := time.Now(); ; time.Sleep(300 * time.Millisecond) {
		a, err := x.at(i).do(5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/leases", query, header)
		switch {
		case err == nil && (a.Token != "" || a.status == http.StatusConflict && strings.Contains(string(a.raw), "would_deadlock")):
			return a
		case err == nil && a.status == http.StatusGone: // a ticket that ended while its answer was lost
			assert.That(x, strings.Contains(string(a.raw), "would_deadlock"), "%s", a.raw)
			return a
		}
		assert.Must(x, time.Since(began) <= 2*time.Minute, "%s: %d %s, %v", key, a.status, a.raw, err)
	}
}

func (x *crossing) look(i int, l *answer) answer {
	a, err := x.at(i).do(5*time.Second, http.MethodGet, "/v1/leases/self", nil, http.Header{"Lease-Token": {l.Token}})
	if err != nil {
		return answer{}
	}
	return a
}

// over reports whether a wait has ended.
func (x *crossing) over(i int, l *answer) bool {
	a := x.look(i, l)
	if a.status == http.StatusGone || a.State == "ended" {
		assert.That(x, strings.Contains(string(a.raw), "would_deadlock") || strings.Contains(string(a.raw), "unknown"), "it has ended otherwise: %s", a.raw)
		return true
	}
	return false
}

// letGo releases a lease, or one that is gone.
func (x *crossing) letGo(i int, l *answer) {
	x.Helper()
	x.within(2*time.Minute, "it is released", func() bool {
		a, err := x.at(i).do(5*time.Second, http.MethodDelete, "/v1/leases/self", nil, http.Header{"Lease-Token": {l.Token}})
		if err == nil && (a.status == http.StatusNoContent || a.status == http.StatusGone || a.status == http.StatusNotFound) {
			return true
		}
		time.Sleep(300 * time.Millisecond)
		return false
	})
}
