package orders

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidwall/btree"
)

// Life is for how long an order is kept though no list asks for it.
const Life = 5 * time.Minute

// Building is how far an order is that is being made.
type Building struct {
	Complete bool
	From     string        // the directory at which the making goes on
	Asked    time.Duration // boot: when a list asked for the order last
}

// Place is a lock's place in an order of numbers.
type Place struct {
	Number int64
	Dir    string // of the lock
}

// Numbers keeps locks in the order of a number, the greatest first, those with equal ones by directory. A lock without a number is
// not in it.
type Numbers struct {
	Building
	of   map[string]int64 // by directory
	tree *btree.BTreeG[Place]
}

// NewNumbers makes an order without locks.
func NewNumbers() *Numbers {
	return &Numbers{of: map[string]int64{}, tree: btree.NewBTreeGOptions(func(a, b Place) bool { return a.before(b) }, btree.Options{NoLocks: true})}
}

func (p Place) before(other Place) bool {
	return p.Number > other.Number || p.Number == other.Number && p.Dir < other.Dir
}

// Compare orders places as an order of numbers has them.
func Compare(a, b Place) int {
	return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Dir, b.Dir))
}

// Put gives a lock its number.
func (n *Numbers) Put(dir string, number int64) {
	if was, there := n.of[dir]; there {
		if was == number {
			return
		}
		n.tree.Delete(Place{was, dir})
	}
	n.of[dir] = number
	n.tree.Set(Place{number, dir})
}

// Remove takes a lock out.
func (n *Numbers) Remove(dir string) {
	if was, there := n.of[dir]; there {
		n.tree.Delete(Place{was, dir})
		delete(n.of, dir)
	}
}

// Has reports whether a lock has a number.
func (n *Numbers) Has(dir string) bool {
	_, there := n.of[dir]
	return there
}

// Len is how many locks have one.
func (n *Numbers) Len() int { return len(n.of) }

// Behind yields the places behind one; nil: all of them.
func (n *Numbers) Behind(place *Place, yield func(Place) bool) {
	if place == nil {
		n.tree.Scan(yield)
		return
	}
	n.tree.Ascend(*place, func(p Place) bool { return p == *place || yield(p) })
}

// Words finds locks by words. A lock has any number of them.
type Words struct {
	Building
	of   map[string][]string // by directory; sorted
	tree *btree.BTreeG[word]
}

type word struct{ word, dir string }

// NewWords makes an index without locks.
func NewWords() *Words {
	return &Words{of: map[string][]string{}, tree: btree.NewBTreeGOptions(func(a, b word) bool {
		return a.word < b.word || a.word == b.word && a.dir < b.dir
	}, btree.Options{NoLocks: true})}
}

// Put gives a lock its words, in any order, and each as often as it is. It keeps neither the slice nor changes it.
func (w *Words) Put(dir string, words []string) {
	was := w.of[dir]
	if slices.Equal(was, words) && len(words) < 2 { // most locks have one
		return
	}
	sorted := slices.Clone(words)
	slices.Sort(sorted)
	if sorted = slices.Compact(sorted); slices.Equal(was, sorted) {
		return
	}
	for _, old := range was {
		w.tree.Delete(word{old, dir})
	}
	for _, now := range sorted {
		w.tree.Set(word{now, dir})
	}
	if w.of[dir] = slices.Clip(sorted); len(sorted) == 0 {
		delete(w.of, dir)
	}
}

// Len is how many locks have words.
func (w *Words) Len() int { return len(w.of) }

// Behind yields the directories of the locks that have a word, in their order, behind one; "": all of them.
func (w *Words) Behind(of, dir string, yield func(dir string) bool) {
	w.tree.Ascend(word{of, dir}, func(at word) bool {
		return at.word == of && (at.dir == dir || yield(at.dir))
	})
}
