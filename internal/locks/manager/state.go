package manager

import (
	"errors"
	"fmt"
	"reflect"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
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

// CheckAll recomputes what the manager keeps as things change, and returns everything that is not true: leases that have
// ended and are kept, or have no clock, or are not where the heap of deadlines says; delays of leases that live, or that
// never end; two holders of one lock; counts, and the line of those that wait. It holds the lock meanwhile and takes time
// in proportion to all leases and contenders: it is for tests and simulations.
func (m *Manager) CheckAll() error {
	return locked(m, func() error {
		return errors.Join(m.leases.counts.forbidden, m.leases.check(&m.leases.quota, &m.timers.deadlines, m.port.Term()), checkQueues(m.replica, m.leases, &m.leases.quota), checkDelays(&m.delays, m.leases, m.replica), checkBack(&m.back))
	})
}

// leaseCounts are the counts of the lease table, made from its leases.
type leaseCounts struct {
	phases               [ended][kinds]int
	waits, heldUp, slots int
	tickets, texts       int64
	holders              map[string]*slot // by queue
	err                  error
}

func (n *leaseCounts) fail(format string, args ...any) {
	n.err = errors.Join(n.err, fmt.Errorf(format, args...))
}

// check checks each lease, and compares their counts with those that were kept.
func (t *leaseTable) check(q *quota.Quota, clocks *deadlines, present locks.Term) error {
	n := leaseCounts{holders: map[string]*slot{}}
	for id, l := range t.byID {
		if l.phase == ended {
			n.fail("lease %s has ended and is kept", id)
			continue
		}
		n.add(l)
		n.checkPlaces(l, t, clocks, present)
	}
	if q.Used(quota.Tickets) != n.tickets || q.Used(quota.MetadataBytes) != n.texts {
		n.fail("%d tickets, %d bytes of texts; counted %d, %d", n.tickets, n.texts, q.Used(quota.Tickets), q.Used(quota.MetadataBytes))
	}
	if n.heldUp != t.counts.heldUp {
		n.fail("%d ends wait for the outbox; counted %d", n.heldUp, t.counts.heldUp)
	}
	if !reflect.ValueOf(noRare).IsZero() {
		n.fail("the rare fields of leases that have none were written")
	}
	if n.slots != t.counts.slots {
		n.fail("the leases have %d slots; counted %d", n.slots, t.counts.slots)
	}
	if n.phases != t.counts.phases || n.waits != t.counts.line.Len() {
		n.fail("leases by phase are %v, %d in line; counted %v, %d", n.phases, n.waits, t.counts.phases, t.counts.line.Len())
	}
	return n.err
}

// add counts a lease, and checks its state and its texts.
func (n *leaseCounts) add(l *lease) {
	id := l.id()
	n.phases[l.phase][l.kind]++
	if wrong := l.checkState(); wrong != nil {
		n.fail("%w", wrong)
	}
	n.slots += l.width()
	if l.change == changeHeldUp {
		n.heldUp++
	}
	if n.texts += int64(l.text); int64(l.text) != l.textBytes() && l.recordState == recordCurrent {
		n.fail("the texts of lease %s are counted as %d bytes and are %d", id, l.text, l.textBytes())
	}
	if l.ticket && l.phase.waits() {
		n.tickets++
	}
	if l.kind != kindOf(l) {
		n.fail("lease %s is counted as %s and is %s", id, l.kind.mode(), kindOf(l).mode())
	}
}

// checkPlaces checks where a lease stands: among the holders of its locks, in the heap of deadlines, and among those that
// wait.
func (n *leaseCounts) checkPlaces(l *lease, t *leaseTable, clocks *deadlines, present locks.Term) {
	id := l.id()
	if l.phase == held {
		for s := range l.slots {
			other := n.holders[s.q.Path]
			if other != nil && other.contender.LeaseID != id && (other.contender.Mode != s.contender.Mode || s.contender.Mode == recipe.Exclusive) {
				n.fail("%s is held by %s and %s", s.q.Path, other.name(), s.name())
			}
			n.holders[s.q.Path] = s
		}
	}
	if l.heapIndex >= 0 && clocks.leases[l.heapIndex] != l {
		n.fail("lease %s is not where the heap says", id)
	}
	if (l.phase == held || l.phase == waiting) && l.term == present && l.heapIndex < 0 {
		n.fail("lease %s (%d) has no clock", id, l.phase)
	}
	if !l.phase.waits() {
		return
	}
	n.waits++
	if line := &t.counts.line; l.lineIndex < 0 || int(l.lineIndex) >= line.Len() || line.leases[l.lineIndex] != l {
		n.fail("lease %s waits, and is not in the line", id)
	} else if line.leases[0].since > l.since {
		n.fail("lease %s is older than the oldest", id)
	}
}

func checkQueues(replica *queues.Replica, leases *leaseTable, kept *quota.Quota) (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	settings := int64(0)
	for s := range replica.All {
		s.Queues.Scan(func(q *queues.Queue) bool {
			if q.HasSettingsDir() {
				settings++
			}
			for _, c := range q.Contenders.All() {
				if _, s := leases.slotOf(q, c); s != nil && replica.Observed(c) != (queues.Observed{}) {
					fail("%s: it is observed, and a lease's of this gateway", c.Name)
				}
			}
			return true
		})
	}
	if kept.Used(quota.Settings) < settings { // there are more while settings are on their way
		fail("%d locks have settings; counted %d", settings, kept.Used(quota.Settings))
	}
	return errors.Join(err, replica.Check())
}

func checkDelays(kept *delays, leases *leaseTable, replica *queues.Replica) (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	slots := 0
	for id, d := range kept.byID {
		slots += len(d.at)
		if leases.byID[id] != nil {
			fail("lease %s lives, and its place stays for its lock delay", id)
		}
		if _, ok := kept.line.Get(d); !ok || d.id != id {
			fail("the lock delay of %s never ends", id)
		}
		if len(d.at) == 0 {
			fail("the lock delay of %s keeps no place", id)
		}
		for _, at := range d.at {
			if c := at.Queue.Contenders.Get(at.Contender.Name); c != nil && !replica.Observed(c).SuppressEvents {
				fail("%s: the end of its lease would be told twice", c.Name)
			}
		}
	}
	if slots != kept.slots {
		fail("the lock delays keep %d places; counted %d", slots, kept.slots)
	}
	if len(kept.byID) != kept.line.Len() {
		fail("%d lock delays, %d in line", len(kept.byID), kept.line.Len())
	}
	return err
}

func checkBack(b *back) (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	n, waiting := 0, 0
	for dir, list := range b.locks {
		n += len(list)
		if len(list) == 0 || list[0].about == "" {
			fail("%s: what is held back waits for nothing", dir)
		}
		for _, h := range list {
			if h.about != "" {
				waiting++
			}
		}
	}
	if n != b.n {
		fail("%d events are held back; counted %d", n, b.n)
	}
	for _, list := range b.waiting {
		waiting -= len(list)
	}
	if waiting != 0 {
		fail("%d events wait for a word that will not find them", waiting)
	}
	return err
}
