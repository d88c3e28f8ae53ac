package manager

import "lockkeeper/internal/locks/recipe"

// Some programs do not wait for each other, and some do not wait for leases. Only the damage would show it. The names
// of their contenders tell, so a lock has a hazard as long as both stand in its queue.

// company counts the contenders of a queue in which other programs have some.
type company struct {
	count  [families]int32 // theirs, by family
	theirs int32           // all of them
	ours   [2]int32        // of ours: those that exclude, those that share
}

// meets counts a contender that comes (by 1) or goes (by -1). Of ours nothing is counted
// where nobody else is; when the first of them comes those that are there are.
func (q *queue) meets(c *recipe.Contender, by int32) {
	if c.Ours {
		if r := q.remarks; r != nil && r.company.theirs > 0 {
			r.company.ours[sharing(c)] += by
		}
		return
	}
	with := &q.note().company
	with.count[familyOf(c.Name)] += by
	with.theirs += by
	switch {
	case with.theirs == 0:
		with.ours = [2]int32{}
	case with.theirs == 1 && by > 0:
		for _, other := range q.contenders.All() {
			if other.Ours {
				with.ours[sharing(other)]++
			}
		}
	}
}

func sharing(c *recipe.Contender) int {
	if c.Mode == recipe.Shared {
		return 1
	}
	return 0
}

// addClashes adds the hazards of the programs that are in the queue now.
func (q *queue) addClashes(now []*hazardEntry) []*hazardEntry {
	with := &q.noted().company
	if with.theirs == 0 {
		return now
	}
	var there familySet
	for f := unknownFamily + 1; f < families; f++ {
		if with.count[f] > 0 {
			there |= setOf(f)
		}
	}
	exclusive, shared := q.space.ignoring[0], q.space.ignoring[1]
	ignore := [...]familySet{besideProgram: there, besideLeases: 0, besideSharedLeases: 0}
	if with.ours[0] > 0 {
		ignore[besideLeases] = there & exclusive
	}
	if with.ours[1] > 0 {
		ignore[besideLeases] |= there & exclusive & shared
		ignore[besideSharedLeases] = there & shared &^ exclusive
	}
	if there&(there-1) == 0 && ignore[besideLeases]|ignore[besideSharedLeases] == 0 {
		return now // one program at most, and it waits for the leases
	}
	for place := range catalogue {
		if e := &catalogue[place]; e.who != 0 && ignore[e.beside]&e.who == e.who {
			now = append(now, e)
		}
	}
	return now
}
