package lifecycle

// values is a set of values of one enum.
type values uint16

func of[S ~uint8](list ...S) (s values) {
	for _, v := range list {
		s |= 1 << v
	}
	return s
}

func (s values) has(v uint8) bool { return s&(1<<v) != 0 }

// table has a row for each value of an enum, in the order of their numbers.
type table []struct {
	name string
	next values // that may follow it
}

// every is all values of an enum.
func every(t table) values { return 1<<len(t) - 1 }

// Phase is where a lease stands for its client.
type Phase uint8

// The phases.
const (
	Creating Phase = iota // the create was handed over; reply or created event is outstanding
	Waiting
	Held
	Ending // the contender's deletion was handed over
	Ended
)

var phaseTable = table{
	Creating: {"creating", of(Waiting, Ending, Ended)},
	Waiting:  {"waiting", of(Held, Ending, Ended)},
	Held:     {"held", of(Ending, Ended)},
	Ending:   {"ending", of(Waiting, Held, Ended)}, // back to what it was: its end was definitely not done
	Ended:    {"ended", 0},
}

// Waits reports whether a lease of that phase waits in a queue.
func (p Phase) Waits() bool { return p == Creating || p == Waiting }

// Record is what the gateway knows of a lease's record in ZooKeeper. Requests, and the end of the lease by time, wait until
// it is current. No write begins before the record is loaded.
type Record uint8

// The states of a record.
const (
	RecordUnread    Record = iota // never read: the TTL is assumed to be the longest there is
	RecordReading                 // the first read is under way
	RecordStale                   // it may have been written since it was read; it is read before it is acted upon
	RecordRereading               // that read is under way
	RecordCurrent                 // applied as it stands
	RecordWriting                 // applied, and a write of this gateway is under way
	RecordContested               // the same, and it was written meanwhile, perhaps only by this gateway
)

var recordTable = table{
	RecordUnread:    {"unread", of(RecordReading, RecordCurrent)},
	RecordReading:   {"reading", of(RecordUnread, RecordCurrent)},
	RecordStale:     {"stale", of(RecordRereading, RecordCurrent)},
	RecordRereading: {"rereading", of(RecordStale, RecordCurrent)},
	RecordCurrent:   {"current", of(RecordStale, RecordWriting)},
	RecordWriting:   {"writing", of(RecordCurrent, RecordStale, RecordContested)},
	RecordContested: {"contested", of(RecordCurrent, RecordStale)},
}

// Assumed reports whether the TTL is the longest there is because the record has not been read.
func (r Record) Assumed() bool { return r == RecordUnread || r == RecordReading }

// Reading reports whether a read is under way.
func (r Record) Reading() bool { return r == RecordReading || r == RecordRereading }

// Loaded reports whether the record was read or written under this term, and nothing is known to have changed it since.
func (r Record) Loaded() bool { return r >= RecordCurrent }

// Writing reports whether a write is under way.
func (r Record) Writing() bool { return r == RecordWriting || r == RecordContested }

// Grant is how far the grant of a lease has come. It stays when the lease ends, so it tells what the lease was.
type Grant uint8

// The states of a grant.
const (
	GrantNone         Grant = iota
	GrantAcknowledged       // not granted here; a former owner, or another gateway, may have told the client that it holds
	GrantUnclaimed          // granted; the client may not know
	GrantClaimed            // granted, and the client knows
)

var grantTable = table{
	GrantNone:         {"none", of(GrantAcknowledged, GrantUnclaimed, GrantClaimed)},
	GrantAcknowledged: {"acknowledged", of(GrantClaimed)},
	GrantUnclaimed:    {"unclaimed", of(GrantClaimed)},
	GrantClaimed:      {"claimed", 0},
}

// Granted reports whether this gateway has granted the lease.
func (g Grant) Granted() bool { return g >= GrantUnclaimed }

// Change is what is under way with a lease's contenders: one transaction that replaces or ends them, or what has to be known
// before the next one. A downgrade is one of them, because it and an end exclude each other.
type Change uint8

// The changes.
const (
	ChangeNone      Change = iota
	ChangeReplacing        // a downgrade; when the lease is ending, its end waits for that
	ChangeHeldUp           // the end waits until the outbox knows its webhooks
	ChangeDeleting         // the deletion was handed over
	ChangeClosing          // the write was handed over that ends the lease and keeps its place
	ChangeVerifying        // the fate of the create or of the end is unknown: the replica is brought up to it
	ChangeRereading        // as ChangeReading, but the read under way may have begun too early: it is repeated
	ChangeReading          // the fate of the end is in the record, which is read
	ChangePaused           // the end was refused, or its session is gone: a timer or the adoption goes on
)

