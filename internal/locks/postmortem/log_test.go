package postmortem

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

func id(i int) recipe.LeaseID { return recipe.LeaseID(fmt.Sprint("x", i)) }

func TestHistoryForgetsTheOldestAtItsBoundAndTheOldInTime(t *testing.T) {
	var h Log
	for i := range MaxEnds + 10 {
		h.Add(id(i), End{At: time.Duration(i), Held: 1, Lock: fmt.Sprint(i % 3)})
	}
	assert.That(t, !h.Has(id(9)) && h.Has(id(10)) && h.Size().Ends == MaxEnds, "the bound: %+v", h.Size())
	h.Drop(id(20))
	h.Sweep(30)
	assert.That(t, !h.Has(id(29)) && h.Has(id(30)) && h.Size().Ends == MaxEnds-20, "the sweep: %+v", h.Size())
	h.Sweep(time.Duration(MaxEnds + 10))
	assert.Equal(t, h.Size(), Sizes{}, "nothing is left, and no lock waits for the next holder after leases that are forgotten")
	assert.That(t, len(h.chunks) <= 1 && len(h.texts.blocks) <= 1, "%d chunks and %d blocks are kept for nothing", len(h.chunks), len(h.texts.blocks))
}

// A pointer would have the garbage collector visit each of 65,536 entries.
func TestAnEntryHasNoPointers(t *testing.T) {
	var flat func(reflect.Type) bool
	flat = func(of reflect.Type) bool {
		switch of.Kind() {
		case reflect.Array:
			return flat(of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				if !flat(of.Field(i).Type) {
					return false
				}
			}
			return true
		}
		return of.Kind() >= reflect.Bool && of.Kind() <= reflect.Complex128 && of.Kind() != reflect.Uintptr
	}
	assert.That(t, flat(reflect.TypeFor[entry]()), "an entry")
	assert.That(t, flat(reflect.TypeFor[key]()), "a key")
	assert.That(t, !flat(reflect.TypeFor[End]()), "the check takes a string for flat")
}

// model is a Log as a map of pointers.
type model struct {
	ends  map[recipe.LeaseID]*End
	order []recipe.LeaseID // in the order of their ends, each once
	waits []recipe.LeaseID
}

func (m *model) drop(id recipe.LeaseID) {
	m.stop(id)
	delete(m.ends, id)
	m.order = slices.DeleteFunc(m.order, func(other recipe.LeaseID) bool { return other == id })
}

func (m *model) stop(id recipe.LeaseID) {
	m.waits = slices.DeleteFunc(m.waits, func(other recipe.LeaseID) bool { return other == id })
}

func (m *model) granted(at Place, now time.Duration, next Next) {
	for _, id := range slices.Clone(m.waits) {
		if p := m.ends[id]; p.NS == at.NS && p.Lock == at.Lock {
			m.stop(id)
			if id != next.Lease {
				to := next
				to.After = now - p.At
				p.Next = &to
			}
		}
	}
}

func (m *model) revise(id recipe.LeaseID, p End) {
	old := m.ends[id]
	if old == nil {
		return
	}
	if old.Next != nil {
		p.Next = old.Next
	}
	if p.Held == 0 || p.Next != nil {
		m.stop(id)
	}
	m.ends[id] = &p
}

func (m *model) add(id recipe.LeaseID, p End) {
	if m.ends[id] != nil {
		return
	}
	m.ends[id] = &p
	m.order = append(m.order, id)
	if p.Held != 0 {
		m.waits = append(m.waits, id)
	}
}

