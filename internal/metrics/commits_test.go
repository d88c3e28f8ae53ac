package metrics

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestTheLatencyOfCommitsIsThatOfTheLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("1")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.RunCommits(ctx) }()
		defer func() { stop(); <-done }()
		commit := func(n int, took time.Duration) {
			for range n {
				m.ZKOperation("multi", "ok", took)
			}
		}
		_, ok := m.Commits()
		assert.That(t, !ok, "without a commit")

		m.ZKOperation("multi", "refused", time.Second) // is none
		m.ZKOperation("get", "ok", time.Second)
		commit(98, 2*time.Millisecond)
		commit(2, 80*time.Millisecond)
		time.Sleep(time.Minute)
		l, ok := m.Commits()
		assert.That(t, ok && l.P50 > time.Millisecond && l.P50 <= 2500*time.Microsecond, "p50 %v", l.P50)
		assert.That(t, l.P99 > 50*time.Millisecond && l.P99 <= 100*time.Millisecond, "p99 %v", l.P99)
		assert.Equal(t, l.Over, time.Minute)

		time.Sleep(10 * time.Minute) // they are forgotten
		_, ok = m.Commits()
		assert.That(t, !ok, "%+v", l)
		commit(10, 7*time.Millisecond)
		l, ok = m.Commits()
		assert.That(t, ok && l.P50 > 5*time.Millisecond && l.P99 <= 10*time.Millisecond, "%+v", l)
		assert.That(t, l.Over > 4*time.Minute && l.Over <= 5*time.Minute, "of %v", l.Over)
		commit(1000, time.Minute) // beyond the last bucket
		l, _ = m.Commits()
		assert.Equal(t, l.P99, 10*time.Second)
	})
}
