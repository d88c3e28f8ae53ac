package testkit

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorder stands in for a testing.T whose failure is wanted.
type recorder struct {
	testing.TB
	failure  string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Failed() bool     { return r.failure != "" }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any) {
	r.failure = fmt.Sprint(args...)
}
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
		if waited := time.Since(start); waited > time.Second+pollEvery {
			t.Errorf("waited %v", waited)
		}
	})
}

func TestEventuallyFailsWithTheMessageWhenTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got := failureOf(func(t testing.TB) {
			Eventually(t, time.Second, func() bool { return false }, "lock %s is free", "deploy")
		})
		if !strings.Contains(got, "lock deploy is free") || time.Since(start) != time.Second {
			t.Errorf("failure %q after %v", got, time.Since(start))
		}
	})
}

func TestEventuallyNilReportsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		got := failureOf(func(t testing.TB) {
			EventuallyNil(t, time.Second, func() error { n++; return fmt.Errorf("try %d", n) }, "it works")
		})
		if !strings.HasSuffix(got, fmt.Sprintf("try %d", n)) {
			t.Errorf("failure %q, want the error of try %d", got, n)
		}
	})
}

func TestNeverFailsAsSoonAsItHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := failureOf(func(t testing.TB) { Never(t, time.Minute, func() bool { return true }, "two holders") }); got == "" {
			t.Error("did not fail")
		}
		Never(t, time.Minute, func() bool { return false }, "nothing")
	})
}

func TestReceiveAndClosedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan int, 1)
		ch <- 7
		if got := Receive(t, time.Second, ch, "a number"); got != 7 {
			t.Errorf("got %d", got)
		}
		if got := failureOf(func(t testing.TB) { Receive(t, time.Second, ch, "a number") }); got == "" {
			t.Error("Receive did not fail on silence")
		}
		if got := failureOf(func(t testing.TB) { Closed(t, time.Second, ch, "the end") }); got == "" {
			t.Error("Closed did not fail on silence")
		}
		close(ch)
		Closed(t, time.Second, ch, "the end")
		if got := failureOf(func(t testing.TB) { Receive(t, time.Second, ch, "a number") }); got == "" {
			t.Error("Receive did not fail on a closed channel")
		}
	})
}

func TestNoLeaksFindsAGoroutineThatIsLeftBehind(t *testing.T) {
	stop := make(chan struct{})
	got := failureOf(func(t testing.TB) {
		noLeaks(t, 0)
		go func() { <-stop }()
	})
	close(stop)
	if !strings.Contains(got, "found unexpected goroutines") {
		t.Errorf("failure %q", got)
	}
	if got := failureOf(func(t testing.TB) { NoLeaks(t) }); got != "" {
		t.Errorf("failure without a leak: %q", got)
	}
}
