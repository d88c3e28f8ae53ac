package state

import (
	"fmt"
	"strings"

	"lockkeeper/internal/zk/wire"
)

// change is an applied TxnOp that is not final yet, with what undoes it.
type change struct {
	kind         TxnKind
	path         string
	node, parent *node
	data         []byte // the node's before
	acl          aclID  // the node's before
	mzxid, mtime int64
	version      int32 // the node's, its ACL's or the parent's, as in TxnOp, before
	pzxid        int64 // the parent's before
	counter      int32 // the parent's after, as far as a multi is concerned
	size         int   // of the data that came, or that went with the node
}

// apply makes one change and appends it to s.changes. It decides nothing, but a change that the tree cannot take is an
// error: it comes from a log that does not belong to this tree.
func (s *State) apply(t *TxnOp, zxid, now int64) (*node, error) {
	ch := change{kind: t.Kind, path: t.Path}
	switch t.Kind {
	case TxnCreate:
		parentPath, name, ok := split(t.Path)
		ch.parent = s.find(parentPath)
		if !ok || ch.parent == nil || name == "" || ch.parent.child(name) != nil {
			return nil, fmt.Errorf("state: cannot create %q", t.Path)
		}
		s.touch(ch.parent)
		ch.version, ch.pzxid, ch.size = ch.parent.cversion, ch.parent.pzxid, len(t.Data)
		ch.counter = t.Version
		ch.node = s.newNode(name, t, zxid, now)
		// ZooKeeper never lets the counter fall: past the greatest int it stays there.
		if t.Version > ch.parent.cversion {
			ch.parent.cversion, ch.parent.pzxid = t.Version, zxid
		}
		ch.parent.link(ch.node)
	case TxnDelete:
		ch.node = s.find(t.Path)
		if ch.node == nil || ch.node.parent == nil || ch.node.numChildren() > 0 {
			return nil, fmt.Errorf("state: cannot delete %q", t.Path)
		}
		s.touch(ch.node) // and so its parent, whose list changes
		ch.parent = ch.node.parent
		ch.pzxid, ch.size = ch.parent.pzxid, len(ch.node.data)
		ch.parent.unlink(ch.node)
		ch.parent.pzxid = zxid
	case TxnSetData, TxnSetACL:
		n := s.find(t.Path)
		if n == nil {
			return nil, fmt.Errorf("state: no node %q to set", t.Path)
		}
		s.touch(n)
		ch.node, ch.acl, ch.data, ch.mzxid, ch.mtime = n, n.acl, n.data, n.mzxid, n.mtime
		if t.Kind == TxnSetACL {
			ch.version = n.aversion
			n.acl, n.aversion = s.acls.hold(t.ACL), t.Version
		} else {
			ch.version, ch.size = n.version, len(t.Data)
			n.data, n.version, n.mzxid, n.mtime = t.Data, t.Version, zxid, now
		}
	default:
		return nil, fmt.Errorf("state: no change of kind %d", t.Kind)
	}
	s.changes = append(s.changes, ch)
	return ch.node, nil
}

func (s *State) newNode(name string, t *TxnOp, zxid, now int64) *node {
	return &node{
		name: strings.Clone(name), // not a part of a longer path that would be kept for it
		data: t.Data, acl: s.acls.hold(t.ACL), owner: t.Owner,
		czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: now, mtime: now,
		place: s.mark, // a snapshot under way does not want it
	}
}

// rollback undoes all changes that are not final.
func (s *State) rollback() {
	for i := len(s.changes) - 1; i >= 0; i-- {
		ch := &s.changes[i]
		n := ch.node
		switch ch.kind {
		case TxnCreate:
			ch.parent.unlink(n)
			ch.parent.cversion, ch.parent.pzxid = ch.version, ch.pzxid
			s.acls.release(n.acl)
		case TxnDelete:
			ch.parent.link(n)
			ch.parent.pzxid = ch.pzxid
		case TxnSetData:
			n.data, n.version, n.mzxid, n.mtime = ch.data, ch.version, ch.mzxid, ch.mtime
		case TxnSetACL:
			s.acls.release(n.acl)
			n.acl, n.aversion = ch.acl, ch.version
		}
	}
	s.forgetChanges()
}

// forgetChanges empties s.changes, but not its memory, unless one transaction has made that large.
func (s *State) forgetChanges() {
	clear(s.changes)
	s.changes = s.changes[:0]
	if cap(s.changes) > 4096 {
		s.changes = nil
	}
}

// Apply replays a transaction of a log: no connection, no reply, no event unless somebody watches. Zxids must rise by one.
// After an error the state is of no use.
func (s *State) Apply(t *Txn) error {
	if t.Zxid != s.zxid+1 {
		return fmt.Errorf("state: transaction %#x cannot follow %#x", t.Zxid, s.zxid)
	}
	if t.Err != wire.OK && len(t.Ops) > 0 {
		return fmt.Errorf("state: transaction %#x failed and has changes", t.Zxid)
	}
	ends := false
	for i := range t.Ops {
		switch op := &t.Ops[i]; op.Kind {
		case TxnOpenSession:
			s.addSession(t.Session, op.Timeout)
		case TxnCloseSession:
			ends = true
		default:
			if op.Kind == TxnCreate && isEphemeral(op.Owner) && s.sessions[op.Owner] == nil {
				return fmt.Errorf("state: transaction %#x: no session %#x for %q", t.Zxid, op.Owner, op.Path)
			}
			if _, err := s.apply(op, t.Zxid, t.Time); err != nil {
				return fmt.Errorf("transaction %#x: %w", t.Zxid, err)
			}
		}
	}
	s.zxid = t.Zxid
	s.commit()
	if ends {
		delete(s.sessions, t.Session) // not sooner: its roster is needed for its nodes to go
	}
	return nil
}
