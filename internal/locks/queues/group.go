package queues

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/recipe"
)

// Location is a contender in its queue.
type Location struct {
	Queue     *Queue
	Contender *recipe.Contender
}

// Path is that of the contender's node.
func (at Location) Path() string { return at.Queue.NodeOf(at.Contender.Name) }

// OneOfSeveral reports whether a contender's lease has more than this one.
func OneOfSeveral(c *recipe.Contender) bool { return c.Groups > 1 || c.Members > 1 }

// Leads reports whether a contender is the first of its lease: the one whose record counts.
func Leads(c *recipe.Contender) bool { return c.Group <= 1 && c.Member <= 1 }

// SameSlot reports whether two contenders of a lease stand for the same slot.
func SameSlot(a, b *recipe.Contender) bool {
	return max(a.Group, 1) == max(b.Group, 1) && max(a.Member, 1) == max(b.Member, 1) &&
		max(a.Groups, 1) == max(b.Groups, 1) && max(a.Members, 1) == max(b.Members, 1)
}

// Group is a lease with several contenders, as far as the replica shows them, whichever gateway runs it.
type Group struct {
	At    []Location
	Since time.Duration // boot: when the first of them was seen, or its rest was last asked to be deleted

	// Results that stay valid until a contender of the group comes or goes.
	looked bool
	whole  []Location // never changed in place
	behind Location   // did not hold when it was last asked
	moves  uint64     // Counts.Moves when holds was found; 0: it was not
	holds  bool       // all of them held
}

// Group is the group of a lease, nil when the lease has none.
func (r *Replica) Group(id recipe.LeaseID) *Group { return r.groups[id] }

// joinGroup adds a contender that has come to its lease's group.
func (r *Replica) joinGroup(q *Queue, c *recipe.Contender, now time.Duration) {
	if !c.Ours || c.Unknown || !OneOfSeveral(c) {
		return
	}
	g := r.groups[c.LeaseID]
	if g == nil {
		g = &Group{Since: now}
		r.groups[c.LeaseID] = g
	}
	g.At = append(g.At, Location{q, c})
	g.unlook()
}

// unlook drops the results about the former contenders.
func (g *Group) unlook() { g.looked, g.whole, g.behind, g.moves = false, nil, Location{}, 0 }

// leaveGroup forgets a contender that has gone.
func (r *Replica) leaveGroup(c *recipe.Contender) {
	g := r.groups[c.LeaseID]
	if g == nil {
		return
	}
	if i := slices.IndexFunc(g.At, func(at Location) bool { return at.Contender == c }); i >= 0 {
		g.At = slices.Delete(g.At, i, i+1)
		g.unlook()
	}
	if len(g.At) == 0 {
		delete(r.groups, c.LeaseID)
	}
}

// Whole are the locations of a lease in the order of its slots, nil while one is missing. Of two for one slot (a
// downgrade's replacement stands beside what it replaces for a moment) the one counts that is not the replacement.
func (g *Group) Whole() []Location {
	if !g.looked {
		g.looked, g.whole = true, g.sorted()
	}
	return g.whole
}

func (g *Group) sorted() []Location {
	list := make([]Location, 0, len(g.At))
	for _, at := range g.At {
		i := slices.IndexFunc(list, func(other Location) bool { return SameSlot(other.Contender, at.Contender) })
		switch {
		case i < 0:
			list = append(list, at)
		case list[i].Contender.FirstCzxid != 0 && at.Contender.FirstCzxid == 0:
			list[i] = at
		}
	}
	slices.SortFunc(list, func(a, b Location) int {
		return cmp.Or(cmp.Compare(a.Contender.Group, b.Contender.Group), cmp.Compare(a.Contender.Member, b.Contender.Member))
	})
	// Members 1 to n of lock 1, then those of the next, to the last.
	group, member, members := uint8(0), uint8(0), uint8(0)
	for _, at := range list {
		switch c := at.Contender; {
		case c.Group == group && c.Member == member+1 && c.Members == members:
			member++
		case c.Group == group+1 && member == members && c.Member == 1:
			group, member, members = group+1, 1, c.Members
		default:
			return nil
		}
	}
	if len(list) == 0 || member != members || group != list[0].Contender.Groups {
		return nil
	}
	return list
}

// hold reports whether the lease is whole and each of its contenders holds. While no contender has come or gone
// anywhere, that is found once: a view asks for each contender of a lease. After that the one that did not hold is
// asked first.
func (g *Group) hold(moves uint64) bool {
	if g.moves == moves {
		return g.holds
	}
	g.moves, g.holds = moves, false
	if g.behind.Contender != nil && !g.behind.Queue.LeaseHolds(g.behind.Contender.Name) {
		return false
	}
	list := g.Whole()
	for _, at := range list {
		if !at.Queue.LeaseHolds(at.Contender.Name) {
			g.behind = at
			return false
		}
	}
	g.holds = list != nil
	return g.holds
}

