// Package testkit holds what the tests of every package need and the standard library does not have: waiting for a
// condition, bounded and without sleeping; a check that nothing was left running; addresses for programs that come and go, and
// what such a program is built from. Only tests may import it.
//
// It owns no goroutines. When a wait runs out the test ends at once (FailNow), so it must be called from the goroutine
// that runs the test, as testing.T asks.
package testkit

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockkeeper/internal/test/assert"
)

// pollEvery is short because most conditions come true within a millisecond, and long enough not to starve what is
// being waited for on two cores.
const pollEvery = 2 * time.Millisecond

// Eventually waits until cond is true and fails the test when it is not within the given time. within is a bound for a
// loaded machine, not an expectation: give it generously. The message is formatted as by fmt.Sprintf.
func Eventually(t testing.TB, within time.Duration, cond func() bool, format string, args ...any) {
	t.Helper()
	EventuallyNil(t, within, func() error {
		if cond() {
			return nil
		}
		return errNotYet
	}, format, args...)
}

var errNotYet = errors.New("the condition is still false")

// EventuallyNil waits until try returns nil; the last error is in the failure.
func EventuallyNil(t testing.TB, within time.Duration, try func() error, format string, args ...any) {
	t.Helper()
	last := poll(within, func() (bool, error) {
		err := try()
		return err == nil, err
	})
	assert.NoError(t, last, "not within %v: %s", within, fmt.Sprintf(format, args...))
}

// Never watches for the whole of during that cond stays false. It costs that time whenever it passes, so keep it short,
// and prefer an event after which the thing can no longer happen.
func Never(t testing.TB, during time.Duration, cond func() bool, format string, args ...any) {
	t.Helper()
	err := poll(during, func() (bool, error) { return cond(), errNotYet })
	assert.Must(t, err != nil, "must not happen: %s", fmt.Sprintf(format, args...))
}

// poll tries at once, then at every tick, and a last time when the time is up. It returns nil once try says done, else
// the last error.
func poll(within time.Duration, try func() (done bool, err error)) error {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if done, _ := try(); done {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			done, err := try()
			if done {
				return nil
			}
			return err
		}
	}
}

// Receive returns the next value of ch, and fails the test when none comes in time or ch is closed.
func Receive[T any](t testing.TB, within time.Duration, ch <-chan T, format string, args ...any) T {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	select {
	case v, ok := <-ch:
		assert.Must(t, ok, "closed while waiting: %s", fmt.Sprintf(format, args...))
		return v
	case <-deadline.C:
		t.Fatalf("not within %v: %s", within, fmt.Sprintf(format, args...))
	}
	panic("unreachable: Fatalf does not return")
}

// Closed waits until ch is closed (or delivers), and fails the test when it does not in time.
func Closed[T any](t testing.TB, within time.Duration, ch <-chan T, format string, args ...any) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	select {
	case <-ch:
	case <-deadline.C:
		t.Fatalf("not within %v: %s", within, fmt.Sprintf(format, args...))
	}
}

// Nothing ends the test when ch delivers, or is closed, at this moment. What it delivered is in the message.
func Nothing[T any](t testing.TB, ch <-chan T, format string, args ...any) {
	t.Helper()
	select {
	case v, ok := <-ch:
		t.Fatalf("must not come yet: %s: %+v (closed: %v)", fmt.Sprintf(format, args...), v, !ok)
	default:
	}
}

// NotShort skips the test with -short, which is for what takes seconds or, with the race detector, a minute.
func NotShort(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: " + why)
	}
}

// NoLeaks fails the test if goroutines that it started are still running when it ends. Call it first: clean-ups run in
// reverse order, so the check then comes after everything the test itself cleans up. Not for parallel tests, whose
// neighbours' goroutines would be counted too.
func NoLeaks(t testing.TB) {
	t.Helper()
	noLeaks(t, endWithin)
}

func noLeaks(t testing.TB, within time.Duration) {
	t.Helper()
	already := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		t.Helper()
		if t.Failed() {
			return // it may well have stopped half-way; its own message matters
		}
		assert.Nil(t, leaks(within, already), "left running")
	})
}

// endWithin is how long a goroutine may take to end whose work is over. On a loaded machine goleak's own patience, less than
// half a second, ends while it has not had its turn.
const endWithin = 20 * time.Second

// Leaks is nil once no goroutine is left but those of the test binary itself, else what is left after a while. It is for the
// end of a TestMain.
func Leaks() error { return leaks(endWithin) }

func leaks(within time.Duration, options ...goleak.Option) error {
	for begun := time.Now(); ; {
		if err := goleak.Find(options...); err == nil || time.Since(begun) > within {
			return err
		}
	}
}

// Run is for a TestMain: it runs the tests, then fails when they have left goroutines behind, and returns the exit code.
func Run(m interface{ Run() int }) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := Leaks(); err != nil {
		fmt.Fprintf(os.Stderr, "left running: %v\n", err)
		return 1
	}
	return 0
}

// NoError ends the test when err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	assert.NoError(t, err)
}
