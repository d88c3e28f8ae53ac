package state

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Restorer makes a State of the pieces of a snapshot. It checks that they are whole, in order and fit together; damage within
// a piece that leaves all that true is for a checksum to find. After an error it is of no use.
type Restorer struct {
	s      *State
	pieces uint64
	ended  bool
	err    error

	path  []byte     // of the node before
	trail []restored // nodes on that path, from the root on, and the node itself
	lists []aclID    // by their numbers
}

// restored is a node and where its path ends.
type restored struct {
	end  int
	node *node
}

// errSnapshot is damage that needs no telling what it is.
var errSnapshot = errors.New("not a record")

// NewRestorer begins with nothing, not even the nodes of a new server.
func NewRestorer(config Config) *Restorer { return &Restorer{s: newState(config)} }

// Add takes the next piece, and keeps nothing of it.
func (r *Restorer) Add(piece []byte) error {
	if r.err == nil {
		if err := r.add(piece); err != nil {
			r.err = fmt.Errorf("state: piece %d of a snapshot: %w", r.pieces, err)
		}
		r.pieces++
	}
	return r.err
}

func (r *Restorer) add(piece []byte) error {
	if r.ended {
		return errors.New("it comes after the last one")
	}
	d := txnReader{b: piece}
	if r.pieces == 0 {
		if err := r.header(&d); err != nil {
			return err
		}
	} else if number := d.uvarint(); d.bad || number != r.pieces {
		return errors.New("it has another number")
	}
	for len(d.b) > 0 {
		var err error
		switch kind := d.bytes(1); kind[0] {
		case recordSession:
			err = r.session(&d)
		case recordNode:
			err = r.node(&d)
		case recordEnd:
			err = r.end(&d)
		default:
			err = errSnapshot
		}
		if err != nil {
			return err
		}
	}
	if d.bad {
		return errSnapshot
	}
	return nil
}

func (r *Restorer) header(d *txnReader) error {
	if string(d.bytes(uint64(len(snapshotMagic)))) != snapshotMagic {
		return errors.New("it does not begin as a snapshot does")
	}
	switch version := d.bytes(1); {
	case d.bad:
		return errSnapshot
	case version[0] != snapshotVersion:
		return fmt.Errorf("it is of version %d, but only %d is known", version[0], snapshotVersion)
	}
	s := r.s
	s.zxid = int64(d.uvarint())
	_, _ = d.uvarint(), d.uvarint()
	for count := d.uvarint(); count > 0 && !d.bad; count-- {
		s.owners.given(int64(d.uvarint()))
	}
	if d.bad || s.zxid < 0 {
		return errSnapshot
	}
	return nil
}

func (r *Restorer) session(d *txnReader) error {
	id := int64(d.uvarint())
	living := &session{timeout: d.int32()}
	_ = d.uvarint()
	switch {
	case d.bad:
		return errSnapshot
	case r.s.HasSession(id):
		return fmt.Errorf("session %#x comes twice", id)
	}
	r.s.owners.sessions[id] = living
	r.s.owners.given(id)
	return nil
}

// node puts a node in.
func (r *Restorer) node(d *txnReader) error {
	common, rest := d.uvarint(), d.bytes(d.uvarint())
	n := &node{czxid: int64(d.uvarint()), place: r.s.tree.mark}
	r.numbers(d, n)
	_, _ = d.varint(), d.uvarint()
	r.acl(d, n)
	data, null := d.stored()
	if d.bad || common > uint64(len(r.path)) {
		return errSnapshot
	}
	r.path = append(r.path[:common], rest...)
	slash := bytes.LastIndexByte(r.path, '/')
	n.create(&r.s.tree.shapes, string(r.path[slash+1:]), data)
	n.null = null
	if err := r.link(n, int(common), slash); err != nil {
		return err
	}
	s := r.s
	s.tree.nodes++
	s.tree.dataSize += int64(max(len(r.path), 1) + len(data)) // the root's path is "/"
	if list := s.owners.roster(n.owner()); list != nil {
		list.nodes = append(list.nodes, n) // State brings them into order
	} else if n.owner() != 0 {
		return fmt.Errorf("%q belongs to session %#x, which is missing", r.path, n.owner())
	}
	return nil
}

