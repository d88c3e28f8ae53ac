package state

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"lockkeeper/internal/zk/wire"
)

// A write is carried out in three steps. decide checks a request against the tree as it is, in ZooKeeper's order of
// checks, and makes the change of it; apply (apply.go) makes the change and remembers how to undo it; commit (commit.go)
// makes it final and delivers its events. A log is replayed with the last two.

// decide is the change that o asks for; the kind is 0 when there is none (a check).
func (t *tree) decide(c *Conn, o *op) (TxnOp, wire.ErrCode) {
	switch o.code {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		return t.decideCreate(c, o)
	case wire.OpDelete:
		return t.decideDelete(c, o)
	case wire.OpSetData:
		n, err := t.target(c, o, wire.PermWrite)
		if err != wire.OK {
			return TxnOp{}, err
		}
		version, ok := next(n.version(), o.version)
		if !ok {
			return TxnOp{}, wire.ErrBadVersion
		}
		return TxnOp{Kind: TxnSetData, Path: o.path, Data: bytes.Clone(o.data), Version: version}, wire.OK
	case wire.OpSetACL:
		return t.decideSetACL(c, o)
	default: // check
		n, err := t.target(c, o, wire.PermRead)
		if err != wire.OK {
			return TxnOp{}, err
		}
		if _, ok := next(n.version(), o.version); !ok {
			return TxnOp{}, wire.ErrBadVersion
		}
		return TxnOp{}, wire.OK
	}
}

func (t *tree) decideCreate(c *Conn, o *op) (TxnOp, wire.ErrCode) {
	m, ok := modeOf(o.flags)
	switch {
	case !ok:
		return TxnOp{}, wire.ErrBadArguments
	case m.ttl != (o.code == wire.OpCreateTTL), m.ttl && (o.ttl <= 0 || o.ttl > maxTTL):
		return TxnOp{}, wire.ErrBadArguments
	case o.noPath:
		return TxnOp{}, wire.ErrMarshalling
	}
	parentPath, _, ok := split(o.path)
	if !ok || hasNUL(o.path) {
		return TxnOp{}, wire.ErrBadArguments
	}
	acl, err := t.fix(c, o)
	if err != wire.OK {
		return TxnOp{}, err
	}
	parent := t.find(parentPath)
	if parent == nil {
		return TxnOp{}, wire.ErrNoNode
	}
	if !t.may(c, parent, wire.PermCreate) {
		return TxnOp{}, wire.ErrNoAuth
	}
	path, counter := o.path, t.counter(parent)
	if m.sequential {
		path = fmt.Sprintf("%s%010d", path, counter)
	}
	if !validPath(path) {
		return TxnOp{}, wire.ErrBadArguments
	}
	if path == "/" || parent.child(path[len(parentPath)+1:]) != nil {
		return TxnOp{}, wire.ErrNodeExists
	}
	if isEphemeral(parent.owner()) {
		return TxnOp{}, wire.ErrNoChildrenForEphemeral
	}
	change := TxnOp{Kind: TxnCreate, Path: path, Data: bytes.Clone(o.data), ACL: acl, Version: counter + 1}
	switch {
	case o.code == wire.OpCreateContainer:
		change.Owner = containerOwner
	case m.ttl:
		change.Owner = ttlMask | o.ttl
	case m.ephemeral:
		change.Owner = c.Session
	}
	return change, wire.OK
}

// counter is the number of the next child. A tree's counter never falls, so it stays at the greatest int; but within a
// multi ZooKeeper counts on, and the numbers are negative.
func (t *tree) counter(parent *node) int32 {
	if parent.cversion() == math.MaxInt32 {
		for i := len(t.changes) - 1; i >= 0; i-- {
			if ch := &t.changes[i]; ch.kind == TxnCreate && ch.parent == parent {
				return ch.counter
			}
		}
	}
	return parent.cversion()
}

func (t *tree) decideDelete(c *Conn, o *op) (TxnOp, wire.ErrCode) {
	if o.noPath {
		return TxnOp{}, wire.ErrMarshalling
	}
	parentPath, _, ok := split(o.path)
	if !ok || hasNUL(o.path) || special(o.path) {
		return TxnOp{}, wire.ErrBadArguments
	}
	parent := t.find(parentPath)
	if parent == nil {
		return TxnOp{}, wire.ErrNoNode
	}
	if !t.may(c, parent, wire.PermDelete) {
		return TxnOp{}, wire.ErrNoAuth
	}
	n := t.find(o.path) // not a child of that name: the parent of "//a" is the root
	if n == nil {
		return TxnOp{}, wire.ErrNoNode
	}
	if _, ok := next(n.version(), o.version); !ok {
		return TxnOp{}, wire.ErrBadVersion
	}
	if n.numChildren() > 0 {
		return TxnOp{}, wire.ErrNotEmpty
	}
	return TxnOp{Kind: TxnDelete, Path: o.path}, wire.OK
}

func (t *tree) decideSetACL(c *Conn, o *op) (TxnOp, wire.ErrCode) {
	if !validPath(o.path) {
		return TxnOp{}, wire.ErrBadArguments
	}
	acl, err := t.fix(c, o)
	if err != wire.OK {
		return TxnOp{}, err
	}
	n, err := t.target(c, o, wire.PermAdmin)
	if err != wire.OK {
		return TxnOp{}, err
	}
	version, ok := next(n.aversion(), o.version)
	if !ok {
		return TxnOp{}, wire.ErrBadVersion
	}
	return TxnOp{Kind: TxnSetACL, Path: o.path, ACL: acl, Version: version}, wire.OK
}

// target is the node that o is about, if the connection has a permission on it.
func (t *tree) target(c *Conn, o *op, perm int32) (*node, wire.ErrCode) {
	if !validPath(o.path) {
		return nil, wire.ErrBadArguments
	}
	n := t.find(o.path)
	if n == nil {
		return nil, wire.ErrNoNode
	}
	if !t.may(c, n, perm) {
		return nil, wire.ErrNoAuth
	}
	return n, wire.OK
}

// fix is the ACL that o's node gets.
func (t *tree) fix(c *Conn, o *op) ([]wire.ACL, wire.ErrCode) {
	if o.known {
		return o.acl, wire.OK
	}
	if at := o.nullID - 1; at >= 0 {
		if _, ok := fixACL(o.acl[:at], c.who); ok || at == 0 {
			return nil, wire.ErrMarshalling
		}
		return nil, wire.ErrInvalidACL
	}
	acl, ok := fixACL(o.acl, c.who)
	if !ok {
		return nil, wire.ErrInvalidACL
	}
	return acl, wire.OK
}

// may reports whether the connection has one of the permissions on the node.
func (t *tree) may(c *Conn, n *node, perms int32) bool { return t.acls.may(c, n.acl, perms) }

// next is the version after current; ok is false when another one was expected.
func next(current, expected int32) (version int32, ok bool) {
	return current + 1, expected == -1 || expected == current
}

func hasNUL(path string) bool { return strings.IndexByte(path, 0) >= 0 }
