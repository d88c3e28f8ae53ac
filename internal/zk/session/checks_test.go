package session

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// sent are the operations of a batch that are sent, as their indices among all.
func sent(ops []zk.Op) (list []int) {
	var p checkDedup
	for i := range ops {
		if !p.skip(&ops[i]) {
			list = append(list, i)
		}
	}
	return list
}

func TestACheckIsSentAgainWhenSomethingBetweenMayHaveChangedWhatItSees(t *testing.T) {
	check := func(path string, version int32) zk.Op { return zk.Op{Kind: zk.OpCheck, Path: path, Version: version} }
	for name, c := range map[string]struct {
		ops  []zk.Op
		want []int
	}{
		"the same check":             {[]zk.Op{check("/a", 1), {Kind: zk.OpDelete, Path: "/x"}, check("/a", 1), {Kind: zk.OpDelete, Path: "/y"}}, []int{0, 1, 3}},
		"another version":            {[]zk.Op{check("/a", 1), check("/a", 2), check("/a", 2), check("/a", 1)}, []int{0, 1, 3}},
		"another node":               {[]zk.Op{check("/a", 1), check("/b", 1), check("/a", 1), check("/b", 1)}, []int{0, 1}},
		"it is written between them": {[]zk.Op{check("/a", 1), {Kind: zk.OpSetData, Path: "/a"}, check("/a", 1)}, []int{0, 1, 2}},
		"it is deleted between them": {[]zk.Op{check("/a", 0), {Kind: zk.OpDelete, Path: "/a"}, check("/a", 0)}, []int{0, 1, 2}},
		"it is made between them":    {[]zk.Op{check("/a", 0), {Kind: zk.OpDelete, Path: "/a"}, {Kind: zk.OpCreate, Path: "/a"}, check("/a", 0)}, []int{0, 1, 2, 3}},
		"a child is made":            {[]zk.Op{check("/a", 0), {Kind: zk.OpCreate, Path: "/a/b"}, check("/a", 0)}, []int{0, 1}},
		"many nodes": {[]zk.Op{check("/1", 0), check("/2", 0), check("/3", 0), check("/4", 0), check("/5", 0), check("/5", 0), check("/4", 0)},
			[]int{0, 1, 2, 3, 4, 5}},
	} {
		assert.Slices(t, sent(c.ops), c.want, "%s: sent", name)
	}
}

// The ends of leases all check one node. A transaction takes as many of them as it would without.
func TestASharedCheckTakesOnePlaceInATransaction(t *testing.T) {
	var q queue
	for i := range 3 * maxBatchOps {
		q.push(&item{onlyDeletes: true, write: &zk.Write{DeletesLast: true, Ops: []zk.Op{{Kind: zk.OpCheck, Path: "/a", Version: 1}, {Kind: zk.OpDelete, Path: fmt.Sprintf("/q/n-%010d", i)}}}})
	}
	batch := q.take(maxBatchOps, conn.MaxTransaction)
	var ops []zk.Op
	for _, it := range batch {
		ops = append(ops, it.write.Ops...)
	}
	assert.That(t, len(batch) == maxBatchOps-1 && len(sent(ops)) == maxBatchOps,
		"a transaction takes %d ends as %d operations", len(batch), len(sent(ops)))
}

func TestAWriteThatSharesACheckHasResultsAndCulpritsOfItsOwn(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "l")
	const n = 20
	version := p.Stat(zk.DefaultRoot + "/webhooks").Version
	var answers []<-chan zk.Result
	for i := range n {
		node := fmt.Sprintf("%s/n%d", dir, i)
		ops := []zk.Op{{Kind: zk.OpCheck, Path: zk.DefaultRoot + "/webhooks", Version: version}, {Kind: zk.OpCreate, Path: node}, {Kind: zk.OpSetData, Path: node, Version: 0}}
		if i == n/2 {
			ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: dir + "/missing"})
		}
		answers = append(answers, submit(t, s, &zk.Write{Ops: ops}))
	}
	counter := proxy.CountOps()
	proxy.Heal()
	for i, answer := range answers {
		r := fixture.Await(t, answer)
		switch {
		case i == n/2:
			assert.That(t, r.Outcome == zk.NotDone && r.Culprit == 3 && errors.Is(r.Err, zk.ErrNoNode), "the bad one: %+v", r)
		case r.Outcome != zk.Done || r.Paths[1] != fmt.Sprintf("%s/n%d", dir, i) || r.Paths[0] != "" || r.Versions[2] != 1:
			t.Errorf("write %d: %+v", i, r)
		}
	}
	multi := counter.Take()[netfault.OpMulti]
	assert.That(t, multi <= 6, "%d transactions", multi)
}

func TestAnEndThatIsNotedElsewhereStandsWhereADeletionAloneDoes(t *testing.T) {
	dir := zk.DefaultRoot + "/locks/l/"
	end := func(note, node string) *item {
		return &item{onlyDeletes: true, write: &zk.Write{DeletesLast: true, Ops: []zk.Op{{Kind: zk.OpCheck, Path: "/w"}, {Kind: zk.OpCreate, Path: "/outbox/" + note}, {Kind: zk.OpDelete, Path: dir + node}}}}
	}
	head, tail := end("9-0000000009", "a-0000000001"), end("1-0000000001", "b-0000000007")
	plain := &item{onlyDeletes: true, write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: dir + "c-0000000004"}}}}
	create := &item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "d"}}}}
	batch := []*item{head, plain, tail, create}
	deletesLast(batch)
	assert.That(t, slices.Equal(batch, []*item{create, tail, plain, head}), "the order is not from the queue's tail")
	two := &item{onlyDeletes: true, write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: dir + "e-0000000009"}, {Kind: zk.OpDelete, Path: "/other/e-0000000002"}}}}
	batch = []*item{head, two, tail, create}
	deletesLast(batch)
	assert.That(t, slices.Equal(batch, []*item{create, two, tail, head}),
		"with one of several queues: the order is not from the queue's tail")
}
