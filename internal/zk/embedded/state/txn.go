package state

import "lockkeeper/internal/zk/wire"

// Txn is one transaction in a form that can be applied again without deciding anything: paths with their sequence numbers,
// ACLs without "auth", owners, times and versions as they came out.
type Txn struct {
	Zxid    int64
	Time    int64 // milliseconds since the Unix epoch
	Session int64 // whose request it was; 0 for the server's own
	// Ops are the changes, in order: empty for a request that failed, and for one that only checked.
	Ops []TxnOp
	// Err is why the request failed; it used up its zxid all the same.
	Err wire.ErrCode
}

// TxnKind is the kind of a change. The numbers are part of the binary form.
type TxnKind uint8

// The kinds of changes.
const (
	TxnCreate       TxnKind = 1
	TxnDelete       TxnKind = 2
	TxnSetData      TxnKind = 3
	TxnSetACL       TxnKind = 4
	TxnOpenSession  TxnKind = 5
	TxnCloseSession TxnKind = 6 // after the deletions of its ephemeral nodes
)

// TxnOp is one change. It shares its data and ACL with the state: neither side writes to them.
type TxnOp struct {
	Kind TxnKind
	Path string     // of a node
	Data []byte     // TxnCreate, TxnSetData; nil is ZooKeeper's null
	ACL  []wire.ACL // TxnCreate, TxnSetACL
	// Owner is, for TxnCreate, the session of an ephemeral node, or what ZooKeeper writes there for containers and TTLs.
	Owner int64
	// Version is what the change brought about: the node's (TxnSetData), its ACL's (TxnSetACL), its parent's cversion
	// (TxnCreate).
	Version int32
	Timeout int32 // TxnOpenSession, in milliseconds
}
