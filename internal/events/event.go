package events

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Type is what happened.
type Type uint8

// The types. Their names are in the API: see String.
const (
	// Resync: events were missed; the subscriber must read the present state.
	Resync Type = iota
	LeaseQueued
	LeaseGranted
	LeaseReleased        // by its client, while held
	LeaseExpired         // its client stopped heartbeating
	LeaseCancelled       // left the queue: by its client, or when its wait time was over
	LeaseUnclaimed       // granted, and not claimed by its client in time
	LeaseRemoved         // its contender was deleted by another program, or for an unknown reason
	LeaseUpdated         // owner, metadata, TTL, holds or mode changed
	LeaseRevokeRequested // its holder was asked to release it
	LeaseRevokeWithdrawn // the request was withdrawn
	LeaseEnding          // a reservation ends soon
	LeaseRevoked         // ended by force after a request, broken or reaped
	LockDestroyed        // with its whole queue
	LockHazard           // a hazard of a lock has appeared
	LockHazardCleared    // a hazard is gone
	DeadlockDetected     // parties have come to wait for each other: once for each lock in which one of them waits
	DeadlockCleared      // they do no more
	WebhookDropped       // ends are not delivered: the outbox, or a webhook's share of it, is full
	AuthLoaded           // a changed content of the gateway's file of rules is in force
	AuthRefused          // a content of that file is refused: the rules from before stay in force
	GatewayJoined
	GatewayLeft
	ZooKeeperConnected // a session is there, or its connection is back
	ZooKeeperSuspended // the connection is lost; the session may live on
	ZooKeeperExpired   // the session is over; another one is opened
	NodeCreated
	NodeChanged
	NodeDeleted
	typeCount
)

var typeNames = [typeCount]string{"resync", "lease.queued", "lease.granted", "lease.released", "lease.expired",
	"lease.cancelled", "lease.unclaimed", "lease.removed",
	"lease.updated", "lease.revoke_requested", "lease.revoke_withdrawn", "lease.ending", "lease.revoked", "lock.destroyed", "lock.hazard", "lock.hazard_cleared", "deadlock.detected", "deadlock.cleared", "webhook.dropped", "auth.loaded", "auth.refused", "gateway.joined", "gateway.left",
	"zookeeper.connected", "zookeeper.suspended", "zookeeper.expired", "node.created", "node.changed", "node.deleted"}

// String is the type's name in the API.
func (t Type) String() string {
	if t < typeCount {
		return typeNames[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// IsNode reports whether the type is a node event, which a subscriber gets only
// on request.
func (t Type) IsNode() bool { return t == NodeCreated || t == NodeChanged || t == NodeDeleted }

// Event is one thing that happened. It is immutable after Publish.
// Fields that do not apply are zero.
type Event struct {
	Type         Type
	Foreign      bool      // the contender is another program's
	Here         bool      // the gateway of this hub runs the lease: of a fleet it alone publishes the event so
	Permits      int32     // of a contender of a semaphore
	Queued       int64     // when the contender was queued, in milliseconds since the Unix epoch; 0: not known
	Time         time.Time // UTC, when the gateway learnt of it, which may be before it was published; set by Publish when it is zero
	NS, Lock     string
	LeaseID      string // "" for what is no lease of this program
	Program      string // of a foreign contender, when its name shows it: "curator"
	Owner        string
	Principal    string // that took the lease
	Mode         string
	FencingToken int64
	Reason       string
	By           string   // the administrator who asked for it or ended it: locks.Principal.By
	Detail       string   // the reason given by the caller that asked for it or ended it; of a hazard or a full outbox what it means, and what to do; of a file of rules its name, the line, and what must stand there
	Hazard       *Hazard  // of a lock; nil for other types
	Dropped      *Dropped // of webhook.dropped; nil for other types
	Purpose      string   // the reason that the lease's acquire gave
	Cycle        string   // of deadlock.*: the id of the cycle
	Gateway      string   // the gateway id that runs the lease, that joined or left, that could not note an end, or that read its file of rules

	// Dir and Name are the znode's path in two parts (Name is "" when the event
	// is about the directory), so that publishing joins no strings.
	Dir, Name string

	hub     *Hub
	seq     uint64
	encoded atomic.Pointer[[]byte]
}

// Hazard is a lock's condition that needs attention.
type Hazard struct {
	Code     string
	Programs []string // which do not wait for each other, or for leases
}

// Dropped is what was not delivered for lack of room.
type Dropped struct {
	Count   int    // of messages
	Webhook string // that does not get them; "": none does
}

// Path is the full path of the znode, "" when there is none.
func (e *Event) Path() string {
	if e.Name == "" {
		return e.Dir
	}
	return e.Dir + "/" + e.Name
}

// ID names the event's place in the order of this process's hub. It is opaque,
// and "" before the event is published.
func (e *Event) ID() string {
	if e.hub == nil {
		return ""
	}
	return e.hub.id(e.seq)
}

// Encoded is the event as encode writes it, kept so that it is encoded once
// for all subscribers. encode must give the same bytes each time; the
// caller must not change them.
func (e *Event) Encoded(encode func(*Event) []byte) []byte {
	if b := e.encoded.Load(); b != nil {
		return *b
	}
	b := encode(e)
	e.encoded.Store(&b)
	return b
}

// TypeSet is a set of types. Resync is in every set.
type TypeSet uint32

// DefaultTypes is what a subscriber without a filter gets:
// everything but node events.
const DefaultTypes = AllTypes &^ (1<<NodeCreated | 1<<NodeChanged | 1<<NodeDeleted)

// AllTypes is every type.
const AllTypes TypeSet = 1<<typeCount - 1

// Types makes a set.
func Types(types ...Type) TypeSet {
	s := TypeSet(1) << Resync
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

// Has reports whether t is in the set.
func (s TypeSet) Has(t Type) bool { return s>>t&1 != 0 }

// ParseTypes reads a list of types and patterns separated by commas:
// "lease.granted,node.*". A pattern is a family's name with ".*", or "*" for
// every type. A type that does not exist is an error, so that a typing error
// does not become a stream that stays silent.
func ParseTypes(list string) (TypeSet, error) {
	set := Types(Resync)
	for item := range strings.SplitSeq(list, ",") {
		named := typesNamed(item)
		if named == 0 {
			return 0, fmt.Errorf("there is no event type %q; types are %s, or a family such as node.*", item, strings.Join(typeNames[1:], ", "))
		}
		set |= named
	}
	return set, nil
}

// typesNamed is the types that one item of a list means.
func typesNamed(item string) (set TypeSet) {
	family, pattern := strings.CutSuffix(item, "*")
	if pattern && family != "" && !strings.HasSuffix(family, ".") {
		return 0
	}
	for t, name := range typeNames {
		if name == item || pattern && strings.HasPrefix(name, family) {
			set |= 1 << t
		}
	}
	return set
}
