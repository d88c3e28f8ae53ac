package locks

import (
	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/recipe"
)

// What is wrong about a lock in a way that a person has to mend is a hazard. The
// kinds are a closed list: a page of the documentation has each of them, and a metric
// counts the locks that have it. Which ones a lock has is found out when something
// changes that may bring or end one (consider), and costs nothing where nobody is but us.

// HazardCode is a kind of hazard.
type HazardCode string

// Hazard is something about a lock that a person should know.
type Hazard struct {
	Code   HazardCode
	Detail string // what happens, and what to do
}

// hazardSet is a set of hazards, by their places in the catalogue.
type hazardSet uint64

const (
	unreadable  HazardCode = "unreadable_contender"
	disordered  HazardCode = "numbers_without_order"
	strayChild  HazardCode = "stray_child"
	misplaced   HazardCode = "contender_in_lock_root"
	inSemaphore HazardCode = "leases_in_foreign_semaphore"
	lockInvalid HazardCode = "lock_invalid"
)

// hazardKinds is how many there are: an array's length cannot be taken from the catalogue.
const hazardKinds = 33

// catalogue is every kind of hazard.
var catalogue = func() []Hazard {
	list := []Hazard{
		{unreadable, "a contender's ACL hides it from this gateway; its end is noticed by listing, once a second. Give the gateways' ZooKeeper identity read permission on it"},
		{disordered, "the contenders' sequence numbers do not fit into half of ZooKeeper's counter, so nobody can tell who came first; nothing is granted until the old ones are gone"},
		{strayChild, "the lock's directory has a child without a sequence number; it can starve or break other programs' lock clients. Delete it; " +
			"if it is the directory of a lock, the namespace's lock root is one level too high"},
		{misplaced, "this is no lock, but another program's contender that stands in the lock root itself: that is a lock's directory. Record a namespace whose lock root is the node above it"},
		{inSemaphore, "another program's semaphore stands in this lock's directory, and counts leases against its limit; release them, and use another lock"},
		{lockInvalid, "a node that is called as the lock is, with _INVALID at the end, stands beside it: a program of bigdata's is destroying the lock, nobody is granted it, and no lease joins. " +
			"Delete that node if it was left behind"},
	}
	for _, c := range clashes {
		list = append(list, Hazard{c.code, c.detail})
	}
	for _, g := range ignorances {
		list = append(list, Hazard{g.code, g.detail})
	}
	if len(list) != hazardKinds {
		panic("locks: hazardKinds is not the number of kinds")
	}
	return list
}()

// hazardBit finds a kind in the catalogue.
var hazardBit = func() map[HazardCode]hazardSet {
	bits := make(map[HazardCode]hazardSet, len(catalogue))
	for i, h := range catalogue {
		bits[h.Code] = 1 << i
	}
	return bits
}()

// Hazards is every kind of hazard there is, in an order that stays.
func Hazards() []Hazard { return append([]Hazard(nil), catalogue...) }

// hazardsNow is what is wrong with the lock as it is.
func (q *queue) hazardsNow() (now hazardSet) {
	if !q.contenders.Ordered() {
		now |= hazardBit[disordered]
	}
	r := q.remarks
	if r == nil {
		return now
	}
	if len(r.hidden) > 0 {
		now |= hazardBit[unreadable]
	}
	if r.strays > 0 {
		now |= hazardBit[strayChild]
	}
	if r.invalid && q.exists {
		now |= hazardBit[lockInvalid]
	}
	if r.misplaced {
		now |= hazardBit[misplaced]
	}
	return now | q.clashing()
}

// hazards are those of the lock, for whoever looks at it.
func (q *queue) hazards() (list []Hazard) {
	for i, now := 0, q.noted().hazards; now != 0; i, now = i+1, now>>1 {
		if now&1 != 0 {
			list = append(list, catalogue[i])
		}
	}
	return list
}

// consider looks whether the lock has come to have a hazard, or one is over, and tells.
func (m *Manager) consider(q *queue) {
	was, now := q.noted().hazards, q.hazardsNow()
	if was == now {
		return
	}
	q.note().hazards = now
	q.unnote("")
	switch {
	case was == 0:
		m.counts.hazardous++
		q.space.hazardous++
	case now == 0:
		m.counts.hazardous--
		q.space.hazardous--
	}
	for i := range catalogue {
		bit := hazardSet(1) << i
		switch {
		case now&^was&bit != 0:
			m.counts.hazards[i]++
			m.tellHazard(events.LockHazard, q, &catalogue[i])
		case was&^now&bit != 0:
			m.counts.hazards[i]--
			m.tellHazard(events.LockHazardCleared, q, &catalogue[i])
		}
	}
	m.touchQueue(q)
}

// locate notes whether the directory that has appeared in a lock root is a contender.
func (q *queue) locate(there bool) {
	_, numbered := recipe.Number(q.dir())
	if there = there && numbered && !recipe.IsKazooLease(q.dir()) && familyOf(q.dir()) != unknownFamily; there != q.noted().misplaced {
		q.note().misplaced = there
		q.unnote("")
	}
}

// tellHazard tells of a hazard that has appeared, or is over.
func (m *Manager) tellHazard(t events.Type, q *queue, h *Hazard) {
	if !m.telling() {
		return
	}
	e := m.event(t, q.path, "")
	e.NS, e.Lock, e.Code = q.space.name, q.name(), string(h.Code)
	if t == events.LockHazard {
		e.Detail = h.Detail
	}
	m.opt.Events.Publish(e)
}