var changeTable = table{
	ChangeNone:      {"nothing", of(ChangeReplacing, ChangeHeldUp, ChangeDeleting, ChangeClosing, ChangeVerifying, ChangePaused)},
	ChangeReplacing: {"replacing", of(ChangeNone)},
	ChangeHeldUp:    {"held up", of(ChangeNone, ChangeDeleting, ChangeClosing, ChangePaused)},
	ChangeDeleting:  {"deleting", of(ChangeNone, ChangeHeldUp, ChangeClosing, ChangeVerifying, ChangePaused)},
	ChangeClosing:   {"closing", of(ChangeNone, ChangeHeldUp, ChangeDeleting, ChangeVerifying, ChangePaused)},
	ChangeVerifying: {"verifying", of(ChangeNone, ChangeHeldUp, ChangeDeleting, ChangeRereading, ChangeReading, ChangePaused)},
	ChangeRereading: {"rereading", of(ChangeNone, ChangeHeldUp, ChangeDeleting, ChangeReading, ChangePaused)},
	ChangeReading:   {"reading", of(ChangeNone, ChangeHeldUp, ChangeDeleting, ChangeClosing, ChangePaused)},
	ChangePaused:    {"paused", of(ChangeNone, ChangeHeldUp, ChangeDeleting, ChangeClosing)},
}

// Fate reports whether the record is being read for the fate of an end.
func (c Change) Fate() bool { return c == ChangeRereading || c == ChangeReading }

// Note is what the outbox has of an end, or of a grant.
type Note uint8

// The states of a note.
const (
	NoteNone      Note = iota
	NoteSubmitted      // in a transaction that may have been done
	NoteDone           // it is there, or cannot be put there
)

var noteTable = table{
	NoteNone:      {"none", of(NoteSubmitted, NoteDone)},
	NoteSubmitted: {"submitted", of(NoteNone, NoteDone)},
	NoteDone:      {"done", 0},
}

// Access is what ACLs leave of the gateway's access to a lease's contender. Each end tries anew.
type Access uint8

// The states of the access.
const (
	AccessFull     Access = iota
	AccessRefused         // something was refused, and that was logged
	AccessNoWrite         // the record of a lease that ends cannot be written: no lock delay follows
	AccessNoDelete        // the contender of a lease that ends cannot be deleted
)

var accessTable = table{
	AccessFull:     {"full", of(AccessRefused)},
	AccessRefused:  {"refused", of(AccessNoWrite, AccessNoDelete)},
	AccessNoWrite:  {"no write", of(AccessRefused, AccessNoDelete)},
	AccessNoDelete: {"no delete", of(AccessRefused)},
}

// Presence is what is known of one contender of a lease.
type Presence uint8

// The presences.
const (
	Unseen  Presence = iota // the replica does not show it: not yet, or a server that lags does not
	Seen                    // the replica shows it
	Deleted                 // it is gone for certain, and the replica still shows it
	Gone                    // it is gone for certain
)

var presenceTable = table{
	Unseen:  {"unseen", of(Seen, Gone)},
	Seen:    {"seen", of(Unseen, Deleted, Gone)},
	Deleted: {"deleted", of(Gone)},
	Gone:    {"gone", 0},
}

// Seen reports whether the replica shows the contender.
func (p Presence) Seen() bool { return p == Seen || p == Deleted }

// Gone reports whether the contender is gone for certain.
func (p Presence) Gone() bool { return p >= Deleted }

// combinations are the values of the other enums that are allowed in each phase of a lease that has not ended.
var combinations = [Ended]struct{ record, grant, change, access values }{
	Creating: {of(RecordStale, RecordRereading, RecordCurrent), of(GrantNone, GrantAcknowledged), of(ChangeNone, ChangeVerifying), of(AccessFull, AccessRefused)},
	Waiting:  {every(recordTable), of(GrantNone, GrantAcknowledged), of(ChangeNone), every(accessTable)},
	Held:     {every(recordTable) &^ of(RecordUnread, RecordReading), of(GrantUnclaimed, GrantClaimed), of(ChangeNone, ChangeReplacing), every(accessTable)},
	Ending:   {every(recordTable), every(grantTable), every(changeTable) &^ of(ChangeNone), every(accessTable)},
}
