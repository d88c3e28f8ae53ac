package term

import (
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestAWindowThatWasClosedForAMomentIsOpenSinceThen(t *testing.T) {
	clock := &handClock{}
	f := &trustSpan{clock: clock, window: 10 * time.Second}
	at := func(s int) zk.Instant { return zk.At(time.Duration(s)*time.Second, time.Duration(s)*time.Second) }
	_, ok := f.since(at(1))
	assert.That(t, !ok, "open before anything committed")
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
		open, _ := f.since(clock.now)
		assert.That(t, open == step.open, "sent at %d and known at %d: open since %v, want %v", step.sent, step.known, open, step.open)
	}
	_, ok = f.since(at(130))
	assert.That(t, ok, "closed within the window")
	_, ok = f.since(at(131))
	assert.That(t, !ok, "open after the window")
}

type handClock struct{ now zk.Instant }

func (c *handClock) Now() zk.Instant { return c.now }
