// Package backoff is the gateway's one retry policy: delays that double up to
// a limit, with full jitter from a source that simulations can give.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff gives the delays between attempts. It implements BackOff of
// cenkalti/backoff, whose own jitter cannot be given a source. It is not safe
// for concurrent use.
type Backoff struct {
	first, last time.Duration
	interval    time.Duration
	random      *rand.Rand
}

// New starts with an interval of first, which doubles up to last. A nil source
// is the runtime's.
func New(source rand.Source, first, last time.Duration) *Backoff {
	if source == nil {
		source = Runtime{}
	}
	return &Backoff{first: first, last: last, interval: first, random: rand.New(source)}
}

// NextBackOff is the next delay: anything from nothing to twice the interval.
func (b *Backoff) NextBackOff() time.Duration {
	delay := time.Duration(b.random.Int64N(2*int64(b.interval) + 1))
	b.interval = min(2*b.interval, b.last)
	return delay
}

// Reset makes the next interval the first again.
func (b *Backoff) Reset() { b.interval = b.first }

// Runtime is the runtime's source of random numbers. It is safe for concurrent use.
type Runtime struct{}

// Uint64 implements rand.Source.
func (Runtime) Uint64() uint64 { return rand.Uint64() }

// Sleep waits, or returns the context's error.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
