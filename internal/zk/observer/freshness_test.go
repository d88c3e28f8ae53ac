package observer

import (
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// stopClock is a clock that tests move.
type stopClock struct{ now zk.Instant }

func (c *stopClock) Now() zk.Instant { return c.now }

func (c *stopClock) pass(d time.Duration) zk.Instant {
	c.now = c.now.Add(d)
	return c.now
}

const testWindow = 10 * time.Second

func newStopped() (*stopClock, *Freshness) {
	clock := &stopClock{now: zk.At(time.Hour, 1000*time.Hour)}
	return clock, NewFreshness(clock, testWindow)
}

func TestTheReplicaIsCurrentOnlyOnceACommitHasBeenObserved(t *testing.T) {
	clock, c := newStopped()
	sent := clock.now
	if c.Synced(); c.Current(clock.now) || !c.Until().IsZero() {
		t.Error("current before the writer has committed anything")
	}
	clock.pass(time.Second)
	if c.Committed(sent, 100); c.Current(clock.now) {
		t.Error("current before the observer has reached the commit")
	}
	if c.Observed(99); c.Current(clock.now) {
		t.Error("current by an earlier zxid")
	}
	if c.Observed(100); !c.Current(clock.now) || c.Until() != sent.Add(testWindow) {
		t.Errorf("not current, or until %v", c.Until())
	}
	if clock.pass(testWindow - time.Second - 1); !c.Current(clock.now) {
		t.Error("ended before its time")
	}
	if clock.pass(1); c.Current(clock.now) {
		t.Error("current a window after the transaction was sent")
	}
}

func TestTheReplicaIsCurrentWhenTheCommitIsToldAfterItWasObserved(t *testing.T) {
	clock, c := newStopped()
	sent := clock.now
	c.Synced()
	c.Observed(100)
	clock.pass(time.Second)
	if c.Committed(sent, 100); !c.Current(clock.now) || c.Until() != sent.Add(testWindow) {
		t.Error("the observer was quicker than the writer's own reply, and is not current")
	}
	if c.Committed(sent.Add(-time.Second), 90); c.Until() != sent.Add(testWindow) {
		t.Error("an older commit took time away")
	}
}

func TestAReplicaWhoseConnectionIsLostIsNotCurrent(t *testing.T) {
	clock, c := newStopped()
	c.Synced()
	c.Observed(100)
	c.Committed(clock.now, 100)
	if c.Lost(); c.Current(clock.now) || !c.Until().IsZero() {
		t.Error("current without a connection")
	}
	if c.Synced(); !c.Current(clock.now) {
		t.Error("what was proven before counts again once the tree has been read")
	}
}

func TestTheLagIsThatOfTheOldestCommitThatHasNotCome(t *testing.T) {
	clock, c := newStopped()
	c.Synced()
	c.Observed(100)
	c.Committed(clock.now, 100)
	assert.Equal(t, c.Lag(clock.now), 0, "nothing is missing")
	c.Committed(clock.now, 101)
	clock.pass(30 * time.Millisecond)
	c.Committed(clock.now, 102)
	clock.pass(20 * time.Millisecond)
	assert.Equal(t, c.Lag(clock.now), 50*time.Millisecond)
	c.Observed(102)
	assert.Equal(t, c.Lag(clock.now), 0, "it has come")
}

func TestAWallClockThatJumpsEndsFreshness(t *testing.T) {
	clock, c := newStopped()
	c.Synced()
	c.Observed(100)
	c.Committed(clock.now, 100)
	asleep := zk.At(clock.now.Boot(), clock.now.Wall()+testWindow)
	assert.That(t, !c.Current(asleep), "a restored machine trusts its replica")
}

// TestAZxidThatStandsStillEndsFreshness is the cut-off server: pings are answered, the writer goes on.
func TestAZxidThatStandsStillEndsFreshness(t *testing.T) {
	clock, c := newStopped()
	c.Synced()
	c.Committed(clock.now, 1)
	c.Observed(1)
	start := clock.now
	for zxid := int64(2); clock.now.Since(start) < 5*testWindow; zxid++ {
		clock.pass(testWindow / 100)
		c.Committed(clock.now, zxid)
		c.Observed(1)
		if got, want := c.Current(clock.now), clock.now.Since(start) < testWindow; got != want {
			t.Fatalf("current %v after %v", got, clock.now.Since(start))
		}
	}
	assert.That(t, len(c.waiting) <= commitSlots, "%d commits are remembered", len(c.waiting))
}

// TestFreshnessFollowsABusyWriter checks that coalescing costs at most a
// sixteenth of the window, however many commits there are between two replies.
func TestFreshnessFollowsABusyWriter(t *testing.T) {
	clock, c := newStopped()
	c.Synced()
	zxid := int64(0)
	const lag = 500 // the observer is that many transactions behind, of 1 ms each
	for i := range 100_000 {
		clock.pass(time.Millisecond)
		zxid++
		c.Committed(clock.now, zxid)
		if i%1700 == 1699 {
			c.Observed(zxid - lag)
			age := clock.now.Add(testWindow).Since(c.Until())
			assert.Must(t, age <= lag*time.Millisecond+testWindow/commitSpacing, "step %d: judged by a commit %v old", i, age)
			assert.Must(t, c.Current(clock.now), "not current")
		}
	}
}

func TestBehindNeedsAPingSentAfterGrace(t *testing.T) {
	clock, c := newStopped()
	c.Synced()
	grace := testWindow / 3
	c.Observed(5)
	assert.That(t, !c.behind(5, clock.now, grace), "behind a writer that has done nothing")
	clock.pass(time.Second)
	c.Committed(clock.now, 6)
	told := clock.now
	for _, s := range []struct {
		zxid  int64
		after time.Duration
		want  bool
	}{
		{5, 0, false},          // a commit is always a little ahead
		{5, grace, false},      // the grace is not over
		{5, grace + 1, true},   // it is
		{6, grace + 1, false},  // the ping shows the commit
		{6, 10 * grace, false}, // and there is no other
	} {
		assert.Equal(t, c.behind(s.zxid, told.Add(s.after), grace), s.want,
			"zxid %d answered to a ping sent %v after the commit: behind", s.zxid, s.after)
	}
	// Later commits do not push the limit away.
	for i := range int64(5000) {
		clock.pass(grace / 50)
		c.Committed(clock.now, 7+i)
	}
	assert.That(t, c.behind(5, told.Add(grace+1), grace), "a stream of commits hides that the server stands still")
}

func TestTurnedIsCalledWhenTheReplicaBecomesCurrent(t *testing.T) {
	clock, c := newStopped()
	turns := 0
	c.turned = func() { turns++ }
	step := func(want int, what string) {
		t.Helper()
		assert.That(t, turns == want, "%s: called %d times, want %d", what, turns, want)
	}
	c.Committed(clock.now, 1)
	c.Observed(1)
	step(0, "not synced")
	c.Synced()
	step(1, "synced")
	c.Committed(clock.pass(time.Second), 2)
	c.Observed(2)
	step(1, "still current")
	c.Committed(clock.pass(2*testWindow), 3)
	c.Observed(3)
	step(2, "current again after the window had ended")
	c.Lost()
	step(2, "lost")
	c.Synced()
	step(3, "synced again")
}
