package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// Bounds of the writer.
const (
	// maxBatchOps bounds the operations of a shared transaction, the two that
	// guard it and checks that it shares not counted. One Write may have more, and then travels alone.
	maxBatchOps = 128
	// maxBatchBytes bounds what they take.
	maxBatchBytes = conn.MaxTransaction - conn.GuardOverhead
	// maxQueuedWrites and maxQueuedBytes bound the Writes that have not been
	// answered. Over them Submit refuses with ErrQueueFull.
	maxQueuedWrites = 8192
	maxQueuedBytes  = 16 << 20
)

// queue holds the items that wait for a transaction. It is a fifo, except that only one item per queue is ever in line:
// the next of the same queue stands behind it in a line of its own and joins when it has left. An item of several
// queues stands in each of their lines, and joins when it is the first in all.
type queue struct {
	line []*item // from head on
	head int
	// Of the items in line: their operations, their bytes, how many travel alone, are awaited, and may wait.
	ops, bytes, alone, awaited, mayWait int
	// waiting is by queue those who stand behind its first; present while there is a
	// first, who is in line or waits behind others in another of its queues.
	waiting map[string][]*item
}

func (q *queue) empty() bool { return q.head == len(q.line) }

func (q *queue) push(it *item) {
	for _, name := range it.write.Queues {
		behind, ok := q.waiting[name]
		switch {
		case ok:
			q.waiting[name] = append(behind, it)
			it.behind++
			continue
		case q.waiting == nil:
			q.waiting = make(map[string][]*item)
		}
		q.waiting[name] = nil
	}
	if it.behind == 0 {
		q.enter(it)
	}
}

// enter puts an item at the end of the line.
func (q *queue) enter(it *item) {
	q.line = append(q.line, it)
	q.count(it, 1)
}

func (q *queue) count(it *item, sign int) {
	q.ops += sign * len(it.write.Ops)
	q.bytes += sign * it.bytes
	if it.write.Alone {
		q.alone += sign
	}
	if it.write.Awaited {
		q.awaited += sign
	}
	if it.write.MayWait {
		q.mayWait += sign
	}
}

// waitsSince is when the first of the items in line came that may wait; ok is false unless all may.
func (q *queue) waitsSince() (since time.Time, ok bool) {
	if q.empty() || q.mayWait < len(q.line)-q.head {
		return time.Time{}, false
	}
	since = q.line[q.head].came
	for _, it := range q.line[q.head+1:] {
		if it.came.Before(since) { // it was behind another one of its queue
			since = it.came
		}
	}
	return since, true
}

func (q *queue) pop() *item {
	it := q.line[q.head]
	q.count(it, -1)
	q.line[q.head] = nil
	q.head++
	if q.head == len(q.line) {
		q.line, q.head = q.line[:0], 0
	} else if q.head >= 1024 && q.head > len(q.line)/2 {
		n := copy(q.line, q.line[q.head:])
		clear(q.line[n:])
		q.line, q.head = q.line[:n], 0
	}
	return it
}

// next is how many items from the front the next transaction takes: as many as fit, an Alone one by itself. It is full
// when nothing that arrives later could join it.
func (q *queue) next(maxOps, maxBytes int) (items int, full bool) {
	var dedup checkDedup // a check that many share takes one place, not one in each of them
	ops, bytes := 0, 0
	for _, it := range q.line[q.head:] {
		sent := 0
		for i := range it.write.Ops {
			if !dedup.skip(&it.write.Ops[i]) {
				sent++
			}
		}
		if items > 0 && (it.write.Alone || ops+sent > maxOps || bytes+it.bytes > maxBytes) {
			return items, true
		}
		items++
		ops += sent
		bytes += it.bytes
		if it.write.Alone || ops >= maxOps {
			return items, true
		}
	}
	return items, false
}

// full reports whether the next transaction is.
func (q *queue) full(maxOps, maxBytes int) bool {
	if q.alone == 0 && q.ops < maxOps && q.bytes <= maxBytes {
		return false // all of the line fits, with room to spare
	}
	_, full := q.next(maxOps, maxBytes)
	return full
}