// LeaseHolds reports whether the lease that a contender belongs to holds by the names alone: in its queue, and in those
// of its other contenders. Another program's contender needs to hold in its queue alone.
func (r *Replica) LeaseHolds(q *Queue, c *recipe.Contender) bool {
	if !c.Ours || c.Unknown {
		return q.Contenders.Holds(c.Name)
	}
	if !q.LeaseHolds(c.Name) {
		return false
	}
	if !OneOfSeveral(c) {
		return true
	}
	g := r.groups[c.LeaseID]
	return g != nil && g.hold(r.Counts.Moves)
}

// Holds reports whether a lease that is there whole holds by the names, and whether the replica shows enough to be certain.
// Listings of the unlisted queues would tell more.
func Holds(lease []Location) (holds, certain bool, unlisted []*Queue) {
	holds, certain = true, true
	for _, at := range lease {
		switch q := at.Queue; {
		case !q.LeaseHolds(at.Contender.Name):
			holds = false
		case q.Extras().Invalid:
			certain = false // until the marker is gone the lock is granted to no contender
		case q.gap || !q.known:
			unlisted = append(unlisted, q)
			certain = false
		}
	}
	return holds && certain, !holds || certain, unlisted
}

// AwaitsElsewhere is Queue.Awaits for all the queues of a lease.
func (r *Replica) AwaitsElsewhere(c *recipe.Contender) bool {
	g := r.groups[c.LeaseID]
	return g != nil && slices.ContainsFunc(g.At, func(at Location) bool { return at.Queue.Awaits(at.Contender) })
}

// Locations are all that the replica has of the lease that a contender belongs to; another program's stands alone.
func (r *Replica) Locations(at Location) []Location {
	if g := r.groups[at.Contender.LeaseID]; g != nil && at.Contender.Ours {
		return g.At
	}
	return []Location{at}
}

// Record is the location whose record counts, of those of a lease.
func (r *Replica) Record(at Location) Location {
	for _, other := range r.Locations(at) {
		if Leads(other.Contender) {
			return other
		}
	}
	return at
}

// WholeGroups are the first locations of the leases with several contenders that are there whole, in the order of their ids.
func (r *Replica) WholeGroups() (first []Location) {
	for _, id := range slices.Sorted(maps.Keys(r.groups)) {
		if whole := r.groups[id].Whole(); whole != nil {
			first = append(first, whole[0])
		}
	}
	return first
}

// OtherLocks are the other locks of a contender's lease, by name, with the namespace where it is another one.
func (r *Replica) OtherLocks(q *Queue, c *recipe.Contender) []string {
	g := r.groups[c.LeaseID]
	if g == nil {
		return nil
	}
	var others []string
	for _, at := range g.At {
		switch {
		case at.Queue == q:
		case at.Queue.Namespace == q.Namespace:
			others = append(others, at.Queue.Name())
		default:
			others = append(others, at.Queue.Namespace.Name+"/"+at.Queue.Name())
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// Broken are the groups that have been incomplete for a window, by the ids of their leases, where remove says so: they are
// taken for asked to be deleted. A lease's contenders come in one transaction: when the replica has only some after a
// window, the others have been deleted.
func (r *Replica) Broken(now, window time.Duration, remove func(recipe.LeaseID) bool) (broken []*Group) {
	if !r.KnowsAll() {
		return nil // the others may be where the replica has not looked yet
	}
	for _, id := range slices.Sorted(maps.Keys(r.groups)) {
		g := r.groups[id]
		if now-g.Since < window || !remove(id) || g.Whole() != nil || fault.On("group-whole") {
			continue
		}
		g.Since = now // the events remove it
		broken = append(broken, g)
	}
	return broken
}

// TailFirst orders locations so that the last of each queue comes first. Watchers see a transaction's deletions one by
// one, and the first of them must not grant a contender that all of them together would not.
func TailFirst(at []Location) []Location {
	list := slices.Clone(at)
	slices.SortStableFunc(list, func(a, b Location) int {
		if a.Queue != b.Queue {
			return strings.Compare(a.Queue.Path, b.Queue.Path)
		}
		if recipe.Less(a.Contender.Number, a.Contender.Name, b.Contender.Number, b.Contender.Name) {
			return 1
		}
		return -1
	})
	return list
}
