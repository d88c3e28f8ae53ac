package sim

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded/state"
)

// op is an operation of a lock from one second to another; 0 is never.
func op(holder string, a action, token, call, back int64) porcupine.Operation {
	if back == 0 {
		back = math.MaxInt64
	}
	return porcupine.Operation{Input: step{claim: claim{mode: exclusive}, action: a, lock: "l", holder: holder, token: token}, Call: call, Return: back}
}

// as is an operation of a client that wants the lock in another mode.
func as(c claim, o porcupine.Operation) porcupine.Operation {
	s := o.Input.(step)
	s.claim = c
	o.Input = s
	return o
}

func reader(o porcupine.Operation) porcupine.Operation { return as(claim{mode: shared}, o) }

func taking(n, limit int, o porcupine.Operation) porcupine.Operation {
	return as(claim{semaphore, n, limit}, o)
}

func TestTheModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	tests := []struct {
		name    string
		history []porcupine.Operation
		good    bool
	}{
		{"one after the other", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", keeps, 5, 3, 4), op("x", ends, 5, 5, 6),
			op("y", takes, 9, 4, 7), op("y", ends, 9, 8, 0)}, true},
		{"a release whose answer was lost, and the next holder is told before any other client learns of it", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", ends, 5, 3, 0), op("y", takes, 9, 3, 4), op("y", ends, 9, 5, 0)}, true},
		{"one that ended by time long after its client stopped counting", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", ends, 5, 10, 0), op("y", takes, 6, 30, 40), op("y", ends, 6, 50, 0)}, true},
		{"another program's, which has no token, between two leases", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", ends, 5, 3, 0), op("z", takes, 0, 4, 5), op("z", keeps, 0, 6, 7), op("z", ends, 0, 8, 0),
			op("y", takes, 6, 9, 10), op("y", ends, 6, 11, 0)}, true},
		{"two holders", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", ends, 5, 10, 0), op("y", takes, 9, 3, 4), op("y", ends, 9, 20, 0)}, false},
		{"two holders, one of them another program", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", ends, 5, 10, 0), op("z", takes, 0, 3, 4), op("z", ends, 0, 20, 0)}, false},
		{"a token that falls", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", ends, 5, 3, 0), op("y", takes, 4, 6, 7), op("y", ends, 4, 8, 0)}, false},
		{"a token that falls behind another program", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", ends, 5, 3, 0), op("z", takes, 0, 4, 5), op("z", ends, 0, 6, 0),
			op("y", takes, 5, 8, 9), op("y", ends, 5, 10, 0)}, false},
		{"a token that changes", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", keeps, 6, 3, 4), op("x", ends, 5, 5, 0)}, false},
		{"an old token that is accepted", []porcupine.Operation{
			op("x", takes, 5, 1, 2), op("x", ends, 5, 12, 0), op("y", takes, 9, 3, 4), op("y", ends, 9, 5, 0), op("x", keeps, 5, 8, 9)}, false},
		{"two readers", []porcupine.Operation{
			reader(op("x", takes, 5, 1, 2)), reader(op("x", ends, 5, 10, 0)), reader(op("y", takes, 4, 3, 4)), reader(op("y", ends, 4, 20, 0))}, true},
		{"a writer beside a reader", []porcupine.Operation{
			reader(op("x", takes, 5, 1, 2)), reader(op("x", ends, 5, 10, 0)), op("y", takes, 9, 3, 4), op("y", ends, 9, 20, 0)}, false},
		{"a writer whose token is below a reader's before it", []porcupine.Operation{
			reader(op("x", takes, 5, 1, 2)), reader(op("x", ends, 5, 3, 0)), op("y", takes, 4, 5, 6), op("y", ends, 4, 7, 0)}, false},
		{"permits within the limit", []porcupine.Operation{
			taking(1, 3, op("x", takes, 5, 1, 2)), taking(1, 3, op("x", ends, 5, 10, 0)), taking(2, 3, op("y", takes, 6, 3, 4)), taking(2, 3, op("y", ends, 6, 20, 0))}, true},
		{"permits beyond the limit", []porcupine.Operation{
			taking(2, 3, op("x", takes, 5, 1, 2)), taking(2, 3, op("x", ends, 5, 10, 0)), taking(2, 3, op("y", takes, 6, 3, 4)), taking(2, 3, op("y", ends, 6, 20, 0))}, false},
		{"a lowered limit is for later clients", []porcupine.Operation{
			taking(1, 3, op("x", takes, 5, 1, 2)), taking(1, 3, op("x", ends, 5, 10, 0)), taking(1, 3, op("y", takes, 6, 3, 4)), taking(1, 3, op("y", ends, 6, 20, 0)),
			taking(1, 1, op("z", takes, 7, 11, 25)), taking(1, 1, op("z", ends, 7, 26, 0))}, true},
		{"a lowered limit that does not count earlier holders", []porcupine.Operation{
			taking(1, 3, op("x", takes, 5, 1, 2)), taking(1, 3, op("x", ends, 5, 10, 0)), taking(1, 1, op("z", takes, 7, 3, 4)), taking(1, 1, op("z", ends, 7, 26, 0))}, false},
		{"a downgrade lets a reader in", []porcupine.Operation{
			op("x", takes, 5, 1, 2), reader(op("x", lowers, 5, 3, 0)), reader(op("y", takes, 6, 4, 5)), reader(op("x", keeps, 5, 6, 7)),
			reader(op("x", ends, 5, 10, 0)), reader(op("y", ends, 6, 20, 0))}, true},
		{"a reader that does not wait for the downgrade", []porcupine.Operation{
			op("x", takes, 5, 1, 2), reader(op("y", takes, 6, 3, 4)), reader(op("x", lowers, 5, 5, 0)), reader(op("x", ends, 5, 10, 0)), reader(op("y", ends, 6, 20, 0))}, false},
		{"a downgrade lets a writer in", []porcupine.Operation{
			op("x", takes, 5, 1, 2), reader(op("x", lowers, 5, 3, 0)), op("y", takes, 6, 4, 5), reader(op("x", ends, 5, 10, 0)), op("y", ends, 6, 20, 0)}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, checkModel(test.history) == porcupine.Ok, test.good, "accepted")
		})
	}
}

