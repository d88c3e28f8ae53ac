package history

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/test/assert"
)

// followedBy runs a follower of a hub for a time, and returns its last batch. happen is called with the time that has passed, each 100 ms.
func followedBy(t *testing.T, hub *events.Hub, d time.Duration, happen func(passed time.Duration)) (last *batch) {
	t.Helper()
	queue := make(chan *batch, maxQueued)
	ctx, cancel := context.WithCancel(t.Context())
	f := newFollower(New(Options{Hub: hub, Now: holding{}}), queue, nil)
	go func() { f.run(ctx); close(queue) }()
	synctest.Wait()
	for passed := 100 * time.Millisecond; passed <= d; passed += 100 * time.Millisecond {
		time.Sleep(100 * time.Millisecond)
		happen(passed)
	}
	cancel()
	for last = range queue { // the last one counts
	}
	return last
}

// A stop leaves unread what the hub had not given yet: that must not count as seen.
func TestAnEventThatWasNotReadCountsAsNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := events.New(events.Options{}) // it does not run: it gives nothing
		var published time.Time
		last := followedBy(t, hub, 3500*time.Millisecond, func(passed time.Duration) {
			if passed == 3200*time.Millisecond {
				published = time.Now()
				hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: "deploy", LeaseID: "l1", FencingToken: 7})
			}
		})
		assert.That(t, len(last.ops) == 0 && last.at.After(published), "the event was read: %+v", last)
		assert.That(t, last.read.Before(published), "it read until %v, and the event of %v is not there", last.read, published)
		assert.That(t, published.Sub(last.read) <= 2*flushes, "it read until %v long before", last.read)
	})
}

func TestWhatWasReadLastIsUntilWhenAllIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := events.New(events.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = hub.Run(ctx) }()
		var published time.Time
		last := followedBy(t, hub, 3500*time.Millisecond, func(passed time.Duration) {
			if passed == 3300*time.Millisecond {
				published = time.Now()
				hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: "deploy", LeaseID: "l1", FencingToken: 7})
			}
		})
		assert.That(t, len(last.ops) == 1 && last.read.Equal(published), "read until %v of %v: %+v", last.read, published, last.ops)
	})
}

// What the writer does for others says nothing of the events: another gateway's rows fill a gap, or records name an owner.
func TestOnlyTheFollowerSaysUntilWhenAllIsSeen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	h := New(Options{Dir: dir})
	s := assert.Value(openStore(t.Context(), dir, 1<<30))(t)
	w := assert.Value(newWriter(t.Context(), h, s))(t)
	read := time.Now().Truncate(time.Microsecond)
	assert.NoError(t, w.write(&batch{at: read.Add(time.Second), read: read, ops: []op{{do: doGap, gap: Gap{From: read, To: read.Add(time.Millisecond), Cause: CauseLagged}}}}))
	assert.NoError(t, w.write(&batch{at: read.Add(time.Minute), ops: []op{{do: doAmend, item: someHold(1, read)}}}))
	w.close()
	s.close()
	s = assert.Value(openStore(t.Context(), dir, 1<<30))(t)
	defer s.close()
	assert.That(t, s.alive.Equal(read), "seen until %v, and read until %v", s.alive, read)
}

// A writer at rest keeps nothing in memory that it can read again, and what it writes next has the names that the store knows.
func TestAWriterThatHasNothingToWriteKeepsNoNames(t *testing.T) {
	_, w := filled(t, filepath.Join(t.TempDir(), "h"), 3000)
	numbers := func() (n int) {
		assert.NoError(t, w.s.write.QueryRowContext(t.Context(), "SELECT count(*) FROM names").Scan(&n))
		return n
	}
	known := numbers()
	assert.That(t, len(w.names.ids) > 1000, "the writer knows %d names while it writes", len(w.names.ids))
	at := time.Now()
	for turn := range 3 {
		assert.NoError(t, w.write(&batch{at: at.Add(time.Duration(turn) * flushes)}))
		assert.Equal(t, len(w.names.ids), 0, "names that it knows at rest")
	}
	rows := w.rows
	assert.NoError(t, w.write(&batch{at: at.Add(time.Minute), ops: []op{{do: doInsert, item: someHold(2999, at)}}}))
	assert.That(t, w.rows == rows+1 && !w.resting && len(w.names.ids) > 0, "%d rows after %d, resting %v, %d names", w.rows, rows, w.resting, len(w.names.ids))
	assert.Equal(t, numbers(), known, "names in the store")
	w.close()
}
