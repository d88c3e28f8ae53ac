package state

import (
	"encoding/binary"
	"slices"
)

// snapshotMagic begins the first piece of a snapshot; the version follows it. Readers refuse versions that they do not know.
const (
	snapshotMagic   = "ZKstate"
	snapshotVersion = 1
)

// The kinds of records. The numbers are part of the binary form.
const (
	recordSession = 1
	recordNode    = 2
	recordEnd     = 3
)

// Snapshot writes down the state as it was when the snapshot was begun, piece by piece, while requests go on being carried
// out between the pieces. It belongs to the goroutine that owns the State.
//
// Sessions, and the sizes that are not a node's, are few and are copied at the beginning. Nodes are written by a walk from
// the root, which takes down the children of a node when it comes to it and goes on with them in later pieces. A change
// of a node that is not written yet writes the node first (tree.touch), behind those of its ancestors that are not
// written yet. So what is written is always as it was at the beginning, and a parent always comes before its children.
//
// One bit of a node says whether it is written: it is then equal to tree.mark. It is so for all nodes while no snapshot is
// under way, beginning one turns tree.mark round, and new nodes get the present mark. A written node's ancestors are
// written, too. Case by case, for a node that was there at the beginning:
//
//   - It stays as it is: it is linked to its parent when the walk comes there, so it is taken down, and written in its turn.
//   - It, or its list of children, changes: it is written before. The walk finds it written and goes on with its children.
//   - It is deleted: it is written before, and its children, which had to go first, were, too. When the walk has it on its
//     list it finds it written and childless.
//   - Another node comes to its path: that is a new node with a mark of its own, and is left out. The old one was written when
//     it was deleted.
//   - A multi changes or deletes it and fails: it stays written, with the values from before the multi. Undoing gives it the
//     same values back, and links the very same node again, which is not written a second time.
//
// A node that came later is never written, whether it stays, is deleted or is undone: it was born with the mark. Its
// ancestors that were there at the beginning were written, because creating a child changes its parent.
//
// A roster's order is the order of its slots. A node tells its own, and while a snapshot is under way no roster is packed, so
// that the slots of one roster can be compared whenever they were written. The list of a session whose ephemeral nodes come
// and go by the thousand grows meanwhile, by 8 bytes for each that comes.
//
// Nothing is lost but what never is in a log, either: connections, their identities and their watches.
//
// # Form
//
// Numbers are varints, strings stand behind their lengths.
//
//	first piece:  magic | version | zxid | sizes of the rosters of containers and TTLs | newest session ids | records
//	other pieces: number of the piece, from 1 | records
//
//	session: 1 | id | timeout | size of its roster
//	node:    2 | path | zxids | times | owner | slot, if there is an owner | versions | 0 | 0
//	           | number of its ACL | that ACL, if the number is new | data
//	end:     3 | how many nodes | the length of all paths and data | how many sessions
//
// A path is the length of what it has in common with the path of the node before, and the rest. The root's is empty. Pieces
// hold whole records.
//
// A reader skips sizes and zeros. Where they stand, State wrote what it needed to list nodes in the order of Java's hash
// tables. A program of that time still reads this form.
type Snapshot struct {
	tree  *tree
	zxid  int64
	piece uint64 // the number of the next one

	head     []byte // of the first piece
	sessions []sessionRecord
	end      []byte

	walk []*node // still to be visited, the next one last

	// Nodes that were about to change, in order: their records without the data, and their data, which is never written to.
	saved []savedNode
	heads []byte
	taken struct{ saved, heads int } // how many of them are in a piece

	// What the next record refers to.
	path, scratch []byte
	data          []byte           // scratch
	lists         map[aclID]uint64 // the numbers of ACLs, from 0
}

type sessionRecord struct {
	id      int64
	timeout int32
	size    int
}

type savedNode struct {
	head int // how many bytes of heads
	data string
	null bool
}

// BeginSnapshot begins to write the present state down. There is one snapshot at a time; beginning another one is a mistake.
// It takes time in proportion to the number of sessions.
func (s *State) BeginSnapshot() *Snapshot {
	t, o := &s.tree, &s.owners
	if t.snapshot != nil {
		panic("state: a snapshot is under way")
	}
	p := &Snapshot{tree: t, zxid: s.zxid, lists: make(map[aclID]uint64), walk: []*node{t.root}}
	p.head = append(append(p.head, snapshotMagic...), snapshotVersion)
	for _, n := range []uint64{uint64(s.zxid), uint64(o.containers.len()), uint64(o.ttls.len()), uint64(len(o.newest))} {
		p.head = binary.AppendUvarint(p.head, n)
	}
	for _, id := range o.newest {
		p.head = binary.AppendUvarint(p.head, uint64(id))
	}
	p.sessions = make([]sessionRecord, 0, len(o.sessions))
	for id, session := range o.sessions {
		p.sessions = append(p.sessions, sessionRecord{id, session.timeout, session.ephemerals.len()})
	}
	p.end = append(p.end, recordEnd)
	for _, n := range []uint64{uint64(t.nodes), uint64(t.dataSize), uint64(len(o.sessions))} {
		p.end = binary.AppendUvarint(p.end, n)
	}
	t.snapshot = p
	t.mark ^= markBit
	return p
}

