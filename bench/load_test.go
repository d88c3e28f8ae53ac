package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// fair is a lock whose acquire and release take a while each; grants come in the order of asking.
type fair struct {
	turn          chan struct{} // holds one token while the lock is free
	acquire, free time.Duration
}

func newFair(acquire, free time.Duration) *fair {
	f := &fair{make(chan struct{}, 1), acquire, free}
	f.turn <- struct{}{}
	return f
}

func (f *fair) Lock(ctx context.Context) error {
	time.Sleep(f.acquire)
	select {
	case <-f.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fair) Unlock(context.Context) error {
	time.Sleep(f.free)
	f.turn <- struct{}{}
	return nil
}

func TestOneClientsCyclesAreCountedAndTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := assert.Value(cycle(t.Context(), []locker{newFair(3*time.Millisecond, 2*time.Millisecond)}, 99*time.Millisecond, 0, false))(t)
		// 19 cycles of 5 ms end within 99 ms; the 20th, which ends at 100, does not count.
		assert.That(t, s.done == 19 && s.elapsed == 99*time.Millisecond, "%d cycles in %v", s.done, s.elapsed)
		got := percentileOf(acquiring, 50)(s)
		assert.That(t, got == 0.003, "an acquire took %v s", got)
		got = percentileOf(releasing, 99)(s)
		assert.That(t, got == 0.002, "a release took %v s", got)
		assert.That(t, len(s.latency[handing]) == 0, "a hand-over without a next client")
	})
}

func TestAHandOverLastsFromTheReleaseToTheNextGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newFair(time.Millisecond, 2*time.Millisecond)
		s := assert.Value(cycle(t.Context(), []locker{lock, lock}, 200*time.Millisecond, 5*time.Millisecond, true))(t)
		for _, took := range s.latency[handing] {
			assert.Must(t, took == 2*time.Millisecond, "a hand-over took %v", took)
		}
		n := len(s.latency[handing])
		assert.That(t, n >= 20, "%d hand-overs", n)
	})
}

// open is a lock that every client gets.
type open struct{}

func (open) Lock(context.Context) error   { time.Sleep(time.Millisecond); return nil }
func (open) Unlock(context.Context) error { return nil }

func TestTwoHoldersOfOneLockEndTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := cycle(t.Context(), []locker{open{}, open{}}, time.Second, 5*time.Millisecond, true)
		assert.That(t, errors.Is(err, errOverlap), "the run ended with %v", err)
		_, err = cycle(t.Context(), []locker{open{}, open{}}, time.Second, 5*time.Millisecond, false)
		assert.Nil(t, err, "locks of their own")
	})
}

func TestOneFailureEndsAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		var once sync.Once
		begun := time.Now()
		_, err := ask(t.Context(), 4, time.Hour, func(context.Context, int) (err error) {
			time.Sleep(time.Millisecond)
			once.Do(func() { err = refused })
			return err
		})
		assert.That(t, errors.Is(err, refused) && strings.Contains(err.Error(), "client "), "the run ended with %v", err)
		took := time.Since(begun)
		assert.That(t, took <= 10*time.Millisecond, "the others went on for %v", took)
	})
}
