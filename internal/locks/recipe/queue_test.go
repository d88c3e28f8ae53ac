package recipe

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

// children is the content of a lock's directory.
type children []*Contender

// model is a queue by the words of its rules, judged as a whole for each question.
type model struct {
	ordered bool
	sorted  []*Contender
	entries [][]*Contender // what stands in the queue as one, in order
	holders map[*Contender]bool
}

func judge(all children) model {
	before := func(a, b *Contender) bool { return uint32(b.Number-a.Number) < halfCircle }
	m := model{sorted: slices.Clone(all), holders: map[*Contender]bool{}}
	// There is an order when one contender is before all others.
	m.ordered = len(all) == 0 || slices.ContainsFunc(all, func(first *Contender) bool {
		return !slices.ContainsFunc(all, func(c *Contender) bool { return !before(first, c) })
	})
	if !m.ordered {
		return m
	}
	slices.SortFunc(m.sorted, func(a, b *Contender) int {
		if a.Number != b.Number {
			if before(a, b) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	for _, c := range m.sorted {
		if n := len(m.entries); n > 0 {
			last := m.entries[n-1][len(m.entries[n-1])-1]
			foreign := !c.Ours && !last.Ours && c.Number == last.Number
			if foreign || c.LeaseID != "" && c.LeaseID == last.LeaseID {
				m.entries[n-1] = append(m.entries[n-1], c)
				continue
			}
		}
		m.entries = append(m.entries, []*Contender{c})
	}
	for i, entry := range m.entries {
		for _, c := range entry {
			m.holders[c] = holdsBehind(slices.Concat(m.entries[:i]...), c)
		}
	}
	return m
}

func holdsBehind(predecessors []*Contender, c *Contender) bool {
	taken := int64(c.Permits)
	for _, p := range predecessors {
		if p.Mode == Permit && c.Mode == Permit {
			taken += int64(p.Permits)
		} else if p.Mode != Shared || c.Mode != Shared {
			return false
		}
	}
	return c.Mode != Permit || !c.Ours || taken <= int64(c.Limit)
}

func (m model) entryHolds(entry []*Contender) bool {
	return !slices.ContainsFunc(entry, func(c *Contender) bool { return !m.holders[c] })
}

func (m model) position(c *Contender) (position int, ok bool) {
	for _, entry := range m.entries {
		waits := !m.entryHolds(entry)
		if waits {
			position++
		}
		if slices.Contains(entry, c) {
			if waits {
				return position, true
			}
			return 0, true
		}
	}
	return 0, false
}

func (m model) leaseHolds(c *Contender) bool {
	for _, entry := range m.entries {
		if !slices.Contains(entry, c) {
			continue
		}
		slots := map[uint8]bool{}
		for _, o := range entry {
			slots[o.Member] = true
		}
		for k := range c.Members {
			if !slots[k+1] {
				return false
			}
		}
		return c.Members > 0 && m.entryHolds(entry)
	}
	return false
}

// newcomers are asked about who are not there yet.
var newcomers = []Contender{
	{Ours: true}, {Ours: true, Mode: Shared}, {Ours: true, Mode: Permit, Permits: 1, Limit: 1},
	{Ours: true, Mode: Permit, Permits: 1, Limit: 3}, {Ours: true, Mode: Permit, Permits: 3, Limit: 3},
	{Ours: true, Mode: Permit, Permits: 2, Limit: 5}, {Ours: true, Mode: Permit, Permits: MaxPermits, Limit: MaxPermits},
}

func collect(q *Queue) (out []*Contender) {
	for c := range q.Holders() {
		out = append(out, c)
	}
	return out
}

// checkQueue compares everything a queue says with the model, and what it keeps count of with the queue itself.
func checkQueue(t assert.T, q *Queue, want children) {
	t.Helper()
	m := judge(want)
	assert.Must(t, q.Len() == len(want) && q.Ordered() == m.ordered,
		"%d contenders, ordered %v; want %d, %v", q.Len(), q.Ordered(), len(want), m.ordered)
	var all []*Contender
	for i, c := range q.All() {
		assert.Must(t, q.At(i) == c && q.Index(c.Name) == i && q.Get(c.Name) == c,
			"contender %d, %q, is found at %d", i, c.Name, q.Index(c.Name))
		all = append(all, c)
	}
	if m.ordered && !slices.Equal(all, m.sorted) {
		t.Fatalf("queue %s\nwant  %s", names(all), names(m.sorted))
	}
	assert.Must(t, q.Index("absent-0000000000") == -1 && q.Get("absent") == nil && !q.Holds("absent") && !q.LeaseHolds("absent"),
		"an absent contender is found")
	_, ok := q.Position("absent-0000000001")
	assert.Must(t, !ok, "an absent contender has a position")

	r := q.row
	if r == nil { // what a row of it would be
		r = new(row)
		r.reset(all)
	}
	var holders []*Contender
	foreign, permits, waiting := 0, 0, 0
	for _, c := range m.sorted {
		if m.holders[c] {
			holders = append(holders, c)
		}
		assert.Must(t, q.Holds(c.Name) == m.holders[c], "%q holds: %v; want %v", c.Name, q.Holds(c.Name), m.holders[c])
		assert.Must(t, q.LeaseHolds(c.Name) == m.leaseHolds(c),
			"the lease of %q holds: %v; want %v", c.Name, q.LeaseHolds(c.Name), m.leaseHolds(c))
		got, ok := q.Position(c.Name)
		if want, wantOK := m.position(c); got != want || ok != wantOK {
			t.Fatalf("%q is at position %d, %v; want %d, %v", c.Name, got, ok, want, wantOK)
		}
		if c.Mode == Permit {
			permits++
			if !c.Ours {
				foreign++
			}
		}
	}
	if got := collect(q); !slices.Equal(got, holders) {
		t.Fatalf("holders %s\nwant    %s\nof      %s", names(got), names(holders), names(all))
	}
	if r.taken != sumPermits(all) {
		t.Fatalf("%d permits are taken of %s", r.taken, names(all))
	}
	assert.Must(t, q.ForeignPermits() == foreign && int(r.permits) == permits,
		"%d permits, %d foreign; want %d, %d", r.permits, q.ForeignPermits(), permits, foreign)
	if m.ordered {
		for _, entry := range m.entries {
			if !m.entryHolds(entry) {
				waiting++
			}
		}
	} else {
		waiting = q.Len() - int(r.joined)
	}
	assert.Must(t, q.Waiting() == waiting, "%d wait, want %d", q.Waiting(), waiting)

	for _, c := range newcomers {
		want := m.ordered && holdsBehind(m.sorted, &c)
		if got := q.WouldHold(&c); got != want || r.wouldHold(&c) != want {
			t.Fatalf("a newcomer %v %dof%d would hold behind %s: %v; want %v", c.Mode, c.Permits, c.Limit, names(all), got, want)
		}
	}

	joined, lead := int32(0), len(all)
	for i, c := range all {
		if i > 0 {
			joined += join(all[i-1], c)
		}
		if c.Mode != Shared {
			lead = min(lead, i)
		}
	}
	assert.Must(t, r.joined == joined && int(r.lead) == lead, "%d joined, %d lead; want %d, %d", r.joined, r.lead, joined, lead)
	if q.row != nil && (q.only[0] != nil || q.Len() == 0) {
		t.Fatalf("a row of %d beside %v", q.Len(), q.only[0])
	}
	if slices.Contains(q.items(), nil) || slices.ContainsFunc(r.buf[:r.head], func(c *Contender) bool { return c != nil }) ||
		slices.ContainsFunc(r.buf[len(r.buf):cap(r.buf)], func(c *Contender) bool { return c != nil }) {
		t.Fatalf("the queue keeps contenders that have gone")
	}
}

func sumPermits(contenders []*Contender) (sum int64) {
	for _, c := range contenders {
		sum += int64(c.Permits)
	}
	return sum
}

func names(contenders []*Contender) (out []string) {
	for _, c := range contenders {
		out = append(out, c.Name)
	}
	return out
}

// lease is the lease id number i of the tests.
func lease(i int) LeaseID {
	random := fmt.Appendf(nil, "%010d", i)
	return LeaseID(Tag + string(testFleet) + string(testGateway) + encoding.EncodeToString(random))
}

func named(c Contender) *Contender {
	c.Name = c.Format()
	parsed, ok := Parse(testFleet, c.Name)
	if !ok {
		panic(c.Name)
	}
	return &parsed
}

func foreignContender(format string, n int32) *Contender {
	c, ok := Parse(testFleet, fmt.Sprintf(format+"%010d", n))
	if !ok {
		panic(format)
	}
	return &c
}

// Kinds of contenders that are in one queue: most queues have not all of them.
var someKinds = rapid.SampledFrom([][]int{{0, 2, 4, 6, 7, 8, 9, 10, 11}, {4, 4, 4, 10}, {4}, {0, 2, 2, 6, 7, 8}, {2, 4}, {6}})

// drawContender draws a contender with the given number; few leases, so that some
// have several contenders, and more than one with a number.
func drawContender(t *rapid.T, n int32, kinds []int) *Contender {
	id := lease(rapid.IntRange(0, 5).Draw(t, "lease"))
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	switch kind {
	case 0:
		return named(Contender{LeaseID: id, Number: n})
	case 2:
		return named(Contender{LeaseID: id, Number: n, Mode: Shared})
	case 4:
		limit := rapid.Int32Range(1, 5).Draw(t, "limit")
		return named(Contender{LeaseID: id, Number: n, Mode: Permit, Limit: limit, Permits: rapid.Int32Range(1, limit).Draw(t, "permits")})
	case 6:
		members := uint8(rapid.IntRange(2, 3).Draw(t, "members"))
		return named(Contender{
			LeaseID: id, Number: n, Mode: Mode(rapid.IntRange(0, 1).Draw(t, "mode")), Form: Form(rapid.IntRange(0, 2).Draw(t, "form")),
			Member: uint8(rapid.IntRange(1, int(members)).Draw(t, "member")), Members: members,
		})
	case 7: // what a downgrade left
		return named(Contender{LeaseID: id, Number: n, Mode: Shared, FirstCzxid: 7})
	case 8: // of a lease over several locks
		groups := uint8(rapid.IntRange(2, MaxGroup).Draw(t, "groups"))
		return named(Contender{
			LeaseID: id, Number: n, Mode: Mode(rapid.IntRange(0, 1).Draw(t, "mode")),
			Group: uint8(rapid.IntRange(1, int(groups)).Draw(t, "group")), Groups: groups,
		})
	case 9:
		return foreignContender("read-v9."+string(id)+"-lock-", n)
	default:
		return foreignContender(rapid.SampledFrom([]string{"_c_a-lock-", "_c_a-__READ__", "_c_a-__WRIT__", "_c_a-lease-", "read-", "x-lkabcdefgh-"}).Draw(t, "foreign"), n)
	}
}

func TestTheQueueIsAsItsRulesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := anyNumber().Draw(t, "base")
		kinds := someKinds.Draw(t, "kinds")
		next := base
		q, m := new(Queue), children{}
		insert := func(t *rapid.T, c *Contender) {
			there := slices.ContainsFunc(m, func(o *Contender) bool { return o.Name == c.Name })
			assert.Must(t, q.Insert(c) != there, "Insert(%q) is %v", c.Name, !there)
			if !there {
				m = append(m, c)
			}
		}
		remove := func(t *rapid.T, c *Contender) {
			assert.Must(t, q.Remove(c.Name) == c && q.Remove(c.Name) == nil, "Remove(%q) removes another contender, or twice", c.Name)
			m = slices.DeleteFunc(m, func(o *Contender) bool { return o == c })
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { checkQueue(t, q, m) },
			"append": func(t *rapid.T) {
				insert(t, drawContender(t, next, kinds))
				next++
			},
			"append three members": func(t *rapid.T) {
				id, mode := lease(rapid.IntRange(0, 5).Draw(t, "lease")), Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
				for _, c := range naming(All).Contenders(Contender{LeaseID: id, Mode: mode}) {
					c.Number = next
					insert(t, named(c))
					next++
				}
			},
			"insert near":     func(t *rapid.T) { insert(t, drawContender(t, base+rapid.Int32Range(-9, 9).Draw(t, "offset"), kinds)) },
			"insert anywhere": func(t *rapid.T) { insert(t, drawContender(t, anyNumber().Draw(t, "number"), kinds)) },
			"remove the head": func(t *rapid.T) {
				if len(m) > 0 {
					remove(t, q.At(0))
				}
			},
			"remove": func(t *rapid.T) {
				if len(m) > 0 {
					remove(t, q.At(rapid.IntRange(0, len(m)-1).Draw(t, "index")))
				}
			},
			"reset": func(t *rapid.T) {
				shuffled := rapid.Permutation(m).Draw(t, "children")
				q.Reset(append(shuffled, shuffled...))
			},
		})
	})
}

