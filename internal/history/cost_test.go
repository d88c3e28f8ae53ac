package history

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/test/assert"
)

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCycle publishes what 10,000 cycles a second of 64 locks do, with node events, as a gateway does. cpu-ns/cycle is
// what all of the process took for one.
func BenchmarkCycle(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("history=%v", on), func(b *testing.B) {
			hub := events.New(events.Options{})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan struct{}, 2)
			go func() { _ = hub.Run(ctx); done <- struct{}{} }()
			if on {
				h := New(Options{Dir: filepath.Join(b.TempDir(), "h"), Hub: hub, Now: holding{}})
				go func() { assert.NoError(b, h.Run(ctx)); done <- struct{}{} }()
				time.Sleep(2 * time.Second)
			} else {
				done <- struct{}{}
			}
			b.ReportAllocs()
			cpu, begin, n := processorTime(), time.Now(), 0
			for b.Loop() {
				for due := begin.Add(time.Duration(n) * 100 * time.Microsecond); time.Now().Before(due); {
					time.Sleep(time.Millisecond)
				}
				lock, lease := locksOf64[n%64], fmt.Sprintf("lk64mrq7ovxnnyc352awfj%017d", n)
				now := time.Now().UTC()
				dir := "/lockkeeper/locks/x"
				for _, t := range []events.Type{events.NodeCreated, events.LeaseQueued, events.LeaseGranted, events.LeaseReleased, events.NodeDeleted} {
					hub.Publish(&events.Event{Type: t, Time: now, NS: "default", Lock: lock, LeaseID: lease, Owner: "127.0.0.1", Mode: "exclusive", FencingToken: 7, Gateway: "xnnyc352awfjk", Queued: now.UnixMilli(), Dir: dir, Name: "write-1", Here: true})
				}
				n++
			}
			b.ReportMetric(float64((processorTime()-cpu).Nanoseconds())/float64(n), "cpu-ns/cycle")
			cancel()
			<-done
			<-done
		})
	}
}

var locksOf64 = func() (list [64]string) {
	for i := range list {
		list[i] = fmt.Sprint("lock-", i)
	}
	return list
}()
