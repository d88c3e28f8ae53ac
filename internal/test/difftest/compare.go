package difftest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Pair is two servers that ought to behave alike.
type Pair struct {
	A, B Target
}

// roots counts the scenarios of this process: no two may have one root.
var roots atomic.Int64

// Difference is where two servers part.
type Difference struct {
	Scenario Scenario
	Step     int
	A, B     Target
	InA, InB Transcript
	// ErrA and ErrB say where a server stopped answering.
	ErrA, ErrB error
}

// Compare plays a scenario on both servers. The difference is nil when the clients cannot tell them apart; an error is a server
// that does not answer or answers with what is no frame.
func (p *Pair) Compare(s Scenario) (*Difference, error) {
	root := fmt.Sprintf("/d%06d", roots.Add(1)) // the same on both, so that sizes are, too
	var wg sync.WaitGroup
	var inA, inB Transcript
	var errA, errB error
	wg.Go(func() { inA, errA = Play(p.A, root, s) })
	wg.Go(func() { inB, errB = Play(p.B, root, s) })
	wg.Wait()
	for i := range s.Steps {
		if !slices.Equal(at(inA, i), at(inB, i)) || i >= len(inA) != (i >= len(inB)) {
			return &Difference{Scenario: s, Step: i, A: p.A, B: p.B, InA: inA, InB: inB, ErrA: errA, ErrB: errB}, nil
		}
	}
	if errA != nil || errB != nil {
		return nil, fmt.Errorf("%w%w\n%v", orNothing(errA), orNothing(errB), s)
	}
	return nil, nil
}

func at(t Transcript, i int) []string {
	if i < len(t) {
		return t[i]
	}
	return nil
}

type nothing struct{}

func (nothing) Error() string { return "" }

func orNothing(err error) error {
	if err == nil {
		return nothing{}
	}
	return err
}

// String shows both transcripts up to the first difference.
func (d *Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s and %s differ at step %d of %s\n", d.A.Name, d.B.Name, d.Step, d.Scenario.Name)
	for i, step := range d.Scenario.Steps[:d.Step+1] {
		fmt.Fprintf(&b, "%3d  %v\n", i, step)
		inA, inB := at(d.InA, i), at(d.InB, i)
		for j := range max(len(inA), len(inB)) {
			a, other := lineOf(inA, j), lineOf(inB, j)
			if a == other {
				fmt.Fprintf(&b, "         %s\n", a)
				continue
			}
			fmt.Fprintf(&b, "     !!  %s: %s\n     !!  %s: %s\n", d.A.Name, a, d.B.Name, other)
		}
	}
	for _, err := range []error{d.ErrA, d.ErrB} {
		if err != nil {
			fmt.Fprintf(&b, "     !!  %v\n", err)
		}
	}
	return b.String()
}

func lineOf(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// Shrink drops steps as long as the servers still differ, at most so many attempts, and none after one that ends in an error:
// a server that does not answer takes its time.
func (p *Pair) Shrink(d *Difference, attempts int) *Difference {
	best := *d
	best.Scenario.Steps = best.Scenario.Steps[:best.Step+1]
	// try keeps a smaller scenario if it still shows a difference, up to that.
	try := func(steps []Step) bool {
		attempts--
		smaller, err := p.Compare(Scenario{Name: d.Scenario.Name, Steps: steps})
		if err != nil {
			attempts = 0
		}
		if err != nil || smaller == nil {
			return false
		}
		best = *smaller
		best.Scenario.Steps = best.Scenario.Steps[:best.Step+1]
		return true
	}
	for size := len(best.Scenario.Steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size < len(best.Scenario.Steps) && attempts > 0; {
			if !try(slices.Concat(best.Scenario.Steps[:from], best.Scenario.Steps[from+size:])) {
				from += size
			}
		}
	}
	for i := 0; i < len(best.Scenario.Steps); i++ { // then requests that are sent together
		for j := 0; i < len(best.Scenario.Steps) && attempts > 0; {
			send, ok := best.Scenario.Steps[i].Action.(Send)
			if !ok || len(send) < 2 || j >= len(send) {
				break
			}
			steps := slices.Clone(best.Scenario.Steps)
			steps[i].Action = slices.Concat(send[:j], send[j+1:])
			if !try(steps) {
				j++
			}
		}
	}
	return &best
}
