package state

import "strings"

// tree is the nodes, their ACLs, and the changes of the transaction at hand.
type tree struct {
	root     *node
	acls     *aclTable
	shapes   shapes
	nodes    int
	dataSize int64 // of all paths and data

	// mark is markBit or 0: the snapshot under way needs no node that has it. Without a snapshot all nodes have it.
	mark     uint32
	snapshot *Snapshot // nil while there is none

	changes []change // applied, not committed; its memory is used again
}

// find is the node at exactly this path. The root is "/", and "" as well, as in ZooKeeper's table of nodes.
func (t *tree) find(path string) *node {
	if path == "" || path == "/" {
		return t.root
	}
	if path[0] != '/' {
		return nil
	}
	n, rest := t.root, path[1:]
	for n != nil {
		name, more, found := strings.Cut(rest, "/")
		n = n.child(name)
		if !found {
			return n
		}
		rest = more
	}
	return nil
}

// data is a copy of a node's data; nil is ZooKeeper's null.
func (t *tree) data(n *node) []byte {
	switch {
	case n.null:
		return nil
	case n.packed:
		return t.shapes.unpack(nil, n.stored())
	}
	return []byte(n.stored())
}

// forget takes back what a node uses that is gone for good.
func (t *tree) forget(n *node) {
	t.acls.release(n.acl)
	if n.packed {
		t.shapes.release(n.stored())
	}
}

// written reports whether the snapshot under way has the node, or does not need it.
func (t *tree) written(n *node) bool { return n.place&markBit == t.mark }

func (t *tree) setWritten(n *node) { n.place = n.place&^markBit | t.mark }

// touch must be called before anything of a node changes that a snapshot has: its values and its list of children.
func (t *tree) touch(n *node) {
	if t.snapshot != nil && !t.written(n) {
		t.snapshot.save(n)
	}
}
