package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// notified runs a notifier in virtual time, and collects its states with their seconds.
type notified struct {
	ready, alive atomic.Pointer[error]
	states       chan string
	leave, end   context.CancelFunc
}

func notifying(t *testing.T, watchdog time.Duration) *notified {
	n := &notified{states: make(chan string, 1000)}
	look := func(at *atomic.Pointer[error]) func() error {
		return func() error {
			if err := at.Load(); err != nil {
				return *err
			}
			return nil
		}
	}
	ctx, end := context.WithCancel(t.Context())
	leaving, leave := context.WithCancel(t.Context())
	n.end, n.leave = end, leave
	notYet := errors.New("the tree has not been read from ZooKeeper yet")
	n.ready.Store(&notYet)
	it := &notifier{notify: func(s string) { n.states <- s }, watchdog: watchdog, ready: look(&n.ready), alive: look(&n.alive)}
	go it.run(ctx, leaving)
	t.Cleanup(end)
	return n
}

// in lets time pass and returns the states meanwhile.
func (n *notified) in(d time.Duration) (states []string) {
	time.Sleep(d)
	synctest.Wait()
	for {
		select {
		case s := <-n.states:
			states = append(states, s)
		default:
			return states
		}
	}
}

func TestSystemdIsNotifiedOnceTheGatewayCanServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := notifying(t, 0)
		if got := n.in(time.Minute); !slices.Equal(got, []string{"STATUS=the tree has not been read from ZooKeeper yet"}) {
			t.Errorf("before: %q", got)
		}
		n.ready.Store(nil)
		if got := n.in(time.Minute); !slices.Equal(got, []string{"READY=1\nSTATUS=serving"}) {
			t.Errorf("when it serves: %q", got)
		}
		fenced := errors.New("fenced")
		n.ready.Store(&fenced)
		if got := n.in(time.Minute); !slices.Equal(got, []string{"STATUS=fenced"}) {
			t.Errorf("when it is cut off: %q", got)
		}
		n.ready.Store(nil)
		if got := n.in(time.Minute); !slices.Equal(got, []string{"STATUS=serving"}) {
			t.Errorf("when it is back: %q", got)
		}
		n.leave()
		gone := errors.New("shutting down")
		n.ready.Store(&gone)
		if got := n.in(time.Minute); !slices.Equal(got, []string{"STOPPING=1\nSTATUS=handing over"}) {
			t.Errorf("after SIGTERM: %q", got)
		}
	})
}

func TestTheWatchdogIsFedWhileTheLoopsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := notifying(t, 3*time.Second)
		fed := func(d time.Duration) (times int) {
			for _, s := range n.in(d) {
				if s == "WATCHDOG=1" {
					times++
				}
			}
			return times
		}
		if got := fed(30 * time.Second); got < 27 || got > 31 {
			t.Errorf("fed %d times in ten lives of the watchdog, while it comes up", got)
		}
		n.ready.Store(nil)
		n.leave()
		if got := fed(30 * time.Second); got < 27 || got > 31 {
			t.Errorf("fed %d times in ten lives of the watchdog, while it hands over", got)
		}
		still := errors.New("the clock loop has stood still")
		n.alive.Store(&still)
		if got := fed(time.Minute); got != 0 {
			t.Errorf("fed %d times although the loops stand still", got)
		}
	})
}

func TestWithoutASocketNothingIsNotified(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if newNotifier(slog.Default(), nil, nil) != nil {
		t.Error("there is a notifier without NOTIFY_SOCKET")
	}
}

func TestTheSocketOfTheServiceManagerIsWrittenTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000000")
	t.Setenv("WATCHDOG_PID", "1") // another process's
	var complaints strings.Builder
	n := newNotifier(slog.New(slog.NewTextHandler(&complaints, nil)), func() error { return nil }, func() error { return nil })
	if n.watchdog != 0 {
		t.Errorf("the watchdog of another process is fed every %v", n.watchdog)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.run(ctx, ctx) }()
	_ = socket.SetReadDeadline(time.Now().Add(30 * time.Second))
	buf := make([]byte, 4096)
	size, err := socket.Read(buf)
	if got := string(buf[:size]); err != nil || got != "READY=1\nSTATUS=serving" {
		t.Errorf("%v: %q; %s", err, got, complaints.String())
	}
	cancel()
	<-ended
}
