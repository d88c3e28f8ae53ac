package recipe

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

// directory is a lock's directory as ZooKeeper keeps it, and the queue that a gateway has built of its events, one by
// one. After each event everything that the queue says is compared with the rules, and with what it said before.
type directory struct {
	t       *rapid.T
	counter int32 // of the next sequential child; it wraps around
	there   children
	q       *Queue
	leases  int
	modes   []Mode   // of this lock's leases
	foreign []string // prefixes of the programs that use it too
	czxid   int64

	holding map[*Contender]bool // that held at some moment since they came
	granted map[LeaseID]bool    // leases that held at some moment, and are whole
}

// created is the event of a new child; its contender, nil when that name is there.
func (d *directory) created(c *Contender) *Contender {
	if slices.ContainsFunc(d.there, func(o *Contender) bool { return o.Name == c.Name }) {
		return nil
	}
	assert.Must(d.t, d.q.Insert(c), "%q is refused", c.Name)
	d.there = append(d.there, c)
	d.check("after " + c.Name + " was created")
	return c
}

// next appends a sequential child.
func (d *directory) next(prefix string) *Contender {
	c, ok := Parse(testFleet, prefix+string(appendNumber(nil, d.counter)))
	assert.Must(d.t, ok, "no contender: %q", prefix)
	d.counter++
	return d.created(&c)
}

func (d *directory) deleted(c *Contender) {
	assert.Must(d.t, d.q.Remove(c.Name) == c, "%q is not there", c.Name)
	d.there = slices.DeleteFunc(d.there, func(o *Contender) bool { return o == c })
	delete(d.holding, c)
	if c.LeaseID != "" && len(d.members(c.LeaseID, c.Mode)) < int(c.Members) && len(d.members(c.LeaseID, 1-c.Mode)) == 0 {
		delete(d.granted, c.LeaseID) // it has begun to end
	}
	d.check("after " + c.Name + " was deleted")
}

// members are a lease's contenders of a mode, in the order of the queue.
func (d *directory) members(id LeaseID, mode Mode) (all []*Contender) {
	for _, c := range d.there {
		if c.LeaseID == id && c.Mode == mode && !c.Unknown {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Contender) int { return Compare(a.Number, a.Name, b.Number, b.Name) })
	return all
}

func (d *directory) check(when string) {
	checkQueue(d.t, d.q, d.there)
	var holders []*Contender
	for c := range d.q.Holders() {
		d.holding[c] = true
		holders = append(holders, c)
		if c.LeaseID != "" && d.q.LeaseHolds(c.Name) {
			d.granted[c.LeaseID] = true
		}
	}
	for c := range d.holding {
		if !d.q.Holds(c.Name) {
			d.t.Fatalf("%s %q has lost the lock: %q", when, c.Name, names(d.q.items()))
		}
	}
	for id := range d.granted {
		if !slices.ContainsFunc(d.there, func(c *Contender) bool { return c.LeaseID == id && d.q.LeaseHolds(c.Name) }) {
			d.t.Fatalf("%s lease %s has lost the lock: %q", when, id, names(d.q.items()))
		}
	}
	for i, b := range holders {
		taken := int64(b.Permits)
		for _, a := range holders[:i] {
			if a.LeaseID != "" && a.LeaseID == b.LeaseID || a.Number == b.Number && !a.Ours && !b.Ours {
				continue // one entry
			}
			taken += int64(a.Permits)
			assert.Must(d.t, a.Mode == b.Mode && a.Mode != Exclusive, "%s %q and %q hold together", when, a.Name, b.Name)
		}
		assert.Must(d.t, b.Mode != Permit || !b.Ours || taken <= int64(b.Limit),
			"%s %d permits are taken where %q holds", when, taken, b.Name)
	}
}

