package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/wire"
)

// tally counts what a gateway asks of ZooKeeper, on all its connections.
type tally struct {
	mu     sync.Mutex
	writes []string // what each transaction did besides checking and touching the guard
	guards int      // transactions that did nothing else
	reads  []string
}

// watchTraffic counts from now on.
func watchTraffic(p *netfault.Proxy) *tally {
	c := &tally{}
	p.Observe(c.observe)
	return c
}

func (c *tally) observe(f netfault.Frame) netfault.Action {
	op := f.Op()
	if f.Dir != netfault.Requests || !op.Write() && !op.Read() {
		return netfault.Forward
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	body := f.Raw[12:] // after the length, the xid and the operation
	switch {
	case op == netfault.OpMulti:
		if did := transaction(body); did != "" {
			c.writes = append(c.writes, did)
		} else {
			c.guards++
		}
	case op.Write():
		c.writes = append(c.writes, op.String())
	default:
		d := wire.NewDecoder(body)
		path := d.String()
		// Once a minute the sweeper looks for keys without a lease; that belongs to no request.
		if !strings.HasSuffix(path, "/lockkeeper/keys") {
			c.reads = append(c.reads, fmt.Sprint(op, " ", path))
		}
	}
	return netfault.Forward
}

// transaction tells what a multi does, the epoch check and the guard's touch left out: "create /a, delete /b".
func transaction(body []byte) string {
	var multi wire.MultiRequest
	d := wire.NewDecoder(body)
	multi.Decode(d)
	var did []string
	for _, op := range multi.Ops {
		switch r := op.Record.(type) {
		case *wire.SetDataRequest:
			if !strings.Contains(r.Path, "/guards/") {
				did = append(did, "set "+r.Path)
			}
		case *wire.CreateRequest:
			did = append(did, "create "+r.Path)
		case *wire.VersionRequest:
			if op.Op == wire.OpDelete {
				did = append(did, "delete "+r.Path)
			}
		default:
			did = append(did, fmt.Sprint("operation ", op.Op))
		}
	}
	return strings.Join(did, ", ")
}

// take returns the counts and starts again.
func (c *tally) take() (writes []string, guards int, reads []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes, guards, reads = c.writes, c.guards, c.reads
	c.writes, c.guards, c.reads = nil, 0, nil
	return writes, guards, reads
}

// behindProxy starts a gateway whose every connection to the shared ZooKeeper goes through a proxy.
func behindProxy(t *testing.T, flags ...string) (*gateway, *netfault.Proxy) {
	t.Helper()
	addr, chroot := zkreal.SharedT(t)
	p := netfault.NewT(t, addr, netfault.Framed())
	return startGateway(t, p.Addr()+chroot, flags...), p
}

func TestAnAcquireAndAReleaseAreTwoWritesAndNoRead(t *testing.T) {
	t.Parallel()
	g, p := behindProxy(t)
	g.letGo(g.hold("warm", "").Token)
	c := watchTraffic(p)
	const rounds = 30
	began := time.Now()
	want := func(what string, writes int) {
		t.Helper()
		did, guards, reads := c.take()
		assert.That(t, len(did) == writes, "%s: %d write transactions instead of %d:\n%s", what, len(did), writes, strings.Join(did, "\n"))
		// A read of each round would be thirty. One or two belong to the sweeper, or to a replica that was late.
		assert.That(t, len(reads) <= rounds/10, "%s: reads: %v", what, reads)
		// The guard is written by itself only when nothing else has committed for a third of the window.
		if most := int(time.Since(began)/(promiseWindow/3)) + 1; guards > most {
			t.Errorf("%s: the guard was written by itself %d times, more than the %d that time asks for", what, guards, most)
		}
		began = time.Now()
	}

	for range rounds {
		g.letGo(g.hold("warm", "ttl=1m&owner=me").Token)
	}
	want("a lock whose directory exists", 2*rounds)

	for i := range rounds {
		g.letGo(g.hold(fmt.Sprint("new-", i), "ttl=1m").Token)
	}
	want("a lock without an earlier use", 2*rounds)

	for i := range rounds {
		g.letGo(g.hold("keyed", "ttl=1m", apitest.Key(fmt.Sprintf("a-fresh-random-key-%d", i))).Token)
	}
	want("with an idempotency key", 2*rounds)

	holder := g.hold("busy", "ttl=1m")
	for range rounds {
		next := g.acquiring(t.Context(), "busy", "ttl=1m&wait=1m")
		g.awaitLock(patience, "busy", 1, 1)
		g.letGo(holder.Token)
		holder = next.granted(patience)
	}
	g.letGo(holder.Token)
	want("handed from one to the next", 2*(rounds+1))

	lease := g.hold("beating", "ttl=1m")
	want("an acquire", 1)
	for range rounds {
		g.beat(lease.Token, "held")
	}
	_, a, err := g.Lock(t.Context(), "beating")
	expect(t, a, err, http.StatusOK, "")
	_, a, err = g.Acquire(t.Context(), "beating")
	expect(t, a, err, http.StatusConflict, "held_by_other")
	want("heartbeats, a look and a try in vain", 0)
}

// The crowd: each client judges by its own clock, from the moment it hears of its grant until it sends its release.
func TestTwoHundredClientsOnOneLockNeverOverlapAndTheirFencingTokensRise(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	type span struct {
		heard, sent time.Time
		token       int64
	}
	const clients = 200
	var (
		mu    sync.Mutex
		spans []span
		crowd sync.WaitGroup
	)
	for i := range clients {
		crowd.Go(func() {
			lease, a, err := g.Acquire(t.Context(), "hot", apitest.Query(fmt.Sprintf("ttl=2m&wait=2m&owner=client-%d", i)))
			heard := time.Now()
			if err != nil || a.Status != http.StatusCreated {
				t.Errorf("client %d: %v %+v", i, err, a)
				return
			}
			sent := time.Now()
			a, err = g.Release(t.Context(), lease.Token)
			assert.That(t, err == nil && a.Status == http.StatusNoContent, "client %d: %v %+v", i, err, a)
			mu.Lock()
			defer mu.Unlock()
			spans = append(spans, span{heard, sent, lease.FencingToken})
		})
	}
	crowd.Wait()
	assert.Must(t, len(spans) == clients, "%d of %d held the lock", len(spans), clients)
	slices.SortFunc(spans, func(a, b span) int { return a.heard.Compare(b.heard) })
	for i := 1; i < len(spans); i++ {
		if before, now := spans[i-1], spans[i]; !before.sent.Before(now.heard) || now.token <= before.token {
			t.Fatalf("holder %d: heard of it %v after its predecessor had sent the release, tokens %d and %d",
				i, now.heard.Sub(before.sent), before.token, now.token)
		}
	}
	g.awaitLock(patience, "hot", 0, 0)
}
