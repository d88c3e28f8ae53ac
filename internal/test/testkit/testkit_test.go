package testkit

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// recorder stands in for a testing.T whose failure is wanted.
type recorder struct {
	testing.TB
	failure  string
	cleanups []func()
}

func (r *recorder) Helper()                           {}
func (r *recorder) Failed() bool                      { return r.failure != "" }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any)                 { r.failure = fmt.Sprint(args...) }
func (r *recorder) Errorf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf runs f as a test of its own and returns how it failed.
func failureOf(f func(t testing.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r.failure
}

func TestEventuallyWaitsForTheConditionAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Eventually(t, time.Minute, func() bool { return time.Since(start) >= time.Second }, "a second passes")
		waited := time.Since(start)
		assert.That(t, waited <= time.Second+pollEvery, "waited %v", waited)
	})
}

func TestEventuallyFailsWithTheMessageWhenTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got := failureOf(func(t testing.TB) {
			Eventually(t, time.Second, func() bool { return false }, "lock %s is free", "deploy")
		})
		assert.That(t, strings.Contains(got, "lock deploy is free") && time.Since(start) == time.Second,
			"failure %q after %v", got, time.Since(start))
	})
}

func TestEventuallyNilReportsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		got := failureOf(func(t testing.TB) {
			EventuallyNil(t, time.Second, func() error { n++; return fmt.Errorf("try %d", n) }, "it works")
		})
		assert.That(t, strings.HasSuffix(got, fmt.Sprintf("try %d", n)), "failure %q, want the error of try %d", got, n)
	})
}

func TestNothingFailsWithWhatCame(t *testing.T) {
	ch := make(chan int, 1)
	Nothing(t, ch, "nothing yet")
	ch <- 7
	got := failureOf(func(t testing.TB) { Nothing(t, ch, "early") })
	assert.That(t, strings.Contains(got, "early: 7"), "failure %q", got)
	close(ch)
	assert.That(t, failureOf(func(t testing.TB) { Nothing(t, ch, "early") }) != "", "a closed channel is nothing")
}

func TestNeverFailsAsSoonAsItHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.That(t, failureOf(func(t testing.TB) { Never(t, time.Minute, func() bool { return true }, "two holders") }) != "",
			"did not fail")
		Never(t, time.Minute, func() bool { return false }, "nothing")
	})
}

func TestReceiveAndClosedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan int, 1)
		ch <- 7
		assert.Equal(t, Receive(t, time.Second, ch, "a number"), 7)
		assert.That(t, failureOf(func(t testing.TB) { Receive(t, time.Second, ch, "a number") }) != "", "Receive did not fail on silence")
		assert.That(t, failureOf(func(t testing.TB) { Closed(t, time.Second, ch, "the end") }) != "", "Closed did not fail on silence")
		close(ch)
		Closed(t, time.Second, ch, "the end")
		assert.That(t, failureOf(func(t testing.TB) { Receive(t, time.Second, ch, "a number") }) != "",
			"Receive did not fail on a closed channel")
	})
}

func TestNoLeaksFindsAGoroutineThatIsLeftBehind(t *testing.T) {
	stop := make(chan struct{})
	got := failureOf(func(t testing.TB) {
		noLeaks(t, 0)
		go func() { <-stop }()
	})
	close(stop)
	assert.That(t, strings.Contains(got, "found unexpected goroutines"), "failure %q", got)
	assert.Equal(t, failureOf(func(t testing.TB) { NoLeaks(t) }), "", "failure without a leak")
}
