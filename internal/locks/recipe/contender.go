package recipe

import (
	"math"
	"slices"
	"strconv"
)

// Mode is how a contender wants its lock.
type Mode uint8

// The modes. Exclusive is the zero value: an unknown mode counts as exclusive.
const (
	Exclusive Mode = iota
	Shared
	Permit // some of a semaphore's permits
)

// modes are the words that the API uses.
var modes = [...]string{"exclusive", "shared", "semaphore"}

// Modes is how many there are.
const Modes = len(modes)

// String gives the word that the API uses.
func (m Mode) String() string {
	if int(m) < Modes {
		return modes[m]
	}
	return "mode " + strconv.Itoa(int(m))
}

// ModeNamed returns the mode that the API calls by the word.
func ModeNamed(word string) (m Mode, ok bool) {
	i := slices.Index(modes[:], word)
	return Mode(max(i, 0)), i >= 0
}

// Form is the shape of a contender's name. It decides which other programs respect the contender.
type Form uint8

// The forms; see the package comment for the names.
const (
	FormNative  Form = iota // Curator's mutex, go-zookeeper, HBase, ZooKeeper's WriteLock
	FormCurator             // Curator's read-write lock
	FormKazoo               // Kazoo's Lock, ReadLock, WriteLock, Election
	FormCustom              // a home-made recipe; its namespace's Naming knows the names
	forms
)

// version is the version of the name format that this program writes.
const version = 1

// maxMembers bounds the contenders of one lease in a queue: k and n are one digit each.
const maxMembers = 9

// MaxGroup is the greatest number of locks of one lease.
const MaxGroup = 64

// Contender is an entry of a lock's queue as its name describes it. LeaseID shares
// the memory of Name. The struct has 64 bytes.
type Contender struct {
	// Name is the child's name, without the path.
	Name string
	// LeaseID is the lease that the contender belongs to. It is "" when the
	// contender is foreign, and may be when it is Unknown.
	LeaseID LeaseID
	// FirstCzxid is the czxid of the lease's first contender when this one
	// replaced it in a downgrade, else 0: the fencing token comes from it.
	FirstCzxid int64
	// Number is the sequence number; see Number.
	Number int32
	// Permits and Limit belong to Permit: how many the contender takes of how many
	// there were when it was enqueued. A foreign one takes 1 and its Limit is
	// not known: 0.
	Permits, Limit int32
	Mode           Mode
	Form           Form
	// Member k of Members n: a lease has n contenders in this queue. Without
	// members in the name both are 1. An Unknown contender has 0 of 0. Prefix takes 0 of
	// 0 for 1 of 1.
	Member, Members uint8
	// Group k of Groups n: the lease is one over n locks, and this is its contender
	// in the queue of the k-th. Without a group in the name both are 1. An
	// Unknown contender has 0 of 0. Prefix takes 0 of 0 for 1 of 1.
	Group, Groups uint8
	// Version is the version of the name's format, 0 when foreign or not readable.
	Version uint8
	// Ours: the name carries this fleet's id.
	Ours bool
	// Unknown: the name is ours in a format, or with an attribute, that this program does not know. It counts as exclusive,
	// and another gateway runs its clock.
	Unknown bool
	// Ephemeral: the contender ends with the session that created it. It is known only for our own.
	Ephemeral bool
}

// Prefix is the name without its number: the path that a sequential create
// gets. Name, Number, Ours and Version are not looked at. It panics for what has no
// name: no lease id, a member or a group outside 1..n, permits outside 1..limit, a form that lacks
// the mode, FormCustom: Naming.Prefix has the names of all forms.
func (c *Contender) Prefix() string {
	return (&Naming{}).Prefix(c)
}

// Format is the whole name: Prefix and Number as ZooKeeper would append it. It
// panics when Prefix does.
func (c *Contender) Format() string {
	return (&Naming{}).Format(c)
}

func (c *Contender) appendPrefix(b []byte, around template) []byte {
	b = append(b, around.start...)
	b = append(b, "v1."...)
	b = append(b, c.LeaseID...)
	if c.Ephemeral {
		b = append(b, ".e"...)
	}
	if c.Members > 1 {
		b = append(b, ".m"...)
		b = append(b, '0'+c.Member)
		b = append(b, "of"...)
		b = append(b, '0'+c.Members)
	}
	if c.Groups > 1 {
		b = append(b, ".g"...)
		b = strconv.AppendUint(b, uint64(c.Group), 10)
		b = append(b, "of"...)
		b = strconv.AppendUint(b, uint64(c.Groups), 10)
	}
	if c.FirstCzxid > 0 {
		b = append(b, ".f"...)
		b = strconv.AppendInt(b, c.FirstCzxid, 10)
	}
	if c.Mode == Permit {
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(c.Permits), 10)
		b = append(b, "of"...)
		b = strconv.AppendInt(b, int64(c.Limit), 10)
	}
	return append(b, around.end...)
}

// unnameable says why the grammar has no name for c; "" when it has one.
func (c *Contender) unnameable() string {
	if _, err := ParseLeaseID(string(c.LeaseID)); err != nil {
		return err.Error()
	}
	single := c.Members == 0 && c.Member == 0
	oneLock := c.Groups == 0 && c.Group == 0
	switch {
	case c.Unknown:
		return "it is in a format of another version"
	case c.Form >= forms || int(c.Mode) >= Modes || c.Mode == Permit && c.Form != FormNative:
		return "its form has no " + c.Mode.String() + " mode"
	case !single && (c.Member < 1 || c.Member > c.Members || c.Members > maxMembers):
		return "it is member " + strconv.Itoa(int(c.Member)) + " of " + strconv.Itoa(int(c.Members))
	case !oneLock && (c.Group < 1 || c.Group > c.Groups || c.Groups > MaxGroup):
		return "it is for lock " + strconv.Itoa(int(c.Group)) + " of " + strconv.Itoa(int(c.Groups))
	case c.FirstCzxid < 0:
		return "its first czxid is negative"
	case c.Mode == Permit && (c.Permits < 1 || c.Permits > c.Limit):
		return "it takes " + strconv.Itoa(int(c.Permits)) + " of " + strconv.Itoa(int(c.Limit)) + " permits"
	case c.Mode != Permit && (c.Permits != 0 || c.Limit != 0):
		return "permits in " + c.Mode.String() + " mode"
	}
	return ""
}

// around is what stands before and behind the id, and the permits, in a name of
// every form but FormCustom.
func (f Form) around(m Mode) template {
	switch {
	case m == Permit:
		return template{"permit-", "-lock-"}
	case f == FormNative && m == Exclusive:
		return template{"write-", "-lock-"}
	case f == FormNative:
		return template{"read-", "-lock-"}
	case f == FormCurator && m == Exclusive:
		return template{"write-", "-__WRIT__"}
	case f == FormCurator:
		return template{"read-", "-__READ__"}
	case m == Exclusive:
		return template{"", "__lock__"}
	default:
		return template{"", "__rlock__"}
	}
}

// MaxPermits is the greatest limit that a name can carry.
const MaxPermits = math.MaxInt32
