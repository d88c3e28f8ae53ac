package state

import (
	"slices"
	"strings"

	"lockkeeper/internal/byname"
	"lockkeeper/internal/zk/wire"
)

// Owners that stand for a kind of node, as ZooKeeper encodes them. Clients read 0 for them.
const (
	containerOwner = -1 << 63
	ttlMask        = -1 << 56 // the upper byte of a TTL node's owner; the 40 lowest bits are the time to live
	maxTTL         = 1<<40 - 1
)

// node is one node of the tree. A server holds hundreds of thousands, so it has no map, no full path and no ACL of its own,
// and what few nodes have is apart: it is 64 bytes long, a size class of the allocator (a test holds it to that).
type node struct {
	text   string // the name, and behind it the data: one piece of memory
	parent *node  // nil: the root, or a node that is gone
	rare   *rare  // nil: it never had a child nor an owner, and was never written to

	czxid, ctime int64

	nameLength uint32
	acl        aclID
	// place is the slot in the roster that lists the node, and the bit that says whether a snapshot has it; see Snapshot.
	place  uint32
	null   bool // the data is ZooKeeper's null
	packed bool // the data is as shapes.pack has made it
}

// rare is what a leaf that was never written to lacks. It is 32 bytes long, a size class: each lock's directory has it.
type rare struct {
	only   *node   // the one child, unless there are siblings
	rarest *rarest // nil: it has one child at most, no owner, and was never written to

	pzxid    int64
	cversion int32
}

// rarest is what a node has that had several children, was written to, or has an owner. It is 48 bytes long, a size class.
type rarest struct {
	more *siblings // nil while there is one child at most

	mzxid, mtime      int64
	owner             int64 // a session, containerOwner, a TTL or 0
	version, aversion int32
}

func (n *node) name() string { return n.text[:n.nameLength] }

// stored is the node's data as it keeps it.
func (n *node) stored() string { return n.text[n.nameLength:] }

func (n *node) dataLength() int {
	if n.packed {
		return packedLength(n.stored())
	}
	return len(n.stored())
}

// set gives the node its name and its data. It keeps no memory of either.
func (n *node) set(name string, data []byte) {
	var text strings.Builder
	text.Grow(len(name) + len(data))
	text.WriteString(name)
	text.Write(data)
	n.text, n.nameLength, n.null, n.packed = text.String(), uint32(len(name)), data == nil, false
}

// create is set for a new node, which shares the shape of its data.
func (n *node) create(shapes *shapes, name string, data []byte) {
	packed, ok := shapes.pack(data)
	if ok {
		data = packed
	}
	n.set(name, data)
	n.packed = ok
}

// noRare and noRarest are read where a node has none, and never written.
var (
	noRare   rare
	noRarest rarest
)

func (n *node) known() *rare {
	if n.rare == nil {
		return &noRare
	}
	return n.rare
}

// makeRare is where rare fields can be written.
func (n *node) makeRare() *rare {
	if n.rare == nil {
		n.rare = &rare{pzxid: n.czxid}
	}
	return n.rare
}

// rarest is the node's rarest fields, to be read; false: it has none.
func (n *node) rarest() (*rarest, bool) {
	if n.rare == nil || n.rare.rarest == nil {
		return &noRarest, false
	}
	return n.rare.rarest, true
}

// makeRarest is where the rarest fields can be written.
func (n *node) makeRarest() *rarest {
	r := n.makeRare()
	if r.rarest == nil {
		r.rarest = &rarest{mzxid: n.czxid, mtime: n.ctime}
	}
	return r.rarest
}

// wrote notes when the node was written to.
func (n *node) wrote(version int32, zxid, now int64) {
	r := n.makeRarest()
	r.mzxid, r.mtime, r.version = zxid, now, version
}

func (n *node) version() int32 {
	r, _ := n.rarest()
	return r.version
}

func (n *node) cversion() int32 { return n.known().cversion }

func (n *node) aversion() int32 {
	r, _ := n.rarest()
	return r.aversion
}

func (n *node) pzxid() int64 {
	if n.rare == nil {
		return n.czxid
	}
	return n.rare.pzxid
}