// some draws one of the contenders that fit; nil when there is none.
func (d *directory) some(t *rapid.T, fits func(*Contender) bool) *Contender {
	all := slices.DeleteFunc(slices.Clone(d.there), func(c *Contender) bool { return !fits(c) })
	if len(all) == 0 {
		return nil
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
}

func (d *directory) enqueue(t *rapid.T) {
	d.leases++
	c := Contender{LeaseID: lease(d.leases), Ephemeral: rapid.Bool().Draw(t, "ephemeral")}
	if rapid.Bool().Draw(t, "several locks") {
		c.Groups = uint8(rapid.IntRange(2, MaxGroup).Draw(t, "groups"))
		c.Group = uint8(rapid.IntRange(1, int(c.Groups)).Draw(t, "group"))
	}
	dialect := rapid.SampledFrom([]Dialect{Native, Native, Native, CuratorRW, Kazoo, All, All}).Draw(t, "dialect")
	c.Mode = rapid.SampledFrom(d.modes).Draw(t, "mode")
	if c.Mode == Permit {
		dialect = Native
		c.Limit = rapid.Int32Range(1, 6).Draw(t, "limit") // settings change
		c.Permits = rapid.Int32Range(1, c.Limit).Draw(t, "permits")
	}
	would := d.q.WouldHold(&c)
	for _, member := range naming(dialect).Contenders(c) {
		made := d.next(member.Prefix())
		assert.Must(t, made == nil || d.q.Holds(made.Name) == would, "%+v would hold: %v, and it does not do so", made, would)
	}
	d.czxid++
}

// end deletes a lease whole, from the tail on.
func (d *directory) end(t *rapid.T) {
	c := d.some(t, func(c *Contender) bool { return c.LeaseID != "" })
	if c == nil {
		return
	}
	all := slices.DeleteFunc(slices.Clone(d.there), func(o *Contender) bool { return o.LeaseID != c.LeaseID })
	slices.SortFunc(all, func(a, b *Contender) int { return Compare(b.Number, b.Name, a.Number, a.Name) })
	for _, o := range all {
		d.deleted(o)
	}
}

// downgrade replaces all nodes of an exclusive lease: every replacement is created
// before the first node goes, and no contender gets in between.
func (d *directory) downgrade(t *rapid.T) {
	c := d.some(t, func(c *Contender) bool { return c.Ours && !c.Unknown && c.Mode == Exclusive })
	if c == nil {
		return
	}
	written := d.members(c.LeaseID, Exclusive)
	held := d.q.LeaseHolds(c.Name)
	for _, w := range written {
		r := *w
		r.Mode, r.FirstCzxid = Shared, d.czxid+1
		d.created(named(r))
	}
	for _, w := range slices.Backward(written) {
		d.deleted(w)
	}
	for _, r := range d.members(c.LeaseID, Shared) {
		assert.Must(t, !held || d.q.LeaseHolds(r.Name), "%q does not hold after its downgrade", r.Name)
	}
}

// The heart of the recipe, with any actions of other programs and gateways: a grant is a fact. Nothing that comes later
// takes it back, not Curator 5.5's read node of a writer's number, not another lease's downgrade, not the numbers' turn
// from 2147483647 to -2147483648.
func TestAGrantIsAFact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &directory{t: t, q: new(Queue), counter: anyNumber().Draw(t, "counter"), holding: map[*Contender]bool{}, granted: map[LeaseID]bool{}}
		// Most locks are used in one way, and not by all programs at once.
		d.modes = rapid.SampledFrom([][]Mode{{Permit}, {Shared, Exclusive}, {Shared, Shared, Permit}, {Exclusive, Shared, Permit}}).Draw(t, "modes")
		d.foreign = rapid.SampledFrom([][]string{nil, {"_c_a-lease-"}, {"_c_a-__READ__", "_c_a-__WRIT__", "read-"}, {
			"_c_a-lock-", "_c_a-__READ__", "_c_a-__WRIT__", "_c_a-lease-", "read-", "write-", "0f__lock__", "0f__rlock__", "x-",
			"read-v9." + string(lease(99)) + "-lock-",
		}}).Draw(t, "foreign")
		t.Repeat(map[string]func(*rapid.T){
			"":          func(t *rapid.T) { d.t = t },
			"enqueue":   d.enqueue,
			"and again": d.enqueue,
			"end":       d.end,
			"downgrade": d.downgrade,
			"a foreign one comes": func(t *rapid.T) {
				if len(d.foreign) > 0 {
					d.next(rapid.SampledFrom(d.foreign).Draw(t, "prefix"))
				}
			},
			"a foreign one goes": func(t *rapid.T) {
				if c := d.some(t, func(c *Contender) bool { return !c.Ours }); c != nil {
					d.deleted(c)
				}
			},
			"Curator's writer reads": func(t *rapid.T) {
				c := d.some(t, func(c *Contender) bool { return !c.Ours && strings.Contains(c.Name, "__WRIT__") })
				if c != nil {
					d.created(foreignContender("_c_a-__READ__", c.Number))
				}
			},
			"a number is used up": func(*rapid.T) { d.counter++ },
			"the queue is read anew": func(t *rapid.T) {
				d.q = new(Queue)
				d.q.Reset(rapid.Permutation(d.there).Draw(t, "children"))
				d.check("after a tree read")
			},
		})
	})
}

