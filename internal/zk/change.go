package zk

import (
	"lockkeeper/internal/zk/wire"
)

// WatchRoot is a tree that the observer follows.
type WatchRoot struct {
	Path string // below the chroot
	// Depth 1: Path is itself one directory of leaves (gateways, succession, namespaces). Depth 2: Path's children are
	// directories of leaves (locks, settings). Anything deeper is ignored.
	Depth int
}

// Dir is a directory of leaves that exists as far as the observer has read. The same Dir is told in every Change until
// its DirRemoved; a directory that is created again is a new Dir, except when that happened while there was no
// connection and an event told of a node in it before its listing: then the nodes of the old one are removed, and
// DirListed tells the new one's count.
type Dir struct {
	Path  string // below the chroot; never changes
	Value any    // the sink's own
}

// ChangeKind is what a Change tells.
type ChangeKind uint8

// The kinds of changes.
const (
	// DirAdded: Dir exists. Without Listed it has been created just now: it is empty, and every node that we may read
	// will be told, from number 0 on. With Listed it is older, and its own listing follows and ends with DirListed;
	// Zxid is 0 where it was only inferred from an event inside it.
	DirAdded ChangeKind = iota + 1
	// DirRemoved: Dir is gone. A NodeRemoved for each of its nodes came before.
	DirRemoved
	// NodeAdded: Node exists in Dir. Not told again before its NodeRemoved.
	NodeAdded
	// NodeRemoved: Node is gone from Dir. A deleted event is told even when the node was not known.
	NodeRemoved
	// NodeChanged: Node's data was set, or Node may be another one than before
	// under the same name: what was read of it is out of date.
	NodeChanged
	// DirChanged: the data of Dir itself was set.
	DirChanged
	// DirListed: Dir has been listed and agrees with the listing; the changes that this took stand right before it.
	// With Err (ErrNoAuth) the listing was refused: the directory exists, and what it holds is not known beyond what
	// events tell.
	DirListed
	// Synced: the tree has been read, the replica is true. Root is nil for all roots together, or a root that AddRoot
	// added to a replica that was synced already: what came of that root before was only a part.
	Synced
	// Current: the replica became current (see Freshness in package observer), for the first time
	// or again: what waited for that can be decided. Told only while synced.
	Current
	// Lost: the connection is gone, the replica stands still until Synced.
	Lost
)

// String names the kind.
func (k ChangeKind) String() string {
	names := [...]string{"", "DirAdded", "DirRemoved", "NodeAdded", "NodeRemoved", "NodeChanged", "DirChanged", "DirListed", "Synced", "Current", "Lost"}
	if int(k) < len(names) {
		return names[k]
	}
	return "?"
}

// Change is one step of the replica, in ZooKeeper's order.
type Change struct {
	Kind ChangeKind
	// Listed: told by a tree read or a listing, not by an event. Absence from a listing removes a contender only if
	// Zxid is at least its czxid: a server may answer from before its creation.
	Listed bool
	// Created, with DirListed: how many children were ever created in the directory, so the next sequential child's
	// number. Exact below 2^31 (wire.Stat.Created). Lower than before: the directory was created again.
	Created int32
	Root    *WatchRoot
	Dir     *Dir
	Node    string // the name of a leaf of Dir; "" with what is about Dir or more
	Zxid    int64  // of the reply, when told by one; else 0
	Err     error  // with DirListed only
	// Stat, with DirListed, is that of Dir where it is more than a directory: an
	// ephemeral node, which has no children, or one with data. Else it is nil.
	Stat *wire.Stat
}

// Sink is told every change.
type Sink interface {
	// Apply is given changes in ZooKeeper's order, from the observer's own goroutine, once per burst of what has
	// arrived. It must not block. The slice is reused; Dirs and Nodes may be kept.
	//
	// The changes of one listing are true only together (a listing has no order), and always come in one slice: judge a
	// queue when the whole slice has been applied. What came stands before what has gone, so that a replacement is
	// there before what it replaces leaves.
	Apply(changes []Change)
}
