package locks

import "lockkeeper/internal/locks/recipe"

// Some programs do not wait for each other, and some not for us: nobody notices but by
// the damage. Their names tell, and so a lock has a hazard while both are there.

const apart = "; give each a directory of its own"

var (
	rwLocks    = setOf(rwWriteFamily, rwReadFamily)
	hbaseLocks = setOf(hbaseWriteFamily, hbaseReadFamily)
	stockKazoo = setOf(kazooFamily, kazooReadFamily)
	allKazoo   = stockKazoo | setOf(kazooNamedFamily)
	everyone   = setOf(mutexFamily, goFamily, recipeFamily) | rwLocks | hbaseLocks | allKazoo
)

// clashes are the pairs of programs of which one at least does not wait for the other.
var clashes = []struct {
	a, b   familySet
	code   HazardCode
	detail string
}{
	{setOf(mutexFamily), stockKazoo, "curator_beside_kazoo", "Curator's mutex and Kazoo's stock locks do not wait for each other; give Kazoo's Lock Curator's names " +
		`(_NODE_NAME = "-lock-", _EXCLUDE_NAMES = ["-lock-"]): extra_lock_patterns=["-lock-"] makes Kazoo alone wait`},
	{setOf(goFamily), stockKazoo, "go_zookeeper_beside_kazoo", `Kazoo's stock locks do not wait for go-zookeeper's; give Kazoo's Lock extra_lock_patterns=["-lock-"] ` +
		"(its names do not tell whether it has it)"},
	{setOf(kazooNamedFamily), stockKazoo, "kazoo_names_mixed", "Kazoo's Lock with Curator's names and Kazoo's stock locks do not wait for each other; give all of them the same names"},
	{setOf(kazooReadFamily), setOf(kazooFamily), "kazoo_read_lock_beside_writers", "Kazoo's ReadLock waits for the last writer, also for one that waits for it: a deadlock; and Kazoo's " +
		"Lock does not wait for readers. Use no ReadLock beside writers"},
	{setOf(mutexFamily), rwLocks, "curator_mutex_beside_read_write_lock", "Curator's InterProcessMutex and InterProcessReadWriteLock do not wait for each other" + apart},
	{setOf(goFamily), rwLocks, "go_zookeeper_beside_read_write_lock", "Curator's InterProcessReadWriteLock does not wait for go-zookeeper's Lock" + apart},
	{allKazoo, rwLocks, "kazoo_beside_read_write_lock", "Kazoo's locks and Curator's InterProcessReadWriteLock do not wait for each other" + apart},
	{hbaseLocks, setOf(mutexFamily), "hbase_beside_curator", "Curator's mutex does not wait for HBase's locks" + apart},
	{hbaseLocks, rwLocks, "hbase_beside_read_write_lock", "Curator's InterProcessReadWriteLock does not wait for HBase's locks" + apart},
	{hbaseLocks, allKazoo, "hbase_beside_kazoo", "Kazoo's locks do not wait for HBase's" + apart},
	{hbaseLocks, setOf(goFamily), "hbase_beside_go_zookeeper", "HBase's contenders make go-zookeeper's Lock fail" + apart},
	{setOf(hbaseReadFamily), setOf(recipeFamily), "hbase_beside_writelock", "HBase's read lock does not wait for ZooKeeper's WriteLock" + apart},
	{setOf(recipeFamily), setOf(mutexFamily), "writelock_beside_curator", "Curator's mutex does not wait for ZooKeeper's WriteLock" + apart},
	{setOf(recipeFamily), rwLocks, "writelock_beside_read_write_lock", "ZooKeeper's WriteLock and Curator's InterProcessReadWriteLock do not wait for each other" + apart},
	{setOf(recipeFamily), allKazoo, "writelock_beside_kazoo", "ZooKeeper's WriteLock and Kazoo's locks do not wait for each other" + apart},
	{setOf(recipeFamily), setOf(goFamily), "writelock_beside_go_zookeeper", "contenders of ZooKeeper's WriteLock make go-zookeeper's Lock fail" + apart},
	{setOf(latchFamily), everyone, "leader_latch_beside_locks", "participants of Curator's LeaderLatch wait for each other alone" + apart},
	{setOf(semaphoreFamily), everyone | setOf(latchFamily), "semaphore_beside_locks", "Curator's SemaphoreV2 and Kazoo's Semaphore count every child against their limit, whoever made it" + apart},
}

