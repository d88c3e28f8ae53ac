package locks

import (
	"strings"
	"time"
)

// Foreign describes a contender that another program created.
type Foreign struct {
	Program string // "curator", "kazoo", "hbase", "go-zookeeper", "zookeeper-writelock"; "" when not known
	Kind    string // the recipe: "mutex", "write lock", "leader latch", ...; "" when not known
	Session int64  // ephemeralOwner; 0 for a persistent node or when not read yet
	Data    []byte // as read, at most 4 KiB; nil when not read yet or not readable
	Decoded *Decoded
	// Revocable: its data was read, and its program watches for what Manager.Revoke writes.
	Revocable bool
}

// Decoded is the content of a foreign contender's data. Each program fills in its own fields.
type Decoded struct {
	Address     string // of its machine
	Participant string // in an election
	Identifier  string // Kazoo's
	TableLock   *TableLock
}

// TableLock is the data of an HBase table lock.
type TableLock struct {
	Table, Owner, Purpose string
	Thread                int64
	Shared                bool
	Created               time.Time // zero when absent
}

// String gives all of it in one line.
func (d *Decoded) String() string {
	if d == nil {
		return ""
	}
	var list []string
	add := func(what, s string) {
		if s != "" {
			list = append(list, what+s)
		}
	}
	add("", d.Address)
	add("participant ", d.Participant)
	add("", d.Identifier)
	if t := d.TableLock; t != nil {
		add("table ", t.Table)
		add("by ", t.Owner)
		add("for ", t.Purpose)
	}
	return strings.Join(list, " ")
}

// KindCopiedID is the Foreign.Kind of a contender that another program created with a lease's id.
const KindCopiedID = "copied lease id"

// KindEphemeralNode is the Foreign.Kind of a plain node, whose Znode is the lock's own path.
const KindEphemeralNode = "ephemeral node"