// numbers reads the numbers and times of a node that most leaves lack.
func (r *Restorer) numbers(d *txnReader, n *node) {
	mzxid, pzxid := n.czxid+d.varint(), n.czxid+d.varint()
	n.ctime = d.varint()
	mtime, owner := n.ctime+d.varint(), int64(d.uvarint())
	if owner != 0 {
		slot := d.uvarint()
		if slot >= markBit {
			d.fail()
		}
		n.setSlot(int(slot))
	}
	seldom := rarest{mzxid: mzxid, mtime: mtime, owner: owner, version: d.int32()}
	directory := rare{pzxid: pzxid, cversion: d.int32()}
	seldom.aversion = d.int32()
	if directory != (rare{pzxid: n.czxid}) {
		*n.makeRare() = directory
	}
	if seldom != (rarest{mzxid: n.czxid, mtime: n.ctime}) {
		*n.makeRarest() = seldom
	}
}

// link gives a node its parent. The first common bytes of its path were in the path before, too, and its name stands behind slash.
func (r *Restorer) link(n *node, common, slash int) error {
	if len(r.path) == 0 {
		if r.s.tree.root != nil {
			return errors.New("the root comes twice")
		}
		r.s.tree.root = n
		r.trail = append(r.trail, restored{0, n})
		return nil
	}
	if r.s.tree.root == nil {
		return errors.New("the root is not the first node")
	}
	if slash < 0 || r.path[0] != '/' || slash == len(r.path)-1 {
		return fmt.Errorf("%q is no path", r.path)
	}
	// Those on the trail stay whose whole path is a beginning of this one.
	for last := len(r.trail) - 1; ; last-- {
		if end := r.trail[last].end; end <= common && end <= slash && r.path[end] == '/' {
			r.trail = r.trail[:last+1]
			break
		}
	}
	above := r.trail[len(r.trail)-1]
	for above.end < slash {
		name := r.path[above.end+1 : slash]
		if i := bytes.IndexByte(name, '/'); i >= 0 {
			name = name[:i]
		}
		above.node = above.node.child(string(name))
		above.end += 1 + len(name)
		if above.node == nil {
			return fmt.Errorf("%q comes before %q", r.path, r.path[:above.end])
		}
		r.trail = append(r.trail, above)
	}
	if above.node.child(n.name()) != nil {
		return fmt.Errorf("%q comes twice", r.path)
	}
	above.node.link(n)
	r.trail = append(r.trail, restored{len(r.path), n})
	return nil
}

// acl reads the number of a list, and the list itself when the number is new.
func (r *Restorer) acl(d *txnReader, n *node) {
	number := d.uvarint()
	switch known := uint64(len(r.lists)); {
	case number < known:
		n.acl = r.lists[number]
		r.s.tree.acls.lists[n.acl].uses++
	case number == known:
		acl := d.acl()
		if d.bad {
			return
		}
		n.acl = r.s.tree.acls.hold(acl)
		r.lists = append(r.lists, n.acl)
	default:
		d.fail()
	}
}

func (r *Restorer) end(d *txnReader) error {
	nodes, size, sessions := d.uvarint(), d.uvarint(), d.uvarint()
	if d.bad || len(d.b) > 0 {
		return errSnapshot
	}
	s := r.s
	if nodes != uint64(s.tree.nodes) || size != uint64(s.tree.dataSize) || sessions != uint64(len(s.owners.sessions)) {
		return fmt.Errorf("%d nodes of %d bytes and %d sessions have come, but there were %d of %d and %d",
			s.tree.nodes, s.tree.dataSize, len(s.owners.sessions), nodes, size, sessions)
	}
	r.ended = true
	return nil
}

// State is the state that the snapshot was taken of, once all pieces are there.
func (r *Restorer) State() (*State, error) {
	switch {
	case r.err != nil:
		return nil, r.err
	case !r.ended:
		return nil, fmt.Errorf("state: a snapshot ends after %d pieces without its last one", r.pieces)
	case r.s.tree.root == nil:
		return nil, errors.New("state: a snapshot without nodes")
	}
	s := r.s
	sound := s.owners.containers.restore() && s.owners.ttls.restore()
	for _, session := range s.owners.sessions {
		sound = sound && session.ephemerals.restore()
	}
	if !sound {
		return nil, errors.New("state: a snapshot whose lists of nodes have two in one place")
	}
	r.err = errors.New("state: the snapshot is restored")
	return s, nil
}

// restore brings a list, whose nodes have come in any order, into the order of the slots that they had, and gives them those
// of this list.
func (r *roster) restore() bool {
	slices.SortFunc(r.nodes, func(a, b *node) int { return cmp.Compare(a.slot(), b.slot()) })
	before := int32(-1)
	for i, n := range r.nodes {
		if n.slot() == before {
			return false
		}
		before = n.slot()
		n.setSlot(i)
	}
	return true
}
