package zk

import "lockkeeper/internal/zk/wire"

// Guard is what a look at a gateway's guard has found. Every transaction of that gateway writes it, so two looks that
// find the same have between them no transaction of its that committed.
type Guard struct {
	There   bool
	Version int32 // as it was, when it is there
	Czxid   int64
}

// Stat is what ZooKeeper tells about a node.
type Stat = wire.Stat