// Attack 9. A queue whose numbers are read with the name's own dash as a sign is reversed; one whose negative numbers
// of nine digits are not read loses contenders when the counter has wrapped around.
func TestAttack9AQueueIsReadInTheOrderInWhichItWasMadeWhereverTheCounterStands(t *testing.T) {
	prefixes := []string{
		"_c_c8b0d5e4-1111-4222-8333-123456789abc-lock-", "_c_a-__WRIT__", "0123456789abcdef__lock__", "write-", "x-72057594037927936-",
		(&Contender{LeaseID: lease(1)}).Prefix(), (&Contender{LeaseID: lease(2), Form: FormKazoo}).Prefix(),
		(&Contender{LeaseID: lease(3), Form: FormCurator, Group: 2, Groups: 3}).Prefix(),
	}
	for _, start := range []int64{
		0, 5, 1000000000, 1500000000, math.MaxInt32 - 4, math.MinInt32, -1500000000, -1000000004, -1000000000, -999999999, -99999, -4,
	} {
		q := new(Queue)
		var made []string
		for i, prefix := range prefixes {
			name := prefix + fmt.Sprintf("%010d", int32(start+int64(i))) // as ZooKeeper does it
			c, ok := Parse(testFleet, name)
			assert.That(t, ok && c.Number == int32(start+int64(i)), "%q has the number %d, %v", name, c.Number, ok)
			made = append(made, name)
			c.Name = name
			assert.Must(t, q.Insert(&c), "%q is there twice", name)
		}
		got := names(q.items())
		assert.That(t, slices.Equal(got, made), "from %d on the queue is\n%q\nmade as\n%q", start, got, made)
		got = names(collect(q))
		assert.That(t, slices.Equal(got, made[:1]), "from %d on %q hold", start, got)
	}
}

// Attack 10. A and B hold by a limit of 3; the limit is lowered to 1, and the
// gateway of B dies. What its successor knows is names.
func TestAttack10ALoweredLimitRevokesNoGrantForAnyReader(t *testing.T) {
	q, words := queueOf(t, 1, "1of3/1 1of3/2 1of1/3 1of3/4")
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
		successor := new(Queue)
		var children []*Contender
		for _, i := range order {
			c, ok := Parse(testFleet, q.At(i).Name)
			if !ok {
				t.Fatal(q.At(i).Name)
			}
			children = append(children, &c)
		}
		successor.Reset(children)
		got := holding(successor, words)
		assert.That(t, got == "1of3/1 1of3/2", "to the successor %q hold", got)
		// The contender with the new limit waits for all before it. The one behind it with
		// the old limit waits only until there are permits for it.
		for _, step := range []struct{ leaves, hold string }{
			{"1of3/1", "1of3/2 1of3/4"}, {"1of3/2", "1of1/3 1of3/4"}, {"1of1/3", "1of3/4"},
		} {
			successor.Remove(words[step.leaves])
			assert.Equal(t, holding(successor, words), step.hold, "after %s has left", step.leaves)
		}
	}
}

// curatorSemaphoreAdmits is the rule of Curator's InterProcessSemaphoreV2: a client
// has its lease when at most maxLeases children are there, of any client, at any place.
func curatorSemaphoreAdmits(q *Queue, maxLeases int) bool { return q.Len() <= maxLeases }

// Attack 24. H holds Curator's semaphore of 1, Curator's F waits. If a permit of ours
// waited, too, F would count it when H has left, and it would wait for F.
func TestAttack24OurPermitsDoNotWaitAmongThoseOfAnotherProgram(t *testing.T) {
	q, words := queueOf(t, 1, "P 2:P")
	ours := Contender{LeaseID: lease(1), Mode: Permit, Permits: 1, Limit: 1}
	assert.Must(t, q.ForeignPermits() == 2 && !q.WouldHold(&ours),
		"%d foreign permits; would hold: %v", q.ForeignPermits(), q.WouldHold(&ours))
	// With ours in the queue: the deadlock.
	waits := ours
	waits.Number = 3
	ourName := named(waits)
	q.Insert(ourName)
	q.Remove(words["P"])
	assert.Must(t, !curatorSemaphoreAdmits(q, 1) && !q.Holds(ourName.Name), "there is no deadlock to avoid")
	// Without it.
	q.Remove(ourName.Name)
	assert.That(t, curatorSemaphoreAdmits(q, 1), "Curator's waiter does not get in")
	// Nothing but foreign permits counts as one, and they are counted until the last has left.
	assert.That(t, q.ForeignPermits() == 1, "%d foreign permits, want 1", q.ForeignPermits())
	q.Remove(words["2:P"])
	for _, script := range []string{"", "1of3/1 2of3/2", "X", "R W", "?", "w1 r2"} {
		if q, _ := queueOf(t, 1, script); q.ForeignPermits() != 0 {
			t.Errorf("%d foreign permits in %q", q.ForeignPermits(), script)
		}
	}
	assert.That(t, q.ForeignPermits() == 0 && q.WouldHold(&ours), "our permits do not get in when the others have left")
}
