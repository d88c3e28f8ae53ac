package session

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// sending is when a Session sends what waits: at most depth transactions are under way, and one that is not full goes
// pace after the last.
type sending struct {
	depth int
	pace  time.Duration
}

// BenchmarkLockCycles takes and gives back locks, each goroutine its own, through Submit, near the server and a round
// trip of 5 ms away from it. It is where depth and pace come from. Beside the cycles it reports what a cycle costs in
// processor time of this process and in transactions.
func BenchmarkLockCycles(b *testing.B) {
	server := zkreal.StartT(b, zkreal.Real()) // with fsync, as in production
	direct := zk.Config{Servers: []string{server.Addr()}, CreateRoot: true}
	layout := openLayout(b, direct)
	p := fixture.NewProbe(b, direct)
	const most = 1024
	for i := range most {
		p.Create(fmt.Sprintf("%s/locks/%d", zk.DefaultRoot, i), "")
	}
	proxy := netfault.NewT(b, server.Addr(), netfault.Framed())
	far := direct
	far.Servers = []string{proxy.Addr()}
	proxy.SetDelay(netfault.Replies, 5*time.Millisecond)
	id := 0
	for _, place := range []struct {
		name string
		cfg  zk.Config
	}{{"near", direct}, {"5ms", far}} {
		for _, clients := range []int{1, 16, 64, 256, most} {
			for _, how := range []sending{{1, time.Hour}, {depth, time.Hour}, {depth, pace}, {depth, 0}} {
				b.Run(fmt.Sprintf("%s/clients=%d/depth=%d/pace=%v", place.name, clients, how.depth, how.pace), func(b *testing.B) {
					id++
					benchmarkCycles(b, place.cfg, layout, id, clients, how)
				})
			}
		}
	}
}

func benchmarkCycles(b *testing.B, cfg zk.Config, layout *layout.Layout, id, clients int, how sending) {
	s := openSession(b, cfg, layout, id)
	s.mu.Lock()
	s.depth, s.pace = how.depth, how.pace
	s.mu.Unlock()
	var running sync.WaitGroup
	sent := transactions(b, s)
	b.ReportAllocs()
	b.ResetTimer()
	began := processorTime(b)
	for c := range clients {
		running.Go(func() {
			dir := fmt.Sprintf("%s/locks/%d", zk.DefaultRoot, c)
			queues, result := []string{dir}, make(chan zk.Result, 1)
			done := func(r zk.Result) { result <- r }
			cycle := func(op zk.Op) (zk.Result, bool) {
				err := s.Submit(&zk.Write{Queues: queues, Ops: []zk.Op{op}, Done: done})
				if err != nil {
					b.Error(err)
					return zk.Result{}, false
				}
				r := <-result
				if r.Outcome != zk.Done {
					b.Errorf("%+v", r)
				}
				return r, r.Outcome == zk.Done
			}
			for range b.N/clients + 1 {
				made, ok := cycle(zk.Op{Kind: zk.OpCreate, Path: dir + "/write-lease-", Sequential: true})
				if !ok {
					return
				}
				if _, ok := cycle(zk.Op{Kind: zk.OpDelete, Path: made.Paths[0]}); !ok {
					return
				}
			}
		})
	}
	running.Wait()
	spent := processorTime(b) - began
	b.StopTimer()
	cycles := float64((b.N/clients + 1) * clients)
	b.ReportMetric(cycles/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64(spent.Nanoseconds())/1e3/cycles, "cpu-µs/cycle")
	b.ReportMetric(float64(transactions(b, s)-sent)/cycles, "transactions/cycle")
}

// transactions is how many guarded transactions the session has committed so far, by its guard's version.
func transactions(b *testing.B, s *Session) int32 {
	stat := assert.Value(s.Exists(fixture.Context(b), s.guard))(b, "looking at the guard")
	return stat.Version
}

// processorTime is what the process has used so far, in user and in system mode.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
