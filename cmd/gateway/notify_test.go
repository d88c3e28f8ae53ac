package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
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
		assert.Slices(t, n.in(time.Minute), []string{"STATUS=the tree has not been read from ZooKeeper yet"}, "before")
		n.ready.Store(nil)
		assert.Slices(t, n.in(time.Minute), []string{"READY=1\nSTATUS=serving"}, "when it serves")
		fenced := errors.New("fenced")
		n.ready.Store(&fenced)
		assert.Slices(t, n.in(time.Minute), []string{"STATUS=fenced"}, "when it is cut off")
		n.ready.Store(nil)
		assert.Slices(t, n.in(time.Minute), []string{"STATUS=serving"}, "when it is back")
		n.leave()
		gone := errors.New("shutting down")
		n.ready.Store(&gone)
		assert.Slices(t, n.in(time.Minute), []string{"STOPPING=1\nSTATUS=handing over"}, "after SIGTERM")
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
		got := fed(30 * time.Second)
		assert.That(t, got >= 27 && got <= 31, "fed %d times in ten lives of the watchdog, while it comes up", got)
		n.ready.Store(nil)
		n.leave()
		got = fed(30 * time.Second)
		assert.That(t, got >= 27 && got <= 31, "fed %d times in ten lives of the watchdog, while it hands over", got)
		still := errors.New("the clock loop has stood still")
		n.alive.Store(&still)
		got = fed(time.Minute)
		assert.That(t, got == 0, "fed %d times although the loops stand still", got)
	})
}

func TestWithoutASocketNothingIsNotified(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	assert.That(t, newNotifier(slog.Default(), nil, nil) == nil, "there is a notifier without NOTIFY_SOCKET")
}

func TestTheSocketOfTheServiceManagerIsWrittenTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket := assert.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000000")
	t.Setenv("WATCHDOG_PID", "1") // another process's
	var complaints strings.Builder
	n := newNotifier(slog.New(slog.NewTextHandler(&complaints, nil)), func() error { return nil }, func() error { return nil })
	assert.That(t, n.watchdog == 0, "the watchdog of another process is fed every %v", n.watchdog)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.run(ctx, ctx) }()
	_ = socket.SetReadDeadline(time.Now().Add(30 * time.Second))
	buf := make([]byte, 4096)
	size, err := socket.Read(buf)
	got := string(buf[:size])
	assert.That(t, err == nil && got == "READY=1\nSTATUS=serving", "%v: %q; %s", err, got, complaints.String())
	cancel()
	<-ended
}