func TestALogRemembersWhatAMapOfPointersWould(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	text := func() string { // some larger than a block
		return strings.Repeat(string(rune('a'+random.IntN(26))), random.IntN(30)*(1+random.IntN(2)*random.IntN(2)*random.IntN(2)*textBlock/16))
	}
	var h Log
	m := model{ends: map[recipe.LeaseID]*End{}}
	lock := func() Place { return Place{NS: fmt.Sprint("n", random.IntN(2)), Lock: fmt.Sprint("l", random.IntN(4))} }
	end := func(now time.Duration) End {
		at := lock()
		p := End{At: now, NS: at.NS, Lock: at.Lock, FencingToken: random.Int64N(9), TTL: 3, Owner: text(), Words: text(), Waited: 5, Held: time.Duration(random.IntN(3)), Beat: 7,
			Why: Cause(1 + random.IntN(5)), Mode: recipe.Shared, Doubtful: random.IntN(2) == 0, Terminated: random.IntN(2) == 0, Stays: random.IntN(2) == 0, Reported: random.IntN(2) == 0}
		if random.IntN(8) == 0 {
			p.Next, p.Held = &Next{Lease: id(random.IntN(50)), Name: text(), Owner: text(), Token: 4, After: 9}, 0
		}
		return p
	}
	for i := range 4_000 {
		now := time.Duration(i)
		switch which := id(random.IntN(400)); random.IntN(9) {
		case 0, 1, 2:
			p := end(now)
			h.Add(which, p)
			m.add(which, p)
		case 3, 4:
			p := end(now)
			h.Revise(which, p)
			m.revise(which, p)
		case 5, 6:
			at, next := lock(), Next{Lease: which, Name: text(), Owner: text(), Token: 8}
			h.Granted(at, now, func() Next { return next })
			m.granted(at, now, next)
		case 7:
			h.Drop(which)
			m.drop(which)
		default:
			p := end(now)
			h.AddOrRevise(which, p, func(old Cause) bool { return old > 2 })
			if old := m.ends[which]; old == nil {
				m.add(which, p)
			} else if old.Why > 2 {
				m.revise(which, p)
			}
		}
		if i%500 == 499 {
			compare(t, &h, &m)
			h.Sweep(now - 800)
			for len(m.order) > 0 && m.ends[m.order[0]].At < now-800 {
				m.drop(m.order[0])
			}
			compare(t, &h, &m)
		}
	}
}

// compare asks the Log and the model the same.
func compare(t *testing.T, h *Log, m *model) {
	t.Helper()
	assert.MustEqual(t, h.Size().Ends, len(m.ends), "ends")
	for id, want := range m.ends {
		got, ok := h.Get(id)
		assert.Must(t, ok && reflect.DeepEqual(got, *want), "%s: %+v, want %+v", id, got, *want)
		assert.Must(t, h.Has(id) && h.Reported(id) == want.Reported && h.Terminated(id) == want.Terminated, "%s", id)
	}
	all, next := h.From(0, 1<<20)
	assert.MustSlices(t, all, m.order, "From lists each")
	half, at := h.From(0, len(all)/2)
	rest, end := h.From(at, 1<<20)
	assert.MustSlices(t, append(half, rest...), all, "in pages")
	assert.MustEqual(t, end, next, "the end")
	var places []Place
	for _, id := range m.waits {
		places = append(places, Place{m.ends[id].NS, m.ends[id].Lock})
	}
	slices.SortFunc(places, func(a, b Place) int { return strings.Compare(a.NS+a.Lock, b.NS+b.Lock) })
	assert.MustEqual(t, h.Size().Awaiting, len(slices.Compact(places)), "locks that wait for their next holder")
	lock := Place{"n1", "l2"}
	var want []int64
	for _, id := range all {
		if p := m.ends[id]; p.NS == lock.NS && p.Lock == lock.Lock && p.FencingToken != 0 {
			want = append(want, p.FencingToken)
		}
	}
	slices.Reverse(want)
	assert.MustSlices(t, slices.Collect(h.Tokens(lock, 1<<20)), want, "tokens")
	for token := range h.Tokens(lock, 1<<20) {
		assert.MustEqual(t, token, want[0], "the first one")
		break
	}
	assert.Must(t, len(slices.Collect(h.Tokens(lock, 3))) <= 3, "it looks at three")
	assert.Must(t, !h.Has("") && !h.Reported("none") && !h.Terminated("none"), "what never was")
}

func TestTheTokensOfALockAreThoseOfItsLatestEnds(t *testing.T) {
	var h Log
	for i := range 100 {
		h.Add(id(i), End{NS: "default", Lock: fmt.Sprint(i % 2), FencingToken: int64(i), Why: CauseOf(locks.ReasonReleased)})
	}
	assert.Slices(t, slices.Collect(h.Tokens(Place{"default", "1"}, 6)), []int64{99, 97, 95}, "of the last six")
}

func TestAnEndThatIsRevisedAgainAndAgainTakesNoMoreMemory(t *testing.T) {
	var h Log
	id := recipe.LeaseID("lk7zeszcneibhyj6bvzox7mltgsjyv2atyozwpj")
	p := End{NS: "default", Lock: "deploy", Owner: "me", Words: "stuck"}
	h.Add(id, p)
	for range 100_000 {
		p.At++
		h.Revise(id, p)
	}
	assert.Equal(t, len(h.texts.blocks), 1, "blocks of texts")
	p.Words = "another reason"
	h.Revise(id, p)
	got, _ := h.Get(id)
	assert.That(t, got.Words == p.Words && got.At == p.At && got.Owner == "me", "%+v", got)
}
