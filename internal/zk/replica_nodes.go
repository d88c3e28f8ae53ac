package zk

import "slices"

// nodeIndexFrom is the number of nodes from which a nodeSet keeps an index. An
// uncontended lock has one contender, so most sets never need one.
const nodeIndexFrom = 16

// nodeSet is the set of a directory's nodes.
type nodeSet struct {
	list  []*Node          // while there are few
	index map[string]*Node // when there are many; then list is nil
}

func (s *nodeSet) len() int { return max(len(s.list), len(s.index)) }

func (s *nodeSet) get(name []byte) *Node {
	if s.index != nil {
		return s.index[string(name)]
	}
	for _, n := range s.list {
		if n.Name == string(name) {
			return n
		}
	}
	return nil
}

// add takes in a node whose name is not there.
func (s *nodeSet) add(n *Node) {
	if s.index == nil && len(s.list) < nodeIndexFrom {
		s.list = append(s.list, n)
		return
	}
	if s.index == nil {
		s.index = make(map[string]*Node, 2*nodeIndexFrom)
		for _, have := range s.list {
			s.index[have.Name] = have
		}
		s.list = nil
	}
	s.index[n.Name] = n
}

func (s *nodeSet) remove(n *Node) {
	if s.index != nil {
		delete(s.index, n.Name)
		if len(s.index) == 0 {
			s.index = nil // a map keeps the size it once had
		}
		return
	}
	if i := slices.Index(s.list, n); i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

// all is a copy: who walks it may remove from the set.
func (s *nodeSet) all() []*Node {
	all := slices.Clone(s.list)
	for _, n := range s.index {
		all = append(all, n)
	}
	return all
}
