package main

import (
	"os"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestASpreadIsTheMedianWithItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		rounds []float64
		want   spread
	}{
		"none": {nil, spread{}},
		"one":  {[]float64{7}, spread{7, 7, 7}},
		"odd":  {[]float64{9, 1, 5}, spread{5, 1, 9}},
		"even": {[]float64{4, 1, 2, 100}, spread{3, 1, 100}},
	} {
		assert.Equal(t, over(c.rounds), c.want, "%s", name)
	}
}

func TestPercentilesAreByNearestRank(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, c := range []struct {
		sorted  []int
		p, want int
	}{{hundred, 50, 50}, {hundred, 99, 99}, {[]int{1, 2, 3}, 50, 2}, {[]int{1, 2, 3}, 99, 3}, {[]int{8}, 50, 8}, {nil, 50, 0}} {
		assert.Equal(t, percentile(c.sorted, c.p), c.want, "p%d of %d values", c.p, len(c.sorted))
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	// Both sides lost half their speed in the second round. The ratio did not.
	assert.Slices(t, ratios([]float64{300, 150}, []float64{100, 50}), []float64{3, 3})
	assert.Slices(t, ratios([]float64{300, 150}, []float64{0, 50}), []float64{3}, "division by nothing")
}

func TestTheBetterDirectSideIsCompared(t *testing.T) {
	sampleOf := func(rate int, wait time.Duration) []sample {
		return []sample{{done: rate, elapsed: time.Second, latency: map[string][]time.Duration{acquiring: {wait}}}}
	}
	r := &results{samples: map[slot][]sample{
		{0, sharedSide}: sampleOf(100, time.Millisecond), {0, ownSide}: sampleOf(200, 3*time.Millisecond),
		{1, sharedSide}: sampleOf(300, 2*time.Millisecond), {1, ownSide}: sampleOf(200, time.Millisecond),
		{2, sharedSide}: sampleOf(50, time.Second),
	}}
	wait := percentileOf(acquiring, 50)
	for i, want := range []struct{ rate, wait float64 }{{200, 0.001}, {300, 0.001}, {50, 1}} {
		got := r.best(i, rate, true)
		assert.That(t, slices.Equal(got, []float64{want.rate}), "scenario %d: rates %v, want %v", i, got, want.rate)
		got = r.best(i, wait, false)
		assert.That(t, slices.Equal(got, []float64{want.wait}), "scenario %d: waits %v, want %v", i, got, want.wait)
	}
}

func TestCountersAreFoundByTheirWholeName(t *testing.T) {
	mntr := "zk_version\t3.8.0\nzk_max_fsynctime\t9\nzk_cnt_fsynctime_x\t1\nzk_cnt_fsynctime\t21\n"
	got, err := counter(mntr, "zk_cnt_fsynctime")
	assert.That(t, err == nil && got == 21, "got %v, %v", got, err)
	_, err = counter(mntr, "zk_packets_received")
	assert.That(t, err != nil, "a counter that is not there has a value")
}

func TestProcessorTimeIsOursAndPartOfTheMachines(t *testing.T) {
	mine := func() (time.Duration, time.Duration) {
		own := assert.Value(cpuTimeOf(os.Getpid()))(t)
		all := assert.Value(busy())(t)
		return own, all
	}
	own, all := mine()
	patience := time.Now().Add(time.Minute)
	for {
		ownNow, allNow := mine() // costs processor time
		if ownNow >= own+5*tick && allNow >= all+ownNow-own-3*tick {
			return
		}
		assert.Must(t, !time.Now().After(patience), "own time %v to %v, the machine's %v to %v", own, ownNow, all, allNow)
	}
}