// Zxid is the last transaction that is in the snapshot.
func (p *Snapshot) Zxid() int64 { return p.zxid }

// stepCost is what a step counts at least towards the length of a piece, because the walk also comes to nodes that need not
// be written.
const stepCost = 16

// Next appends the next piece to b: records until there are about limit bytes, and one at least, however long it is. It takes
// time in proportion to limit and to the children of the nodes that it comes to. After the last piece the snapshot is over.
func (p *Snapshot) Next(b []byte, limit int) (piece []byte, last bool) {
	if p.tree.snapshot != p {
		panic("state: the snapshot is over")
	}
	begin := len(b)
	if p.piece == 0 {
		b = append(b, p.head...)
	} else {
		b = binary.AppendUvarint(b, p.piece)
	}
	p.piece++
	for left := max(limit-(len(b)-begin), 1); left > 0; {
		mark, steps := len(b), 1
		switch {
		case len(p.sessions) > 0: // first, because nodes refer to them
			last := len(p.sessions) - 1
			b = p.sessions[last].appendTo(b)
			p.sessions = p.sessions[:last]
		case len(p.saved) > 0: // before the walk goes on, whose records may refer to them
			b = p.appendSaved(b)
		case len(p.walk) > 0:
			b, steps = p.visit(b)
		default:
			p.tree.snapshot = nil
			return append(b, p.end...), true
		}
		left -= max(len(b)-mark, steps*stepCost)
	}
	return b, false
}

func (r sessionRecord) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(append(b, recordSession), uint64(r.id))
	b = binary.AppendVarint(b, int64(r.timeout))
	return binary.AppendUvarint(b, uint64(r.size))
}

func (p *Snapshot) appendSaved(b []byte) []byte {
	saved := &p.saved[p.taken.saved]
	end := p.taken.heads + saved.head
	b = appendStored(append(b, p.heads[p.taken.heads:end]...), saved.data, saved.null)
	saved.data = ""
	p.taken.saved, p.taken.heads = p.taken.saved+1, end
	if p.taken.saved == len(p.saved) {
		p.taken.saved, p.taken.heads = 0, 0
		p.saved, p.heads = p.saved[:0], p.heads[:0]
	}
	return b
}

// visit writes the walk's next node, unless it is written, and takes its children down.
func (p *Snapshot) visit(b []byte) (_ []byte, steps int) {
	last := len(p.walk) - 1
	n := p.walk[last]
	p.walk[last] = nil
	p.walk = p.walk[:last]
	if !p.tree.written(n) {
		p.tree.setWritten(n)
		b = p.appendHead(b, n)
		if n.packed {
			p.data = p.tree.shapes.unpack(p.data[:0], n.stored())
			b = appendStored(b, p.data, false)
		} else {
			b = appendStored(b, n.stored(), n.null)
		}
	}
	p.walk = slices.Grow(p.walk, n.numChildren())
	n.each(func(c *node) {
		steps++
		if c.rare != nil || !p.tree.written(c) {
			p.walk = append(p.walk, c)
		}
	})
	return b, 1 + steps/8 // taking one down costs much less than writing it
}

// save writes a node that is about to change.
func (p *Snapshot) save(n *node) {
	if above := n.parent; above != nil && !p.tree.written(above) {
		p.save(above)
	}
	p.tree.setWritten(n)
	mark := len(p.heads)
	p.heads = p.appendHead(p.heads, n)
	p.saved = append(p.saved, savedNode{len(p.heads) - mark, p.dataOf(n), n.null})
}

// dataOf is a node's data as it will be written: the node's own memory where that is possible.
func (p *Snapshot) dataOf(n *node) string {
	if n.packed { // the shape may be gone by then
		return string(p.tree.data(n))
	}
	return n.stored()
}

// appendHead appends a node's record without its data. Records must be read in the order in which they were made here.
func (p *Snapshot) appendHead(b []byte, n *node) []byte {
	path := n.appendPath(p.scratch[:0])
	common := 0
	for common < min(len(path), len(p.path)) && path[common] == p.path[common] {
		common++
	}
	b = binary.AppendUvarint(append(b, recordNode), uint64(common))
	b = append(binary.AppendUvarint(b, uint64(len(path)-common)), path[common:]...)
	p.path, p.scratch = path, p.path

	b = binary.AppendUvarint(b, uint64(n.czxid))
	b = binary.AppendVarint(b, n.mzxid()-n.czxid)
	b = binary.AppendVarint(b, n.pzxid()-n.czxid)
	b = binary.AppendVarint(b, n.ctime)
	b = binary.AppendVarint(b, n.mtime()-n.ctime)
	b = binary.AppendUvarint(b, uint64(n.owner()))
	if n.owner() != 0 {
		b = binary.AppendUvarint(b, uint64(n.slot()))
	}
	b = binary.AppendVarint(b, int64(n.version()))
	b = binary.AppendVarint(b, int64(n.cversion()))
	b = binary.AppendVarint(b, int64(n.aversion()))
	b = append(b, 0, 0)

	// An id stands for one list here: when it is given to another one, only nodes that are written already can get that.
	number, known := p.lists[n.acl]
	if known {
		return binary.AppendUvarint(b, number)
	}
	number = uint64(len(p.lists))
	p.lists[n.acl] = number
	return appendACL(binary.AppendUvarint(b, number), p.tree.acls.list(n.acl))
}
