package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Fault is something that is broken at a time, and mended.
type Fault struct {
	At     time.Duration
	Kind   string
	Target int           // which gateway, or server where the kind does not say which
	For    time.Duration // until it is mended; being well again may take longer
}

func (f Fault) String() string {
	return fmt.Sprintf("%6.1fs %-22s %d for %v", f.At.Seconds(), f.Kind, f.Target, f.For)
}

// Between two bursts it is calm for so long that what a silent client has left must be gone, and its locks be free for a
// moment: the longest TTL, twice, for a ticket, and what a crash adds.
const (
	longestTTL = 10 * time.Second
	calm       = 2*longestTTL + sessionTimeout + promiseWindow + 6*time.Second
	burst      = 90 * time.Second
	firstCalm  = longestTTL + 5*time.Second // nothing has failed yet: silent clients' leases end by their own clock
)

// Plan is a function of seed and duration: bursts of faults, and calm between them. Kinds come in turn, in an order of the
// seed's, so that none is left out by chance; now and then two at once.
func Plan(seed uint64, duration time.Duration) []Fault {
	rng := rand.New(rand.NewPCG(seed, seed))
	var plan []Fault
	var bag []int
	draw := func() kind {
		if len(bag) == 0 {
			bag = rng.Perm(len(kinds))
		}
		k := kinds[bag[0]]
		bag = bag[1:]
		return k
	}
	fault := func(at time.Duration) Fault {
		k := draw()
		length := k.least + time.Duration(rng.Int64N(int64(k.most-k.least)+1))
		return Fault{At: at, Kind: k.name, Target: rng.IntN(3), For: length.Round(100 * time.Millisecond)}
	}
	for at := firstCalm; at+calm+10*time.Second < duration; at += calm {
		for end := min(at+burst, duration-calm); at < end; {
			f := fault(at)
			plan = append(plan, f)
			length := f.For
			if rng.IntN(4) == 0 { // a second one while the first one lasts
				f = fault(min(at+time.Duration(rng.Int64N(int64(f.For)+1)).Round(100*time.Millisecond), end))
				plan = append(plan, f)
				length = max(length, f.At+f.For-at)
			}
			at += length + time.Second + time.Duration(rng.Int64N(int64(4*time.Second))).Round(100*time.Millisecond)
		}
	}
	return plan
}
