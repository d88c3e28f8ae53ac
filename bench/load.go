package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// locker is one client of one lock, on either side.
type locker interface {
	Lock(context.Context) error
	Unlock(context.Context) error
}

// sample is what one slice of time gave.
type sample struct {
	done    int // cycles, or single requests, that ended within the slice
	elapsed time.Duration
	latency map[string][]time.Duration // by what was done, each in the order of its end
	cost    cost
	others  float64 // processors that were busy with something else
}

// perSecond is the throughput.
func (s sample) perSecond() float64 { return float64(s.done) / s.elapsed.Seconds() }

const (
	acquiring = "acquire"
	releasing = "release"
	handing   = "hand-over"
	answering = "answer"
)

var errOverlap = errors.New("two clients held one lock at once")

// cycle lets each locker acquire and release until d is over. With contended set they all are clients of one lock: the
// hand-over is measured, from when a release is sent until the next client knows that it holds the lock, and no client may
// hold it meanwhile. Each holder keeps its lock for hold. A client that waits when d is over has its turn before cycle
// returns, but it does not count.
func cycle(ctx context.Context, lockers []locker, d, hold time.Duration, contended bool) (sample, error) {
	var (
		holders  atomic.Int32
		released atomic.Int64 // when the last release was sent, since begun; 0 before the first
		begun    = time.Now()
	)
	one := func(l locker, c *client) error {
		sent := time.Since(begun)
		if err := l.Lock(ctx); err != nil {
			return err
		}
		held := time.Since(begun)
		if contended {
			if before := time.Duration(released.Load()); before != 0 {
				c.note(handing, held, held-before)
			}
			if holders.Add(1) != 1 {
				return errOverlap
			}
		}
		if hold > 0 {
			time.Sleep(hold)
		}
		leaving := time.Since(begun)
		if contended {
			released.Store(int64(leaving))
			holders.Add(-1)
		}
		if err := l.Unlock(ctx); err != nil {
			return err
		}
		left := time.Since(begun)
		c.note(acquiring, held, held-sent)
		c.note(releasing, left, left-leaving)
		c.finished(left)
		return nil
	}
	return together(ctx, len(lockers), d, begun, func(i int, c *client) error { return one(lockers[i], c) })
}

// ask lets each of n clients send a request and wait for its answer until d is over.
func ask(ctx context.Context, n int, d time.Duration, request func(ctx context.Context, i int) error) (sample, error) {
	begun := time.Now()
	return together(ctx, n, d, begun, func(i int, c *client) error {
		sent := time.Since(begun)
		if err := request(ctx, i); err != nil {
			return err
		}
		answered := time.Since(begun)
		c.note(answering, answered, answered-sent)
		c.finished(answered)
		return nil
	})
}

// client is what one of the goroutines of a slice has seen. It is read only after the goroutine has ended.
type client struct {
	until   time.Duration // what ends later does not count
	done    int
	latency map[string][]time.Duration
}

func (c *client) note(what string, at, took time.Duration) {
	if at <= c.until {
		c.latency[what] = append(c.latency[what], took)
	}
}

func (c *client) finished(at time.Duration) {
	if at <= c.until {
		c.done++
	}
}

// together runs step in n goroutines, again and again until d is over or one of them has failed, and returns when all
// have ended.
func together(ctx context.Context, n int, d time.Duration, begun time.Time, step func(i int, c *client) error) (sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clients := make([]*client, n)
	var running sync.WaitGroup
	for i := range n {
		c := &client{until: d, latency: map[string][]time.Duration{}}
		clients[i] = c
		running.Go(func() {
			for ctx.Err() == nil && time.Since(begun) < d {
				if err := step(i, c); err != nil {
					cancel(fmt.Errorf("client %d: %w", i, err))
				}
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return sample{}, err
	}
	s := sample{elapsed: d, latency: map[string][]time.Duration{}}
	for _, c := range clients {
		s.done += c.done
		for what, took := range c.latency {
			s.latency[what] = append(s.latency[what], took...)
		}
	}
	return s, nil
}
