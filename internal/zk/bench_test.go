package zk

import (
	"fmt"
	"sync"
	"testing"

	"lockkeeper/internal/test/zkreal"
)

// BenchmarkLockCycles takes and gives back locks, each goroutine its own,
// through Submit. It is where depth comes from.
func BenchmarkLockCycles(b *testing.B) {
	server := zkreal.StartT(b, zkreal.Real()) // with fsync, as in production
	cfg := Config{Servers: []string{server.Addr()}, CreateRoot: true}
	layout := openLayout(b, cfg)
	p := newProbe(b, cfg)
	const most = 256
	for i := range most {
		p.create(fmt.Sprintf("%s/locks/%d", DefaultRoot, i), "")
	}
	id := 0
	for _, depth := range []int{1, 2, 3, 4} {
		for _, clients := range []int{1, 16, 64, most} {
			b.Run(fmt.Sprintf("depth=%d/clients=%d", depth, clients), func(b *testing.B) {
				id++
				s := openSession(b, cfg, layout, id)
				s.writer.depth = depth // before the first Submit wakes its owner up
				var running sync.WaitGroup
				b.ResetTimer()
				for c := range clients {
					running.Go(func() {
						dir := fmt.Sprintf("%s/locks/%d", DefaultRoot, c)
						result := make(chan Result, 1)
						done := func(r Result) { result <- r }
						cycle := func(op Op) (Result, bool) {
							err := s.Submit(&Write{Queue: dir, Ops: []Op{op}, Done: done})
							if err != nil {
								b.Error(err)
								return Result{}, false
							}
							r := <-result
							if r.Outcome != Done {
								b.Errorf("%+v", r)
							}
							return r, r.Outcome == Done
						}
						for range b.N/clients + 1 {
							made, ok := cycle(Op{Kind: OpCreate, Path: dir + "/write-lease-", Sequential: true})
							if !ok {
								return
							}
							if _, ok := cycle(Op{Kind: OpDelete, Path: made.Paths[0]}); !ok {
								return
							}
						}
					})
				}
				running.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
			})
		}
	}
}
