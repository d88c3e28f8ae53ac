package sim

import (
	"fmt"
	"sync"
	"time"
)

// journal is what a run has shown so far.
type journal struct {
	begun time.Time

	mu         sync.Mutex
	lines      []string
	violations []string
	answers    map[int]int
}

// trace adds a line to the history.
func (j *journal) trace(format string, args ...any) {
	line := fmt.Sprintf("%12.6f ", time.Since(j.begun).Seconds()) + fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// violate notes a broken promise.
func (j *journal) violate(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	j.trace("VIOLATION: %s", what)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.violations = append(j.violations, what)
}

// answered counts an answer that a client got.
func (j *journal) answered(status int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers[status]++
}

// since is a time as the history shows it.
func (j *journal) since(t time.Time) string { return fmt.Sprintf("%.6f", t.Sub(j.begun).Seconds()) }