func TestTheModelSeesEachLockByItself(t *testing.T) {
	other := op("y", takes, 4, 3, 4)
	s := other.Input.(step)
	s.lock = "m"
	other.Input = s
	assert.Equal(t, checkModel([]porcupine.Operation{op("x", takes, 5, 1, 2), other}), porcupine.Ok, "two locks held by two clients")
}

// A client whose time is over may ask for a downgrade, and its gateway, which has heard it, grants that: nothing was left of what it counted on.
func TestADowngradeThatIsAskedForTooLateIsOneInTheModel(t *testing.T) {
	begun := time.Unix(0, 0)
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	counted := func(lease string, m mode, token int64, sent, from, until int) *belief {
		return &belief{claim: claim{mode: m}, lock: "l", lease: lease, held: true, token: token, sent: at(sent), from: at(from), until: at(until)}
	}
	for reader, good := range map[int]bool{5: true, 2: false} { // when another reader is let in: the first one counts on the lock alone until 3
		history := operations([]*belief{counted("x", exclusive, 5, 0, 1, 3), counted("x", shared, 5, 4, 8, 7), // the downgrade's answer, too late itself
			counted("y", shared, 6, reader-1, reader, 12), counted("x", shared, 5, 9, 10, 12)}, begun)
		assert.Equal(t, checkModel(history) == porcupine.Ok, good, "a reader at %d: accepted", reader)
	}
}

