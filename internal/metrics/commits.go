package metrics

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// commitsEvery is how often the histogram of commits is looked at, and commitsKept how many looks are kept: what CommitLatency
	// covers is the time since the oldest of them.
	commitsEvery = 15 * time.Second
	commitsKept  = 20
	// opTransaction and opDone are the labels of a transaction of writes that ZooKeeper has committed.
	opTransaction, opDone = "multi", "ok"
)

// CommitLatency is how long ZooKeeper took lately to commit this gateway's transactions, as far as the buckets of
// lockkeeper_zk_op_seconds tell: within a bucket it is interpolated, and beyond the last one it is that one's bound.
type CommitLatency struct {
	P50, P99 time.Duration
	Over     time.Duration // the time that it covers
}

// commits remembers what the histogram of commits has counted, so that it can tell of the last minutes. Commits are measured as before:
// nothing is done for one of them.
type commits struct {
	histogram prometheus.Gatherer

	mu    sync.Mutex
	looks []commitLook // oldest first; at least one
}

type commitLook struct {
	at      time.Time
	buckets []commitBucket
}

// commitBucket counts the commits that took no longer than a bound, in seconds.
type commitBucket struct {
	bound float64
	n     uint64
}

func newCommits(operations prometheus.Collector) *commits {
	histogram := prometheus.NewRegistry() // a second one: to gather the whole of the first would be too much
	histogram.MustRegister(operations)
	return &commits{histogram: histogram, looks: []commitLook{{at: time.Now()}}}
}

// RunCommits looks at the histogram of commits from time to time, until ctx ends.
func (m *Metrics) RunCommits(ctx context.Context) {
	ticks := time.NewTicker(commitsEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			m.commits.keep(m.commits.look())
		}
	}
}

// Commits is the latency of the commits of the last five minutes. ok is false when there were none.
func (m *Metrics) Commits() (l CommitLatency, ok bool) {
	now := m.commits.look()
	m.commits.mu.Lock()
	before := m.commits.looks[0]
	m.commits.mu.Unlock()
	counts := now.since(&before)
	if len(counts) == 0 || counts[len(counts)-1].n == 0 {
		return l, false
	}
	return CommitLatency{P50: quantile(counts, .5), P99: quantile(counts, .99), Over: now.at.Sub(before.at)}, true
}

func (c *commits) keep(l commitLook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.looks) >= commitsKept {
		c.looks = slices.Delete(c.looks, 0, len(c.looks)-commitsKept+1)
	}
	c.looks = append(c.looks, l)
}

// look reads the histogram. It has no bucket before the first commit.
func (c *commits) look() commitLook {
	l := commitLook{at: time.Now()}
	families, err := c.histogram.Gather()
	if err != nil {
		return l // only a defect of the collector gets here
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var op, outcome string
			for _, label := range metric.GetLabel() {
				switch label.GetName() {
				case "op":
					op = label.GetValue()
				case "outcome":
					outcome = label.GetValue()
				}
			}
			if op != opTransaction || outcome != opDone {
				continue
			}
			h := metric.GetHistogram()
			for _, b := range h.GetBucket() {
				l.buckets = append(l.buckets, commitBucket{b.GetUpperBound(), b.GetCumulativeCount()})
			}
			l.buckets = append(l.buckets, commitBucket{math.Inf(1), h.GetSampleCount()})
		}
	}
	return l
}

// since is what was counted between two looks.
func (l *commitLook) since(before *commitLook) []commitBucket {
	counts := slices.Clone(l.buckets)
	for i := range counts {
		if i < len(before.buckets) {
			counts[i].n -= before.buckets[i].n
		}
	}
	return counts
}

// quantile is the time within which that part of the commits was done.
func quantile(counts []commitBucket, part float64) time.Duration {
	rank := part * float64(counts[len(counts)-1].n)
	var bound, below float64
	for _, b := range counts {
		n := float64(b.n)
		if n >= rank && n > below {
			if !math.IsInf(b.bound, 1) {
				bound += (b.bound - bound) * (rank - below) / (n - below)
			}
			break
		}
		bound, below = b.bound, n
	}
	return time.Duration(bound * float64(time.Second))
}
