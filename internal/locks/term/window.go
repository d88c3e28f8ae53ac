package term

import (
	"sync"
	"time"

	"lockkeeper/internal/zk"
)

// trustSpan records since when a session's trust window has been open without a gap. It has its own lock, because the
// session's goroutine reports the commits.
type trustSpan struct {
	clock  zk.Clock
	window time.Duration

	mu   sync.Mutex
	sent zk.Instant    // of the last commit
	open time.Duration // boot: when the first commit came after the last gap
}

// committed takes each commit when it becomes known.
func (f *trustSpan) committed(sent zk.Instant) {
	now := f.clock.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent.IsZero() || now.Since(f.sent) >= f.window {
		f.open = now.Boot()
	}
	if f.sent.IsZero() || sent.Boot() > f.sent.Boot() {
		f.sent = sent
	}
}

// since is when the window that is open at now opened; ok is false when it is closed.
func (f *trustSpan) since(now zk.Instant) (open time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open, !f.sent.IsZero() && now.Since(f.sent) < f.window
}
