package recipe

import "iter"

// Who holds. A contender holds when none of the contenders before it
// conflicts with it, its own entry's aside:
//
//	exclusive   conflicts with everything
//	shared      conflicts with exclusive and permits
//	permit      conflicts with exclusive and shared; it holds while the permits of
//	            all contenders before it plus its own are within its own limit
//
// A foreign permit counts as one. Its own limit is not known, so it is taken to
// hold whenever only permits stand before it; ours do not depend on that.
//
// All contenders before it count, also those that wait: the queue is fair, and a
// grant depends on nothing that comes later.
//
// An entry is what stands in the queue as one: neighbours of one lease (created
// in one transaction, thus with consecutive numbers; or the replacements of a
// downgrade beside what they replace), and foreign contenders that share a number
// (the read node that Curator 5.5 gives a writer). A member that another contender
// separates from its lease is judged on its own: that grants less, never more.

// join is 1 when two neighbours belong to one entry, else 0.
func join(a, b *Contender) int32 {
	if a.LeaseID != "" || b.LeaseID != "" {
		if a.LeaseID == b.LeaseID {
			return 1
		}
		return 0
	}
	if a.Number == b.Number && !a.Ours && !b.Ours {
		return 1
	}
	return 0
}

// tally sums up the contenders before an entry.
type tally struct {
	exclusive, shared bool
	permits           int64
}

func (t *tally) add(c *Contender) {
	switch c.Mode {
	case Shared:
		t.shared = true
	case Permit:
		t.permits += int64(c.Permits)
	default:
		t.exclusive = true
	}
}

func (t *tally) admits(c *Contender) bool {
	switch c.Mode {
	case Shared:
		return !t.exclusive && t.permits == 0
	case Permit:
		return !t.exclusive && !t.shared && (!c.Ours || t.permits+int64(c.Permits) <= int64(c.Limit))
	default:
		return !t.exclusive && !t.shared && t.permits == 0
	}
}

// closed tells that nobody behind these contenders holds. Permits are spent
// when the highest limit in the queue is reached.
func (t *tally) closed(q *Queue) bool {
	return t.exclusive || t.shared && t.permits > 0 ||
		t.permits > 0 && q.foreign == 0 && t.permits >= int64(q.maxLimit)
}

// Holders yields the contenders that hold the lock, in queue order; none while
// the queue is not Ordered. It looks at the holders and at one contender more;
// with permits at no more contenders than the highest limit, unless another
// program's semaphore is among them.
func (q *Queue) Holders() iter.Seq[*Contender] {
	return func(yield func(*Contender) bool) {
		q.walk(yield)
	}
}

func (q *Queue) walk(yield func(*Contender) bool) {
	if q.disordered {
		return
	}
	var before, sum tally
	var prev *Contender
	for _, c := range q.items() {
		if prev == nil || join(prev, c) == 0 {
			if before = sum; before.closed(q) {
				return
			}
		}
		if before.admits(c) && !yield(c) {
			return
		}
		sum.add(c)
		prev = c
	}
}

// Holds reports whether the contender of that name holds the lock. It takes
// O(log n), for a permit what Holders takes.
func (q *Queue) Holds(name string) bool {
	i := q.Index(name)
	return i >= 0 && q.holdsAt(i)
}

func (q *Queue) holdsAt(i int) bool {
	if q.disordered {
		return false
	}
	switch c := q.At(i); c.Mode {
	case Exclusive:
		return q.entryStart(i) == 0
	case Shared:
		return q.entryStart(i) <= int(q.lead)
	default:
		for h := range q.Holders() {
			if h == c {
				return true
			}
		}
		return false
	}
}

// LeaseHolds reports whether the lease that a contender belongs to holds the
// lock: every contender of its entry does, and each of its members is there. It
// is false for an Unknown contender, whose members are not known.
func (q *Queue) LeaseHolds(name string) bool {
	i := q.Index(name)
	if i < 0 {
		return false
	}
	first, end := q.entryStart(i), q.entryEnd(i)
	var there uint
	for j := first; j < end; j++ {
		if !q.holdsAt(j) {
			return false
		}
		there |= 1 << q.At(j).Member
	}
	n := q.At(i).Members
	all := uint(1)<<(n+1) - 2 // bits 1 to n
	return n > 0 && there&all == all
}

func (q *Queue) entryStart(i int) int {
	items := q.items()
	for i > 0 && join(items[i-1], items[i]) == 1 {
		i--
	}
	return i
}

func (q *Queue) entryEnd(i int) int {
	items := q.items()
	for i++; i < len(items) && join(items[i-1], items[i]) == 1; i++ {
	}
	return i
}

// Position is the place of a contender's entry among the entries that wait,
// from 1; 0 when all of the entry holds. ok is false when the contender is not
// there, or there is no order. It takes O(log n) and the holders of a
// semaphore; O(n) in a queue where a lease has several contenders.
func (q *Queue) Position(name string) (position int, ok bool) {
	i := q.Index(name)
	if i < 0 || q.disordered {
		return 0, false
	}
	if q.joined == 0 {
		if q.holdsAt(i) {
			return 0, true
		}
		return i + 1 - q.holdersBefore(i), true
	}
	first := q.entryStart(i)
	for start := 0; start <= first; start = q.entryEnd(start) {
		waits := !q.entryHolds(start)
		if waits {
			position++
		}
		if start == first && !waits {
			return 0, true
		}
	}
	return position, true
}

// Waiting is the number of entries that wait: all, while there is no order. It
// takes what Position takes.
func (q *Queue) Waiting() int {
	entries := q.Len() - int(q.joined)
	if q.disordered {
		return entries
	}
	if q.joined == 0 {
		return entries - q.holdersBefore(q.Len())
	}
	waiting := 0
	for start := 0; start < q.Len(); start = q.entryEnd(start) {
		if !q.entryHolds(start) {
			waiting++
		}
	}
	return waiting
}

func (q *Queue) entryHolds(start int) bool {
	for j := start; j < q.entryEnd(start); j++ {
		if !q.holdsAt(j) {
			return false
		}
	}
	return true
}

// holdersBefore counts the holders with an index below i in an ordered queue
// where every contender is an entry of its own; i is the index of one who
// waits, or Len.
func (q *Queue) holdersBefore(i int) int {
	if i == 0 {
		return 0
	}
	switch q.At(0).Mode {
	case Exclusive:
		return 1
	case Shared:
		return int(q.lead)
	}
	n, last := 0, q.At(i-1)
	for h := range q.Holders() {
		if Less(last.Number, last.Name, h.Number, h.Name) {
			break
		}
		n++
	}
	return n
}