// The heart of the recipe: a grant is never taken back by who comes later, so a
// replica that has seen everything before a contender may grant.
func TestAHolderGoesOnHoldingWhenContendersAreAppended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := anyNumber().Draw(t, "base")
		kinds := someKinds.Draw(t, "kinds")
		q, held := new(Queue), map[*Contender]bool{}
		for range rapid.IntRange(20, 60).Draw(t, "steps") {
			if q.Len() > 0 && rapid.IntRange(0, 2).Draw(t, "leave") == 0 {
				c := q.At(rapid.IntRange(0, q.Len()-1).Draw(t, "index"))
				// A member that leaves alone cuts its lease in two; a lease ends whole, so the others of it go as well.
				for _, o := range slices.Clone(q.items()) {
					if o == c || o.LeaseID != "" && o.LeaseID == c.LeaseID {
						q.Remove(o.Name)
						delete(held, o)
					}
				}
			} else {
				q.Insert(drawContender(t, next, kinds))
				next += rapid.Int32Range(1, 1000).Draw(t, "gap")
			}
			for c := range q.Holders() {
				held[c] = true
			}
			for c := range held {
				if !q.Holds(c.Name) {
					t.Fatalf("%q has lost the lock in %q", c.Name, names(q.items()))
				}
			}
		}
	})
}

// The same the other way round: nothing that conflicts holds at one time.
func TestConflictingContendersNeverHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := new(Queue)
		base := anyNumber().Draw(t, "base")
		kinds := someKinds.Draw(t, "kinds")
		for i := range rapid.IntRange(1, 12).Draw(t, "contenders") {
			q.Insert(drawContender(t, base+int32(i), kinds))
		}
		holders := collect(q)
		for i, b := range holders {
			taken := int64(b.Permits)
			for _, a := range holders[:i] {
				if a.LeaseID != "" && a.LeaseID == b.LeaseID {
					continue
				}
				taken += int64(a.Permits)
				assert.Must(t, a.Mode == b.Mode && a.Mode != Exclusive, "%q and %q hold together", a.Name, b.Name)
			}
			assert.Must(t, b.Mode != Permit || !b.Ours || taken <= int64(b.Limit), "%d permits are taken where %q holds", taken, b.Name)
		}
	})
}
