package manager

import (
	"fmt"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
)

// BenchmarkDeadlocks is one look for deadlocks, and one answer of the graph, at a gateway with 100,000 locks and 10,000 waiters.
// The monitor is held for parts of the copy alone, each of some 1,000 contenders.
func BenchmarkDeadlocks(b *testing.B) {
	for _, queuesOf := range []int{10_000, 100, 1} {
		b.Run(fmt.Sprintf("%d locks of %d waiters", 10_000/queuesOf, queuesOf), func(b *testing.B) {
			m := instantManager(b, Options{Limits: quota.Limits{}.For(16 * quota.GiB)})
			take := func(lock, owner string, async bool) {
				if _, err := m.Acquire(b.Context(), locks.AcquireRequest{Lock: lock, Owner: owner, TTL: time.Hour, Async: async}); err != nil {
					b.Fatal(err)
				}
			}
			for i := range 100_000 {
				take(fmt.Sprint("lock-", i), fmt.Sprint("holder-", i), false)
			}
			for i := range 10_000 {
				take(fmt.Sprint("lock-", i/queuesOf), fmt.Sprint("waiter-", i), true)
			}
			b.Run("copy", func(b *testing.B) {
				before := processorTime(b)
				defer func() { b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op") }()
				for b.Loop() {
					m.deadlocks.scan(m.Manager, func(*queues.Queue) bool { return true }, nil)
				}
			})
			b.Run("look", func(b *testing.B) {
				before := processorTime(b)
				defer func() { b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op") }()
				for b.Loop() {
					s := m.deadlocks.scan(m.Manager, func(*queues.Queue) bool { return true }, nil)
					s.Cycles(s.Stuck())
				}
			})
			b.Run("answer", func(b *testing.B) {
				for b.Loop() {
					if _, err := m.Graph(b.Context(), locks.GraphRequest{Principal: locks.Principal{Rules: access.Everything()}}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
