package recipe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

// town is several locks, and clients that take all they need in one request.
type town struct {
	queues   []*Queue
	counters []int32
	groups   map[LeaseID][]slot
	granted  map[LeaseID]bool
	leases   int
}

// slot is a lease's place in one queue.
type slot struct {
	lock int
	name string
}

func newTown(t *rapid.T) *town {
	w := &town{groups: map[LeaseID][]slot{}, granted: map[LeaseID]bool{}}
	for range rapid.IntRange(2, 5).Draw(t, "locks") {
		w.queues = append(w.queues, new(Queue))
		w.counters = append(w.counters, anyNumber().Draw(t, "counter"))
	}
	return w
}

// want draws the locks of a new lease, named in any order, each
// in a mode of its own, and permits by the limit that is in force there.
func (w *town) want(t *rapid.T) (id LeaseID, wanted map[int]Contender, order []int) {
	w.leases++
	id, wanted = lease(w.leases), map[int]Contender{}
	n := rapid.IntRange(1, len(w.queues)).Draw(t, "wanted")
	order = rapid.SliceOfNDistinct(rapid.IntRange(0, len(w.queues)-1), n, n, rapid.ID).Draw(t, "order")
	for k, lock := range order {
		c := Contender{LeaseID: id, Group: uint8(k + 1), Groups: uint8(n)}
		c.Mode = rapid.SampledFrom([]Mode{Exclusive, Exclusive, Shared, Permit}).Draw(t, "mode")
		if c.Mode == Permit {
			c.Limit = rapid.Int32Range(1, 4).Draw(t, "limit")
			c.Permits = rapid.Int32Range(1, c.Limit).Draw(t, "permits")
		}
		wanted[lock] = c
	}
	return id, wanted, order
}

func (w *town) create(lock int, c Contender) {
	forms := []Dialect{Native, All}
	if c.Mode == Permit || c.LeaseID[len(c.LeaseID)-1]%2 == 0 {
		forms = forms[:1]
	}
	for _, member := range naming(forms[len(forms)-1]).Contenders(c) {
		member.Number = w.counters[lock]
		w.counters[lock]++
		made := named(member)
		w.queues[lock].Insert(made)
		w.groups[c.LeaseID] = append(w.groups[c.LeaseID], slot{lock, made.Name})
	}
}

// grant finds out which leases hold in all their queues, and that none has lost one.
func (w *town) grant(t rapid.TB) {
	for id, slots := range w.groups {
		all := !slices.ContainsFunc(slots, func(s slot) bool { return !w.queues[s.lock].LeaseHolds(s.name) })
		assert.Must(t, !w.granted[id] || all, "%s has lost a lock", id)
		w.granted[id] = all
	}
}

func (w *town) end(id LeaseID) {
	for _, s := range w.groups[id] {
		w.queues[s.lock].Remove(s.name)
	}
	delete(w.groups, id)
	delete(w.granted, id)
}

// holders are the leases that were granted everything, in some certain order.
func (w *town) holders() (ids []LeaseID) {
	for id, granted := range w.granted {
		if granted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (w *town) describe() (s string) {
	for lock, q := range w.queues {
		s += fmt.Sprintf("lock %d: %q\n", lock, names(q.items()))
	}
	return s
}

// Leases over several locks that are created in one step cannot deadlock: at any time some waiter will be granted when
// the holders have released, for any order in which clients name their locks. That holds with waiters that give up,
// with downgrades, and with any change of a limit.
func TestLeasesOverSeveralLocksNeverDeadlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTown(t)
		one := func(t *rapid.T, ids []LeaseID) (LeaseID, bool) {
			if len(ids) == 0 {
				return "", false
			}
			return rapid.SampledFrom(ids).Draw(t, "lease"), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				w.grant(t)
				if len(w.groups) > 0 && len(w.holders()) == 0 {
					t.Fatalf("all %d leases wait:\n%s", len(w.groups), w.describe())
				}
			},
			"acquire": func(t *rapid.T) {
				_, wanted, order := w.want(t)
				for _, lock := range order { // one transaction: no contender comes between
					w.create(lock, wanted[lock])
				}
			},
			"release": func(t *rapid.T) {
				if id, ok := one(t, w.holders()); ok {
					w.end(id)
				}
			},
			"give up": func(t *rapid.T) {
				if id, ok := one(t, slices.Sorted(maps.Keys(w.groups))); ok {
					w.end(id)
				}
			},
			"downgrade": func(t *rapid.T) {
				id, ok := one(t, w.holders())
				if !ok {
					return
				}
				var old, replaced []slot
				for _, s := range w.groups[id] {
					c := w.queues[s.lock].Get(s.name)
					if c.Mode != Exclusive {
						replaced = append(replaced, s)
						continue
					}
					r := *c
					r.Mode, r.FirstCzxid = Shared, cmp.Or(r.FirstCzxid, 7)
					made := named(r)
					w.queues[s.lock].Insert(made)
					old, replaced = append(old, s), append(replaced, slot{s.lock, made.Name})
				}
				w.grant(t)
				for _, s := range old {
					w.queues[s.lock].Remove(s.name)
				}
				w.groups[id] = replaced
			},
		})
		// And all of them come to their turn.
		for rounds := len(w.groups); len(w.groups) > 0; rounds-- {
			w.grant(t)
			holders := w.holders()
			if rounds == 0 || len(holders) == 0 {
				t.Fatalf("%d leases wait for ever:\n%s", len(w.groups), w.describe())
			}
			w.end(holders[rapid.IntRange(0, len(holders)-1).Draw(t, "lets go")])
		}
	})
}

// The test above would see a deadlock: two clients that take their locks one by one, in the orders that they name.
func TestLocksThatAreTakenOneByOneDeadlock(t *testing.T) {
	w := &town{groups: map[LeaseID][]slot{}, granted: map[LeaseID]bool{}, queues: []*Queue{new(Queue), new(Queue)}, counters: make([]int32, 2)}
	for k := range 2 {
		for client := range 2 {
			w.create((client+k)%2, Contender{LeaseID: lease(client), Group: uint8(k + 1), Groups: 2})
		}
	}
	if w.grant(t); len(w.holders()) != 0 {
		t.Errorf("%q hold", w.holders())
	}
}