func TestADeletionOfUnreadDataIsNoticedUnlessTheLeaseHasEnded(t *testing.T) {
	for _, closed := range []bool{false, true} {
		a := newAudit(func(string, ...any) {})
		a.sessions[1] = "gw"
		a.stall("gw", func() bool { return true })
		c := &contender{path: "/lockkeeper/locks/a/x", by: 1, group: 1, member: 1, written: time.Now()}
		if closed {
			c.closed = time.Now()
		}
		if a.judge(c, 1); (len(a.unseen) == 0) != closed {
			t.Errorf("closed %v: %q", closed, a.unseen)
		}
	}
}

// A waiting lease's time is over in the moment in which it becomes the first by the names: its own gateway tells no grant, another
// one does. A lease that held for long was granted by its own gateway, and a grant that this one has told, all tell.
func TestALeaseThatExpiresWhileItIsGrantedIsToldInTwoWays(t *testing.T) {
	for _, test := range []struct {
		name            string
		own, other      bool // who tells the grant
		held            time.Duration
		contradictorily bool
	}{
		{"expired while it was granted", false, true, time.Millisecond, false},
		{"its gateway does not tell a grant", false, true, time.Minute, true},
		{"another gateway does not tell a grant", true, false, time.Millisecond, true},
		{"both tell it", true, true, time.Minute, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, ended := newAudit(func(string, ...any) {}), time.Now()
			a.lease["x"] = []*contender{{lease: "x", lock: "a", held: ended.Add(-test.held), gone: ended, endedBy: "gw0"}}
			tells := func(gateway string, grant bool) story {
				list := []telling{{kind: "lease.queued", who: "x", lock: "a", mode: "exclusive"}}
				if grant {
					list = append(list, telling{kind: "lease.granted", who: "x", lock: "a", mode: "exclusive"})
				}
				list = append(list, telling{kind: "lease.expired", who: "x", lock: "a", mode: "exclusive", reason: "expired"})
				return story{gateway: gateway, told: map[string][]telling{"a": list}, whole: true}
			}
			w := &world{audit: a, journal: &journal{begun: ended}}
			(&review{world: w}).checkStories([]story{tells("gw0", test.own), tells("gw1", test.other)})
			assert.Equal(t, len(w.violations) > 0, test.contradictorily, "refused: %q", w.violations)
		})
	}
}

// The nodes of a session go in one transaction, and watches tell their ends one by one.
func TestALeaseOfSeveralLocksIsGlimpsedWhereItLeadsInEachOfThem(t *testing.T) {
	for _, first := range []bool{true, false} { // it leads in a, too
		a := newAudit(func(string, ...any) {})
		a.sessions[1] = "gw"
		path := func(lock, lease, group string, n int) string {
			return fmt.Sprintf("%s/%s/write-v1.%s.e%s-lock-%010d", lockRoot, lock, lease, group, n)
		}
		creates, deletes := &state.Txn{Session: 1, Zxid: 1}, &state.Txn{Session: 1, Zxid: 2}
		of := map[bool][]string{true: {}, false: {path("a", "y", "", 0)}}[first]
		gone := []string{path("b", "x", "", 0), path("a", "z", ".g1of2", 1), path("b", "z", ".g2of2", 1)}
		for _, p := range append(of, gone...) {
			creates.Ops = append(creates.Ops, state.TxnOp{Kind: state.TxnCreate, Path: p})
		}
		for _, p := range gone {
			deletes.Ops = append(deletes.Ops, state.TxnOp{Kind: state.TxnDelete, Path: p})
		}
		a.commit(creates)
		a.commit(deletes)
		assert.Equal(t, a.glimpsed("z"), first, "events may show that it holds")
	}
}

