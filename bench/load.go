package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// work is what the clients of a side do: each acquires and releases, again and again, a lock of its own or the one that all want.
type work struct {
	clients int
	hot     bool
	d       time.Duration
}

// lock is the one of client i.
func (w work) lock(i int) string {
	if w.hot {
		return "hot"
	}
	return fmt.Sprintf("own-%d", i)
}

// locker is one client of one lock.
type locker interface {
	Lock(context.Context) error
	Unlock(context.Context) error
}

// sample is what one turn gave.
type sample struct {
	done    int // cycles that ended within the turn
	elapsed time.Duration
	acquire quantiles
	release quantiles
	cost    cost
	others  float64 // processors that were busy with something else
}

// quantiles are of a latency.
type quantiles struct{ p50, p99 time.Duration }

func quantilesOf(latencies []time.Duration) quantiles {
	slices.Sort(latencies)
	return quantiles{percentile(latencies, 50), percentile(latencies, 99)}
}

// perSecond is the throughput.
func (s sample) perSecond() float64 { return float64(s.done) / s.elapsed.Seconds() }

var errOverlap = errors.New("two clients held one lock at once")

// closedLoop lets each locker begin its next cycle when the last has ended, until w.d is over. A client that waits for the hot
// lock when w.d is over has its turn before closedLoop returns, but it does not count. begin is called
// right before the first begins.
func closedLoop(ctx context.Context, lockers []locker, w work, begin func()) (sample, error) {
	var holders atomic.Int32
	begin()
	begun := time.Now()
	clients, err := together(ctx, len(lockers), func(ctx context.Context, i int, c *client) error {
		for ctx.Err() == nil && time.Since(begun) < w.d {
			sent := time.Since(begun)
			if err := lockers[i].Lock(ctx); err != nil {
				return err
			}
			held := time.Since(begun)
			if w.hot {
				if holders.Add(1) != 1 {
					return errOverlap
				}
				runtime.Gosched() // another that holds the lock as well gets a chance to be seen
				holders.Add(-1)
			}
			if err := lockers[i].Unlock(ctx); err != nil {
				return err
			}
			if left := time.Since(begun); left <= w.d {
				c.acquires = append(c.acquires, held-sent)
				c.releases = append(c.releases, left-held)
			}
		}
		return nil
	})
	if err != nil {
		return sample{}, err
	}
	var acquires, releases []time.Duration
	for _, c := range clients {
		acquires = append(acquires, c.acquires...)
		releases = append(releases, c.releases...)
	}
	return sample{done: len(acquires), elapsed: w.d, acquire: quantilesOf(acquires), release: quantilesOf(releases)}, nil
}

// client is what one of the goroutines of a turn has seen. It is read only after the goroutine has ended.
type client struct{ acquires, releases []time.Duration }

// together runs do in n goroutines until all have ended. The first that fails ends the context of the others.
func together(ctx context.Context, n int, do func(ctx context.Context, i int, c *client) error) ([]*client, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clients := make([]*client, n)
	var running sync.WaitGroup
	for i := range n {
		clients[i] = &client{}
		running.Go(func() {
			if err := do(ctx, i, clients[i]); err != nil {
				cancel(fmt.Errorf("client %d: %w", i, err))
			}
		})
	}
	running.Wait()
	return clients, context.Cause(ctx)
}
