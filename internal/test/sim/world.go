package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"lockkeeper/internal/test/zktest"
)

// Numbers of clients that are not like the others.
const (
	leaverFrom   = 50  // takes tickets and is never heard of again
	foreignFrom  = 100 // another program
	spaceFrom    = 120 // the same in the second namespace, where it knows the names of the dialect alone
	likenessFrom = 150 // another program whose contenders look like those of a gateway
	watcherFrom  = 200 // follows the events
	adminFrom    = 250 // asks holders to let go, and takes locks away
)

// locksNames are few, so that they are contended for.
var lockNames = []string{"a", "b", "c"}

// Outcome is what a run has shown.
type Outcome struct {
	// Violations are broken promises; none is what we want.
	Violations []string
	// History is what happened, line by line.
	History []string
	// Grants counts how often a client held a lock: a run without any shows nothing.
	Grants int
	// Elsewhere counts those in the second namespace: gateways' leases, and other programs'.
	Elsewhere struct{ Ours, Theirs int }
	// Tellings counts the ends that webhooks were to be told of.
	Tellings int
	// Answers counts the answers that clients got, by status.
	Answers map[int]int
	// Virtual is how long the run took in the world's own time.
	Virtual time.Duration
	// Undecided says that the model could not be asked within its time.
	Undecided bool

	operations []porcupine.Operation
}

// world is a run under way.
type world struct {
	plan  Plan
	begun time.Time
	// scripted: a script does what it does, of which the plan knows nothing.
	scripted bool
	// The gateways' session timeout and promise window. Where the window is the longer one a gateway may still answer when its
	// session has expired and others take its leases over.
	timeout, window time.Duration
	zk              *zktest.Ensemble
	audit           *audit

	deafening sync.Mutex // held by a fault during which a gateway hears nothing

	mu            sync.Mutex
	lines         []string
	violations    []string
	answers       map[int]int
	beliefs       []*belief
	excused       map[string]bool // leases that somebody else than a gateway has ended, or was to
	interventions []*intervention
	withdrawals   []*withdrawal
	asleep        map[string]time.Time // by gateway: when its machine woke
	configured    map[string]bool      // locks whose settings somebody may have set
	freed         map[string]bool      // leases that their own clients have let go
	terms         map[string]terms     // of leases with a lock delay
	jumps         []jump               // of gateways' clocks
	repeated      map[string]time.Time // when attempts were last repeated, by their owner
	keyed         map[string]bool      // attempts with an idempotency key, by their owner
	revoked       []string             // contenders whose data somebody has overwritten
	tickets       []string             // leases of clients that have gone away
	granted       map[string]time.Time // contenders of which an event has told that they hold
	forwarded     map[string]string    // who answered a request that was sent on, by its id
	gateways      []*gateway           // by number; its present life
	lived         []*gateway           // every life that there was
	lives         []int
	hooks         hooks
	notified      map[string]*notified // by lease
	tellings      int                  // ends that webhooks were to be told of
	clearing      bool                 // no new requests
}

// Run carries a plan out. It must not be called inside a bubble, nor from parallel tests.
func Run(t *testing.T, plan Plan) (out Outcome) {
	t.Helper()
	defer steady()()
	cryptotest.SetGlobalRandom(t, plan.Seed)
	synctest.Test(t, func(t *testing.T) { out = run(t, plan) })
	out.judge()
	return out
}

func run(t *testing.T, plan Plan) Outcome {
	w := newWorld(t, plan)
	for i := range w.gateways {
		w.gateways[i] = w.startGateway(i)
		time.Sleep(700*time.Millisecond + time.Duration(i)*time.Nanosecond)
	}
	var clients sync.WaitGroup
	for _, number := range plan.Clients {
		clients.Go(func() { w.live(number) })
	}
	for number := range plan.Hooks {
		clients.Go(func() { w.subscribe(number) })
	}
	w.weather()
	time.Sleep(time.Until(w.begun.Add(plan.Length)))
	w.clear()
	w.mu.Lock()
	w.clearing = true
	w.mu.Unlock()
	clients.Wait()
	w.trace("all clients have left")
	w.checkStuck()
	w.checkLitter()
	return w.end()
}

