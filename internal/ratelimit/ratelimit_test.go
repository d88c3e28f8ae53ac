package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// ask asks n times at that moment, and says how many requests were refused.
func ask(c *Callers, name string, perSecond float64, n int, at time.Time) (refused int) {
	for range n {
		if p, _, r := c.Begin(name, perSecond, at); r != nil {
			refused++
		} else {
			p.Leave()
		}
	}
	return refused
}

func TestACallerHasItsRateAndNoMore(t *testing.T) {
	c := New(AtOnce{})
	assert.Equal(t, ask(c, "one", 20, 20, start), 0, "what a second brings")
	assert.Equal(t, ask(c, "one", 20, 5, start), 5, "one more")
	assert.Equal(t, ask(c, "one", 20, 200, start.Add(500*time.Millisecond)), 190, "after half a second")
	assert.Equal(t, ask(c, "two", 20, 20, start.Add(500*time.Millisecond)), 0, "another caller pays for the first")
	assert.Equal(t, ask(c, "three", 100, 150, start), 50, "a third one")
	assert.Equal(t, ask(c, "slow", 0.5, 20, start), 10, "a slow one may ask for a page")
	assert.Equal(t, ask(New(AtOnce{}), "free", 0, 100_000, start), 0, "there is no bound")
}

func TestARateThatChangesHoldsAtOnce(t *testing.T) {
	c := New(AtOnce{})
	assert.Equal(t, ask(c, "one", 100, 100, start), 0)
	assert.Equal(t, ask(c, "one", 10, 100, start.Add(time.Hour)), 90, "it is lower")
	assert.Equal(t, ask(c, "one", 0, 1000, start.Add(time.Hour)), 0, "it is gone")
}

func TestARefusalSaysWhenToRepeat(t *testing.T) {
	c := New(AtOnce{})
	ask(c, "one", 4, 10, start)
	_, b, r := c.Begin("one", 4, start)
	assert.Must(t, r != nil && r.Most == 0, "%+v", r)
	assert.Equal(t, b, Bucket{Rate: 4, Burst: 10, Retry: 250 * time.Millisecond, Full: 2500 * time.Millisecond})
	assert.That(t, r.First, "the first refusal is not told")
	_, _, r = c.Begin("one", 4, start)
	assert.That(t, !r.First, "each refusal is told")
	_, _, again := c.Begin("one", 4, start.Add(r.Retry))
	assert.That(t, again == nil, "Retry is too early")
	ask(c, "one", 4, 100, start.Add(tellEvery))
	_, b, _ = c.Begin("one", 4, start.Add(time.Hour))
	assert.Equal(t, b.Remaining, 9)
}

func TestEachKindOfWorkHasABoundOfItsOwn(t *testing.T) {
	c := New(AtOnce{Active: 2, Waiting: 1, Stream: 1})
	begin := func() (Place, *Refusal) { p, _, r := c.Begin("one", 0, start); return p, r }
	waits, r := begin()
	assert.That(t, r == nil && waits.Move(Waiting, start) == nil, "it may not wait")
	stream, r := begin()
	assert.That(t, r == nil && stream.Move(Stream, start) == nil, "it may not be a stream")
	a, r := begin()
	assert.That(t, r == nil, "what waits keeps others out")
	b, r := begin()
	assert.That(t, r == nil, "a second one is refused")
	_, r = begin()
	assert.Must(t, r != nil && r.Work == Active && r.Most == 2, "%+v", r)
	other, _, r := c.Begin("two", 0, start)
	assert.That(t, r == nil, "another caller is refused")
	other.Leave()
	r = a.Move(Waiting, start)
	assert.Must(t, r != nil && r.Work == Waiting && r.Most == 1, "%+v", r)
	assert.That(t, waits.Move(Active, start) == nil, "one that has waited is refused")
	assert.That(t, a.Move(Waiting, start) == nil, "the place of one that has waited stays taken")
	for _, p := range []*Place{&a, &b, &waits, &stream} {
		p.Leave()
		p.Leave()
	}
	assert.Equal(t, c.byName["one"].atOnce, AtOnce{})
}

func TestARequestThatIsRefusedForWhatIsUnderWayCostsNothingOfTheRate(t *testing.T) {
	c := New(AtOnce{Active: 1})
	p, _, _ := c.Begin("one", 10, start)
	assert.Equal(t, ask(c, "one", 10, 50, start), 50)
	p.Leave()
	assert.Equal(t, ask(c, "one", 10, 9, start), 0, "the refused ones were counted")
}

func TestCallersAreForgottenButThoseWithARequestUnderWay(t *testing.T) {
	c := New(AtOnce{})
	stays, _, _ := c.Begin("stays", 10, start)
	for i := range 2 * maxCallers {
		ask(c, fmt.Sprint(i), 10, 1, start)
	}
	assert.That(t, len(c.byName) <= maxCallers && c.recent.Len() == len(c.byName), "%d callers are kept, %d in line", len(c.byName), c.recent.Len())
	assert.That(t, c.byName["stays"] != nil, "a caller with a request under way is forgotten")
	stays.Leave()
}

func TestAKnownCallerCostsNoAllocation(t *testing.T) {
	c := New(AtOnce{10, 10, 10})
	ask(c, "one", 1e9, 1, start)
	assert.Equal(t, testing.AllocsPerRun(100, func() {
		p, _, r := c.Begin("one", 1e9, start)
		if r != nil || p.Move(Waiting, start) != nil || p.Move(Active, start) != nil {
			t.Fatal("refused")
		}
		p.Leave()
	}), 0)
}

func BenchmarkBegin(b *testing.B) {
	c := New(AtOnce{})
	b.ReportAllocs()
	for b.Loop() {
		p, _, _ := c.Begin("one", 1e9, time.Now())
		p.Leave()
	}
}
