package manager

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/orders"
	"lockkeeper/internal/locks/quota"
)

// manyLocks is a manager with so many locks, each held; a hundredth of them has a waiter.
func manyLocks(b *testing.B, n int) anyone {
	m := instantManager(b, Options{Limits: quota.Limits{}.For(8 * quota.GiB)})
	acquire := func(lock, owner string, async bool) {
		if _, err := m.Acquire(context.Background(), locks.AcquireRequest{Lock: lock, TTL: time.Hour, Owner: owner, Async: async}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range n {
		lock := fmt.Sprintf("team-%02d:lock-%06d", i%50, i)
		acquire(lock, fmt.Sprintf("job-%06d@host-%04d", i, i%1000), false)
		if i%100 == 0 {
			acquire(lock, fmt.Sprintf("late-%06d@host-%04d", i, i%1000), true)
		}
	}
	return m
}

var sortedFilters = []locks.LockFilter{
	{}, {Sort: locks.SortWaiters}, {Sort: locks.SortHeld}, {Sort: locks.SortWait}, {Owner: "job-000777@host-0777"}, {Host: "host-0777"}, {Mode: locks.Semaphore},
}

// BenchmarkSortedPage is one page of 50 locks of many: it must not grow with how many there are.
func BenchmarkSortedPage(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		m := manyLocks(b, n)
		for _, f := range sortedFilters {
			f.Limit = 50
			b.Run(fmt.Sprintf("locks=%d/%s%s%s%s", n, f.Sort, f.Owner, f.Host, f.Mode), func(b *testing.B) {
				ask := func() {
					if _, err := m.Locks(context.Background(), f); err != nil {
						b.Fatal(err)
					}
				}
				ask() // makes the order
				b.ReportAllocs()
				for b.Loop() {
					ask()
				}
			})
		}
	}
}

// BenchmarkMakingAnOrder is what the first list pays that asks for an order, and what the order takes in memory, at 100,000 locks.
func BenchmarkMakingAnOrder(b *testing.B) {
	m := manyLocks(b, 100_000)
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	drop := func() { m.do(func() { m.lists.Drop(m.clock.Now().Boot() + orders.Life + time.Hour) }) }
	for _, f := range sortedFilters[1:] {
		b.Run(fmt.Sprint(f.Sort, f.Owner, f.Host, f.Mode), func(b *testing.B) {
			drop()
			before := used()
			if _, err := m.Locks(context.Background(), f); err != nil {
				b.Fatal(err)
			}
			kept := int64(used()) - int64(before)
			for b.Loop() {
				drop()
				if _, err := m.Locks(context.Background(), f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(kept)/(1<<20), "MiB")
		})
	}
}

// BenchmarkCycleBesideOrders is BenchmarkManagerCycle while no order is kept, and while all of them are.
func BenchmarkCycleBesideOrders(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprint("kept=", kept), func(b *testing.B) {
			m := instantManager(b, Options{})
			for _, f := range sortedFilters[1:] {
				if _, err := m.Locks(context.Background(), f); kept && err != nil {
					b.Fatal(err)
				}
			}
			if !kept {
				m.do(func() { m.lists.Drop(m.clock.Now().Boot() + orders.Life) })
			}
			b.ReportAllocs()
			for b.Loop() {
				l, err := m.Acquire(context.Background(), locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "job@host"})
				if err == nil {
					err = m.Release(context.Background(), locks.Anonymous, l.Lease.ID, l.Lease.Token)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
