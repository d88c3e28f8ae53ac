package manager

import (
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// The state of a lease is one value of each enum here. The table of an enum has its values in the order of their numbers,
// and for each of them the values that may follow. Only the set functions below change an enum. CheckAll fails when one of
// them was asked for a transition that its table does not have, or when a lease has values that phases do not allow together.
//
//   - phase is where the lease stands for its client.
//   - recordState is what this gateway knows of the lease's record in ZooKeeper. Requests, and the end of the lease by time,
//     wait until it is current. "Loaded" and "being written" were two booleans once; no write begins before the record is
//     loaded, so they are one line of values. Whether the TTL is only assumed is one of them, too: it is while the record has
//     never been read.
//   - change is what is under way with the lease's contenders: one transaction that replaces or ends them, or what has to be
//     known before the next one. A downgrade is one of them, because it and an end exclude each other.
//   - noteState is what the outbox has of the lease's end.
//   - accessState is what ACLs of other programs leave of this gateway's access to the contender.
//   - presence is what is known of the contender of each of the lease's slots.
//   - grantState is how far the lease's grant has come, and stays when the lease ends: so it tells what the lease was.

// values is a set of values of one enum.
type values uint16

func of[S ~uint8](list ...S) (s values) {
	for _, v := range list {
		s |= 1 << v
	}
	return s
}

func (s values) has(v uint8) bool { return s&(1<<v) != 0 }

// A table has a row for each value of an enum.
type table []struct {
	name string
	next values // that may follow it
}

// phase is the state of a lease inside its gateway; see the package's doc.
type phase uint8

const (
	creating phase = iota // the create was handed over; reply or created event is outstanding
	waiting
	held
	ending // the contender's deletion was handed over
	ended
)

var phaseTable = table{
	creating: {"creating", of(waiting, ending, ended)},
	waiting:  {"waiting", of(held, ending, ended)},
	held:     {"held", of(ending, ended)},
	ending:   {"ending", of(waiting, held, ended)}, // back to what it was: its end was not done, for certain
	ended:    {"ended", 0},
}

// recordState is what is known of a lease's record.
type recordState uint8

const (
	recordUnread    recordState = iota // never read: the TTL is assumed to be the longest there is
	recordReading                      // the first read is under way
	recordStale                        // it may have been written since it was read; it is read before it is acted upon
	recordRereading                    // that read is under way
	recordCurrent                      // applied as it stands
	recordWriting                      // applied, and a write of this gateway is under way
	recordContested                    // the same, and it was written meanwhile, perhaps only by this gateway
)

var recordTable = table{
	recordUnread:    {"unread", of(recordReading, recordCurrent)},
	recordReading:   {"reading", of(recordUnread, recordCurrent)},
	recordStale:     {"stale", of(recordRereading, recordCurrent)},
	recordRereading: {"rereading", of(recordStale, recordCurrent)},
	recordCurrent:   {"current", of(recordStale, recordWriting)},
	recordWriting:   {"writing", of(recordCurrent, recordStale, recordContested)},
	recordContested: {"contested", of(recordCurrent, recordStale)},
}

// assumed reports whether the TTL is the longest there is because the record has not been read.
func (r recordState) assumed() bool { return r == recordUnread || r == recordReading }

// reading reports whether a read is under way.
func (r recordState) reading() bool { return r == recordReading || r == recordRereading }

// loaded reports whether the record was read or written under this term, and nothing is known to have changed it since.
func (r recordState) loaded() bool { return r >= recordCurrent }

// writing reports whether a write is under way.
func (r recordState) writing() bool { return r == recordWriting || r == recordContested }

// grantState is how far the grant of a lease has come.
type grantState uint8

const (
	grantNone         grantState = iota
	grantAcknowledged            // not granted here; a former owner, or another gateway, may have told the client that it holds
	grantUnclaimed               // granted; the client may not know
	grantClaimed                 // granted, and the client knows
)

var grantTable = table{
	grantNone:         {"none", of(grantAcknowledged, grantUnclaimed, grantClaimed)},
	grantAcknowledged: {"acknowledged", of(grantClaimed)},
	grantUnclaimed:    {"unclaimed", of(grantClaimed)},
	grantClaimed:      {"claimed", 0},
}

// granted reports whether this gateway has granted the lease.
func (g grantState) granted() bool { return g >= grantUnclaimed }

// change is what is under way with a lease's contenders.
type change uint8

const (
	changeNone      change = iota
	changeReplacing        // a downgrade; when the lease is ending, its end waits for that
	changeHeldUp           // the end waits until it is known who wants to be told
	changeDeleting         // the deletion was handed over
	changeClosing          // the write was handed over that ends the lease and keeps its place
	changeVerifying        // the fate of the create or of the end is unknown: the replica is brought up to it
	changeRereading        // as changeReading, but the read under way may have been begun too early: it is repeated
	changeReading          // the fate of the end is in the record, which is read
	changePaused           // the end was refused, or its session is gone: a timer or the adoption goes on
)

var changeTable = table{
	changeNone:      {"nothing", of(changeReplacing, changeHeldUp, changeDeleting, changeClosing, changeVerifying, changePaused)},
	changeReplacing: {"replacing", of(changeNone)},
	changeHeldUp:    {"held up", of(changeNone, changeDeleting, changeClosing, changePaused)},
	changeDeleting:  {"deleting", of(changeNone, changeHeldUp, changeClosing, changeVerifying, changePaused)},
	changeClosing:   {"closing", of(changeNone, changeHeldUp, changeDeleting, changeVerifying, changePaused)},
	changeVerifying: {"verifying", of(changeNone, changeHeldUp, changeDeleting, changeRereading, changeReading, changePaused)},
	changeRereading: {"rereading", of(changeNone, changeHeldUp, changeDeleting, changeReading, changePaused)},
	changeReading:   {"reading", of(changeNone, changeHeldUp, changeDeleting, changeClosing, changePaused)},
	changePaused:    {"paused", of(changeNone, changeHeldUp, changeDeleting, changeClosing)},
}

// fate reports whether the record is being read for the fate of an end.
func (c change) fate() bool { return c == changeRereading || c == changeReading }

// noteState is what the outbox has of an end, or of a grant.
type noteState uint8

const (
	noteNone      noteState = iota
	noteSubmitted           // in a transaction that may have been done
	noteDone                // it is there, or cannot be put there
)

var noteTable = table{
	noteNone:      {"none", of(noteSubmitted, noteDone)},
	noteSubmitted: {"submitted", of(noteNone, noteDone)},
	noteDone:      {"done", 0},
}

// accessState is what ACLs leave of this gateway's access to a lease's contender. Each end tries anew.
type accessState uint8

const (
	accessFull     accessState = iota
	accessRefused              // something was refused, and that was logged
	accessNoWrite              // the record of a lease that ends cannot be written: no lock delay follows
	accessNoDelete             // the contender of a lease that ends cannot be deleted
)

var accessTable = table{
	accessFull:     {"full", of(accessRefused)},
	accessRefused:  {"refused", of(accessNoWrite, accessNoDelete)},
	accessNoWrite:  {"no write", of(accessRefused, accessNoDelete)},
	accessNoDelete: {"no delete", of(accessRefused)},
}

// presence is what is known of a slot's contender.
type presence uint8

const (
	slotUnseen  presence = iota // the replica does not show it: not yet, or a server that lags does not
	slotSeen                    // the replica shows it
	slotDeleted                 // it is gone for certain, and the replica still shows it
	slotGone                    // it is gone for certain
)

var presenceTable = table{
	slotUnseen:  {"unseen", of(slotSeen, slotGone)},
	slotSeen:    {"seen", of(slotUnseen, slotDeleted, slotGone)},
	slotDeleted: {"deleted", of(slotGone)},
	slotGone:    {"gone", 0},
}

func (p presence) seen() bool { return p == slotSeen || p == slotDeleted }

func (p presence) gone() bool { return p >= slotDeleted }

// observed is whether a slot's contender was seen to hold. It follows its lease's grant, or what the replica showed before the
// lease was taken over.
type observed uint8

const (
	observedNot  observed = iota
	observedHeld          // from seenAt on
	observedLate          // from seenAt on, and perhaps before
)

// combinations are the values of the other enums that are allowed in each phase of a lease that has not ended.
var combinations = [ended]struct{ record, grant, change, access values }{
	creating: {of(recordStale, recordRereading, recordCurrent), of(grantNone, grantAcknowledged), of(changeNone, changeVerifying), of(accessFull, accessRefused)},
	waiting:  {every(recordTable), of(grantNone, grantAcknowledged), of(changeNone), every(accessTable)},
	held:     {every(recordTable) &^ of(recordUnread, recordReading), of(grantUnclaimed, grantClaimed), of(changeNone, changeReplacing), every(accessTable)},
	ending:   {every(recordTable), every(grantTable), every(changeTable) &^ of(changeNone), every(accessTable)},
}

// every is all values of an enum.
func every(t table) values { return 1<<len(t) - 1 }

// waits reports whether a lease of that phase stands in line.
func (p phase) waits() bool { return p == creating || p == waiting }

// kind is what a lease is counted as: the mode of its one lock, or several.
type kind uint8

// The first kinds are the numbers of recipe.Mode.
const (
	several kind = kind(recipe.Modes)
	kinds        = several + 1
)

func (k kind) mode() locks.Mode {
	if k == several {
		return locks.Several
	}
	return locks.ModeOf(recipe.Mode(k))
}

// cause is why an administrator ends something.
type cause struct {
	reason locks.Reason
	words  string
	trace  string // traceparent of the request
}
