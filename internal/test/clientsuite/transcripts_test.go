package clientsuite

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"lockkeeper/internal/test/assert"
)

// transcript is one case of the contract. Its play starts the call with scene.start.
type transcript struct {
	name     string
	gateways int // 1 unless given
	play     func(*scene)
}

var transcripts = slices.Concat(failures, keeps, waits, acquires, onces, endings, credentials) // those that take longest first

func TestEachClientKeepsTheContract(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			// Its environment cannot be used; all cases but one give what they need with the command.
			d := driverT(t, l.make(t, t.TempDir()), "LOCKKEEPER_URL=http://127.0.0.1:1", "LOCKKEEPER_TOKEN=a", "LOCKKEEPER_TOKEN_FILE=b")
			// What a virtual machine does only once is done before times are looked at.
			transcript{name: "warm up", play: func(s *scene) { s.start(ttl(time.Minute)); s.hold() }}.run(t, d)
			turns := semaphore.NewWeighted(atOnce)
			for _, c := range transcripts {
				t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
					t.Parallel()
					// On a machine that is busy a request may come so late that its time says nothing.
					for range 2 {
						var said string
						taking(t, turns, 1, func() { said = judged(t, func(t testing.TB) { c.run(t, d) }) })
						if said == "" {
							return
						}
						t.Logf("once more: %s", said)
					}
					taking(t, turns, atOnce, func() { c.run(t, d) }) // alone
				})
			}
		})
	}
}

// atOnce is how many cases one driver plays at a time. More of them would delay each other where processors are few.
const atOnce = 16

// taking waits for n of the turns, and has them while it runs something.
func taking(t *testing.T, turns *semaphore.Weighted, n int64, run func()) {
	assert.Must(t, turns.Acquire(t.Context(), n) == nil, "the test has ended")
	defer turns.Release(n)
	run()
}

// run plays the case, and checks what holds in each.
func (c transcript) run(t testing.TB, d *Driver) {
	s := newScene(t, d, max(c.gateways, 1))
	c.play(s)
	s.must(len(s.seen) > 0 && s.seen[len(s.seen)-1].last(), "the case is over, and the call is not")
	s.checkAlways()
}

const apiToken = "secret-of-the-api"

// start starts the call: of the lock report, with a TTL of 3 s, waiting for as long as it takes.
func (s *scene) start(changes ...func(*Lock)) {
	l := Lock{URL: s.urls(), Token: apiToken, Locks: []Wanted{{Lock: "report"}}, TTL: s.ttl.Milliseconds(), Owner: "w1"}
	for _, change := range changes {
		change(&l)
	}
	s.ttl = time.Duration(l.TTL) * time.Millisecond
	s.call = s.driver.lock(l)
}

func ttl(d time.Duration) func(*Lock)    { return func(l *Lock) { l.TTL = d.Milliseconds() } }
func wait(d time.Duration) func(*Lock)   { return func(l *Lock) { l.Wait = new(d.Milliseconds()) } }
func margin(d time.Duration) func(*Lock) { return func(l *Lock) { l.Margin = new(d.Milliseconds()) } }
func forMS(n int64) func(*Lock)          { return func(l *Lock) { l.Work.For = &n } }

var try = wait(0)

// hold lets the work begin and go on for a moment, and end with success.
func (s *scene) hold() {
	s.t.Helper()
	s.event("started")
	s.call.finish()
	s.done()
	s.released()
}

// checkAlways checks what holds in each case: who carries which secret, and that nothing is asked after the end.
func (s *scene) checkAlways() {
	s.t.Helper()
	end := s.seen[len(s.seen)-1].At
	time.Sleep(300 * time.Millisecond) // for a request that must not come
	s.mu.Lock()
	asked := slices.Clone(s.asked)
	s.mu.Unlock()
	for _, x := range asked {
		what := x.method + " " + x.path
		s.must(!x.at.After(end.Add(50*time.Millisecond)), "%s was asked %v after the call had ended", what, x.at.Sub(end))
		lease, authorization := x.header.Get("Lease-Token"), x.header.Get("Authorization")
		switch x.kind {
		case acquire:
			s.must(len(x.header.Get("Idempotency-Key")) >= 22, "the idempotency key of %s, %q, must have 128 random bits", what, x.header.Get("Idempotency-Key"))
			fallthrough
		case look:
			s.must(lease == "", "%s carries a lease token", what)
			s.must(authorization == "" || strings.HasPrefix(authorization, "Bearer "), "%s carries %q", what, authorization)
		case poll, heartbeat, release:
			s.must(lease == s.token, "%s carries the lease token %q, not %q", what, lease, s.token)
			s.must(authorization == "", "%s carries the API token beside the lease token", what)
		default:
			s.failf("%s is not what a client asks", what)
		}
		s.must(!strings.Contains(authorization, s.token), "%s carries the lease token as its authorization", what)
		s.must(!strings.Contains(x.path+x.query.Encode(), "secret-of"), "%s has a secret in its URL", what)
	}
}

// keys are the different idempotency keys of the acquires.
func (s *scene) keys() []string {
	var keys []string
	for _, x := range s.all(acquire) {
		if k := x.header.Get("Idempotency-Key"); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}
