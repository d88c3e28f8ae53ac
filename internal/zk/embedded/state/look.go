package state

import (
	"slices"
	"strings"

	"lockkeeper/internal/zk/wire"
)

// look answers a read of one node.
func (s *State) look(c *Conn, op wire.Op, path string, watch bool) (wire.Record, wire.ErrCode) {
	switch op {
	case wire.OpSync:
		return &wire.PathRecord{Path: path}, wire.OK
	case wire.OpGetEphemerals:
		return &wire.ChildrenReply{Children: s.ephemerals(c.Session, path)}, wire.OK
	case wire.OpExists:
		return s.exists(c, path, watch)
	}
	n := s.tree.find(path)
	if n == nil {
		return nil, wire.ErrNoNode
	}
	if op == wire.OpGetACL {
		return s.getACL(c, n)
	}
	if !s.tree.may(c, n, wire.PermRead) {
		return nil, wire.ErrNoAuth
	}
	switch op {
	case wire.OpGetData:
		if watch {
			s.watches.data.add(c, path, oneShot)
		}
		return &wire.DataReply{Data: s.tree.data(n), Stat: n.stat()}, wire.OK
	case wire.OpGetChildren, wire.OpGetChildren2:
		if watch {
			s.watches.childs.add(c, path, oneShot)
		}
		if op == wire.OpGetChildren {
			return &wire.ChildrenReply{Children: n.names()}, wire.OK
		}
		return &wire.Children2Reply{Children: n.names(), Stat: n.stat()}, wire.OK
	}
	// The number of nodes below. ZooKeeper counts the keys of its table that begin with the path and a slash, and the
	// root has two keys.
	count := n.descendants()
	if path == "" {
		count++
	}
	return &wire.IntReply{Value: int32(count)}, wire.OK
}

// exists needs no permission, and leaves its watch also where there is no node.
func (s *State) exists(c *Conn, path string, watch bool) (wire.Record, wire.ErrCode) {
	if hasNUL(path) {
		return nil, wire.ErrBadArguments
	}
	if watch {
		s.watches.data.add(c, path, oneShot)
	}
	n := s.tree.find(path)
	if n == nil {
		return nil, wire.ErrNoNode
	}
	return &wire.StatReply{Stat: n.stat()}, wire.OK
}

// getACL shows digests only to connections that may change them.
func (s *State) getACL(c *Conn, n *node) (wire.Record, wire.ErrCode) {
	if !s.tree.may(c, n, wire.PermRead|wire.PermAdmin) {
		return nil, wire.ErrNoAuth
	}
	acl := s.tree.acls.list(n.acl)
	if !s.tree.may(c, n, wire.PermAdmin) {
		acl = masked(acl)
	}
	return &wire.ACLReply{ACL: acl, Stat: n.stat()}, wire.OK
}

// ephemerals are the paths of a session's own nodes that begin with a prefix.
func (s *State) ephemerals(id int64, prefix string) []string {
	paths := s.owners.sessions[id].paths()
	if prefix := strings.TrimSpace(prefix); prefix == "" || prefix == "/" {
		return paths
	}
	return slices.DeleteFunc(paths, func(path string) bool { return !strings.HasPrefix(path, prefix) })
}
