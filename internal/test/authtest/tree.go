package authtest

import (
	"maps"
	"regexp"
	"strings"
	"sync"

	"lockkeeper/internal/zk/embedded/state"
)

// Tree is a copy of ZooKeeper's nodes, made of the transactions that it has committed.
type Tree struct {
	mu    sync.Mutex
	nodes map[string]string // data by path
}

func newTree() *Tree { return &Tree{nodes: map[string]string{}} }

func (t *Tree) commit(txn *state.Txn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, op := range txn.Ops {
		switch op.Kind {
		case state.TxnCreate, state.TxnSetData:
			t.nodes[op.Path] = string(op.Data)
		case state.TxnDelete:
			delete(t.nodes, op.Path)
		}
	}
}

// Snapshot is all nodes but those that gateways write for themselves: a guard is written by each transaction, also by one that
// renews nothing but the promise window. The day of a token's last use is left out of its record, because a gateway writes it when it
// has time.
func (t *Tree) Snapshot() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes := maps.Clone(t.nodes)
	maps.DeleteFunc(nodes, func(path, _ string) bool {
		return strings.Contains(path, "/guards/") || strings.Contains(path, "/gateways/")
	})
	for path, data := range nodes {
		if strings.Contains(path, "/auth/tokens/") {
			nodes[path] = lastUsed.ReplaceAllString(data, "")
		}
	}
	return nodes
}

var lastUsed = regexp.MustCompile(`,"last_used":"[0-9-]*"`)
