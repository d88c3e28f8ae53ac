package clientsuite

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// plan is what happens to the workers of one run. It is a function of the seed.
type plan struct {
	seed    uint64
	workers int
	ttl     time.Duration
	faults  []fault // in the order of their times
}

// fault is something that is done to one worker, and undone.
type fault struct {
	at, length time.Duration
	kind       string
	worker     int // the one that works at that time where there is one, for atWork
	atWork     bool
	delay      time.Duration // of slow
}

// The kinds of faults.
const (
	killed  = "killed"
	frozen  = "frozen"
	cut     = "cut off"          // from all gateways: connections are refused
	cutHalf = "cut off from one" // gateway
	silent  = "in silence"       // nothing gets through, nothing ends
	unheard = "unheard"          // its requests are swallowed
	unseen  = "without answers"  // its requests are done, the answers are swallowed
	slow    = "slow"             // in both directions
)

// kinds has each kind as often as it is to be drawn.
var kinds = []string{killed, killed, frozen, frozen, frozen, frozen, cut, cutHalf, silent, silent, unheard, unseen, slow, slow}

const (
	runFor    = 7 * time.Second
	lastFault = runFor - 2*time.Second
)

func planOf(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 21))
	p := plan{seed: seed, workers: 2 + rng.IntN(2), ttl: 1500*time.Millisecond + upTo(rng, 1500*time.Millisecond)}
	for range 3 + rng.IntN(3) {
		f := fault{
			at: 500*time.Millisecond + upTo(rng, lastFault), kind: kinds[rng.IntN(len(kinds))],
			worker: rng.IntN(p.workers), atWork: rng.IntN(10) < 7, delay: 20*time.Millisecond + upTo(rng, 600*time.Millisecond),
		}
		// Shorter than the TTL, or longer.
		f.length = p.ttl/10 + upTo(rng, p.ttl*6/10)
		if rng.IntN(2) == 0 {
			f.length = p.ttl + p.ttl/5 + upTo(rng, p.ttl)
		}
		p.faults = append(p.faults, f)
	}
	slices.SortFunc(p.faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return p
}

// next is the command for a worker's next work.
func (p plan) next(rng *rand.Rand, lock, log string) Lock {
	length := (100*time.Millisecond + upTo(rng, 2*time.Second)).Milliseconds()
	if rng.IntN(2) == 0 {
		length += 2 * p.ttl.Milliseconds() // it is at work when its lease is lost
	}
	l := Lock{Locks: []Wanted{{Lock: lock}}, TTL: p.ttl.Milliseconds(), Work: Work{Log: log, Step: 20, For: &length}}
	switch n := rng.IntN(10); {
	case n < 3:
		l.Wait = new((500*time.Millisecond + upTo(rng, 4*time.Second)).Milliseconds())
	case n < 4:
		l.Wait = new(int64) // a try
	}
	return l
}

func (f fault) String() string {
	return fmt.Sprintf("%4d ms: worker %d (at work: %v) %s for %d ms", f.at.Milliseconds(), f.worker, f.atWork, f.kind, f.length.Milliseconds())
}
