package main

import (
	"os"
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

// samplesOf makes a sample for each number of cycles.
func samplesOf(cycles ...int) (all []sample) {
	for _, n := range cycles {
		all = append(all, sample{done: n, elapsed: time.Second})
	}
	return all
}

func TestRatiosAreTakenRoundByRoundAgainstTheBetterSide(t *testing.T) {
	// All sides lost half their speed in the second round. The ratio did not.
	tab := &table{samples: map[slot][]sample{
		{0, gatewaySide}: samplesOf(300, 150), {0, zkLockOwnSide}: samplesOf(100, 50), {0, curatorOwnSide}: samplesOf(90, 45),
	}}
	best := tab.best(0, directSides...)
	assert.Equal(t, best, zkLockOwnSide, "the better direct client")
	assert.Slices(t, tab.against(0, gatewaySide, best), []float64{3, 3})
	assert.Slices(t, ratios([]float64{300, 150}, []float64{0, 50}), []float64{3}, "division by nothing")
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
