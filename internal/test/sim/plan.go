package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Plan is everything that decides a run.
type Plan struct {
	Seed     uint64
	Gateways int
	// Servers is how many ZooKeeper servers there are; one is the leader.
	Servers int
	// LocalSessions says that followers begin sessions by themselves: an observer may read what is older than its connection.
	LocalSessions bool
	// Clients are the numbers of the clients that take part; each number has its own random life. Foreign clients, which lock
	// by the recipe of Curator, are numbered from 100 on.
	Clients []int
	Faults  []Fault
	Space   Space
	// Hooks is how many webhooks there are, each subscribed at some time: see hooks.go.
	Hooks int
	// Notify says that some leases have a notify_url: see notify.go. Needs Hooks.
	Notify bool
	// Rotate says that the fleet's secret is rotated all the time: see rotations.go.
	Rotate bool
	// Length is how long there are new requests and faults. Then the weather clears up.
	Length time.Duration
}

// Fault is one misfortune.
type Fault struct {
	At   time.Duration
	Kind Kind
	// Arg chooses the target, and For is how long it lasts.
	Arg uint64
	For time.Duration
}

// NewPlan draws a plan.
func NewPlan(seed uint64) Plan { return newPlan(seed, (*Plan).forecast) }

func newPlan(seed uint64, forecast func(*Plan, *rand.Rand)) Plan {
	random := rand.New(rand.NewPCG(seed, 7))
	p := Plan{Seed: seed, Gateways: 1 + random.IntN(3), Servers: 1 + 2*random.IntN(2), Length: time.Duration(30+random.IntN(60)) * time.Second}
	for i := range 4 + random.IntN(8) {
		p.Clients = append(p.Clients, i)
	}
	for i := range random.IntN(3) {
		p.Clients = append(p.Clients, foreignFrom+i)
	}
	forecast(&p, random)
	p.quarrels(rand.New(rand.NewPCG(seed, 9)))
	// Of its own source, so that everything else is as it was before there was this.
	p.LocalSessions = p.Servers > 1 && rand.New(rand.NewPCG(seed, 8)).IntN(3) == 0
	p.drawSpace()
	p.drawBookings()
	slices.SortFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	return p
}

// quarrels draws, for some runs that are not calm, times at which gateways do not hear each other. It has a source of its own, so
// that everything else is as it was before there was this.
func (p *Plan) quarrels(random *rand.Rand) {
	if p.Gateways < 2 || len(p.Faults) == 0 || random.IntN(3) > 0 {
		return
	}
	for range 1 + random.IntN(4) {
		p.Faults = append(p.Faults, Fault{At: time.Duration(random.Int64N(int64(p.Length))), Kind: PartPeers + Kind(random.IntN(2)), Arg: random.Uint64(),
			For: time.Duration(random.ExpFloat64() * float64(5*time.Second))})
	}
}

// String is the plan as Go code, to be kept as a test.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Plan{Seed: %d, Gateways: %d, Servers: %d, LocalSessions: %v, Length: %d, Clients: []int{",
		p.Seed, p.Gateways, p.Servers, p.LocalSessions, p.Length)
	for i, c := range p.Clients {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, c)
	}
	fmt.Fprintf(&b, "}, Space: %#v, Hooks: %d, Notify: %t, Rotate: %t, Faults: []Fault{", p.Space, p.Hooks, p.Notify, p.Rotate)
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "\n\t{At: %d, Kind: %v, Arg: %#x, For: %d}, // at %v for %v", f.At, f.Kind, f.Arg, f.For, f.At, f.For)
	}
	b.WriteString("\n}}")
	return b.String()
}
