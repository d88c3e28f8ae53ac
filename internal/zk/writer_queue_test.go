package zk

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func queuedWrite(names ...string) *item {
	w := &Write{Ops: []Op{{Kind: OpCreate, Path: "/x"}}}
	if len(names) > 0 {
		w.Queue, w.More = names[0], names[1:]
	}
	return &item{write: w}
}

func TestAWriteOfSeveralQueuesWaitsUntilItIsTheFirstInEach(t *testing.T) {
	var q queue
	firstA, firstB, secondB := queuedWrite("a"), queuedWrite("b"), queuedWrite("b")
	both, behindA, other := queuedWrite("a", "b"), queuedWrite("a"), queuedWrite("c")
	for _, it := range []*item{firstA, firstB, secondB, both, behindA, other} {
		q.push(it)
	}
	for i, want := range [][]*item{{firstA, firstB, other}, {secondB}, {both}, {behindA}} {
		if got := q.take(maxBatchOps, maxTransaction); !slices.Equal(got, want) {
			t.Errorf("transaction %d has %d writes, want %d others", i, len(got), len(want))
		}
	}
	if !q.empty() || len(q.waiting) != 0 {
		t.Errorf("%d are left in line, %d queues", len(q.line), len(q.waiting))
	}
}

// A write of one queue is what nearly all are.
func TestAWriteOfOneQueueTakesNoMoreMemory(t *testing.T) {
	var q queue
	it := queuedWrite("a")
	q.push(queuedWrite("a"))
	q.take(1, 1)
	if n := testing.AllocsPerRun(100, func() {
		q.push(it)
		q.pop()
		q.advance("a")
	}); n != 0 {
		t.Errorf("it takes %v allocations to go through the queue", n)
	}
}

// The rules of Write.Queue and More, for whatever comes: one Write of a queue in a
// transaction, in the order of their coming, all go in the end, and nobody is
// overtaken in a queue by one who came later.
func TestWritesOfSeveralQueuesAllGoInTheOrderOfEachQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var pushed []*item              // that wait, in the order of their coming
		inQueue := map[string][]*item{} // the same by queue
		take := func(t *rapid.T) {
			if q.empty() {
				if len(pushed) > 0 {
					t.Fatalf("%d wait for each other", len(pushed))
				}
				return
			}
			oldest := pushed[0]
			batch := q.take(rapid.IntRange(1, 5).Draw(t, "ops"), maxTransaction)
			if len(batch) == 0 {
				t.Fatalf("a transaction without a write")
			}
			seen := map[string]bool{}
			for _, it := range batch {
				if it.behind != 0 {
					t.Fatalf("one goes that stands behind %d others", it.behind)
				}
				for name := range it.write.queues {
					if seen[name] {
						t.Fatalf("two of queue %s are in one transaction", name)
					}
					seen[name] = true
					if inQueue[name][0] != it {
						t.Fatalf("one of queue %s overtakes another", name)
					}
					inQueue[name] = inQueue[name][1:]
				}
				if i := slices.Index(pushed, it); i >= 0 {
					pushed = slices.Delete(pushed, i, i+1)
				} else {
					t.Fatalf("one goes twice")
				}
			}
			if slices.Contains(pushed, oldest) && !slices.Contains(q.line[q.head:], oldest) {
				t.Fatalf("the oldest waits for others")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				n := rapid.IntRange(0, 4).Draw(t, "queues")
				names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-f]"), n, n, rapid.ID).Draw(t, "names")
				it := queuedWrite(names...)
				it.write.Alone = rapid.IntRange(0, 9).Draw(t, "alone") == 0
				q.push(it)
				pushed = append(pushed, it)
				for _, name := range names {
					inQueue[name] = append(inQueue[name], it)
				}
			},
			"take": take,
		})
		if rapid.Bool().Draw(t, "drained") {
			left := q.drain()
			if len(left) != len(pushed) {
				t.Fatalf("%d are drained of %d", len(left), len(pushed))
			}
			for _, it := range pushed {
				if !slices.Contains(left, it) {
					t.Fatalf("one is lost")
				}
			}
			return
		}
		for len(pushed) > 0 {
			take(t)
		}
		if len(q.waiting) != 0 {
			t.Fatalf("%d queues are remembered of nobody", len(q.waiting))
		}
	})
}

// 64 locks of one lease and, in each of them, others before and behind.
func TestALargeGroupInTheMiddleOfManyQueues(t *testing.T) {
	var q queue
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprint("/locks/", i))
		q.push(queuedWrite(names[i]))
	}
	group := queuedWrite(names...)
	q.push(group)
	for _, name := range names {
		q.push(queuedWrite(name))
	}
	var sizes []int
	for !q.empty() {
		batch := q.take(maxBatchOps, maxTransaction)
		sizes = append(sizes, len(batch))
		if slices.Contains(batch, group) && len(batch) != 1 {
			t.Error("the group shares a transaction with one of its queues")
		}
	}
	if !slices.Equal(sizes, []int{64, 1, 64}) {
		t.Errorf("transactions of %d writes, want 64, 1, 64", sizes)
	}
}