// Plans with a second namespace have to show something: in each dialect leases and another program hold its lock in turns, also
// where it is added in mid-run.
func TestLeasesAndAnotherProgramHoldInTheSecondNamespace(t *testing.T) {
	want := map[Space]bool{}
	for _, dialect := range []string{"curator-rw", "kazoo", "all"} {
		for _, late := range []bool{false, true} {
			want[Space{Dialect: dialect, By: map[bool]int{true: 1}[late]}] = true
		}
	}
	for seed := uint64(1); len(want) > 0 && seed < 300; seed++ {
		plan := NewPlan(seed)
		kind := Space{Dialect: plan.Space.Dialect}
		if plan.Space.After > 0 {
			kind.By = 1
		}
		if !want[kind] || plan.Gateways < 2 {
			continue
		}
		out := Run(t, plan)
		if len(out.Violations) > 0 {
			report(t, plan, out)
		}
		t.Logf("seed %d, %+v: %d grants, %+v in it", seed, plan.Space, out.Grants, out.Elsewhere)
		if out.Elsewhere.Ours > 0 && out.Elsewhere.Theirs > 0 {
			delete(want, kind)
		}
	}
	assert.That(t, len(want) <= 0, "no seed shows anything of %+v", slices.Collect(maps.Keys(want)))
}

var (
	hookSeeds = flag.Int("sim.hooks", 12, "how many plans with webhooks are carried out")
	hookFirst = flag.Uint64("sim.hooks.first", 7_000, "the first of their seeds")
)

// Promise 7, in random weather: every subscription is told of the end of a held lease.
func TestEveryEndIsDeliveredToItsSubscribers(t *testing.T) {
	tellings := 0
	for seed := range *hookSeeds {
		plan := NewPlan(*hookFirst + uint64(seed))
		plan.Hooks = 1 + seed%3
		out := Run(t, plan)
		tellings += out.Tellings
		for _, v := range out.Violations {
			t.Errorf("seed %d: %s", plan.Seed, v)
		}
		if t.Failed() {
			t.Logf("%s\n%s", plan, out.Text())
			return
		}
	}
	assert.That(t, tellings >= 20**hookSeeds, "%d ends were to be told: nothing is shown", tellings)
	t.Logf("%d ends were told", tellings)
}

// Rotations of the fleet's secret, one after another in random weather: no token of a living lease is refused.
func TestNoLeaseIsLostByRotations(t *testing.T) {
	rotations := 0
	for seed := range *rotateSeeds {
		plan := NewPlan(*rotateFirst + uint64(seed))
		plan.Rotate = true
		out := Run(t, plan)
		rotations += out.Rotations
		for _, v := range out.Violations {
			t.Errorf("seed %d: %s", plan.Seed, v)
		}
		if t.Failed() {
			t.Logf("%s\n%s", plan, out.Text())
			return
		}
	}
	assert.That(t, rotations >= 2**rotateSeeds, "%d rotations: nothing is shown", rotations)
	t.Logf("%d rotations", rotations)
}

var (
	rotateSeeds = flag.Int("sim.rotate", 8, "how many plans with rotations are carried out")
	rotateFirst = flag.Uint64("sim.rotate.first", 8_000, "the first of their seeds")
)

// The end of a lease that has a notify_url is told to it, waiting or held, in random weather.
func TestEveryEndIsDeliveredToItsNotifyURL(t *testing.T) {
	const seeds = 5
	tellings := 0
	for seed := range uint64(seeds) {
		plan := NewPlan(7_500 + seed)
		plan.Hooks, plan.Notify = 1, true
		out := Run(t, plan)
		tellings += out.Tellings
		for _, v := range out.Violations {
			t.Errorf("seed %d: %s", plan.Seed, v)
		}
		if t.Failed() {
			t.Logf("%s\n%s", plan, out.Text())
			return
		}
	}
	assert.That(t, tellings >= 10*seeds, "%d ends were to be told: nothing is shown", tellings)
	t.Logf("%d ends were told", tellings)
}

func TestASleepOfAGatewayIsNoTimeThatAClientWaited(t *testing.T) {
	e := newExemptions(nil)
	before := time.Now()
	e.hasten(2 * time.Second)
	after := time.Now()
	assert.Equal(t, e.asleep(before, after), 2*time.Second, "a request during the sleep")
	assert.Equal(t, e.asleep(after.Add(1), after.Add(time.Hour)), 0, "a request after it")
	assert.Equal(t, e.asleep(before.Add(-time.Hour), before.Add(-1)), 0, "a request before it")
}
