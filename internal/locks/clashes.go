package locks

// Programs that share a directory wait only for the names that they know. Some do
// not wait for each other, and nobody notices but by the damage: their names tell
// (docs/interop.md has the whole table).

// family is a set of names whose programs treat those of another family alike.
type family uint8

const (
	unknownFamily family = iota
	mutexFamily          // Curator's InterProcessMutex, LeaderSelector
	rwFamily             // Curator's InterProcessReadWriteLock
	goFamily             // go-zookeeper's Lock
	kazooFamily
	hbaseFamily
	recipeFamily // ZooKeeper's WriteLock
	families
)

func familyOf(name string) family {
	switch program, kind := recipeOf(name); program {
	case "curator":
		switch kind {
		case "mutex":
			return mutexFamily
		case "write lock", "read lock":
			return rwFamily
		}
	case "go-zookeeper":
		return goFamily
	case "kazoo":
		return kazooFamily
	case "hbase":
		return hbaseFamily
	case "zookeeper-writelock":
		return recipeFamily
	}
	return unknownFamily
}

const apart = "; give each a directory of its own"

// clashes are the pairs of families of which one at least does not wait for the other.
var clashes = []struct {
	a, b         family
	code, detail string
}{
	{mutexFamily, kazooFamily, "curator_beside_kazoo", "Curator's mutex and Kazoo's stock Lock do not wait for each other; give Kazoo's Lock Curator's names " +
		`(_NODE_NAME = "-lock-", _EXCLUDE_NAMES = ["-lock-"]): extra_lock_patterns=["-lock-"] makes Kazoo alone wait`},
	{goFamily, kazooFamily, "go_zookeeper_beside_kazoo", `Kazoo's stock Lock does not wait for go-zookeeper's; give it extra_lock_patterns=["-lock-"]`},
	{mutexFamily, rwFamily, "curator_mutex_beside_read_write_lock", "Curator's InterProcessMutex and InterProcessReadWriteLock do not wait for each other" + apart},
	{goFamily, rwFamily, "go_zookeeper_beside_read_write_lock", "Curator's InterProcessReadWriteLock does not wait for go-zookeeper's Lock" + apart},
	{kazooFamily, rwFamily, "kazoo_beside_read_write_lock", "Kazoo's locks and Curator's InterProcessReadWriteLock do not wait for each other" + apart},
	{hbaseFamily, mutexFamily, "hbase_beside_curator", "Curator's mutex does not wait for HBase's locks" + apart},
	{hbaseFamily, rwFamily, "hbase_beside_read_write_lock", "Curator's InterProcessReadWriteLock does not wait for HBase's locks" + apart},
	{hbaseFamily, kazooFamily, "hbase_beside_kazoo", "Kazoo's locks do not wait for HBase's" + apart},
	{hbaseFamily, goFamily, "hbase_beside_go_zookeeper", "HBase's contenders make go-zookeeper's Lock fail" + apart},
	{recipeFamily, mutexFamily, "writelock_beside_curator", "Curator's mutex does not wait for ZooKeeper's WriteLock" + apart},
	{recipeFamily, rwFamily, "writelock_beside_read_write_lock", "ZooKeeper's WriteLock and Curator's InterProcessReadWriteLock do not wait for each other" + apart},
	{recipeFamily, kazooFamily, "writelock_beside_kazoo", "ZooKeeper's WriteLock and Kazoo's locks do not wait for each other" + apart},
	{recipeFamily, goFamily, "writelock_beside_go_zookeeper", "contenders of ZooKeeper's WriteLock make go-zookeeper's Lock fail" + apart},
}

// relate counts another program's contender that comes or goes.
func (q *queue) relate(name string, by int32) {
	if f := familyOf(name); f != unknownFamily {
		q.note().families[f] += by
	}
}

// clashing are the hazards of the programs that are in the queue now.
func (q *queue) clashing() (list []Hazard) {
	there := &q.noted().families
	for i := range clashes {
		if c := &clashes[i]; there[c.a] > 0 && there[c.b] > 0 {
			list = append(list, Hazard{Code: c.code, Detail: c.detail})
		}
	}
	return list
}
