package state

// commit makes the applied changes final: it brings rosters, sizes and ACLs up to date and delivers the events, in
// the order of the changes.
func (s *State) commit() {
	for i := range s.changes {
		ch := &s.changes[i]
		n := ch.node
		switch ch.kind {
		case TxnCreate:
			s.nodes++
			s.dataSize += int64(len(ch.path) + ch.size)
			if r := s.roster(n.owner); r != nil {
				r.add(n)
			}
			s.tellCreated(ch.path, n, ch.parent)
		case TxnDelete:
			s.nodes--
			s.dataSize -= int64(len(ch.path) + ch.size)
			if r := s.roster(n.owner); r != nil {
				r.remove(n, s.snapshot == nil)
			}
			s.tellDeleted(ch.path, n, ch.parent)
			s.acls.release(n.acl)
		case TxnSetData:
			s.dataSize += int64(ch.size - len(ch.data))
			s.tellData(ch.path, n)
		case TxnSetACL:
			s.acls.release(ch.acl)
		}
	}
	s.forgetChanges()
}

// roster is the list that a node with this owner is on.
func (s *State) roster(owner int64) *roster {
	switch {
	case owner == 0:
		return nil
	case isContainer(owner):
		return &s.containers
	case isTTL(owner):
		return &s.ttls
	}
	if session := s.sessions[owner]; session != nil {
		return &session.ephemerals
	}
	return nil
}

// roster lists nodes in the order in which they came. A node is on one roster at most and knows its place there, so that
// it needs no map.
type roster struct {
	nodes []*node // nil where one has gone
	gone  int
}

func (r *roster) len() int { return len(r.nodes) - r.gone }

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
	for _, m := range r.nodes {
		if m != nil {
			m.setSlot(len(left))
			left = append(left, m)
		}
	}
	r.nodes, r.gone = left, 0
}
