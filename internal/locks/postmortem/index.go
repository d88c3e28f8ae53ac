package postmortem

import "hash/maphash"

// index finds entries by their leases' ids. It keeps neither, but for each entry its number and a part of its id's hash, in eight
// bytes: a map with the ids as keys takes five times as much, and each look at it waits for the memory. A place's number is kept
// plus 1; 0: the place is free. An entry stands at its home, which the hash tells, or behind it: no place between is free.
type index struct {
	places []uint64 // a power of two, at most seven of eight taken
	len    int
}

const (
	numberBits = 44
	numberMask = 1<<numberBits - 1
	hashBits   = 64 - numberBits // more than there are ever places for
	fewPlaces  = 16
)

// hash is the part of the id's hash that is kept.
func (k *key) hash() uint64 { return maphash.Bytes(placeSeed, k[:]) >> numberBits }

func (x *index) home(hash uint64) int { return int(hash * uint64(len(x.places)) >> hashBits) }

func (x *index) behind(i int) int { return (i + 1) & (len(x.places) - 1) }

// put adds an entry whose id is not there.
func (x *index) put(hash, number uint64) {
	if x.len+1 > len(x.places)/8*7 {
		x.resize(max(2*len(x.places), fewPlaces))
	}
	x.place(hash<<numberBits | (number + 1))
	x.len++
}

func (x *index) place(what uint64) {
	i := x.home(what >> numberBits)
	for x.places[i] != 0 {
		i = x.behind(i)
	}
	x.places[i] = what
}

// delete takes out an entry that is there. Those behind it move up where their home allows it.
func (x *index) delete(hash, number uint64) {
	i := x.home(hash)
	for x.places[i] != hash<<numberBits|(number+1) {
		i = x.behind(i)
	}
	distance := func(from, to int) int { return (to - from) & (len(x.places) - 1) }
	for j := x.behind(i); x.places[j] != 0; j = x.behind(j) {
		if distance(x.home(x.places[j]>>numberBits), j) >= distance(i, j) {
			x.places[i], i = x.places[j], j
		}
	}
	x.places[i] = 0
	if x.len--; x.len < len(x.places)/8 && len(x.places) > fewPlaces {
		x.resize(len(x.places) / 2)
	}
}

func (x *index) resize(places int) {
	before := x.places
	x.places = make([]uint64, places)
	for _, what := range before {
		if what != 0 {
			x.place(what)
		}
	}
}
