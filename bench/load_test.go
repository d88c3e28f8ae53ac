package main

import (
	"context"
	"errors"
	"strings"
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
		begun := 0
		s := assert.Value(closedLoop(t.Context(), []locker{newFair(3*time.Millisecond, 2*time.Millisecond)},
			work{d: 99 * time.Millisecond}, func() { begun++ }))(t)
		// 19 cycles of 5 ms end within 99 ms; the 20th, which ends at 100, does not count.
		assert.That(t, s.done == 19 && s.elapsed == 99*time.Millisecond && begun == 1, "%d cycles in %v, begun %d times", s.done, s.elapsed, begun)
		assert.Equal(t, s.acquire, quantiles{3 * time.Millisecond, 3 * time.Millisecond}, "an acquire")
		assert.Equal(t, s.release, quantiles{2 * time.Millisecond, 2 * time.Millisecond}, "a release")
	})
}

// open is a lock that every client gets.
type open struct{}

func (o open) Lock(context.Context) error   { return nil }
func (o open) Unlock(context.Context) error { time.Sleep(time.Millisecond); return nil }

func TestTwoHoldersOfOneLockEndTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := closedLoop(t.Context(), []locker{open{}, open{}}, work{d: time.Second, hot: true}, func() {})
		assert.That(t, errors.Is(err, errOverlap), "the run ended with %v", err)
		_, err = closedLoop(t.Context(), []locker{open{}, open{}}, work{d: time.Second}, func() {})
		assert.Nil(t, err, "locks of their own")
	})
}

// refusing is a lock that refuses after a while.
type refusing struct{ after time.Duration }

var errRefused = errors.New("refused")

func (r refusing) Lock(context.Context) error   { time.Sleep(r.after); return errRefused }
func (r refusing) Unlock(context.Context) error { return nil }

func TestOneFailureEndsAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		_, err := closedLoop(t.Context(), []locker{newFair(time.Millisecond, 0), refusing{5 * time.Millisecond}}, work{d: time.Hour}, func() {})
		assert.That(t, errors.Is(err, errRefused) && strings.Contains(err.Error(), "client 1"), "the run ended with %v", err)
		took := time.Since(begun)
		assert.That(t, took <= 10*time.Millisecond, "the other went on for %v", took)
	})
}
