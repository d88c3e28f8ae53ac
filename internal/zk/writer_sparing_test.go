package zk

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"lockkeeper/internal/test/netfault"
)

// sent are the operations of a batch that are sent, as their indices among all.
func sent(ops []Op) (list []int) {
	var p sparing
	for i := range ops {
		if !p.spare(&ops[i]) {
			list = append(list, i)
		}
	}
	return list
}

func TestACheckIsSentAgainWhenSomethingBetweenMayHaveChangedWhatItSees(t *testing.T) {
	check := func(path string, version int32) Op { return Op{Kind: OpCheck, Path: path, Version: version} }
	for name, c := range map[string]struct {
		ops  []Op
		want []int
	}{
		"the same check":             {[]Op{check("/a", 1), {Kind: OpDelete, Path: "/x"}, check("/a", 1), {Kind: OpDelete, Path: "/y"}}, []int{0, 1, 3}},
		"another version":            {[]Op{check("/a", 1), check("/a", 2), check("/a", 2), check("/a", 1)}, []int{0, 1, 3}},
		"another node":               {[]Op{check("/a", 1), check("/b", 1), check("/a", 1), check("/b", 1)}, []int{0, 1}},
		"it is written between them": {[]Op{check("/a", 1), {Kind: OpSetData, Path: "/a"}, check("/a", 1)}, []int{0, 1, 2}},
		"it is deleted between them": {[]Op{check("/a", 0), {Kind: OpDelete, Path: "/a"}, check("/a", 0)}, []int{0, 1, 2}},
		"it is made between them":    {[]Op{check("/a", 0), {Kind: OpDelete, Path: "/a"}, {Kind: OpCreate, Path: "/a"}, check("/a", 0)}, []int{0, 1, 2, 3}},
		"a child is made":            {[]Op{check("/a", 0), {Kind: OpCreate, Path: "/a/b"}, check("/a", 0)}, []int{0, 1}},
		"many nodes": {[]Op{check("/1", 0), check("/2", 0), check("/3", 0), check("/4", 0), check("/5", 0), check("/5", 0), check("/4", 0)},
			[]int{0, 1, 2, 3, 4, 5}},
	} {
		if got := sent(c.ops); !slices.Equal(got, c.want) {
			t.Errorf("%s: sent %v, want %v", name, got, c.want)
		}
	}
}

// The ends of leases all check one node. A transaction takes as many of them as it would without.
func TestASharedCheckTakesOnePlaceInATransaction(t *testing.T) {
	var q queue
	for i := range 3 * maxBatchOps {
		q.push(&item{onlyDeletes: true, write: &Write{Ends: true, Ops: []Op{{Kind: OpCheck, Path: "/a", Version: 1}, {Kind: OpDelete, Path: fmt.Sprintf("/q/n-%010d", i)}}}})
	}
	batch := q.take(maxBatchOps, maxTransaction)
	var ops []Op
	for _, it := range batch {
		ops = append(ops, it.write.Ops...)
	}
	if len(batch) != maxBatchOps-1 || len(sent(ops)) != maxBatchOps {
		t.Errorf("a transaction takes %d ends as %d operations", len(batch), len(sent(ops)))
	}
}

func TestWhoSharesACheckHasResultsAndCulpritsOfItsOwn(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := locksDir(t, p, "l")
	const n = 20
	version := p.stat(DefaultRoot + "/webhooks").Version
	var answers []<-chan Result
	for i := range n {
		node := fmt.Sprintf("%s/n%d", dir, i)
		ops := []Op{{Kind: OpCheck, Path: DefaultRoot + "/webhooks", Version: version}, {Kind: OpCreate, Path: node}, {Kind: OpSetData, Path: node, Version: 0}}
		if i == n/2 {
			ops = append(ops, Op{Kind: OpDelete, Path: dir + "/missing"})
		}
		answers = append(answers, submit(t, s, &Write{Ops: ops}))
	}
	counter := proxy.CountOps()
	proxy.Heal()
	for i, answer := range answers {
		r := await(t, answer)
		switch {
		case i == n/2:
			if r.Outcome != NotDone || r.Culprit != 3 || !errors.Is(r.Err, ErrNoNode) {
				t.Errorf("the bad one: %+v", r)
			}
		case r.Outcome != Done || r.Paths[1] != fmt.Sprintf("%s/n%d", dir, i) || r.Paths[0] != "" || r.Versions[2] != 1:
			t.Errorf("write %d: %+v", i, r)
		}
	}
	if multi := counter.Take()[netfault.OpMulti]; multi > 6 {
		t.Errorf("%d transactions", multi)
	}
}

func TestAnEndThatIsNotedElsewhereStandsWhereADeletionAloneDoes(t *testing.T) {
	dir := DefaultRoot + "/locks/l/"
	end := func(note, node string) *item {
		return &item{onlyDeletes: true, write: &Write{Ends: true, Ops: []Op{{Kind: OpCheck, Path: "/w"}, {Kind: OpCreate, Path: "/outbox/" + note}, {Kind: OpDelete, Path: dir + node}}}}
	}
	head, tail := end("9-0000000009", "a-0000000001"), end("1-0000000001", "b-0000000007")
	plain := &item{onlyDeletes: true, write: &Write{Ops: []Op{{Kind: OpDelete, Path: dir + "c-0000000004"}}}}
	create := &item{write: &Write{Ops: []Op{{Kind: OpCreate, Path: dir + "d"}}}}
	batch := []*item{head, plain, tail, create}
	deletesLast(batch)
	if !slices.Equal(batch, []*item{create, tail, plain, head}) {
		t.Error("the order is not from the queue's tail")
	}
	two := &item{onlyDeletes: true, write: &Write{Ops: []Op{{Kind: OpDelete, Path: dir + "e-0000000009"}, {Kind: OpDelete, Path: "/other/e-0000000002"}}}}
	batch = []*item{head, two, tail, create}
	deletesLast(batch)
	if !slices.Equal(batch, []*item{create, two, tail, head}) {
		t.Error("with one of several queues: the order is not from the queue's tail")
	}
}