func (n *node) mzxid() int64 {
	if r, ok := n.rarest(); ok {
		return r.mzxid
	}
	return n.czxid
}

func (n *node) mtime() int64 {
	if r, ok := n.rarest(); ok {
		return r.mtime
	}
	return n.ctime
}

func (n *node) owner() int64 {
	r, _ := n.rarest()
	return r.owner
}

// siblings are a list while they are few. The set of many stays until the last one has gone.
type siblings struct {
	few  []*node
	many *byname.Set[node]
}

// manyChildren is how many are looked for one by one.
const manyChildren = 12

// several are the node's children when they are two or more, else nil.
func (n *node) several() *siblings {
	r, _ := n.rarest()
	return r.more
}

func (n *node) child(name string) *node {
	if more := n.several(); more != nil {
		return more.find(name)
	}
	if only := n.known().only; only != nil && only.name() == name {
		return only
	}
	return nil
}

func (s *siblings) find(name string) *node {
	if s.many != nil {
		return s.many.Get(name)
	}
	for _, c := range s.few {
		if c.name() == name {
			return c
		}
	}
	return nil
}

func (n *node) numChildren() int {
	if more := n.several(); more != nil {
		return more.len()
	}
	if n.known().only != nil {
		return 1
	}
	return 0
}

func (s *siblings) len() int {
	if s.many != nil {
		return s.many.Len()
	}
	return len(s.few)
}

// link makes c a child of n.
func (n *node) link(c *node) {
	r, more := n.makeRare(), n.several()
	c.parent = n
	switch {
	case more != nil:
		more.add(c)
	case r.only != nil:
		n.makeRarest().more = &siblings{few: []*node{r.only, c}}
		r.only = nil
	default:
		r.only = c
	}
}

func (s *siblings) add(c *node) {
	switch {
	case s.many != nil:
		s.many.Put(c)
	case len(s.few) < manyChildren:
		s.few = append(s.few, c)
	default:
		s.many = byname.New((*node).name)
		for _, f := range s.few {
			s.many.Put(f)
		}
		s.many.Put(c)
		s.few = nil
	}
}

// unlink is the opposite of link.
func (n *node) unlink(c *node) {
	c.parent = nil
	more := n.several()
	if more == nil {
		n.rare.only = nil
		return
	}
	more.remove(c)
	if more.len() == 0 {
		n.rare.rarest.more = nil
	}
}

func (s *siblings) remove(c *node) {
	if s.many != nil {
		s.many.Delete(c)
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
	if only := n.known().only; only != nil {
		f(only)
	}
	more := n.several()
	if more == nil {
		return
	}
	for _, c := range more.few {
		f(c)
	}
	if more.many != nil {
		for c := range more.many.All() {
			f(c)
		}
	}
}

// names lists the children in byte order. An order that the container kept itself would cost each node memory.
func (n *node) names() []string {
	if n.numChildren() == 0 {
		return nil
	}
	names := make([]string, 0, n.numChildren())
	n.each(func(c *node) { names = append(names, c.name()) })
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
	return append(append(n.parent.appendPath(b), '/'), n.name()...)
}

// path is built from the names up to the root; "/" for the root.
func (n *node) path() string {
	if n.parent == nil {
		return "/"
	}
	length := 0
	for m := n; m.parent != nil; m = m.parent {
		length += 1 + int(m.nameLength)
	}
	b := make([]byte, length)
	for m := n; m.parent != nil; m = m.parent {
		length -= int(m.nameLength)
		copy(b[length:], m.name())
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
	owner := n.owner()
	if !isEphemeral(owner) {
		owner = 0
	}
	kids := int32(n.numChildren())
	return wire.Stat{
		Czxid: n.czxid, Mzxid: n.mzxid(), Pzxid: n.pzxid(), Ctime: n.ctime, Mtime: n.mtime(),
		Version: n.version(), Cversion: 2*n.cversion() - kids, Aversion: n.aversion(),
		EphemeralOwner: owner, DataLength: int32(n.dataLength()), NumChildren: kids,
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
