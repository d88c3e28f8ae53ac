package httpapi

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// led is a lock that a lease holds alone.
func led(metadata string) locks.Lock {
	return locks.Lock{NS: "default", Name: "deploy", State: locks.LockHeld, HolderCount: 1, Rev: "r-" + metadata, Holders: []locks.Contender{{
		LeaseID: someID, Owner: "node-1", Principal: "ci", Mode: locks.Exclusive, FencingToken: 1 << 33, Metadata: metadata, Znode: "/lockkeeper/locks/deploy/write-x",
		At: time.Date(2026, 11, 23, 10, 0, 5, 0, time.UTC), HeldFor: 5 * time.Second, HeldLonger: true,
	}}}
}

// script has the lock change whenever a look waits for it, and ends with the last one.
type script struct {
	mu    sync.Mutex
	locks []locks.Lock
	asked []locks.LockRequest
}

func (s *script) lock(ctx context.Context, req locks.LockRequest) (locks.Lock, error) {
	s.mu.Lock()
	s.asked = append(s.asked, req)
	if req.Wait > 0 && req.Since != "" {
		if len(s.locks) == 1 {
			s.mu.Unlock()
			<-ctx.Done()
			return locks.Lock{}, &locks.Error{Code: locks.CodeCancelled}
		}
		s.locks = s.locks[1:]
	}
	defer s.mu.Unlock()
	return s.locks[0], nil
}

func play(t *testing.T, all ...locks.Lock) (*gateway, *script) {
	t.Helper()
	g, s := serve(t), &script{locks: all}
	g.lock = s.lock
	return g, s
}

func TestTheLeaderIsTheOneExclusiveHolder(t *testing.T) {
	g, s := play(t, led("http://10.0.0.1:9000"))
	a := g.expect(t, 200, "", "GET", "/v1/locks/deploy/leader?ns=other&consistent=true")
	got := read[api.Leader](t, a)
	since := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	assert.That(t, got.Lock == "deploy" && got.LeaseID == someID && got.Owner == "node-1" && got.Principal == "ci" && got.FencingToken == 1<<33 &&
		got.Metadata == "http://10.0.0.1:9000" && got.Since != nil && got.Since.Equal(since) && got.HeldLonger && a.Header.Get("Etag") == `W/"`+got.Rev+`"`, "%s %q", a.Body, a.Header.Get("Etag"))
	assert.That(t, s.asked[0].NS == "other" && s.asked[0].Consistent && s.asked[0].Limit == 1, "%+v", s.asked[0])

	for _, plain := range []*apitest.Answer{
		g.send(t, "GET", "/v1/locks/deploy/leader", apitest.Header("Accept", "text/plain")),
		g.send(t, "GET", "/v1/locks/deploy/leader?format=text"),
	} {
		assert.That(t, string(plain.Body) == "http://10.0.0.1:9000" && plain.Header.Get("Content-Type") == typeText[0] && plain.Header.Get("Etag") == `W/"`+got.Rev+`"`,
			"%q %v", plain.Body, plain.Header)
	}
	again := g.send(t, "GET", "/v1/locks/deploy/leader", apitest.Header("If-None-Match", a.Header.Get("Etag")))
	assert.That(t, again.Status == http.StatusNotModified, "%d", again.Status)

	g, _ = play(t, led(""))
	plain := g.expect(t, 200, "", "GET", "/v1/locks/deploy/leader?format=text")
	assert.That(t, len(plain.Body) == 0, "%q in place of nothing", plain.Body)
}

func TestALockWithoutOneExclusiveHolderHasNoLeader(t *testing.T) {
	change := func(f func(*locks.Lock)) locks.Lock {
		l := led("x")
		f(&l)
		return l
	}
	for name, l := range map[string]locks.Lock{
		"free":      {NS: "default", Name: "deploy", State: locks.LockFree},
		"queued":    change(func(l *locks.Lock) { l.State = locks.LockQueued }),
		"delayed":   change(func(l *locks.Lock) { l.State, l.Holders[0].Delayed = locks.LockDelayed, true }),
		"shared":    change(func(l *locks.Lock) { l.Holders[0].Mode = locks.Shared }),
		"semaphore": change(func(l *locks.Lock) { l.Holders[0].Mode = locks.Semaphore }),
		"two":       change(func(l *locks.Lock) { l.HolderCount = 2 }),
	} {
		g, _ := play(t, l)
		a := g.expect(t, 404, "no_leader", "GET", "/v1/locks/deploy/leader")
		assert.That(t, a.Header.Get("Etag") == "" && a.Header.Get("Retry-After") == "1", "%s: %v", name, a.Header)
	}
	g, _ := play(t, change(func(l *locks.Lock) { l.State = locks.LockUnclaimed }))
	g.expect(t, 200, "", "GET", "/v1/locks/deploy/leader")
}

