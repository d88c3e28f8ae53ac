package wire

import "strconv"

// Op is an operation code of a request.
type Op int32

// The operations, as ZooDefs.OpCode numbers them.
const (
	OpNotification    Op = 0
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
	OpCheck           Op = 13
	OpMulti           Op = 14
	OpCreate2         Op = 15
	OpReconfig        Op = 16
	OpCheckWatches    Op = 17
	OpRemoveWatches   Op = 18
	OpCreateContainer Op = 19
	OpDeleteContainer Op = 20
	OpCreateTTL       Op = 21
	OpMultiRead       Op = 22
	OpAuth            Op = 100
	OpSetWatches      Op = 101
	OpSASL            Op = 102
	OpGetEphemerals   Op = 103
	OpCountChildren   Op = 104 // getAllChildrenNumber
	OpSetWatches2     Op = 105
	OpAddWatch        Op = 106
	OpWhoAmI          Op = 107
	OpCreateSession   Op = -10
	OpCloseSession    Op = -11
	OpError           Op = -1 // in multi results
)

// Request ids with a meaning of their own.
const (
	XidWatcherEvent int32 = -1
	XidPing         int32 = -2
	XidAuth         int32 = -4
	XidSetWatches   int32 = -8
)

// ErrCode is the result of an operation. Zero is success; every other value is
// an error.
type ErrCode int32

// The codes that servers send, as KeeperException.Code numbers them.
const (
	OK                        ErrCode = 0
	ErrSystem                 ErrCode = -1
	ErrRuntimeInconsistency   ErrCode = -2
	ErrDataInconsistency      ErrCode = -3
	ErrConnectionLoss         ErrCode = -4
	ErrMarshalling            ErrCode = -5
	ErrUnimplemented          ErrCode = -6
	ErrOperationTimeout       ErrCode = -7
	ErrBadArguments           ErrCode = -8
	ErrNewConfigNoQuorum      ErrCode = -13
	ErrReconfigInProgress     ErrCode = -14
	ErrNoNode                 ErrCode = -101
	ErrNoAuth                 ErrCode = -102
	ErrBadVersion             ErrCode = -103
	ErrNoChildrenForEphemeral ErrCode = -108
	ErrNodeExists             ErrCode = -110
	ErrNotEmpty               ErrCode = -111
	ErrSessionExpired         ErrCode = -112
	ErrInvalidCallback        ErrCode = -113
	ErrInvalidACL             ErrCode = -114
	ErrAuthFailed             ErrCode = -115
	ErrSessionMoved           ErrCode = -118
	ErrNotReadOnly            ErrCode = -119
	ErrEphemeralOnLocal       ErrCode = -120
	ErrNoWatcher              ErrCode = -121
	ErrRequestTimeout         ErrCode = -122
	ErrReconfigDisabled       ErrCode = -123
	ErrSessionClosedSASL      ErrCode = -124
	ErrQuotaExceeded          ErrCode = -125
	ErrThrottled              ErrCode = -127
)

// Error names the code.
func (e ErrCode) Error() string {
	switch e {
	case OK:
		return "ok"
	case ErrSystem:
		return "system error"
	case ErrRuntimeInconsistency:
		return "runtime inconsistency"
	case ErrDataInconsistency:
		return "data inconsistency"
	case ErrConnectionLoss:
		return "connection loss"
	case ErrMarshalling:
		return "marshalling error"
	case ErrUnimplemented:
		return "operation not implemented by the server"
	case ErrOperationTimeout:
		return "operation timeout"
	case ErrBadArguments:
		return "bad arguments"
	case ErrNewConfigNoQuorum:
		return "new configuration has no quorum"
	case ErrReconfigInProgress:
		return "reconfiguration in progress"
	case ErrNoNode:
		return "no such node"
	case ErrNoAuth:
		return "not authorized"
	case ErrBadVersion:
		return "version differs"
	case ErrNoChildrenForEphemeral:
		return "ephemeral nodes have no children"
	case ErrNodeExists:
		return "node exists"
	case ErrNotEmpty:
		return "node has children"
	case ErrSessionExpired:
		return "session expired"
	case ErrInvalidCallback:
		return "invalid callback"
	case ErrInvalidACL:
		return "invalid ACL"
	case ErrAuthFailed:
		return "authentication failed"
	case ErrSessionMoved:
		return "session moved to another server"
	case ErrNotReadOnly:
		return "write to a read-only server"
	case ErrEphemeralOnLocal:
		return "ephemeral node in a local session"
	case ErrNoWatcher:
		return "no such watch"
	case ErrRequestTimeout:
		return "request timeout"
	case ErrReconfigDisabled:
		return "reconfiguration is disabled"
	case ErrSessionClosedSASL:
		return "session closed: SASL authentication required"
	case ErrQuotaExceeded:
		return "quota exceeded"
	case ErrThrottled:
		return "request throttled by the server"
	}
	return "error code " + strconv.Itoa(int(e))
}

// Err is nil for OK, else the code as an error.
func (e ErrCode) Err() error {
	if e == OK {
		return nil
	}
	return e
}

// EventType tells what happened to a watched node.
type EventType int32

// The events, as Watcher.Event.EventType numbers them.
const (
	EventNone                   EventType = -1
	EventCreated                EventType = 1
	EventDeleted                EventType = 2
	EventDataChanged            EventType = 3
	EventChildrenChanged        EventType = 4
	EventDataWatchRemoved       EventType = 5
	EventChildWatchRemoved      EventType = 6
	EventPersistentWatchRemoved EventType = 7
)

// StateSyncConnected is the keeper state that servers put into events.
const StateSyncConnected int32 = 3

// Flags of a create, as CreateMode numbers them.
const (
	FlagPersistent              int32 = 0
	FlagEphemeral               int32 = 1
	FlagSequential              int32 = 2
	FlagEphemeralSequential     int32 = 3
	FlagContainer               int32 = 4
	FlagPersistentTTL           int32 = 5
	FlagPersistentSequentialTTL int32 = 6
)

// Modes of AddWatch.
const (
	WatchPersistent int32 = 0
	WatchRecursive  int32 = 1
)

// Permissions of an ACL entry; they are added up.
const (
	PermRead   int32 = 1
	PermWrite  int32 = 2
	PermCreate int32 = 4
	PermDelete int32 = 8
	PermAdmin  int32 = 16
	PermAll    int32 = 31
)
