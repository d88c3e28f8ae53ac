package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// waiterCounts are how many clients want one lock at a time. Each has its own lock, and all of them stay in the queue for the whole part.
var waiterCounts = []int{16, 100, 1000, mostWaiters}

// comeEvery is how far apart the clients of a queue come: not all in one instant.
const comeEvery = 400 * time.Microsecond

// queue is one lock and the clients that want it. The holder keeps the lock while the gate is closed, so that queues of several
// sizes can be measured in turns without filling and emptying them.
type queue struct {
	waiters int
	done    atomic.Int64
	ended   chan struct{}
	failed  error // set before ended is closed

	mu   sync.Mutex
	gate chan struct{} // closed while the gate is open

	rates  []float64 // cycles per second, of each turn
	micros []float64 // of the gateway's processor time for one cycle
}

// waiters measures how a lock is handed over with few and with very many that wait for it. Each cycle also puts a client at the end.
func (b *bench) waiters(ctx context.Context) error {
	if err := b.onOne(ctx); err != nil {
		return err
	}
	g := b.single.gateway
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var queues []*queue
	total := 0
	for _, n := range waiterCounts {
		if b.small {
			n = n/100 + 2
		}
		q := &queue{waiters: n, gate: make(chan struct{}), ended: make(chan struct{})}
		total += n - 1
		if err := q.fill(ctx, g, total); err != nil {
			return err
		}
		queues = append(queues, q)
	}
	for round := range b.rounds + 1 {
		b.progress(round)
		for i := range queues {
			if round%2 == 1 {
				i = len(queues) - 1 - i
			}
			if err := queues[i].turn(ctx, g, b.d, round > 0); err != nil {
				return err
			}
		}
	}
	cancel()
	for _, q := range queues {
		<-q.ended
	}
	b.reportWaiters(queues)
	b.endOne() // it would keep the waiting leases for a while: their clients may come again with their keys
	return nil
}

// fill starts the clients and returns once all but the holder wait.
func (q *queue) fill(ctx context.Context, g *gateway, waiting int) error {
	lock := fmt.Sprintf("queue-of-%d", q.waiters)
	go func() {
		defer close(q.ended)
		_, q.failed = together(ctx, q.waiters, func(ctx context.Context, i int, _ *client) error {
			if err := wait(ctx, time.Duration(i)*comeEvery); err != nil {
				return err
			}
			l := &patient{httpLocker: &httpLocker{clients: g.http, acquireURL: g.http.base + "/v1/locks/" + lock + "/leases?ttl=1h&wait=1h&owner=bench"}}
			for {
				if err := l.Lock(ctx); err != nil {
					return err
				}
				if err := q.pass(ctx); err != nil {
					return err
				}
				if err := l.Unlock(ctx); err != nil {
					return err
				}
				q.done.Add(1)
			}
		})
	}()
	enough := func(n int) bool { return n >= waiting || q.hasEnded() }
	if err := g.http.awaitWaiting(ctx, enough); err != nil || q.hasEnded() {
		return fmt.Errorf("%d waiters: %w\nthe end of the gateway's log:\n%s", q.waiters, errors.Join(err, q.failure()), g.logTail())
	}
	return nil
}

// patient is a client that repeats a request whose outcome is open: ZooKeeper stalls for seconds on a machine that is busy with other
// things while ten thousand clients come. Its acquires have an idempotency key, so that none is in the queue twice.
type patient struct {
	*httpLocker
	acquires int
}

// Lock implements locker.
func (p *patient) Lock(ctx context.Context) error {
	p.acquires++
	p.key = fmt.Sprintf("bench-waiter-%p-%d", p, p.acquires) // of 16 characters at least, however long an address is
	return repeated(ctx, func() error { return p.httpLocker.Lock(ctx) })
}

// Unlock implements locker.
func (p *patient) Unlock(ctx context.Context) error {
	return repeated(ctx, func() error { return p.httpLocker.Unlock(ctx) })
}

// repeated tries again for as long as the answer is 503 or 429.
func repeated(ctx context.Context, try func() error) error {
	for {
		err := try()
		var refused *refusal
		if !errors.As(err, &refused) || refused.status != http.StatusServiceUnavailable && refused.status != http.StatusTooManyRequests {
			return err
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (q *queue) hasEnded() bool {
	select {
	case <-q.ended:
		return true
	default:
		return false
	}
}

// failure is why the clients have ended.
func (q *queue) failure() error {
	if !q.hasEnded() {
		return nil
	}
	return q.failed
}

// pass waits while the gate is closed.
func (q *queue) pass(ctx context.Context) error {
	q.mu.Lock()
	gate := q.gate
	q.mu.Unlock()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turn lets the lock go round for d.
func (q *queue) turn(ctx context.Context, g *gateway, d time.Duration, counts bool) error {
	if err := g.forgetLog(); err != nil {
		return err
	}
	spent, err := cpuTimeOf(g.PID())
	if err != nil {
		return err
	}
	before, begun := q.done.Load(), time.Now()
	close(q.gate)
	select {
	case <-time.After(d):
	case <-q.ended:
		return fmt.Errorf("%d waiters: %w\nthe end of the gateway's log:\n%s", q.waiters, q.failure(), g.logTail())
	}
	done, took := float64(q.done.Load()-before), time.Since(begun).Seconds()
	q.mu.Lock()
	q.gate = make(chan struct{})
	q.mu.Unlock()
	now, err := cpuTimeOf(g.PID())
	if counts {
		q.rates = append(q.rates, done/took)
		q.micros = append(q.micros, float64((now-spent).Microseconds())/max(done, 1))
	}
	return err
}

// awaitWaiting polls until the gateway has so many waiting leases.
func (h *httpClients) awaitWaiting(ctx context.Context, enough func(int) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		var info struct {
			Leases struct {
				Waiting int `json:"waiting"`
			} `json:"leases"`
		}
		if err := h.do(ctx, http.MethodGet, h.base+"/v1/info", "", http.StatusOK, &info); err != nil {
			return fmt.Errorf("waiting clients: %w", err)
		}
		if enough(info.Leases.Waiting) {
			return nil
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d clients wait: %w", info.Leases.Waiting, err)
		}
	}
}

func (b *bench) reportWaiters(queues []*queue) {
	var text strings.Builder
	text.WriteString("All clients stay in the queue: each release hands the lock to the next one, and puts the client at the end again.\n\n" +
		"| clients of one lock | cycles/s | ÷ with the fewest | gateway's µs for one cycle |\n|---|---|---|---|\n")
	for _, q := range queues {
		fmt.Fprintf(&text, "| %s | %s | %s | %.0f |\n", thousands(float64(q.waiters)), counts(q.rates), times(ratios(q.rates, queues[0].rates)),
			over(q.micros).median)
	}
	b.section("Very many wait for one lock", text.String())
	b.target("one hot lock, 1,000 waiters ÷ 16", atLeast, 0.8, ratios(queues[2].rates, queues[0].rates))
	b.target("one lock, 10,000 waiters ÷ 100", atLeast, 0.8, ratios(queues[3].rates, queues[1].rates))
}