const elsewhere = "; keep the locks that it uses below a lock root of their own, in a namespace with the dialect "

// ignorances are the programs that do not wait for leases, in the dialects whose names they
// do not know. shared: they wait for exclusive ones, and not for shared ones.
var ignorances = []struct {
	who    familySet
	shared bool
	code   HazardCode
	detail string
}{
	{setOf(mutexFamily), false, "leases_ignored_by_curator_mutex", "Curator's mutex does not wait for leases of this namespace's dialect" + elsewhere + "native or all"},
	{rwLocks, false, "leases_ignored_by_curator_read_write_lock", "Curator's InterProcessReadWriteLock does not wait for leases of this namespace's dialect" + elsewhere + "curator-rw or all"},
	{setOf(latchFamily), false, "leases_ignored_by_leader_latch", "Curator's LeaderLatch waits for names with latch- before the number alone: a lease that stands first does not keep one from leading. " +
		"Watch its queue instead of joining it, or use a namespace with such names (custom exclusive={id}-latch- shared={id}-reads-latch-)"},
	{stockKazoo, false, "leases_ignored_by_kazoo", "Kazoo's stock locks do not wait for leases of this namespace's dialect" + elsewhere + "kazoo or all, or, where that is native, give " +
		`Kazoo's Lock extra_lock_patterns=["-lock-"] (its names do not tell whether it has it)`},
	{setOf(kazooNamedFamily), false, "leases_ignored_by_kazoo_named", "Kazoo's Lock with Curator's names does not wait for leases of this namespace's dialect" + elsewhere + "native or all"},
	{setOf(kazooFamily), true, "shared_leases_ignored_by_kazoo", "Kazoo's Lock and Election do not wait for shared leases, its WriteLock does (the names do not tell which it is); use WriteLock there, or exclusive leases"},
	{setOf(goFamily), false, "leases_unreadable_to_go_zookeeper", "the leases of this namespace's dialect make go-zookeeper's Lock fail" + elsewhere + "native or all"},
	{hbaseLocks, false, "leases_ignored_by_hbase", "HBase's read lock does not wait for leases of this namespace's dialect" + elsewhere + "native or all"},
	{setOf(recipeFamily), false, "leases_ignored_by_writelock", "ZooKeeper's WriteLock does not wait for leases of this namespace's dialect" + elsewhere + "native or all"},
}

// company is what is counted of a queue in which other programs have contenders.
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

// clashing are the hazards of the programs that are in the queue now.
func (q *queue) clashing() (list hazardSet) {
	with := &q.noted().company
	if with.theirs == 0 {
		return 0
	}
	var there familySet
	for f := unknownFamily + 1; f < families; f++ {
		if with.count[f] > 0 {
			there |= setOf(f)
		}
	}
	for i := range clashes {
		c := &clashes[i]
		a, b := there&c.a, there&c.b
		if a != 0 && b != 0 && (a|b)&^readers != 0 {
			list |= hazardBit[c.code]
		}
	}
	return list | q.ignored(there, with)
}

// ignored are the hazards of leases for which somebody who is there does not wait.
func (q *queue) ignored(there familySet, with *company) (list hazardSet) {
	var by [2]familySet
	for mode, n := range with.ours {
		if n > 0 {
			by[mode] = there & q.space.ignoring[mode]
		}
	}
	if by[0]|by[1] != 0 {
		for i := range ignorances {
			g := &ignorances[i]
			// Who waits for exclusive leases, and not for shared ones.
			if who := g.who & by[1] &^ q.space.ignoring[0]; g.shared && who != 0 || !g.shared && (g.who&by[0] != 0 || g.who&by[1]&q.space.ignoring[0] != 0) {
				list |= hazardBit[g.code]
			}
		}
	}
	if ours := with.ours[0] + with.ours[1]; ours > 0 && there.has(semaphoreFamily) {
		list |= hazardBit[inSemaphore]
	}
	if with.ours[0] > 0 && there.has(kazooReadFamily) && !q.space.ignoring[0].has(kazooReadFamily) {
		list |= hazardBit["kazoo_read_lock_beside_writers"]
	}
	return list
}
