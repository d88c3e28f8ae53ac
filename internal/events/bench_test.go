package events

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// readers subscribes n readers, which resubscribe when they lag, and counts
// what they read. write stands for what sending a batch costs.
func readers(b *testing.B, h *Hub, n int, filter func(i int) Filter, write func()) (batches, read *atomic.Int64) {
	batches, read = new(atomic.Int64), new(atomic.Int64)
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	var subscribed sync.WaitGroup
	subscribed.Add(n)
	for i := range n {
		running.Go(func() {
			first := sync.OnceFunc(subscribed.Done)
			for ctx.Err() == nil {
				s, err := h.Subscribe(filter(i), "")
				if err != nil {
					panic(err)
				}
				first()
				for {
					batch, err := s.Next(ctx)
					if err != nil {
						break
					}
					batches.Add(1)
					read.Add(int64(len(batch)))
					write()
				}
				s.Close()
			}
		})
	}
	b.Cleanup(func() { cancel(); running.Wait() })
	subscribed.Wait()
	return batches, read
}

// crowds are ways of subscribing: n read everything, or each waits for a lock of its own, to which nothing happens.
var crowds = []struct {
	name   string
	n      int
	filter func(i int) Filter
}{
	{"subscribers=0", 0, nil},
	{"everything=1", 1, everything},
	{"everything=1000", 1000, everything},
	{"idle=1000", 1000, func(i int) Filter { return Filter{Rules: seesAll, Lock: fmt.Sprint("quiet-", i)} }},
}

func everything(int) Filter { return Filter{Rules: seesAll} }

func sample() *Event {
	return &Event{Type: LeaseQueued, NS: "default", Lock: "deploy", LeaseID: "l_1", Owner: "ci", Mode: "exclusive"}
}

// BenchmarkPublish publishes as fast as it can: the readers have what the
// publisher leaves of the processors, and most of them lag.
func BenchmarkPublish(b *testing.B) {
	for _, c := range crowds {
		b.Run(c.name, func(b *testing.B) {
			h := New(Options{})
			readers(b, h, c.n, c.filter, func() {})
			b.ReportAllocs()
			for b.Loop() {
				h.Publish(sample())
			}
		})
	}
}

// BenchmarkPublishSteadily publishes 20,000 events a second, more than a gateway has to tell, and measures the calls
// alone: the time for which the lock manager's mutex is held. Sending a batch costs a reader what a small write to a
// socket does. cpu-ns/event is what all of the process took.
func BenchmarkPublishSteadily(b *testing.B) {
	send := func() {
		var frame [4096]byte
		_ = sha256.Sum256(frame[:])
	}
	for _, c := range crowds {
		b.Run(c.name, func(b *testing.B) {
			h := New(Options{})
			batches, read := readers(b, h, c.n, c.filter, send)
			var calls time.Duration
			cpu, begin, published := processorTime(), time.Now(), 0
			for b.Loop() {
				for due := begin.Add(time.Duration(published) * 50 * time.Microsecond); time.Now().Before(due); {
					time.Sleep(50 * time.Microsecond)
				}
				e := sample()
				start := time.Now()
				h.Publish(e)
				calls += time.Since(start)
				published++
			}
			b.ReportMetric(float64(calls.Nanoseconds())/float64(published), "ns/publish")
			b.ReportMetric(float64((processorTime()-cpu).Nanoseconds())/float64(published), "cpu-ns/event")
			b.ReportMetric(float64(read.Load())/max(1, float64(batches.Load())), "events/batch")
		})
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNext is one event read by one who has plenty to read.
func BenchmarkNext(b *testing.B) {
	for name, filter := range map[string]Filter{"all": {}, "lock=deploy": {Lock: "deploy"}, "lock=d*y": {Lock: "d*y"}, "none": {Lock: "other-*"}} {
		b.Run(name, func(b *testing.B) {
			filter.Rules = seesAll
			h := New(Options{})
			for range DefaultRing {
				h.Publish(sample())
			}
			s, err := h.Subscribe(filter, h.id(0))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.ReportAllocs()
			for looked := uint64(0); b.Loop(); looked++ {
				if looked%maxBatch != 0 {
					continue
				}
				if h.next.Load()-s.cursor < maxBatch {
					s.cursor = 1
				}
				s.given = span{s.cursor, h.seen}
				s.Read()
			}
		})
	}
}
