package observer

import (
	"iter"
	"maps"
	"slices"
)

// nodeIndexFrom is the number of nodes from which a nodeSet keeps an index.
const nodeIndexFrom = 16

// nodeSet is the set of the names of a directory's nodes. An uncontended lock
// has one contender, so a set of one takes nothing but its own two words.
type nodeSet struct {
	one  string     // the only node; "" when there is none or more is in use
	more *moreNodes // since there were two, until there is none
}

// moreNodes holds two nodes and more.
type moreNodes struct {
	list  []string            // while there are few
	index map[string]struct{} // when there are many; then list is nil
}

func (s *nodeSet) len() int {
	switch {
	case s.more != nil:
		return max(len(s.more.list), len(s.more.index))
	case s.one != "":
		return 1
	}
	return 0
}

// get finds a name. What it returns is in memory already where the set is small.
func (s *nodeSet) get(name []byte) (have string, ok bool) {
	if s.more == nil {
		return s.one, s.one != "" && s.one == string(name)
	}
	if s.more.index != nil {
		if _, ok = s.more.index[string(name)]; ok {
			have = string(name)
		}
		return have, ok
	}
	for _, n := range s.more.list {
		if n == string(name) {
			return n, true
		}
	}
	return "", false
}

// add takes in a name that is not there.
func (s *nodeSet) add(name string) {
	if s.more == nil {
		if s.one == "" {
			s.one = name
			return
		}
		s.more = &moreNodes{list: []string{s.one}}
		s.one = ""
	}
	m := s.more
	if m.index == nil && len(m.list) < nodeIndexFrom {
		m.list = append(m.list, name)
		return
	}
	if m.index == nil {
		m.index = make(map[string]struct{}, 2*nodeIndexFrom)
		for _, have := range m.list {
			m.index[have] = struct{}{}
		}
		m.list = nil
	}
	m.index[name] = struct{}{}
}

func (s *nodeSet) remove(name string) {
	m := s.more
	switch {
	case m == nil:
		if s.one == name {
			s.one = ""
		}
	case m.index != nil:
		delete(m.index, name)
	default:
		if i := slices.Index(m.list, name); i >= 0 {
			m.list = slices.Delete(m.list, i, i+1)
		}
	}
	if m != nil && len(m.list) == 0 && len(m.index) == 0 {
		s.more = nil // a map keeps the size it once had
	}
}

// all yields the names. Who walks it may remove from the set.
func (s *nodeSet) all() iter.Seq[string] {
	if s.more == nil {
		one := s.one
		return func(yield func(string) bool) { _ = one == "" || yield(one) }
	}
	if index := s.more.index; index != nil {
		return maps.Keys(index)
	}
	return slices.Values(slices.Clone(s.more.list))
}
