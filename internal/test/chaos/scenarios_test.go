package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/chaos/check"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
)

// full says that there is time for what takes long.
var full = os.Getenv("LOCKKEEPER_FULL") != ""

// What a fleet is for, each on a fleet of its own and all on one ensemble.
func TestAFleetKeepsItsLeases(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	t.Run("together", func(t *testing.T) {
		for name, run := range map[string]func(t *testing.T, w *World){
			"when the gateway that owns thousands is killed": ownerKilled,
			"in a rolling restart":                           rollingRestart,
			"and a gateway that was frozen confirms nothing": frozenOwner,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, newWorld(t, e, t.TempDir(), fmt.Sprintf("/t%x", rand.Uint64())))
			})
		}
	})
	t.Run("when all servers are down and come back", func(t *testing.T) {
		allDown(t, newWorld(t, e, t.TempDir(), "/down"))
	})
}

// direct is a caller that talks to one gateway.
func (g *gateway) direct(seed uint64) *caller {
	return newCaller([]way{{g.name, g.url()}}, rand.New(rand.NewPCG(seed, 0)))
}

// takeMany acquires locks at a gateway, many-<first> and so on, and returns the tokens.
func takeMany(t *testing.T, g *gateway, first, many int, ttl time.Duration) []string {
	t.Helper()
	tokens := make([]string, many)
	var next atomic.Int64
	var workers sync.WaitGroup
	for n := range 64 {
		workers.Go(func() {
			c := g.direct(uint64(n))
			defer c.close()
			for {
				i := int(next.Add(1)) - 1
				if i >= many {
					return
				}
				a := c.send(t.Context(), 20*time.Second, "POST", fmt.Sprintf("/v1/locks/many-%d/leases?ttl=%v", first+i, ttl), "", "", nil)
				if a.State != "held" {
					t.Errorf("an acquire is answered %d %s", a.status, a.Code)
					return
				}
				tokens[i] = a.Token
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return tokens
}

// beatMany heartbeats each of the tokens until it is answered, at any of the callers in turn, and fails for those that are lost.
func beatMany(t *testing.T, callers []*caller, tokens []string, within time.Duration) {
	t.Helper()
	due := slices.Clone(tokens)
	for began, round := time.Now(), 0; len(due) > 0; round++ {
		assert.Must(t, time.Since(began) <= within, "%d of %d leases are not answered for after %v", len(due), len(tokens), within)
		var again []string
		for chunk := range slices.Chunk(due, 500) {
			a := callers[round%len(callers)].send(t.Context(), 10*time.Second, "POST", "/v1/heartbeats", "", "", map[string][]string{"tokens": chunk})
			switch {
			case a.ok() && len(a.Items) == len(chunk):
				for i, item := range a.Items {
					switch {
					case item.Problem == nil && item.State == "held":
					case item.Problem != nil && item.Problem.Status == http.StatusServiceUnavailable:
						again = append(again, chunk[i])
					default:
						t.Fatalf("a lease is lost: %+v %+v", item, item.Problem)
					}
				}
			case a.again():
				again = append(again, chunk...)
			default:
				t.Fatalf("bulk heartbeats are answered %d %s", a.status, a.Code)
			}
		}
		if due = again; len(due) > 0 {
			sleep(t.Context(), 50*time.Millisecond)
		}
	}
}

func ownerKilled(t *testing.T, w *World) {
	many := 10_000
	if testkit.Race && !full {
		many = 2_000
	}
	const ttl = 30 * time.Second
	owner, others := w.gateways[0], []*caller{w.gateways[1].direct(1), w.gateways[2].direct(2)}
	for _, c := range others {
		defer c.close()
	}
	self := owner.direct(3)
	defer self.close()
	began := time.Now()
	var tokens []string
	for len(tokens) < many {
		tokens = append(tokens, takeMany(t, owner, len(tokens), 1000, ttl)...)
		beatMany(t, []*caller{self}, tokens, ttl) // a slow machine takes longer than a TTL
	}
	t.Logf("%d leases acquired in %v", many, time.Since(began))
	began = time.Now()
	beatMany(t, others, tokens, ttl)
	t.Logf("and heartbeaten through others in %v", time.Since(began))

	var writes atomic.Int64
	takeovers := &takeoverCount{asked: map[string]string{}, tries: map[string]int{}, done: map[string]int{}}
	for i, g := range w.gateways[1:] {
		for j, p := range g.zk {
			p.Observe(func(f netfault.Frame) netfault.Action {
				takeovers.see(fmt.Sprintf("%d.%d", i, j), f)
				if f.Dir == netfault.Requests && f.Op() == netfault.OpMulti && bytes.Contains(f.Raw, []byte("/locks/")) && succeededIn(f) == "" {
					writes.Add(1)
				}
				return netfault.Forward
			})
		}
	}
	owner.kill()
	killed := time.Now()
	beatMany(t, others, tokens, ttl) // written into the leases' records, or after the takeover
	answered := time.Since(killed)
	before := writes.Load()
	testkit.Eventually(t, 30*time.Second, func() bool { return takeovers.committed() > 0 }, "a gateway takes over")
	beatMany(t, others, tokens, ttl)
	t.Logf("%d leases, 0 lost; all are answered for %v after their gateway was killed (%d writes to leases until then), by their new owner after %v (session timeout %v); the takeovers: %v",
		many, answered.Round(time.Millisecond), before, time.Since(killed).Round(time.Millisecond), sessionTimeout, takeovers)
	// One transaction takes over any number of leases. A gateway whose replica does not show the succession yet tries again with
	// each tick of its clock, and so does the one that has succeeded; ZooKeeper refuses these. On a slow machine another
	// gateway's session may end meanwhile, and that one is taken over, too. So the committed transactions of each count.
	for dead, n := range takeovers.all() {
		assert.That(t, n == 1, "the takeover of %s, of %d leases in all, took %d transactions", dead, many, n)
	}
}

// takeoverCount counts the transactions by which gateways are succeeded.
type takeoverCount struct {
	mu          sync.Mutex
	asked       map[string]string // the gateway that a request succeeds, by its connection and xid
	tries, done map[string]int    // by that gateway
}

func (c *takeoverCount) see(proxy string, f netfault.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint(proxy, " ", f.Conn, " ", f.Xid())
	dead := succeededIn(f)
	switch {
	case dead != "":
		c.asked[key] = dead
		c.tries[dead]++
	case f.Dir == netfault.Replies && c.asked[key] != "":
		if f.Err() == 0 && !failedMulti(f) {
			c.done[c.asked[key]]++
		}
		delete(c.asked, key)
	}
}

// succeededIn is the gateway whose succession a transaction creates, "" when it creates none.
func succeededIn(f netfault.Frame) string {
	if f.Dir != netfault.Requests || f.Op() != netfault.OpMulti {
		return ""
	}
	_, rest, found := bytes.Cut(f.Raw, []byte("/succession/"))
	end := bytes.IndexFunc(rest, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if !found || end < 0 || !bytes.Contains(rest, []byte("/gateways/")) { // a sweep deletes the entry alone
		return ""
	}
	return string(rest[:end])
}

// failedMulti reports whether the reply to a transaction says that nothing of it was done: its first result is an error.
func failedMulti(f netfault.Frame) bool {
	const head = 4 + 16 // the length, then xid, zxid and error code
	return len(f.Raw) < head+4 || bytes.Equal(f.Raw[head:head+4], []byte{0xff, 0xff, 0xff, 0xff})
}

func (c *takeoverCount) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.done)
}

func (c *takeoverCount) committed() int { return len(c.all()) }

func (c *takeoverCount) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("tries %v, committed %v", c.tries, c.done)
}

// crowd runs clients until stop is called, which waits for them. Bulk clients have many leases for long.
func (w *World) crowd(ctx context.Context, bulk, others int) (stop func()) {
	ended := make(chan struct{})
	var living sync.WaitGroup
	for i := range bulk + others + 1 {
		c := newClient(w, i, 7)
		switch {
		case i == 0:
			living.Go(func() { c.probe(ctx, ended) })
		case i <= bulk:
			living.Go(func() { c.liveInBulk(ctx, ended) })
		default:
			living.Go(func() { c.live(ctx, ended) })
		}
	}
	return sync.OnceFunc(func() {
		close(ended)
		living.Wait()
	})
}

// verdict checks the history of a crowd; none of the leases that ride over a gateway's crash may have been lost.
func (w *World) verdict(t *testing.T, what string) {
	t.Helper()
	h := w.sofar()
	for _, v := range check.Check(&h, check.Times{Session: sessionTimeout, Window: promiseWindow}) {
		t.Errorf("%+v", v)
	}
	refused, silent, lost := 0, 0, 0
	released := map[string]bool{}
	for _, o := range h.Ops {
		released[o.Attempt] = released[o.Attempt] || o.Kind == check.Release
		switch {
		case o.Status == 0:
			silent++
		case o.Status >= 500:
			refused++
		case o.Status == http.StatusGone && !released[o.Attempt] && o.TTL >= sessionTimeout+5*time.Second && o.Kind == check.Heartbeat:
			t.Errorf("a lease is lost: %+v", o)
			lost++
		}
	}
	t.Logf("%s: %d leases lost, %d requests refused with 503 and repeated, %d connections broken\n%v", what, lost, refused, silent, figuresOf(h, w.count))
}

func rollingRestart(t *testing.T, w *World) {
	stop := w.crowd(t.Context(), 5, 5)
	defer stop()
	elapse(t, 2*time.Second)
	span := check.Span{Kind: "rolling restart", From: w.now()}
	for _, g := range w.gateways {
		ctx, cancel := context.WithTimeout(t.Context(), recovery)
		assert.Nil(t, errors.Join(g.terminate(), g.start(), g.awaitReady(ctx)))
		cancel()
	}
	span.To = w.now()
	w.mended(span)
	w.count[span.Kind]++
	elapse(t, time.Second)
	stop()
	w.verdict(t, "rolling restart")
}

// The gateway has questions in its sockets when it goes on, about leases that have been given to others meanwhile, and its
// connections to ZooKeeper are silent: that it stood still it can only know by its clock.
func frozenOwner(t *testing.T, w *World) {
	owner, other := w.gateways[0], w.gateways[1].direct(1)
	defer other.close()
	const many = 20
	tokens := takeMany(t, owner, 0, many, time.Minute)
	type question struct {
		method, path, token string
		a                   answer
	}
	var questions []*question
	c := owner.direct(2)
	defer c.close()
	for i, token := range tokens {
		a := c.send(t.Context(), 10*time.Second, "GET", "/v1/leases/self", token, "", nil)
		assert.Must(t, a.State == "held", "answered %d %s", a.status, a.Code)
		for range 4 {
			questions = append(questions, &question{method: "POST", path: "/v1/leases/self/heartbeat", token: token})
		}
		questions = append(questions,
			&question{method: "GET", path: "/v1/leases/self?verify=true", token: token},
			&question{method: "GET", path: fmt.Sprintf("/v1/check-fence?lock=many-%d&fencing_token=%d", i, a.FencingToken)})
	}
	owner.freeze()
	frozen := time.Now()
	for _, p := range owner.zk {
		p.Stall() // it does not learn that its connections have ended
	}
	var asked sync.WaitGroup
	for i, q := range questions {
		asked.Go(func() {
			c := owner.direct(uint64(i))
			defer c.close()
			q.a = c.send(t.Context(), time.Minute, q.method, q.path, q.token, "", nil)
		})
	}
	beatMany(t, []*caller{other, w.gateways[2].direct(3)}, tokens, 30*time.Second)
	for i, token := range tokens {
		for {
			a := w.released(t, token)
			if a.status == http.StatusNoContent {
				break
			}
			assert.Must(t, a.again(), "a release is answered %d %s", a.status, a.Code)
			sleep(t.Context(), 50*time.Millisecond)
		}
		// The other one may have taken over; its queue is this one's a moment later.
		a := other.send(t.Context(), 20*time.Second, "POST", fmt.Sprintf("/v1/locks/many-%d/leases?ttl=1m&wait=15s", i), "", "", nil)
		assert.Must(t, a.State == "held", "an acquire after the takeover is answered %d %s", a.status, a.Code)
	}
	elapse(t, 3*sessionTimeout-time.Since(frozen))
	owner.thaw()
	asked.Wait()
	for _, p := range owner.zk {
		p.Heal()
	}
	answers := map[string]int{}
	for _, q := range questions {
		answers[fmt.Sprint(q.a.status, " ", q.a.Code)]++
		assert.That(t, !q.a.ok(),
			"%s %s is answered %d %s by a gateway whose leases were another one's: %s", q.method, q.path, q.a.status, q.a.State, q.a.body)
	}
	t.Logf("%d questions to a gateway that was frozen for %v are answered: %v", len(questions), time.Since(frozen).Round(time.Millisecond), answers)
}

// released releases at either of the gateways that are awake.
func (w *World) released(t *testing.T, token string) (a answer) {
	for _, g := range w.gateways[1:] {
		c := g.direct(9)
		a = c.send(t.Context(), 10*time.Second, "DELETE", "/v1/leases/self", token, "", nil)
		c.close()
		if !a.again() {
			return a
		}
	}
	return a
}

func allDown(t *testing.T, w *World) {
	outage := 15 * time.Second // longer than the TTL and the session timeout
	if full {
		outage = 2 * time.Minute
	}
	stop := w.crowd(t.Context(), 5, 0)
	defer stop()
	elapse(t, 2*time.Second)
	span := check.Span{Kind: "all servers down", From: w.now()}
	mend := assert.Value(w.killServers(0, 1, 2))(t)
	elapse(t, outage)
	ctx, cancel := context.WithTimeout(t.Context(), recovery)
	defer cancel()
	assert.Nil(t, mend(ctx))
	span.To = w.now()
	w.mended(span)
	w.count[span.Kind]++
	elapse(t, 2*time.Second)
	stop()
	w.verdict(t, fmt.Sprint("all servers down for ", outage))
}
