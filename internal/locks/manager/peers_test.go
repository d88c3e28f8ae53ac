package manager

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/test/assert"
)

// peerListener is how one gateway of a test hears another one.
type peerListener struct{ stalled atomic.Bool }

// hears has a gateway follow another one; what that one tells takes so long.
func (g *gate) hears(from *gate, delay time.Duration) *peerListener {
	synctest.Wait() // the registration is seen
	e, ctx, id := &peerListener{}, g.t.Context(), from.id()
	g.m.Following(id, true)
	go func() {
		for since := ""; ; {
			lines, at, more := from.m.News(since)
			switch {
			case len(lines) > 0:
				for time.Sleep(delay); e.stalled.Load() && ctx.Err() == nil; {
					time.Sleep(10 * time.Millisecond)
				}
				g.m.Receive(id, lines)
				since = at
			case more == nil:
				g.m.Following(id, false)
				return
			default:
				select {
				case <-more:
				case <-ctx.Done():
					return
				}
				since = at
			}
		}
	}()
	synctest.Wait()
	return e
}

// talk has gateways follow each other.
func talk(gates ...*gate) {
	for i, g := range gates {
		for j, other := range gates {
			if i != j {
				g.hears(other, time.Duration(i+1)*time.Millisecond)
			}
		}
	}
}

var endTypes = []events.Type{events.LeaseReleased, events.LeaseExpired, events.LeaseCancelled, events.LeaseUnclaimed, events.LeaseRemoved, events.LeaseRevoked}

// story is what a gateway has told of a lock's leases.
func (g *gate) story(lock string) (words []string) {
	synctest.Wait()
	for _, e := range g.hub.Recent(events.Filter{Types: events.Types(append(leaseTypes, events.LeaseRevoked, events.LockDestroyed)...)}, ring) {
		if e.Lock == lock {
			words = append(words, fmt.Sprintf("%v %s %s %s %s", e.Type, e.LeaseID, e.Mode, e.Reason, e.Detail))
		}
	}
	return words
}

// reasons are the ends that a gateway has told of a lock.
func (g *gate) reasons(lock string) (words []string) {
	synctest.Wait()
	for _, e := range g.hub.Recent(events.Filter{Types: events.Types(endTypes...)}, ring) {
		if e.Lock == lock {
			words = append(words, strings.TrimSpace(e.Reason+" "+e.Detail))
		}
	}
	return words
}

func wantSameStory(t *testing.T, lock string, gates ...*gate) {
	t.Helper()
	want := gates[0].story(lock)
	assert.That(t, len(want) != 0, "nothing was told of %s", lock)
	for i, g := range gates[1:] {
		if got := g.story(lock); !slices.Equal(got, want) {
			t.Errorf("gateway %d tells of %s\n\t%s\nthe first one\n\t%s", i+2, lock, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
}

func fleetScene(t *testing.T, f func(t *testing.T, s *fakeStore)) {
	t.Helper()
	scene(t, func(t *testing.T, s *fakeStore) {
		s.peerReports = true
		f(t, s)
	})
}

// withPeers is a fleetScene with two gateways.
func withPeers(t *testing.T, f func(t *testing.T, s *fakeStore, one, two *gate)) {
	t.Helper()
	fleetScene(t, func(t *testing.T, s *fakeStore) { f(t, s, s.gateway(t), s.gateway(t)) })
}
