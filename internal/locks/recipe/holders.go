package recipe

// A contender holds when no contender before it, outside its own entry, conflicts with it:
//
//	exclusive   conflicts with everything
//	shared      conflicts with exclusive and permits
//	permit      conflicts with exclusive and shared; it holds while the permits of
//	            all contenders before it plus its own are within its own limit
//
// A foreign permit counts as one. Its limit is not known, so it counts as a holder when only permits are before it. Our
// own grants do not depend on that.
//
// Waiting contenders before it count too: the queue is fair, and a grant depends on nothing that comes later.
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

// closed reports whether no contender behind these can hold. Permits are used up at the highest limit in the queue.
func (t *tally) closed(q *row) bool {
	return t.exclusive || t.shared && t.permits > 0 ||
		t.permits > 0 && q.foreign == 0 && t.permits >= int64(q.maxLimit)
}

// walk is Queue.Holders.
func (r *row) walk(yield func(*Contender) bool) {
	if r.disordered {
		return
	}
	var before, sum tally
	var prev *Contender
	for _, c := range r.items() {
		if prev == nil || join(prev, c) == 0 {
			if before = sum; before.closed(r) {
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

// holds is Queue.Holds.
func (r *row) holds(name string) bool {
	i := r.index(name)
	return i >= 0 && r.holdsAt(i)
}

func (r *row) holdsAt(i int) bool {
	if r.disordered {
		return false
	}
	switch c := r.at(i); c.Mode {
	case Exclusive:
		return r.entryStart(i) == 0
	case Shared:
		return r.entryStart(i) <= int(r.lead)
	default:
		for h := range r.walk {
			if h == c {
				return true
			}
		}
		return false
	}
}

// wouldHold is Queue.WouldHold.
func (r *row) wouldHold(newcomer *Contender) bool {
	if r.disordered {
		return false
	}
	var before tally
	switch r.len() {
	case int(r.lead):
		before.shared = r.lead > 0
	case int(r.permits):
		before.permits = r.taken
	default: // exclusive, or readers and permits: these block every contender
		before.exclusive = true
	}
	return before.admits(newcomer)
}

// leaseHolds is Queue.LeaseHolds.
func (r *row) leaseHolds(name string) bool {
	i := r.index(name)
	if i < 0 {
		return false
	}
	first, end := r.entryStart(i), r.entryEnd(i)
	var there uint
	for j := first; j < end; j++ {
		if !r.holdsAt(j) {
			return false
		}
		there |= 1 << r.at(j).Member
	}
	n := r.at(i).Members
	all := uint(1)<<(n+1) - 2 // bits 1 to n
	return n > 0 && there&all == all
}

func (r *row) entryStart(i int) int {
	items := r.items()
	for i > 0 && join(items[i-1], items[i]) == 1 {
		i--
	}
	return i
}

func (r *row) entryEnd(i int) int {
	items := r.items()
	for i++; i < len(items) && join(items[i-1], items[i]) == 1; i++ {
	}
	return i
}

// position is Queue.Position.
func (r *row) position(name string) (position int, ok bool) {
	i := r.index(name)
	if i < 0 || r.disordered {
		return 0, false
	}
	if r.joined == 0 {
		if r.holdsAt(i) {
			return 0, true
		}
		return i + 1 - r.holdersBefore(i), true
	}
	first := r.entryStart(i)
	for start := 0; start <= first; start = r.entryEnd(start) {
		waits := !r.entryHolds(start)
		if waits {
			position++
		}
		if start == first && !waits {
			return 0, true
		}
	}
	return position, true
}

// waiting is Queue.Waiting.
func (r *row) waiting() int {
	entries := r.len() - int(r.joined)
	if r.disordered {
		return entries
	}
	if r.joined == 0 {
		return entries - r.holdersBefore(r.len())
	}
	waiting := 0
	for start := 0; start < r.len(); start = r.entryEnd(start) {
		if !r.entryHolds(start) {
			waiting++
		}
	}
	return waiting
}

func (r *row) entryHolds(start int) bool {
	for j := start; j < r.entryEnd(start); j++ {
		if !r.holdsAt(j) {
			return false
		}
	}
	return true
}

// holdersBefore counts the holders with an index below i in an ordered queue where every contender is its own entry.
// i is the index of a waiter, or Len.
func (r *row) holdersBefore(i int) int {
	if i == 0 {
		return 0
	}
	switch r.at(0).Mode {
	case Exclusive:
		return 1
	case Shared:
		return int(r.lead)
	}
	n, last := 0, r.at(i-1)
	for h := range r.walk {
		if Less(last.Number, last.Name, h.Number, h.Name) {
			break
		}
		n++
	}
	return n
}
