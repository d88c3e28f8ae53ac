package state

import "fmt"

// change is an applied TxnOp that is not committed yet, with what undoes it.
type change struct {
	kind         TxnKind
	path         string
	node, parent *node
	text         string // the node's before
	null, packed bool   // the node's before
	acl          aclID  // the node's before
	mzxid, mtime int64
	version      int32 // the node's, its ACL's or the parent's, as in TxnOp, before
	pzxid        int64 // the parent's before
	counter      int32 // the parent's after, within a multi
	size         int   // of the data that came or that went with the node, or how much more it has become
}

// apply makes one change and appends it to t.changes. It decides nothing. A change that the tree cannot take comes from a
// log that does not belong to this tree, and is an error.
func (t *tree) apply(op *TxnOp, zxid, now int64) (*node, error) {
	ch := change{kind: op.Kind, path: op.Path}
	switch op.Kind {
	case TxnCreate:
		parentPath, name, ok := split(op.Path)
		ch.parent = t.find(parentPath)
		if !ok || ch.parent == nil || name == "" || ch.parent.child(name) != nil {
			return nil, fmt.Errorf("state: cannot create %q", op.Path)
		}
		t.touch(ch.parent)
		ch.version, ch.pzxid, ch.size = ch.parent.cversion(), ch.parent.pzxid(), len(op.Data)
		ch.counter = op.Version
		ch.node = t.newNode(name, op, zxid, now)
		// ZooKeeper never lets the counter fall: past the greatest int it stays there.
		if op.Version > ch.version {
			above := ch.parent.makeRare()
			above.cversion, above.pzxid = op.Version, zxid
		}
		ch.parent.link(ch.node)
	case TxnDelete:
		ch.node = t.find(op.Path)
		if ch.node == nil || ch.node.parent == nil || ch.node.numChildren() > 0 {
			return nil, fmt.Errorf("state: cannot delete %q", op.Path)
		}
		t.touch(ch.node) // and so its parent, whose list changes
		ch.parent = ch.node.parent
		ch.pzxid, ch.size = ch.parent.pzxid(), ch.node.dataLength()
		ch.parent.unlink(ch.node)
		ch.parent.makeRare().pzxid = zxid
	case TxnSetData, TxnSetACL:
		n := t.find(op.Path)
		if n == nil {
			return nil, fmt.Errorf("state: no node %q to set", op.Path)
		}
		t.touch(n)
		ch.node = n
		if op.Kind == TxnSetACL {
			ch.acl, ch.version = n.acl, n.aversion()
			n.acl, n.makeRarest().aversion = t.acls.hold(op.ACL), op.Version
		} else {
			ch.version, ch.mzxid, ch.mtime = n.version(), n.mzxid(), n.mtime()
			ch.text, ch.null, ch.packed, ch.size = n.text, n.null, n.packed, len(op.Data)-n.dataLength()
			n.set(n.name(), op.Data)
			n.wrote(op.Version, zxid, now)
		}
	default:
		return nil, fmt.Errorf("state: no change of kind %d", op.Kind)
	}
	t.changes = append(t.changes, ch)
	return ch.node, nil
}

// mustApply makes a change that was decided on this very tree. A refusal is a bug of this package.
func (t *tree) mustApply(op *TxnOp, zxid, now int64) *node {
	n, err := t.apply(op, zxid, now)
	if err != nil {
		panic(err)
	}
	return n
}

func (t *tree) newNode(name string, op *TxnOp, zxid, now int64) *node {
	n := &node{acl: t.acls.hold(op.ACL), czxid: zxid, ctime: now, place: t.mark} // a snapshot under way does not need it
	n.create(&t.shapes, name, op.Data)
	if op.Owner != 0 {
		n.makeRarest().owner = op.Owner
	}
	return n
}

// rollback undoes all changes that are not committed.
func (t *tree) rollback() {
	for i := len(t.changes) - 1; i >= 0; i-- {
		ch := &t.changes[i]
		n := ch.node
		switch ch.kind {
		case TxnCreate:
			ch.parent.unlink(n)
			above := ch.parent.makeRare()
			above.cversion, above.pzxid = ch.version, ch.pzxid
			t.forget(n)
		case TxnDelete:
			ch.parent.link(n)
			ch.parent.makeRare().pzxid = ch.pzxid
		case TxnSetData:
			n.text, n.null, n.packed = ch.text, ch.null, ch.packed
			n.wrote(ch.version, ch.mzxid, ch.mtime)
		case TxnSetACL:
			t.acls.release(n.acl)
			n.acl, n.makeRarest().aversion = ch.acl, ch.version
		}
	}
	t.changes = emptied(t.changes)
}

// emptied is an empty slice that has s's memory, unless one transaction has made that large.
func emptied[T any](s []T) []T {
	clear(s)
	if cap(s) > 4096 {
		return nil
	}
	return s[:0]
}
