package recipe

import (
	"fmt"
	"runtime"
	"testing"

	"lockkeeper/internal/test/assert"
)

// filled is a queue of n contenders of one mode, and the next number.
func filled(n int, mode Mode) (*Queue, int32) {
	q := new(Queue)
	for i := range n {
		q.Insert(named(numbered(i, mode)))
	}
	return q, int32(n)
}

// room is how many contenders fit into what a queue has in memory.
func room(q *Queue) int {
	if q.row != nil {
		return cap(q.row.buf)
	}
	return cap(q.only)
}

func numbered(i int, mode Mode) Contender {
	c := Contender{LeaseID: lease(i), Number: int32(i), Mode: mode}
	if mode == Permit {
		c.Permits, c.Limit = 1, 8
	}
	return c
}

func TestAskingForHoldersDoesNotAllocate(t *testing.T) {
	for _, mode := range []Mode{Exclusive, Shared, Permit} {
		q, _ := filled(20, mode)
		first, last := q.At(0).Name, q.At(19).Name
		n := 0
		allocs := testing.AllocsPerRun(100, func() {
			for range q.Holders() {
				n++
			}
			if q.Holds(first) && q.LeaseHolds(last) {
				n++
			}
			q.Position(last)
			n += q.Waiting()
		})
		assert.That(t, allocs == 0, "%s: %v allocations", mode, allocs)
	}
}

func TestAQueueThatMovesOnDoesNotGrow(t *testing.T) {
	for _, length := range []int{0, 1, 2, 100} {
		q, next := filled(length, Exclusive)
		contenders := make([]*Contender, 10*length+100)
		for i := range contenders {
			contenders[i] = named(numbered(int(next)+i, Exclusive))
		}
		for _, c := range contenders {
			q.Insert(c)
			q.Remove(q.At(0).Name)
		}
		if limit := 4*length + 2; room(q) > limit || q.Len() != length {
			t.Errorf("a queue of %d contenders has room for %d, more than %d", q.Len(), room(q), limit)
		}
	}
}

func TestALongQueueGivesItsMemoryBack(t *testing.T) {
	q, _ := filled(1000, Exclusive)
	for q.Len() > 1 {
		q.Remove(q.At(q.Len() / 2).Name)
	}
	assert.That(t, room(q) <= 16, "a queue of one contender has room for %d", room(q))
	q.Remove(q.At(0).Name)
	assert.That(t, q.Len() == 0 && q.Waiting() == 0, "%d contenders in an empty queue", q.Len())
}

// The first contender costs the pointer's slot besides the contender itself.
func TestALockWithOneContenderIsSmall(t *testing.T) {
	const locks = 10000
	contenders := make([]*Contender, locks)
	for i := range contenders {
		contenders[i] = named(numbered(i, Exclusive))
	}
	queues := make([]Queue, locks)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range queues {
		queues[i].Insert(contenders[i])
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / locks
	assert.That(t, each <= 16, "a queue of one contender takes %d bytes", each)
	runtime.KeepAlive(queues)
	runtime.KeepAlive(contenders)
}

func BenchmarkQueueAppendAndRemoveHead(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			// A ring of names: a queue of n spans a quarter of the circle and goes round it for ever.
			ring := make([]*Contender, 4*n+4)
			for i := range ring {
				ring[i] = named(Contender{LeaseID: lease(i), Number: int32(uint64(i) << 32 / uint64(len(ring)))})
			}
			q := new(Queue)
			for _, c := range ring[:n] {
				q.Insert(c)
			}
			b.ReportAllocs()
			for i := n; b.Loop(); i++ {
				if i == len(ring) {
					i = 0
				}
				q.Insert(ring[i])
				q.Remove(q.At(0).Name)
			}
			if q.Len() != n || !q.Ordered() {
				b.Fatalf("%d contenders, ordered %v", q.Len(), q.Ordered())
			}
		})
	}
}

func BenchmarkHolders(b *testing.B) {
	for _, mode := range []Mode{Exclusive, Shared, Permit} {
		for _, n := range []int{1, 100, 10000} {
			b.Run(fmt.Sprintf("%s/%d", mode, n), func(b *testing.B) {
				q, next := filled(n, mode)
				if mode == Shared { // one reader in a hundred holds
					q.Insert(named(Contender{LeaseID: lease(n), Number: next - int32(n) + int32(n)/100}))
				}
				b.ReportAllocs()
				for b.Loop() {
					for range q.Holders() {
					}
				}
			})
		}
	}
}

func BenchmarkPositionOfTheLast(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q, _ := filled(n, Exclusive)
			last := q.At(n - 1).Name
			b.ReportAllocs()
			for b.Loop() {
				q.Position(last)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	name := named(Contender{LeaseID: testLease, Number: 7}).Name
	b.ReportAllocs()
	for b.Loop() {
		Parse(testFleet, name)
	}
}