// take removes the items of the next transaction. The result is in the order in which their operations are to stand.
func (q *queue) take(maxOps, maxBytes int) []*item {
	n, _ := q.next(maxOps, maxBytes)
	batch := make([]*item, n)
	for i := range batch {
		batch[i] = q.pop()
	}
	for _, it := range batch {
		for _, name := range it.write.Queues {
			q.advance(name)
		}
	}
	deletesLast(batch)
	return batch
}

// advance makes the next item of a queue its first.
func (q *queue) advance(name string) {
	behind := q.waiting[name]
	if len(behind) == 0 {
		delete(q.waiting, name)
		return
	}
	q.stepUp(behind[0])
	behind[0] = nil
	q.waiting[name] = behind[1:]
}

// stepUp is told that an item has become the first in one more of its queues.
func (q *queue) stepUp(it *item) {
	if it.behind--; it.behind == 0 {
		q.enter(it)
	}
}

// drain removes everything, in an order that is no map's: the callers are told in it.
func (q *queue) drain() []*item {
	for _, name := range slices.Sorted(maps.Keys(q.waiting)) {
		for _, it := range q.waiting[name] {
			q.stepUp(it)
		}
	}
	all := q.line[q.head:]
	*q = queue{}
	return all
}

// deletesLast moves the items that only delete behind the others, and of the contenders of one queue the later ones
// before the earlier: no contender is at its head between two operations that was not before and is not afterwards.
func deletesLast(batch []*item) {
	var several bool
	for _, it := range batch {
		if it.onlyDeletes {
			several = several || deletions(it.write) > 1
			it.dir, it.number = place(firstDeleted(it.write))
		}
	}
	if several {
		tailsFirst(batch)
		return
	}
	slices.SortStableFunc(batch, func(a, b *item) int {
		if fault.On("creates-first") && a.onlyDeletes != b.onlyDeletes {
			a, b = b, a
		}
		switch {
		case a.onlyDeletes && b.onlyDeletes:
			earlier, later := a.number, b.number
			if fault.On("tail-first") {
				earlier, later = later, earlier
			}
			return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(later, earlier))
		case a.onlyDeletes:
			return 1
		case b.onlyDeletes:
			return -1
		}
		return 0
	})
}

// deletions is how many nodes the Write deletes.
func deletions(w *zk.Write) (n int) {
	for i := range w.Ops {
		if w.Ops[i].Kind == zk.OpDelete {
			n++
		}
	}
	return n
}

// firstDeleted is the first node that a Write deletes, or else touches.
func firstDeleted(w *zk.Write) string {
	for i := range w.Ops {
		if w.Ops[i].Kind == zk.OpDelete {
			return w.Ops[i].Path
		}
	}
	return w.Ops[0].Path
}

// tailsFirst is deletesLast for items that delete contenders of several queues each. Leases over several locks have the
// same order in all of their queues, so there is an order of the items that suits every queue. Where there is none
// (nodes made by hand), items stand as they came.
func tailsFirst(batch []*item) {
	ordered := slices.DeleteFunc(slices.Clone(batch), func(it *item) bool { return it.onlyDeletes })
	deletes := slices.DeleteFunc(slices.Clone(batch), func(it *item) bool { return !it.onlyDeletes })
	type deleted struct {
		dir, number string
		by          int
	}
	var all []deleted
	for by, it := range deletes {
		for i := range it.write.Ops {
			if it.write.Ops[i].Kind != zk.OpDelete {
				continue
			}
			if dir, number := place(it.write.Ops[i].Path); number != "" {
				all = append(all, deleted{dir, number, by})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b deleted) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(b.number, a.number))
	})
	before := make([][]int, len(deletes)) // who must stand in front of each
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.dir == b.dir && a.by != b.by {
			before[b.by] = append(before[b.by], a.by)
		}
	}
	seen := make([]bool, len(deletes))
	var put func(by int)
	put = func(by int) {
		if seen[by] {
			return
		}
		seen[by] = true
		for _, first := range before[by] {
			put(first)
		}
		ordered = append(ordered, deletes[by])
	}
	for by := range deletes {
		put(by)
	}
	copy(batch, ordered)
}
