package state

import (
	"slices"

	"lockkeeper/internal/zk/wire"
)

// Owners that stand for a kind of node, as ZooKeeper encodes them. Clients read 0 for them.
const (
	containerOwner = -1 << 63
	ttlMask        = -1 << 56 // the upper byte of a TTL node's owner; the 40 lowest bits are the time to live
	maxTTL         = 1<<40 - 1
)

// node is one node of the tree. A server holds hundreds of thousands, so it has no map, no full path and no ACL of its own;
// it is 128 bytes long, a size class of the allocator (a test holds it to that).
type node struct {
	name   string
	parent *node // nil: the root, or a node that is gone
	kids   *children
	data   []byte // never written to once it is here: transactions and replies share it

	czxid, mzxid, pzxid int64
	ctime, mtime        int64
	owner               int64 // a session, containerOwner, a TTL or 0

	version, cversion, aversion int32

	acl aclID
	// place is the slot in the roster that lists the node, and the bit that says whether a snapshot has it; see Snapshot.
	place uint32
}

// children of a node. A leaf that never had a child has none of it, and the directory of a lock that is held has one
// child: the struct is 16 bytes long, a size class.
type children struct {
	only *node     // the one child, unless there are siblings
	more *siblings // nil while there is one at most
}

// siblings are a list while they are few. The map of many stays until the last one has gone.
type siblings struct {
	few  []*node
	many map[string]*node
}

// manyChildren is how many are looked for one by one.
const manyChildren = 12

func (n *node) child(name string) *node {
	k := n.kids
	switch {
	case k == nil:
		return nil
	case k.more != nil:
		return k.more.find(name)
	case k.only != nil && k.only.name == name:
		return k.only
	}
	return nil
}

func (s *siblings) find(name string) *node {
	if s.many != nil {
		return s.many[name]
	}
	for _, c := range s.few {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (n *node) numChildren() int {
	k := n.kids
	switch {
	case k == nil || k.only == nil && k.more == nil:
		return 0
	case k.more != nil:
		return k.more.len()
	}
	return 1
}

func (s *siblings) len() int { return len(s.few) + len(s.many) }

// link makes c a child of n.
func (n *node) link(c *node) {
	k := n.kids
	if k == nil {
		k = &children{}
		n.kids = k
	}
	c.parent = n
	switch {
	case k.more != nil:
		k.more.add(c)
	case k.only != nil:
		k.more = &siblings{few: []*node{k.only, c}}
		k.only = nil
	default:
		k.only = c
	}
}

func (s *siblings) add(c *node) {
	switch {
	case s.many != nil:
		s.many[c.name] = c
	case len(s.few) < manyChildren:
		s.few = append(s.few, c)
	default:
		s.many = make(map[string]*node, 2*manyChildren)
		for _, f := range s.few {
			s.many[f.name] = f
		}
		s.many[c.name] = c
		s.few = nil
	}
}

// unlink is the opposite of link.
func (n *node) unlink(c *node) {
	k := n.kids
	c.parent = nil
	if k.more == nil {
		k.only = nil
		return
	}
	k.more.remove(c)
	if k.more.len() == 0 {
		k.more = nil // a map never shrinks
	}
}

func (s *siblings) remove(c *node) {
	if s.many != nil {
		delete(s.many, c.name)
		return
	}
	for i, f := range s.few {
		if f == c {
			last := len(s.few) - 1
			s.few[i] = s.few[last]
			s.few[last] = nil
			s.few = s.few[:last]
			return
		}
	}
}

// each calls f for every child, in no order.
func (n *node) each(f func(*node)) {
	k := n.kids
	if k == nil {
		return
	}
	if k.only != nil {
		f(k.only)
	}
	if k.more == nil {
		return
	}
	for _, c := range k.more.few {
		f(c)
	}
	for _, c := range k.more.many {
		f(c)
	}
}

// names lists the children in byte order. An order that the container kept itself would cost each node memory.
func (n *node) names() []string {
	if n.numChildren() == 0 {
		return nil
	}
	names := make([]string, 0, n.numChildren())
	n.each(func(c *node) { names = append(names, c.name) })
	slices.Sort(names)
	return names
}

// descendants counts the nodes below n.
func (n *node) descendants() int {
	count := n.numChildren()
	n.each(func(c *node) { count += c.descendants() })
	return count
}

const markBit = 1 << 31

// slot is the place in the roster that lists the node.
func (n *node) slot() int32 { return int32(n.place &^ markBit) }

func (n *node) setSlot(slot int) { n.place = n.place&markBit | uint32(slot) }

// appendPath appends the path; nothing for the root.
func (n *node) appendPath(b []byte) []byte {
	if n.parent == nil {
		return b
	}
	return append(append(n.parent.appendPath(b), '/'), n.name...)
}

// path is built from the names up to the root; "/" for the root.
func (n *node) path() string {
	if n.parent == nil {
		return "/"
	}
	length := 0
	for m := n; m.parent != nil; m = m.parent {
		length += 1 + len(m.name)
	}
	b := make([]byte, length)
	for m := n; m.parent != nil; m = m.parent {
		length -= len(m.name)
		copy(b[length:], m.name)
		length--
		b[length] = '/'
	}
	return string(b)
}

func isTTL(owner int64) bool       { return owner&ttlMask == ttlMask }
func isContainer(owner int64) bool { return owner == containerOwner }

// isEphemeral says whether the owner is a session.
func isEphemeral(owner int64) bool { return owner != 0 && !isContainer(owner) && !isTTL(owner) }

// stat is the node as clients see it. ZooKeeper shows changes of the children where it counts creations: a creation and
// a deletion for each child that there ever was, but no deletion for those that are still there.
func (n *node) stat() wire.Stat {
	owner := n.owner
	if !isEphemeral(owner) {
		owner = 0
	}
	kids := int32(n.numChildren())
	return wire.Stat{
		Czxid: n.czxid, Mzxid: n.mzxid, Pzxid: n.pzxid, Ctime: n.ctime, Mtime: n.mtime,
		Version: n.version, Cversion: 2*n.cversion - kids, Aversion: n.aversion,
		EphemeralOwner: owner, DataLength: int32(len(n.data)), NumChildren: kids,
	}
}

// roster lists nodes in the order in which they came. A node is on one roster at most and knows its place there, so that
// it needs no map.
type roster struct {
	nodes []*node // nil where a node has gone
	gone  int
}

func (r *roster) len() int { return len(r.nodes) - r.gone }

// all yields the nodes in order.
func (r *roster) all(yield func(*node) bool) {
	for _, n := range r.nodes {
		if n != nil && !yield(n) {
			return
		}
	}
}

func (r *roster) add(n *node) {
	n.setSlot(len(r.nodes))
	r.nodes = append(r.nodes, n)
}

// remove takes a node off. While a snapshot is under way the list is not packed, so that slots stay what they are.
func (r *roster) remove(n *node, pack bool) {
	r.nodes[n.slot()] = nil
	r.gone++
	if !pack || r.gone <= 32 || r.gone <= len(r.nodes)/2 {
		return
	}
	left := make([]*node, 0, r.len())
	for m := range r.all {
		m.setSlot(len(left))
		left = append(left, m)
	}
	r.nodes, r.gone = left, 0
}
