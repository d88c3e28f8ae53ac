package state

// commit makes the applied changes final: it brings rosters, sizes and ACLs up to date and delivers the events, in
// the order of the changes.
func (s *State) commit() {
	t := &s.tree
	for i := range t.changes {
		ch := &t.changes[i]
		n := ch.node
		switch ch.kind {
		case TxnCreate:
			t.nodes++
			t.dataSize += int64(len(ch.path) + ch.size)
			if r := s.owners.roster(n.owner()); r != nil {
				r.add(n)
			}
			s.watches.created(ch.path, n, ch.parent)
		case TxnDelete:
			t.nodes--
			t.dataSize -= int64(len(ch.path) + ch.size)
			if r := s.owners.roster(n.owner()); r != nil {
				r.remove(n, t.snapshot == nil)
			}
			s.watches.deleted(ch.path, n, ch.parent)
			t.forget(n)
		case TxnSetData:
			if ch.packed {
				t.shapes.release(ch.text[n.nameLength:])
			}
			t.dataSize += int64(ch.size)
			s.watches.dataChanged(ch.path, n)
		case TxnSetACL:
			t.acls.release(ch.acl)
		}
	}
	t.changes = emptied(t.changes)
}
