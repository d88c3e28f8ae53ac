package session

import (
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// batchKind tells what a guarded transaction is for.
type batchKind uint8

const (
	workBatch  batchKind = iota + 1 // {check epoch, set guard, operations...}
	guardBatch                      // {check epoch, set guard}
	bumpBatch                       // {set registration at the known epoch, set guard}
	closeBatch                      // {delete guard, delete registration at the epoch}
)

// guardOps is the number of operations in front of a batch's own.
const guardOps = 2

// batch is one guarded transaction, sent or about to be.
type batch struct {
	kind   batchKind
	items  []*item
	fails  int // times that these items, then still together, were refused
	number int64
	epoch  int32
	sent   zk.Instant // both clocks when it was handed to the library
	at     time.Time  // the same moment, for timers
	// floor is the highest zxid that had been answered when it was sent: a
	// node with a czxid at or below it is older than this transaction.
	floor int64
	// skipped are the operations that were not sent, counted from the batch's own first one: see checkDedup.
	skipped []int
}

// original turns the index of an operation that was sent into its index among all of the batch's.
func (b *batch) original(sent int) int {
	for _, left := range b.skipped {
		if left > sent {
			break
		}
		sent++
	}
	return sent
}

// request builds the operations of the multi.
func (b *batch) request(f *facts) []conn.Op {
	c := f.conn
	guard := c.Op(&zk.Op{Kind: zk.OpSetData, Path: f.guard, Version: -1})
	switch b.kind {
	case bumpBatch:
		return []conn.Op{c.Op(&zk.Op{Kind: zk.OpSetData, Path: f.registration, Data: f.registered, Version: b.epoch}), guard}
	case closeBatch:
		return []conn.Op{c.Op(&zk.Op{Kind: zk.OpDelete, Path: f.guard, Version: -1}), c.Op(&zk.Op{Kind: zk.OpDelete, Path: f.registration, Version: b.epoch})}
	}
	n := guardOps
	for _, it := range b.items {
		n += len(it.write.Ops)
	}
	ops := make([]conn.Op, 0, n)
	epoch := b.epoch
	if fault.On("epoch-check") {
		epoch = -1
	}
	if fault.On("guard") {
		guard = c.Op(&zk.Op{Kind: zk.OpCheck, Path: f.guard, Version: -1})
	}
	ops = append(ops, c.Op(&zk.Op{Kind: zk.OpCheck, Path: f.registration, Version: epoch}), guard)
	var dedup checkDedup
	at := 0
	b.skipped = nil
	for _, it := range b.items {
		for i := range it.write.Ops {
			if dedup.skip(&it.write.Ops[i]) {
				b.skipped = append(b.skipped, at)
			} else {
				ops = append(ops, c.Op(&it.write.Ops[i]))
			}
			at++
		}
	}
	return ops
}

// results are the outcomes of a committed batch's items, as its answers tell them.
func (b *batch) results(cfg *zk.Config, zxid int64, answers []conn.OpResult) []outcome {
	outcomes := make([]outcome, 0, len(b.items))
	ops := 0
	for _, it := range b.items {
		ops += len(it.write.Ops)
	}
	paths, versions := make([]string, ops), make([]int32, ops) // one allocation for the results of all
	next, at, skipped := guardOps, 0, b.skipped
	for _, it := range b.items {
		n := len(it.write.Ops)
		r := zk.Result{Outcome: zk.Done, Culprit: -1, Zxid: zxid, SentAt: b.sent, Paths: paths[at : at+n : at+n], Versions: versions[at : at+n : at+n]}
		for i := range n {
			at++
			if len(skipped) > 0 && skipped[0] == at-1 {
				skipped = skipped[1:]
				continue
			}
			a := answers[next]
			next++
			switch it.write.Ops[i].Kind {
			case zk.OpCreate:
				r.Paths[i] = cfg.Below(a.Path)
			case zk.OpSetData:
				if a.Set {
					r.Versions[i] = a.Version
				}
			}
		}
		outcomes = append(outcomes, outcome{it, r})
	}
	return outcomes
}

// blamed says what becomes of the items of a refused batch.
type blamed struct {
	dropped   *item   // whose operation it was; nil when it was a check
	op        int     // index into the dropped item's operations
	conflicts []*item // that depended on the failed check
	rest      []*item
}

// blame finds out whose operation failed, and which items depended on it. culprit
// counts from the batch's own first operation.
func blame(items []*item, culprit int, err error) blamed {
	var f blamed
	owner := -1
	for i, it := range items {
		if culprit < len(it.write.Ops) {
			owner = i
			break
		}
		culprit -= len(it.write.Ops)
	}
	if owner < 0 {
		return blamed{rest: items}
	}
	failed := items[owner].write.Ops[culprit]
	conflict := conn.Classify(conn.RequestOf(failed.Kind), err, 1) == conn.DecideAgain
	for i, it := range items {
		switch {
		case conflict && (i == owner || hasCheck(it.write, failed)):
			f.conflicts = append(f.conflicts, it)
		case i == owner:
			f.dropped, f.op = it, culprit
		default:
			f.rest = append(f.rest, it)
		}
	}
	return f
}

func hasCheck(w *zk.Write, check zk.Op) bool {
	for i := range w.Ops {
		if w.Ops[i].Kind == zk.OpCheck && w.Ops[i].Path == check.Path && w.Ops[i].Version == check.Version {
			return true
		}
	}
	return false
}

// again forms the batches in which the rest of a refused batch is sent: whole after the first refusal, in halves from
// the second on. So k bad items among n cost at most 2k+1 transactions, and none waits for more than log2(n)+2.
func again(rest []*item, fails int) []*batch {
	if len(rest) == 0 {
		return nil
	}
	if fails < 2 || len(rest) == 1 {
		return []*batch{{kind: workBatch, items: rest, fails: fails}}
	}
	half := (len(rest) + 1) / 2
	return []*batch{
		{kind: workBatch, items: rest[:half:half], fails: fails},
		{kind: workBatch, items: rest[half:], fails: fails},
	}
}

// item is an accepted Write on its way to its answer.
type item struct {
	write *zk.Write
	bytes int // encoded size of its operations
	// onlyDeletes (or DeletesLast): it goes behind the others of its transaction,
	// because watchers see the operations one by one, and every prefix must be legal.
	onlyDeletes bool
	// maybe: it is or was in a transaction whose outcome is not known.
	maybe bool
	// behind is in how many of its queues another item stands before it.
	behind int32
	came   time.Time // of a Write that may wait
	// dir and number are the place of the first node that it deletes; set when its transaction is put in order.
	dir, number string
}
