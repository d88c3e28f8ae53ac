// Package byname finds things by their names.
//
// A Set is for hundreds of thousands of things, each of which knows its name. It takes ten bytes for each place and fills up to
// seven of eight places, where a map of strings takes some 33 bytes for each entry. It keeps no name: a thing's name may become
// a part of another string, and the memory of the first string is free.
//
// No call takes long, however large the Set is: a large one consists of parts that grow by themselves.
//
// A Set is not safe for concurrent use, and must not be changed while All yields its things.
package byname

import (
	"hash/maphash"
	"iter"
)

const (
	// splitAt is how many things make a Set one of manyParts.
	splitAt   = 4096
	manyParts = 256 // the number of values of a hash's first byte
	fewPlaces = 16
)

var seed = maphash.MakeSeed()

// Set is a set of things of different names. New makes one.
type Set[T any] struct {
	name  func(*T) string
	parts []part[T] // one, or manyParts
	len   int
}

// New makes an empty Set. name must always give the same name for a thing that is in the Set.
func New[T any](name func(*T) string) *Set[T] {
	return &Set[T]{name: name, parts: make([]part[T], 1)}
}

// Len is how many things there are.
func (s *Set[T]) Len() int { return s.len }

// Get is the thing of that name, nil when there is none.
func (s *Set[T]) Get(name string) *T { return get(s, maphash.String(seed, name), name) }

// GetBytes is Get.
func (s *Set[T]) GetBytes(name []byte) *T { return get(s, maphash.Bytes(seed, name), name) }

func get[T any, N string | []byte](s *Set[T], hash uint64, name N) *T {
	p := s.part(hash)
	for i := p.home(uint16(hash)); p.len > 0 && p.things[i] != nil; i = p.next(i) {
		if p.hashes[i] == uint16(hash) && s.name(p.things[i]) == string(name) {
			return p.things[i]
		}
	}
	return nil
}

// Put adds a thing. There must be none of its name.
func (s *Set[T]) Put(thing *T) {
	if s.len == splitAt && len(s.parts) == 1 {
		s.split()
	}
	hash := maphash.String(seed, s.name(thing))
	p := s.part(hash)
	if p.len+1 > len(p.things)/8*7 {
		p.resize(max(2*len(p.things), fewPlaces))
	}
	p.put(uint16(hash), thing)
	s.len++
}

// Delete takes a thing out. It does nothing when the thing is not there.
func (s *Set[T]) Delete(thing *T) {
	name := s.name(thing)
	hash := maphash.String(seed, name)
	if get(s, hash, name) != thing {
		return
	}
	p := s.part(hash)
	i := p.home(uint16(hash))
	for p.things[i] != thing {
		i = p.next(i)
	}
	p.free(i)
	s.len--
	switch {
	case s.len == 0:
		s.parts = make([]part[T], 1)
	case p.len < len(p.things)/8 && len(p.things) > fewPlaces:
		p.resize(len(p.things) / 2)
	}
}

// All yields the things in no order.
func (s *Set[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range s.parts {
			for _, thing := range s.parts[i].things {
				if thing != nil && !yield(thing) {
					return
				}
			}
		}
	}
}

func (s *Set[T]) part(hash uint64) *part[T] {
	if len(s.parts) == 1 {
		return &s.parts[0]
	}
	return &s.parts[hash>>56]
}

// split makes one part many.
func (s *Set[T]) split() {
	one := s.parts[0]
	s.parts, s.len = make([]part[T], manyParts), 0
	for _, thing := range one.things {
		if thing != nil {
			s.Put(thing)
		}
	}
}

// part has a power of two of places. A thing stands at its home, which its hash tells, or behind it: no place between is free.
type part[T any] struct {
	things []*T     // nil: the place is free
	hashes []uint16 // of their names: a part of each hash, for which more is never needed
	len    int
}

// home spreads the hashes evenly. Where there are more places than hashes, each home has several places of its own.
func (p *part[T]) home(hash uint16) int { return int(uint64(hash) * uint64(len(p.things)) >> 16) }

func (p *part[T]) next(i int) int { return (i + 1) & (len(p.things) - 1) }

func (p *part[T]) put(hash uint16, thing *T) {
	i := p.home(hash)
	for p.things[i] != nil {
		i = p.next(i)
	}
	p.things[i], p.hashes[i] = thing, hash
	p.len++
}

// free makes a place free. Things behind it move up where their home allows it.
func (p *part[T]) free(i int) {
	distance := func(from, to int) int { return (to - from) & (len(p.things) - 1) }
	for j := p.next(i); p.things[j] != nil; j = p.next(j) {
		if distance(p.home(p.hashes[j]), j) >= distance(i, j) {
			p.things[i], p.hashes[i] = p.things[j], p.hashes[j]
			i = j
		}
	}
	p.things[i] = nil
	p.len--
}

func (p *part[T]) resize(places int) {
	old := *p
	*p = part[T]{things: make([]*T, places), hashes: make([]uint16, places)}
	for i, thing := range old.things {
		if thing != nil {
			p.put(old.hashes[i], thing)
		}
	}
}
