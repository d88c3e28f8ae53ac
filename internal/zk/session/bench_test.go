package session

import (
	"fmt"
	"sync"
	"testing"

	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
)

// BenchmarkLockCycles takes and gives back locks, each goroutine its own, through Submit. It is where depth comes from.
func BenchmarkLockCycles(b *testing.B) {
	server := zkreal.StartT(b, zkreal.Real()) // with fsync, as in production
	cfg := zk.Config{Servers: []string{server.Addr()}, CreateRoot: true}
	layout := openLayout(b, cfg)
	p := fixture.NewProbe(b, cfg)
	const most = 256
	for i := range most {
		p.Create(fmt.Sprintf("%s/locks/%d", zk.DefaultRoot, i), "")
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
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
			})
		}
	}
}
