package zk

import (
	"testing"

	"lockkeeper/internal/test/assert"
)

// countedLock is a Receiver with a lock that knows whether it is held.
type countedLock struct {
	held  bool
	taken int
}

func (l *countedLock) Receive(list []Answered) {
	l.held = true
	l.taken++
	for i := range list {
		list[i].Write.Done(list[i].Result)
	}
	l.held = false
}

func TestWritesOfOneReceiverAreAnsweredInOrderAndAtOnce(t *testing.T) {
	a, b := &countedLock{}, &countedLock{}
	var order []int
	answered := func(n int, to Receiver, held func() bool) Answered {
		w := &Write{To: to, Done: func(r Result) {
			order = append(order, n)
			assert.That(t, held() && r.Culprit == n, "write %d is told %+v, locks held: %v", n, r, held())
		}}
		return Answered{w, Result{Culprit: n}}
	}
	onlyA := func() bool { return a.held && !b.held }
	onlyB := func() bool { return b.held && !a.held }
	none := func() bool { return !a.held && !b.held }
	Answer([]Answered{answered(0, a, onlyA), answered(1, a, onlyA), answered(2, nil, none), answered(3, b, onlyB), answered(4, a, onlyA), answered(5, a, onlyA)})
	assert.Slices(t, order, []int{0, 1, 2, 3, 4, 5}, "each is told once, in order")
	assert.Slices(t, []int{a.taken, b.taken}, []int{2, 1}, "those side by side share one taking")

	alone := answered(6, b, onlyB)
	alone.Write.Answer(alone.Result)
	assert.Equal(t, b.taken, 2, "a single answer takes the lock, too")
	alone = answered(7, nil, none)
	alone.Write.Answer(alone.Result)
	assert.Equal(t, len(order), 8, "all were told")
	Answer(nil)
}
