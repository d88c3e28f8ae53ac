package recipe

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
)

// Attack 9. A queue whose numbers are read with the name's own dash as a sign is
// reversed; one whose negative numbers of nine digits are not read loses contenders
// when the counter has wrapped around.
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
