package interop

import (
	"iter"

	"lockkeeper/internal/locks/recipe"
)

// Presence counts the contenders of a queue in which other programs have some. Some programs do not wait for each other,
// and some do not wait for leases. Only the damage would show it, so a lock has a hazard as long as both stand in its
// queue. The zero Presence is that of a queue in which there are only leases; those are not counted.
type Presence struct {
	count  [families]int32 // theirs, by family
	theirs int32           // all of them
	ours   [2]int32        // of ours: those that exclude, those that share
}

// Foreign reports whether another program has a contender in the queue.
func (p *Presence) Foreign() bool { return p.theirs > 0 }

// CountLease counts a lease's contender that comes (by 1) or goes (by -1).
func (p *Presence) CountLease(c *recipe.Contender, by int32) {
	if p.theirs > 0 {
		p.ours[sharing(c)] += by
	}
}

// CountForeign counts another program's contender. all has the queue's contenders as they are then: the leases among them
// are counted when the first of the other programs comes.
func (p *Presence) CountForeign(c *recipe.Contender, by int32, all iter.Seq2[int, *recipe.Contender]) {
	p.count[familyOf(c.Name)] += by
	p.theirs += by
	switch {
	case p.theirs == 0:
		p.ours = [2]int32{}
	case p.theirs == 1 && by > 0:
		for _, other := range all {
			if other.Ours {
				p.ours[sharing(other)]++
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

// AddHazards adds the hazards of the programs that are in the queue now.
func (p *Presence) AddHazards(now []*Hazard, ignoring Ignoring) []*Hazard {
	if p.theirs == 0 {
		return now
	}
	var there familySet
	for f := unknownFamily + 1; f < families; f++ {
		if p.count[f] > 0 {
			there |= setOf(f)
		}
	}
	exclusive, shared := ignoring.exclusive, ignoring.shared
	ignore := [...]familySet{besideProgram: there, besideLeases: 0, besideSharedLeases: 0}
	if p.ours[0] > 0 {
		ignore[besideLeases] = there & exclusive
	}
	if p.ours[1] > 0 {
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
