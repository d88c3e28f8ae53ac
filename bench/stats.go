package main

import (
	"cmp"
	"slices"
	"time"
)

// spread is one figure over all rounds.
type spread struct{ median, least, greatest float64 }

// over takes the figure of each round. Of an even number of rounds the median is the mean of the middle two.
func over(rounds []float64) spread {
	if len(rounds) == 0 {
		return spread{}
	}
	s := slices.Sorted(slices.Values(rounds))
	n := len(s)
	return spread{(s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1]}
}

// ratios divides round by round: what disturbed a round has disturbed both sides of it.
func ratios(a, b []float64) []float64 {
	r := make([]float64, 0, len(a))
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			r = append(r, a[i]/b[i])
		}
	}
	return r
}

// percentile is the value that p percent of the sorted ones do not exceed (nearest rank); 0 of none.
func percentile[T cmp.Ordered](sorted []T, p int) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank-1, 0)]
}

// figure is taken from one sample.
type figure func(sample) float64

func rate(s sample) float64 { return s.perSecond() }

// each is a cost for one cycle.
func each(part func(cost) float64) figure {
	return func(s sample) float64 { return part(s.cost) / float64(max(s.done, 1)) }
}

// micros is processor time for one cycle in microseconds.
func micros(part func(cpuTime) time.Duration) figure {
	return each(func(c cost) float64 { return float64(part(c.cpu)) / float64(time.Microsecond) })
}

var (
	serverMicros  = micros(func(c cpuTime) time.Duration { return c.server })
	storeMicros   = micros(func(c cpuTime) time.Duration { return c.store })
	clientsMicros = micros(func(c cpuTime) time.Duration { return c.clients })
	allMicros     = micros(cpuTime.sum)
	transactions  = each(func(c cost) float64 { return c.transactions })
	fsyncs        = each(func(c cost) float64 { return c.fsyncs })
)
