package term

import (
	"testing"
	"time"

	"lockkeeper/internal/zk"
)

func TestAWindowThatWasClosedForAMomentIsOpenSinceThen(t *testing.T) {
	clock := &handClock{}
	f := &trustSpan{clock: clock, window: 10 * time.Second}
	at := func(s int) zk.Instant { return zk.At(time.Duration(s)*time.Second, time.Duration(s)*time.Second) }
	if _, ok := f.since(at(1)); ok {
		t.Error("open before anything committed")
	}
	for _, step := range []struct {
		sent, known int
		open        time.Duration // as known right then
	}{
		{100, 101, 101 * time.Second},
		{104, 105, 101 * time.Second},
		{103, 106, 101 * time.Second}, // an older answer, late
		{108, 113, 101 * time.Second},
		{117, 118, 118 * time.Second}, // 108 and 10 had passed when it became known
		{120, 126, 118 * time.Second},
		{121, 131, 131 * time.Second}, // it was closed for a moment
	} {
		clock.now = at(step.known)
		f.committed(at(step.sent))
		if open, _ := f.since(clock.now); open != step.open {
			t.Errorf("sent at %d and known at %d: open since %v, want %v", step.sent, step.known, open, step.open)
		}
	}
	if _, ok := f.since(at(130)); !ok {
		t.Error("closed within the window")
	}
	if _, ok := f.since(at(131)); ok {
		t.Error("open after the window")
	}
}

type handClock struct{ now zk.Instant }

func (c *handClock) Now() zk.Instant { return c.now }
