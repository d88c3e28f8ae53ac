package manager

import (
	"fmt"

	"lockkeeper/internal/locks/quota"
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

// move makes a transition. One that the table does not have is a mistake in this program: CheckAll returns the first.
func move[S ~uint8](t *leaseTable, l *lease, of string, rows table, at *S, to S) {
	if *at == to {
		return
	}
	if !rows[*at].next.has(uint8(to)) {
		err := fmt.Errorf("lease %s: the %s went from %s to %s", l.id(), of, rows[*at].name, rows[to].name)
		t.log.Error("a lease's state made a transition that there is not", "err", err)
		if t.counts.forbidden == nil {
			t.counts.forbidden = err
		}
	}
	*at = to
}

// checkState returns what is wrong with the combination of a lease's enums.
func (l *lease) checkState() error {
	allowed := combinations[l.phase]
	if allowed.record.has(uint8(l.recordState)) && allowed.grant.has(uint8(l.grant)) && allowed.change.has(uint8(l.change)) && allowed.access.has(uint8(l.access)) &&
		(!l.change.fate() || !l.recordState.loaded()) {
		return nil
	}
	return fmt.Errorf("lease %s is %s, with its record %s, its grant %s, the change %s and access %s", l.id(), phaseTable[l.phase].name,
		recordTable[l.recordState].name, grantTable[l.grant].name, changeTable[l.change].name, accessTable[l.access].name)
}

func (l *lease) setRecord(t *leaseTable, to recordState) {
	move(t, l, "record", recordTable, &l.recordState, to)
}

func (l *lease) setGrant(t *leaseTable, to grantState) {
	move(t, l, "grant", grantTable, &l.grant, to)
}

func (l *lease) setNote(t *leaseTable, to noteState) {
	move(t, l, "note of the end", noteTable, &l.endNote, to)
}

func (l *lease) setAccess(t *leaseTable, to accessState) {
	move(t, l, "access", accessTable, &l.access, to)
}

func (s *slot) setPresence(t *leaseTable, l *lease, to presence) {
	move(t, l, "presence of a contender", presenceTable, &s.presence, to)
}

// hide notes that the replica does not show the slot's contender any more, which does not prove that it is gone.
func (s *slot) hide(t *leaseTable, l *lease) {
	switch s.presence {
	case slotSeen:
		s.setPresence(t, l, slotUnseen)
	case slotDeleted:
		s.setPresence(t, l, slotGone)
	}
}

// delete notes that the slot's contender is gone for certain, which the replica may not show yet.
func (s *slot) delete(t *leaseTable, l *lease) {
	switch s.presence {
	case slotUnseen:
		s.setPresence(t, l, slotGone)
	case slotSeen:
		s.setPresence(t, l, slotDeleted)
	}
}

// setChange also counts the ends that wait for the outbox.
func (l *lease) setChange(t *leaseTable, to change) {
	if l.change == changeHeldUp {
		t.counts.heldUp--
	}
	move(t, l, "change", changeTable, &l.change, to)
	if to == changeHeldUp {
		t.counts.heldUp++
	}
}

// setPhase also counts the lease under its new phase (ended leases are not counted), and ends what was under way: a downgrade
// goes on while the lease lives.
func (t *leaseTable) setPhase(l *lease, to phase) {
	from := l.phase
	t.countTicket(l, from.waits(), to.waits())
	if from != ended {
		t.counts.phases[from][l.kind]--
	}
	move(t, l, "phase", phaseTable, &l.phase, to)
	if to != ended {
		t.counts.phases[to][l.kind]++
	} else if from != ended {
		t.counts.slots -= l.width()
		t.quota.Add(quota.MetadataBytes, -int64(l.text))
		l.text = 0
	}
	t.counts.stand(l)
	if to == ended || to != ending && l.change != changeReplacing {
		l.setChange(t, changeNone)
	}
}

// staleRecord has the record read before it is acted upon.
func (l *lease) staleRecord(t *leaseTable) {
	if l.recordState.loaded() {
		l.setRecord(t, recordStale)
	}
}

// beginRead reports whether the record is to be read and no read was under way.
func (l *lease) beginRead(t *leaseTable) bool {
	switch l.recordState {
	case recordUnread:
		l.setRecord(t, recordReading)
	case recordStale:
		l.setRecord(t, recordRereading)
	default:
		return false
	}
	return true
}

// unreadRecord ends a read that did not tell the record.
func (l *lease) unreadRecord(t *leaseTable) {
	switch l.recordState {
	case recordReading:
		l.setRecord(t, recordUnread)
	case recordRereading:
		l.setRecord(t, recordStale)
	}
}

// forgetChange forgets what was under way under the former term: the replica shows what became of it.
func (l *lease) forgetChange(t *leaseTable) {
	if l.phase == ending && !l.replacing() {
		l.setChange(t, changePaused)
	} else {
		l.setChange(t, changeNone)
	}
}

// recordChanged notes that the contender's data was changed. The record is read, at the latest when a write of this gateway has
// been answered.
func (l *lease) recordChanged(m *Manager) {
	if l.recordState.writing() {
		l.setRecord(m.leases, recordContested)
		return
	}
	l.staleRecord(m.leases)
	l.load(m)
}
