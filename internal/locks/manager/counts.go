package manager

import (
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// counts is what Info says of numbers, kept as things change: asking costs
// nothing that grows. Guarded by the monitor.
type counts struct {
	phases    [ended][kinds]int  // leases of this gateway, by phase and kind
	slots     int                // of the leases of this gateway
	line      leaseHeap[bySince] // leases that are creating or waiting, the oldest first
	heldUp    int                // ends that wait for the outbox
	forbidden error              // the first transition of a lease that its table does not have; see state.go
}

// waits reports whether a lease of that phase stands in line.
func (p phase) waits() bool { return p == creating || p == waiting }

// kind is what a lease is counted as: the mode of its one lock, or several.
type kind uint8

// The first kinds are the numbers of recipe.Mode.
const (
	several kind = kind(recipe.Modes)
	kinds        = several + 1
)

func (k kind) mode() locks.Mode {
	if k == several {
		return locks.Several
	}
	return locks.ModeOf(recipe.Mode(k))
}

func kindOf(l *lease) kind {
	if l.contender.Groups > 1 {
		return several
	}
	return kind(l.contender.Mode)
}

// recount is called when a lease's first contender is another one.
func (c *counts) recount(l *lease) {
	if l.phase != ended {
		c.phases[l.phase][l.kind]--
		c.phases[l.phase][kindOf(l)]++
	}
	l.kind = kindOf(l)
}

// in is how many leases are in a phase.
func (c *counts) in(p phase) (n int) {
	for _, of := range c.phases[p] {
		n += of
	}
	return n
}

// enter counts a lease that this gateway has begun to own.
func (c *counts) enter(l *lease) {
	l.kind = kindOf(l)
	c.phases[l.phase][l.kind]++
	c.slots += l.width()
	l.lineIndex = -1
	c.stand(l)
}

// stand puts a lease into the line of those that wait, or takes it out, by its phase.
func (c *counts) stand(l *lease) {
	switch waits := l.phase.waits(); {
	case waits && l.lineIndex < 0:
		c.line.push(l)
	case !waits:
		c.line.remove(l)
	}
}

// oldest is how long the lease that has waited longest has waited, 0 when none waits.
func (c *counts) oldest(now time.Duration) time.Duration {
	if c.line.Len() == 0 {
		return 0
	}
	return max(now-c.line.leases[0].since, 0)
}

// bySince orders leases by when they came. A newcomer is the youngest, so it goes in without being moved.
type bySince struct{}

func (bySince) less(a, b *lease) bool { return a.since < b.since }
func (bySince) index(l *lease) *int32 { return &l.lineIndex }
