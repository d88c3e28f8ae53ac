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

// ErrCode is the result of an operation. Zero is success; every other value is an error.
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

var codeNames = map[ErrCode]string{
	OK:                        "ok",
	ErrSystem:                 "system error",
	ErrRuntimeInconsistency:   "runtime inconsistency",
	ErrDataInconsistency:      "data inconsistency",
	ErrConnectionLoss:         "connection loss",
	ErrMarshalling:            "marshalling error",
	ErrUnimplemented:          "operation not implemented by the server",
	ErrOperationTimeout:       "operation timeout",
	ErrBadArguments:           "bad arguments",
	ErrNewConfigNoQuorum:      "new configuration has no quorum",
	ErrReconfigInProgress:     "reconfiguration in progress",
	ErrNoNode:                 "no such node",
	ErrNoAuth:                 "not authorized",
	ErrBadVersion:             "version differs",
	ErrNoChildrenForEphemeral: "ephemeral nodes have no children",
	ErrNodeExists:             "node exists",
	ErrNotEmpty:               "node has children",
	ErrSessionExpired:         "session expired",
	ErrInvalidCallback:        "invalid callback",
	ErrInvalidACL:             "invalid ACL",
	ErrAuthFailed:             "authentication failed",
	ErrSessionMoved:           "session moved to another server",
	ErrNotReadOnly:            "write to a read-only server",
	ErrEphemeralOnLocal:       "ephemeral node in a local session",
	ErrNoWatcher:              "no such watch",
	ErrRequestTimeout:         "request timeout",
	ErrReconfigDisabled:       "reconfiguration is disabled",
	ErrSessionClosedSASL:      "session closed: SASL authentication required",
	ErrQuotaExceeded:          "quota exceeded",
	ErrThrottled:              "request throttled by the server",
}

// Error names the code.
func (e ErrCode) Error() string {
	if name, ok := codeNames[e]; ok {
		return name
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
