package sim

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"lockkeeper/internal/test/zktest"
)

// Numbers of clients that are not like the others.
const (
	bookerFrom   = 40  // takes reservations
	leaverFrom   = 50  // takes tickets and asks no more
	foreignFrom  = 100 // another program
	spaceFrom    = 120 // the same in the second namespace, where it knows the names of the dialect alone
	likenessFrom = 150 // another program whose contenders look like those of a gateway
	watcherFrom  = 200 // follows the events
	adminFrom    = 250 // asks holders to let go, and takes locks away
)

// lockNames are few, so that they are contended for.
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
	// Rotations counts the keys that the fleet's secret has had.
	Rotations int
	// Tellings counts the ends that webhooks were to be told of.
	Tellings int
	// Answers counts the answers that clients got, by status.
	Answers map[int]int
	// Virtual is how long the run took in the world's own time.
	Virtual time.Duration
	// Undecided: the model found no answer in its time.
	Undecided bool

	operations []porcupine.Operation
}

// world is a run under way.
type world struct {
	plan Plan
	// scripted: a script decides what happens, and the plan says nothing of it.
	scripted bool
	// The gateways' session timeout and promise window. Where the window is the longer one a gateway may still answer when its
	// session has expired and others take its leases over.
	timeout, window time.Duration
	zk              *zktest.Ensemble
	clearing        atomic.Bool // no new requests

	*journal
	audit      *audit
	gateways   *gateways
	beliefs    *beliefs
	exemptions *exemptions
	ledger     *ledger
	receivers  *receivers
	rotations  int // of checkRotated
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
	for i := range plan.Gateways {
		w.startGateway(i)
		time.Sleep(700*time.Millisecond + time.Duration(i)*time.Nanosecond)
	}
	var clients sync.WaitGroup
	for _, number := range plan.Clients {
		clients.Go(func() { w.live(number) })
	}
	for number := range plan.Hooks {
		clients.Go(func() { w.subscribe(number) })
	}
	if plan.Rotate {
		clients.Go(w.rotate)
	}
	weather := &weather{w: w}
	weather.run()
	time.Sleep(time.Until(w.begun.Add(plan.Length)))
	weather.clear()
	w.clearing.Store(true)
	clients.Wait()
	w.trace("all clients have left")
	w.checkStuck()
	w.checkLitter()
	w.checkRotated()
	return w.end()
}

// newWorld is a world in which nothing runs but ZooKeeper.
func newWorld(t *testing.T, plan Plan) *world {
	timing := []struct{ timeout, window time.Duration }{{4 * time.Second, 2 * time.Second}, {2 * time.Second, 5 * time.Second},
		{4 * time.Second, 5 * time.Second}, {2 * time.Second, 2 * time.Second}}[plan.Seed%4]
	w := &world{plan: plan, timeout: timing.timeout, window: timing.window,
		journal:  &journal{begun: time.Now(), answers: make(map[int]int)},
		gateways: newGateways(plan.Gateways), beliefs: newBeliefs(), ledger: newLedger()}
	w.zk = zktest.Start(t, zktest.Config{Seed: plan.Seed, Followers: plan.Servers - 1, LocalSessions: plan.LocalSessions})
	w.audit = newAudit(w.trace)
	w.exemptions = newExemptions(w.audit)
	w.receivers = newReceivers(w)
	w.zk.OnCommit(w.audit.commit)
	return w
}

// end lets all gateways leave and says what the run has shown.
func (w *world) end() Outcome {
	stories := w.gateways.end()
	r := review{w, w.beliefs.list()}
	r.checkStories(stories)
	r.checkBeliefs()
	r.checkAudit()
	r.checkTold()
	r.checkNotified()
	w.mu.Lock() // gateways that leave write to the journal from goroutines of their own
	defer w.mu.Unlock()
	out := Outcome{Violations: w.violations, History: w.lines, Answers: w.answers, Virtual: time.Since(w.begun), Tellings: w.receivers.tellings, Rotations: w.rotations,
		operations: operations(r.beliefs, w.begun)}
	for _, b := range r.beliefs {
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
	if number >= foreignFrom && number < watcherFrom {
		newForeign(w, number).live()
		return
	}
	c := newClient(w, number)
	defer c.close()
	switch {
	case number >= adminFrom:
		c.administrate()
	case number >= watcherFrom:
		c.watch()
	case number >= leaverFrom:
		c.leaveTickets()
	case number >= bookerFrom:
		c.liveBooking()
	default:
		c.live()
	}
}

// random is a source of its own for a client, or another part with a number.
func (w *world) random(number int) *rand.Rand {
	return rand.New(rand.NewPCG(w.plan.Seed, 1<<32+uint64(number)))
}

// Text is the history as one text.
func (o Outcome) Text() string { return strings.Join(o.History, "\n") + "\n" }