func TestTheMetadataOfAnotherProgramsLeaderIsItsData(t *testing.T) {
	l := led("")
	l.Holders[0].LeaseID, l.Holders[0].Foreign = "", &locks.Foreign{Program: "curator", Kind: "mutex", Data: []byte("10.0.0.7")}
	g, _ := play(t, l)
	got := read[api.Leader](t, g.expect(t, 200, "", "GET", "/v1/locks/deploy/leader"))
	assert.That(t, got.Metadata == "10.0.0.7" && got.Foreign != nil && got.Foreign.Program == "curator" && got.LeaseID == "", "%+v", got)
	l.Holders[0].Foreign.Data = []byte{0xff, 0}
	a := g.expect(t, 200, "", "GET", "/v1/locks/deploy/leader?format=text")
	assert.That(t, len(a.Body) == 0, "%q", a.Body)
}

func TestAGatewayThatIsNotTrustedNamesNoLeader(t *testing.T) {
	g, _ := play(t, led("x"), led("x"))
	g.untrusted.Store(true)
	g.expect(t, 503, "zookeeper_unavailable", "GET", "/v1/locks/deploy/leader")
	g, _ = play(t, locks.Lock{State: locks.LockFree})
	g.untrusted.Store(true)
	g.expect(t, 503, "zookeeper_unavailable", "GET", "/v1/locks/deploy/leader")
}

func TestALookAtTheLeaderWaits(t *testing.T) {
	free := locks.Lock{NS: "default", Name: "deploy", State: locks.LockFree, Rev: "0"}
	busier := led("a") // another waiter: the lock's rev differs, its leader does not
	busier.Rev, busier.QueueLength = "busier", 1
	granting := led("a") // its fencing token is not known yet
	granting.Rev, granting.Holders[0].FencingToken = "granting", 0
	known := leaderRev(&led("a").Holders[0])
	for _, c := range []struct {
		query string
		locks []locks.Lock
		want  string // metadata; "" is no leader
		looks int
	}{
		{"wait=1m", []locks.Lock{free, {State: locks.LockQueued, Rev: "1"}, led("a")}, "a", 3},
		{"wait=1m&until=elected", []locks.Lock{led("a")}, "a", 1},
		{"wait=1m", []locks.Lock{free, granting, led("a")}, "a", 3},
		{"wait=1m&until=changed", []locks.Lock{free, granting, led("a")}, "a", 3},
		{"wait=1m&since=" + known, []locks.Lock{granting, led("a"), led("b")}, "b", 3},
		{"", []locks.Lock{granting}, "a", 1},
		{"wait=1m&since=" + known, []locks.Lock{led("a"), busier, led("b")}, "b", 3},
		{"wait=1m&until=changed&since=" + known, []locks.Lock{led("a"), free}, "", 2},
		{"wait=1m&until=changed", []locks.Lock{led("a"), busier, led("b")}, "b", 3},
		{"wait=1m&until=changed", []locks.Lock{free, led("b")}, "b", 2},
		{"wait=1m&since=unknown", []locks.Lock{led("a")}, "a", 1},
		{"since=" + known, []locks.Lock{led("a")}, "a", 1},
		{"wait=1ms", []locks.Lock{free, free, free}, "", 0},
	} {
		g, s := play(t, c.locks...)
		if c.looks == 0 {
			g.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) { return free, nil }
		}
		a := g.send(t, "GET", "/v1/locks/deploy/leader?format=text&"+c.query)
		if c.want == "" {
			assert.That(t, a.Status == 404 && a.Code() == "no_leader", "%s: %d %s", c.query, a.Status, a.Body)
		} else {
			assert.That(t, a.Status == 200 && string(a.Body) == c.want, "%s: %d %s", c.query, a.Status, a.Body)
		}
		assert.That(t, len(s.asked) == c.looks, "%s: looked %d times", c.query, len(s.asked))
	}
	g, _ := play(t, free)
	for query, field := range map[string]string{"wait=6m": "wait", "until=changed": "until", "until=free&wait=1s": "until", "wait=1s&until=elected&since=x": "since", "limit=1": "limit"} {
		a := g.send(t, "GET", "/v1/locks/deploy/leader?"+query)
		assert.That(t, a.Status == 422 && a.Problem.Field == field, "%s: %d %s", query, a.Status, a.Body)
	}
}

func TestALookAtTheLeaderThatWaitsIsSentAwayByADrain(t *testing.T) {
	g, _ := play(t, locks.Lock{NS: "default", Name: "deploy", State: locks.LockFree, Rev: "0"})
	begun := make(chan struct{})
	inner := g.lock
	g.lock = func(ctx context.Context, req locks.LockRequest) (locks.Lock, error) {
		if req.Wait > 0 {
			close(begun)
		}
		return inner(ctx, req)
	}
	answers := g.later(t, "GET", "/v1/locks/deploy/leader?wait=5m")
	<-begun
	g.server.Drain()
	a := <-answers
	assert.That(t, a != nil && a.Status == 503 && a.Code() == "draining", "%+v", a)
}