// newWorld is a world in which nothing runs but ZooKeeper.
func newWorld(t *testing.T, plan Plan) *world {
	timing := []struct{ timeout, window time.Duration }{{4 * time.Second, 2 * time.Second}, {2 * time.Second, 5 * time.Second},
		{4 * time.Second, 5 * time.Second}, {2 * time.Second, 2 * time.Second}}[plan.Seed%4]
	w := &world{plan: plan, begun: time.Now(), answers: make(map[int]int), excused: make(map[string]bool), freed: make(map[string]bool),
		asleep: make(map[string]time.Time), configured: make(map[string]bool), terms: make(map[string]terms), keyed: make(map[string]bool),
		repeated: make(map[string]time.Time), granted: make(map[string]time.Time), forwarded: make(map[string]string), timeout: timing.timeout, window: timing.window,
		gateways: make([]*gateway, plan.Gateways), lives: make([]int, plan.Gateways)}
	w.zk = zktest.Start(t, zktest.Config{Seed: plan.Seed, Followers: plan.Servers - 1, LocalSessions: plan.LocalSessions})
	w.audit = newAudit(w.trace)
	w.zk.OnCommit(w.audit.commit)
	return w
}

// end lets all gateways leave and says what the run has shown.
func (w *world) end() Outcome {
	for _, g := range w.lived {
		if g.isGone() {
			g.died.Store(true)
		}
	}
	for _, g := range w.gateways {
		if g.claimEnd() {
			g.leave()
		}
	}
	for _, g := range w.gateways {
		<-g.ended
	}
	time.Sleep(time.Minute) // what was cut off comes to its end
	var stories []story
	for _, g := range w.lived {
		<-g.ended
		stories = append(stories, g.remember())
	}
	w.checkStories(stories)
	w.checkBeliefs()
	w.checkAudit()
	w.checkTold()
	w.checkNotified()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := Outcome{Violations: w.violations, History: w.lines, Answers: w.answers, Virtual: time.Since(w.begun), Tellings: w.tellings,
		operations: w.operations()}
	for _, b := range w.beliefs {
		if b.held {
			out.Grants++
		}
		if b.held && b.lock == spaceLock && b.foreign {
			out.Elsewhere.Theirs++
		} else if b.held && b.lock == spaceLock {
			out.Elsewhere.Ours++
		}
	}
	return out
}

// live is one client's life.
func (w *world) live(number int) {
	switch {
	case number >= adminFrom:
		c := newClient(w, number)
		defer c.close()
		c.administrate()
		return
	case number >= watcherFrom:
		newClient(w, number).watch()
		return
	case number >= foreignFrom:
		newForeign(w, number).live()
		return
	}
	c := newClient(w, number)
	defer c.close()
	if number >= leaverFrom {
		c.leaveTickets()
		return
	}
	c.live()
}

// random is a source of its own for a client or whatever else has a number.
func (w *world) random(number int) *rand.Rand {
	return rand.New(rand.NewPCG(w.plan.Seed, 1<<32+uint64(number)))
}

// trace adds a line to the history.
func (w *world) trace(format string, args ...any) {
	line := fmt.Sprintf("%12.6f ", time.Since(w.begun).Seconds()) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

// violate notes a broken promise.
func (w *world) violate(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	w.trace("VIOLATION: %s", what)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, what)
}

func (w *world) isClearing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clearing
}

// excuse says that the lease of a contender may go without its gateway having to keep it.
func (w *world) excuse(path string) {
	lease := w.audit.leaseOf(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused[lease] = true
}

// living are the gateways that have not been killed or told to leave.
func (w *world) living() []*gateway {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.gateways), func(g *gateway) bool { return g.gone })
}

// pick chooses a gateway to ask.
func (w *world) pick(random *rand.Rand) *gateway {
	all := w.living()
	if len(all) == 0 {
		return nil
	}
	return all[random.IntN(len(all))]
}

func (w *world) count(r *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[r.StatusCode]++
}

// Text is the history as one text.
func (o Outcome) Text() string { return strings.Join(o.History, "\n") + "\n" }
