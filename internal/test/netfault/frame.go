package netfault

import (
	"encoding/binary"
	"fmt"
)

// Op is an operation code of ZooKeeper's client protocol.
type Op int32

// The operation codes. OpConnect is ours: the handshake has none.
const (
	OpConnect         Op = 0
	OpCreate          Op = 1
	OpDelete          Op = 2
	OpExists          Op = 3
	OpGetData         Op = 4
	OpSetData         Op = 5
	OpGetACL          Op = 6
	OpSetACL          Op = 7
	OpGetChildren     Op = 8
	OpSync            Op = 9
	OpPing            Op = 11
	OpGetChildren2    Op = 12
	OpMulti           Op = 14
	OpCreate2         Op = 15
	OpRemoveWatches   Op = 18
	OpCreateContainer Op = 19
	OpDeleteContainer Op = 20
	OpCreateTTL       Op = 21
	OpMultiRead       Op = 22
	OpAuth            Op = 100
	OpSetWatches      Op = 101
	OpSetWatches2     Op = 105
	OpAddWatch        Op = 106
	OpClose           Op = -11
)

var opNames = map[Op]string{
	OpConnect: "connect", OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "getData",
	OpSetData: "setData", OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "getChildren", OpSync: "sync",
	OpPing: "ping", OpGetChildren2: "getChildren2", OpMulti: "multi", OpCreate2: "create2",
	OpRemoveWatches: "removeWatches", OpCreateContainer: "createContainer", OpDeleteContainer: "deleteContainer",
	OpCreateTTL: "createTTL", OpMultiRead: "multiRead", OpAuth: "auth", OpSetWatches: "setWatches",
	OpSetWatches2: "setWatches2", OpAddWatch: "addWatch", OpClose: "close",
}

func (o Op) String() string {
	if name, ok := opNames[o]; ok {
		return name
	}
	return fmt.Sprintf("op %d", int32(o))
}

// Write says whether the operation is a transaction on nodes, which a quorum has to agree to. (Opening and closing a
// session are transactions too, but not on nodes.)
func (o Op) Write() bool {
	switch o {
	case OpCreate, OpDelete, OpSetData, OpSetACL, OpMulti, OpCreate2, OpCreateContainer, OpDeleteContainer, OpCreateTTL:
		return true
	}
	return false
}

// Read says whether the operation reads nodes.
func (o Op) Read() bool {
	switch o {
	case OpExists, OpGetData, OpGetACL, OpGetChildren, OpGetChildren2, OpMultiRead:
		return true
	}
	return false
}

// Frame is one frame as it stands on the wire. Raw is valid only while the observer runs.
type Frame struct {
	Conn  int64 // which connection through the proxy, from 1 in the order they were accepted
	Dir   Direction
	Index int    // which frame of its direction; 0 is the handshake
	Raw   []byte // the four bytes of length, then the frame
}

// field is the big-endian number at an offset after the length; 0 when the frame is too short to have it.
func (f Frame) field(offset int) int32 {
	if len(f.Raw) < 4+offset+4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(f.Raw[4+offset:]))
}

// Op is the operation of a request. A reply does not say what it answers.
func (f Frame) Op() Op {
	if f.Index == 0 {
		return OpConnect
	}
	return Op(f.field(4))
}

// Xid is the number by which a request and its reply belong together: -2 for pings, -1 for watch events, 0 for the
// handshake.
func (f Frame) Xid() int32 {
	if f.Index == 0 {
		return 0
	}
	return f.field(0)
}

// Zxid is the transaction number in the head of a reply; 0 in the handshake, -1 in a watch event.
func (f Frame) Zxid() int64 {
	if f.Index == 0 {
		return 0
	}
	return int64(f.field(4))<<32 | int64(uint32(f.field(8)))
}

// Err is ZooKeeper's error code in the head of a reply; 0 is success.
func (f Frame) Err() int32 {
	if f.Index == 0 {
		return 0
	}
	return f.field(12)
}
