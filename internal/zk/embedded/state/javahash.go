package state

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ZooKeeper keeps children, ephemeral nodes and identities in Java hash tables and shows them in the order of the table.
// Clients must not rely on it, but tools show it, and it is the order in which a session's nodes go: so it is kept.

// Initial sizes of the tables.
const (
	childTable     = 8
	ephemeralTable = 16
	identityTable  = 16
)

// hashed is an entry of a table; seq tells entries of one bucket apart, which stand in the order in which they came. (Two
// have the same only beyond the end of a sequence counter; then their keys decide, so that there is always one order.)
type hashed struct {
	key  string
	hash uint32
	seq  int32
}

// javaHash is String.hashCode, spread as a HashMap does it.
func javaHash(s string) uint32 { return spread(javaStringHash(s)) }

func javaStringHash(s string) uint32 {
	var h uint32
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return javaRunesHash(h, s[i:])
		}
		h = 31*h + uint32(s[i])
	}
	return h
}

// javaRunesHash goes on with a string that is more than ASCII.
func javaRunesHash(h uint32, s string) uint32 {
	for _, r := range s {
		if r1, r2 := utf16.EncodeRune(r); r1 != utf8.RuneError {
			h = 31*h + uint32(r1)
			r = r2
		}
		h = 31*h + uint32(r)
	}
	return h
}

func spread(h uint32) uint32 { return h ^ h>>16 }

// tableSize is how large a table that started with initial buckets is once it has held peak entries: it doubles when it
// is more than three quarters full, and never shrinks.
func tableSize(initial, peak int) uint32 {
	size := initial
	for peak > size*3/4 {
		size *= 2
	}
	return uint32(size)
}

// copySize is the size of a table that is made as a copy of n entries.
func copySize(n int) uint32 {
	least := int(float32(n)/0.75 + 1)
	size := 1
	for size < least {
		size *= 2
	}
	return uint32(size)
}

// sortByTable brings entries into the order of a table of this size.
func sortByTable(entries []hashed, size uint32) {
	if int(size) <= 8*len(entries) {
		placeByTable(entries, size)
		return
	}
	slices.SortFunc(entries, func(a, b hashed) int {
		return cmp.Or(cmp.Compare(a.hash&(size-1), b.hash&(size-1)), a.compare(b))
	})
}

// placeByTable does the same in time that grows with the number of entries only, because buckets hold few. It takes memory
// for the buckets: not for a table that was large once.
func placeByTable(entries []hashed, size uint32) {
	ends := make([]int32, size)
	for i := range entries {
		ends[entries[i].hash&(size-1)]++
	}
	end := int32(0)
	for b := range ends {
		end += ends[b]
		ends[b] = end - ends[b] // where the bucket begins; placing makes it where it ends
	}
	placed := make([]hashed, len(entries))
	for i := range entries {
		at := &ends[entries[i].hash&(size-1)]
		placed[*at] = entries[i]
		*at++
	}
	begin := int32(0)
	for _, end := range ends {
		if end-begin > 1 {
			slices.SortFunc(placed[begin:end], hashed.compare)
		}
		begin = end
	}
	copy(entries, placed)
}

// compare tells which of two entries of one bucket came first.
func (e hashed) compare(other hashed) int {
	return cmp.Or(cmp.Compare(e.seq, other.seq), strings.Compare(e.key, other.key))
}

// sortByCopy brings entries into the order of a copy of a table of this size: what ZooKeeper takes from a set of
// ephemeral nodes before it works on them.
func sortByCopy(entries []hashed, size uint32) {
	sortByTable(entries, size)
	copied := copySize(len(entries))
	slices.SortStableFunc(entries, func(a, b hashed) int {
		return cmp.Compare(a.hash&(copied-1), b.hash&(copied-1))
	})
}
