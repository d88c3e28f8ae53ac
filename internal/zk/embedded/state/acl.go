package state

import (
	"slices"
	"strings"

	"lockkeeper/internal/zk/wire"
)

// aclID names a list in the table of ACLs: nearly all nodes share a few lists.
type aclID uint32

// openACL is the list of the nodes that ZooKeeper makes itself; it is never dropped.
const openACL aclID = 0

type aclTable struct {
	lists []aclList
	ids   map[string]aclID // by encoding
	free  []aclID
	// recent is the list that was named last: what decide finds, apply holds.
	recent aclID
}

type aclList struct {
	acl  []wire.ACL // never written to once it is here
	key  string
	uses int
	// plain says that a request with exactly this encoding means exactly this list, from any client.
	plain bool
}

var everyone = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

func newACLTable() *aclTable {
	t := &aclTable{ids: make(map[string]aclID)}
	t.hold(everyone)
	return t
}

// hold counts one more use of a list, which it adds when it is new.
func (t *aclTable) hold(acl []wire.ACL) aclID {
	if len(t.lists) > 0 {
		if recent := t.lists[t.recent].acl; len(recent) == len(acl) && len(acl) > 0 && &recent[0] == &acl[0] {
			t.lists[t.recent].uses++
			return t.recent
		}
	}
	key := wire.AppendACLs(nil, acl)
	if id, ok := t.ids[string(key)]; ok {
		t.lists[id].uses++
		return id
	}
	list := aclList{acl: acl, key: string(key), uses: 1}
	fixed, ok := fixACL(acl, nil)
	list.plain = ok && slices.Equal(fixed, acl)
	if last := len(t.free) - 1; last >= 0 {
		id := t.free[last]
		t.free = t.free[:last]
		t.lists[id] = list
		t.ids[list.key] = id
		return id
	}
	id := aclID(len(t.lists))
	t.lists = append(t.lists, list)
	t.ids[list.key] = id
	return id
}

// release takes one use back.
func (t *aclTable) release(id aclID) {
	list := &t.lists[id]
	if list.uses--; list.uses == 0 && id != openACL {
		delete(t.ids, list.key)
		*list = aclList{}
		t.free = append(t.free, id)
	}
}

// ACLs are the lists that nodes have, each once, but for ZooKeeper's own nodes.
func (s *State) ACLs() (inUse [][]wire.ACL) {
	t := s.tree.acls
	others := make([]int, len(t.lists))
	others[openACL] = 1 // the table's own use, for which it is never dropped
	for _, path := range []string{"/", procPath, quotaPath, configPath} {
		if n := s.tree.find(path); n != nil {
			others[n.acl]++
		}
	}
	for id, list := range t.lists {
		if list.uses > others[id] {
			inUse = append(inUse, list.acl)
		}
	}
	return inUse
}

func (t *aclTable) list(id aclID) []wire.ACL { return t.lists[id].acl }

// lookup finds the list that a request names by its encoding, when it is known and needs no fixing.
func (t *aclTable) lookup(encoded []byte) ([]wire.ACL, bool) {
	if id, ok := t.ids[string(encoded)]; ok && t.lists[id].plain {
		t.recent = id
		return t.lists[id].acl, true
	}
	return nil, false
}

// may reports whether a list grants the connection one of the permissions.
func (t *aclTable) may(c *Conn, id aclID, perms int32) bool {
	return id == openACL || c.super || allowed(t.list(id), perms, c.who)
}

// maxACL bounds the entries of a node's ACL: they are gone through for each operation on the node.
const maxACL = 256

// fixACL is the list that a node gets for the one in a request: without repetitions, and with "auth" replaced by the
// identities of the client. ok is false when the list is empty or too long, or an entry means nothing.
func fixACL(acl []wire.ACL, who []identity) (fixed []wire.ACL, ok bool) {
	if len(acl) == 0 {
		return nil, false
	}
	seen := make([]wire.ACL, 0, min(len(acl), maxACL))
	for _, a := range acl {
		if slices.Contains(seen, a) {
			continue
		}
		seen = append(seen, a)
		switch {
		case a.Scheme == "world" && a.ID == "anyone":
			fixed = append(fixed, a)
		case a.Scheme == "auth":
			proved := false
			for _, id := range who {
				if id.scheme == schemeDigest { // an address is not authenticated
					fixed = append(fixed, wire.ACL{Perms: a.Perms, Scheme: id.scheme, ID: id.id})
					proved = true
				}
			}
			if !proved {
				return nil, false
			}
		case a.Scheme == schemeDigest && validDigest(a.ID), a.Scheme == schemeIP && validIP(a.ID):
			fixed = append(fixed, a)
		default:
			return nil, false
		}
		if len(fixed) > maxACL {
			return nil, false
		}
	}
	return fixed, true
}

// allowed says whether one of perms is granted to who.
func allowed(acl []wire.ACL, perms int32, who []identity) bool {
	if len(acl) == 0 {
		return true
	}
	for i := range acl {
		a := &acl[i]
		if a.Perms&perms == 0 {
			continue
		}
		if a.Scheme == "world" && a.ID == "anyone" {
			return true
		}
		for _, id := range who {
			if id.scheme == a.Scheme && id.matches(a.ID) {
				return true
			}
		}
	}
	return false
}

// masked hides the digests from connections that may read an ACL but not change it.
func masked(acl []wire.ACL) []wire.ACL {
	acl = slices.Clone(acl)
	for i := range acl {
		if user, _, ok := strings.Cut(acl[i].ID, ":"); ok && acl[i].Scheme == schemeDigest {
			acl[i].ID = user + ":x"
		}
	}
	return acl
}
