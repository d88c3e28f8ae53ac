package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// A function that releases what its caller holds breaks what the caller has read; the monitor alone does so, visibly.
func TestOnlyTheMonitorLocks(t *testing.T) {
	files := assert.Value(filepath.Glob("*.go"))(t)
	for _, file := range files {
		if file == "monitor.go" || file == "manager.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := assert.Value(os.ReadFile(file))(t)
		for _, call := range []string{"m.mu.", "m.unlock()"} {
			assert.That(t, !strings.Contains(string(text), call), "%s says %s: run it with do, locked or outside", file, call)
		}
	}
}

func TestEffectsFollowTheUnlockInTheirOrder(t *testing.T) {
	var (
		m     monitor
		order []string
	)
	woken := make(chan struct{})
	note := func(what string) func() {
		return func() {
			if !m.mu.TryLock() {
				t.Errorf("%s runs under the lock", what)
				return
			}
			m.mu.Unlock()
			select {
			case <-woken:
			default:
				t.Errorf("%s runs before the waiters are woken", what)
			}
			order = append(order, what)
		}
	}
	m.do(func() {
		m.effect(note("first"))
		m.effect(note("second"))
		m.wake(woken)
		m.outside(func() { order = append(order, "outside") })
		m.effect(note("third"))
		order = append(order, "inside")
	})
	assert.Equal(t, strings.Join(order, " "), "first second outside inside third")
}
