package session

import (
	"errors"
	"slices"
	"strings"

	"lockkeeper/internal/zk"
)

// checkDedup finds checks that stand in a transaction already: many writes may depend on one node, and it needs to be
// looked at only once. A check may be left out when the same one was sent before it and nothing between them wrote the
// node: the transaction is atomic, so the second would see what the first saw.
type checkDedup struct {
	sent [4]*zk.Op // checks that still hold; few nodes are checked by many
	n    int
}

// skip reports whether the operation may be left out.
func (p *checkDedup) skip(op *zk.Op) bool {
	for i := 0; i < p.n; i++ {
		if p.sent[i].Path != op.Path {
			continue
		}
		if op.Kind == zk.OpCheck && p.sent[i].Version == op.Version {
			return true
		}
		p.n-- // it is written, or checked otherwise, which tells what the node's version is if it succeeds
		p.sent[i] = p.sent[p.n]
		i--
	}
	if op.Kind == zk.OpCheck && p.n < len(p.sent) {
		p.sent[p.n] = op
		p.n++
	}
	return false
}

// checkQueues refuses a Write that would wait for itself.
func checkQueues(queues []string) error {
	for i, name := range queues {
		switch {
		case name == "":
			return errors.New("a write with a queue that has no name")
		case slices.Contains(queues[:i], name):
			return errors.New("a write that names a queue twice")
		}
	}
	return nil
}

// checkWrite refuses what ZooKeeper or the library would choke on.
func checkWrite(w *zk.Write) error {
	if len(w.Ops) == 0 {
		return errors.New("a write without operations")
	}
	if w.Done == nil {
		return errors.New("a write without Done")
	}
	if err := checkQueues(w.Queues); err != nil {
		return err
	}
	for i := range w.Ops {
		op := &w.Ops[i]
		path := op.Path
		if op.Kind == zk.OpCreate && op.Sequential && (strings.HasSuffix(path, "/") || strings.HasSuffix(path, ".")) {
			path += "0" // the number that comes behind makes a prefix a path
		}
		if err := zk.CheckPath(path); err != nil {
			return err
		}
		if op.Kind < zk.OpCreate || op.Kind > zk.OpCheck {
			return errors.New("a write with an unknown operation")
		}
	}
	return nil
}
