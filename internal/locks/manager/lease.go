package manager

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/periods"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
)

// A lease and its rare fields, what its record says of them, and the questions that they alone answer.

const (
	waitingClock   = 30 * time.Second // a waiting lease's clock is min(TTL, this)
	unclaimedClock = 30 * time.Second // an unclaimed grant passes on after min(TTL, this)
)

// lease is a lease that this gateway owns. The monitor guards every field except the immutable ones.
type lease struct {
	slot // the first slot; most leases have only one

	lifecycle.State
	why  postmortem.Cause // ending and ended: the reason
	kind kind             // counted as this kind

	// Clock, and the contender's data.
	abandoned bool       // no client can use it: it is ended once it is known
	term      locks.Term // of the session under which the clock runs
	listeners int32      // open requests with its token
	heapIndex int32      // in Manager.deadlines, -1: none
	lineIndex int32      // in counts.line, -1: none
	readPlace uint32     // of the read of its record in the port's line
	ticket    bool       // waiting without an open acquire
	moment    moment     // whether its record says when it was granted
	text      uint16     // bytes counted as its texts

	// All readings but enqueued are of the boot clock.
	ttl      time.Duration // what a heartbeat renews
	recorded time.Duration // longest TTL that may be promised: the contender's record is known to have it
	deadline time.Duration
	grace    time.Duration // takeover + promise window: a TTL later the old owner's promises end; 0: own
	due      time.Duration // its time in the heap
	since    time.Duration // when it was queued; after the grant, when it was granted
	beat     time.Duration // last heartbeat, 0: none
	enqueued time.Duration // wall clock, since the Unix epoch; 0: not known

	czxid      int64 // of the contender; 0 until known
	*taker           // immutable, shared, never nil
	rareFields *rare
	rev        uint64
	wake       chan struct{} // closed at the next visible change; nil while no request waits
}

func (l *lease) id() recipe.LeaseID { return l.contender.LeaseID }

// rare is what few leases have: apart, for the memory (TestAHeldLeaseTakesLittleMemory).
type rare struct {
	least       int64  // the zxid that a server must have reached whose answer about the data counts: a write was lost before
	rest        []slot // all slots but the first; never grown, so that they stay where they are
	behind      *slot  // the one that did not hold when the lease's turn was last asked for
	metadata    string
	key         string         // hash of its idempotency key; ""
	shrinkAt    time.Duration  // boot: when recorded may come down to ttl; 0: it need not
	version     int32          // of the data whose content was applied here
	visibleFrom int64          // zxid of the downgrade that made the present contenders; 0
	failure     *locks.Error   // ended: what became of a create that came to nothing
	holds       []string       // in the order in which they were taken; unnamed: see there. Never changed in place
	released    []string       // names of released holds. Never changed in place
	revoke      *revocation    // its holder has been asked to release it
	revokeRound int64          // how many revocations of it were withdrawn
	told        notable        // what AwaitChange has answered last
	restored    uint8          // how often its data was written back; see load.go
	cause       *reports.Cause // ending and ended: what its administrator said, and ending: the trace of the request that ends it. Never changed in place

	beats              int64         // heartbeats that other gateways wrote into its record, as read; see heartbeat.go
	outgoing           time.Duration // the record's TTL before a write that is under way, or was not done
	acknowledgedByPeer bool          // the record says that another gateway has told the client that it holds

	telling *telling                   // of its notify_url; nil: it has none
	more    map[string]json.RawMessage // members of its record that only a later release knows. Never changed in place

	failsOnDeadlock bool         // a wait that is one of a deadlock ends
	cycle           *locks.Cycle // for which it has ended; else nil

	lockDelay   time.Duration // its place stays so long after its end
	lockDelayOn locks.DelayOn
	once        *oncePer      // the period that it is for; nil: none
	atLeast     time.Duration // from its grant on its place stays so long, however it ends

	granted time.Duration // wall clock, as its record has it or will have it; 0: it does not. See granted.go
	trace   *leaseTrace   // of the acquire; nil: none
	purpose string        // the reason of its acquire
	reserve *reservation  // it ends at a time; nil: heartbeats keep it
}

// rare is where what few leases have can be written.
func (l *lease) rare() *rare {
	if l.rareFields == nil {
		l.rareFields = &rare{}
	}
	return l.rareFields
}

// noRare is read where a lease has none, and never written.
var noRare rare

// known is what the lease has of it, to be read.
func (l *lease) known() *rare {
	if l.rareFields == nil {
		return &noRare
	}
	return l.rareFields
}

// over reports whether the lease has ended for its client, with a reason that stays. A lease that has lost a contender has, also
// while its other contenders are being deleted.
func (l *lease) over(x *reports.Exchange) bool {
	some, _ := l.gonePart()
	return l.Ended() || l.Ending() && some && !l.undecided(x)
}

func (l *lease) reason() locks.Reason { return l.why.Reason() }

// timed reports whether the lease ends by time, so that a heartbeat may undo the end. A lease that has lost a
// contender always ends.
func (l *lease) timed() bool {
	some, _ := l.gonePart()
	return !some && byTime(l.reason())
}

// forced reports whether it is force that ends the lease, and not an administrator outright: a withdrawal that is
// written first wins.
func (l *lease) forced() bool {
	some, _ := l.gonePart()
	return !some && l.why == postmortem.Forced
}

// replacing reports whether a downgrade is under way.
func (l *lease) replacing() bool { return l.Change() == lifecycle.ChangeReplacing }

// rewriting reports whether a write of the record, or its replacement under another name, is in flight.
// Until its outcome is known, the gateway writes nothing else to the record.
func (l *lease) rewriting() bool { return l.Record().Writing() || l.replacing() }

func (l *lease) ephemeral() bool { return l.contender.Ephemeral }

// keyed reports whether the client can find the lease again by repeating the request.
func (l *lease) keyed() bool { return l.key() != "" }

// changed returns a channel that is closed at the lease's next visible change.
func (l *lease) changed() <-chan struct{} {
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	return l.wake
}

// clock returns how long the lease lives after its client's last request, in its present phase.
func (l *lease) clock() time.Duration {
	r := l.reservation()
	switch {
	case l.Waiting() && r != nil && r.asked.Stays:
		return max(l.deadline-l.since, 0)
	case l.Waiting():
		return l.waitingClock()
	case r != nil && l.Held() && l.Grant() == lifecycle.GrantClaimed:
		return max(r.end-l.since, 0)
	case l.Held() && l.Grant() == lifecycle.GrantUnclaimed:
		return min(l.ttl, unclaimedClock)
	}
	return l.ttl
}

// waitingClock returns how long a lease stays in the queue after its client's last request.
func (l *lease) waitingClock() time.Duration { return min(l.ttl, waitingClock) }

// recordFrom is the czxid of the node with the record. A downgrade may replace other contenders of the lease alone.
func (l *lease) recordFrom() int64 {
	if l.contender.FirstCzxid == 0 {
		return l.czxid
	}
	return l.visibleFrom()
}

// visibleFrom is the zxid before which no listing shows all of the lease's contenders.
func (l *lease) visibleFrom() int64 {
	if l.rareFields != nil && l.rareFields.visibleFrom != 0 {
		return l.rareFields.visibleFrom
	}
	return l.czxid
}

func (l *lease) metadata() string { return l.known().metadata }

func (l *lease) key() string { return l.known().key }

func (l *lease) shrinkAt() time.Duration { return l.known().shrinkAt }

func (l *lease) failure() *locks.Error { return l.known().failure }

// revocation is what the lease's holder has been asked to do; nil: nothing.
func (l *lease) revocation() *revocation { return l.known().revoke }

// forceAt is when the lease is taken back; 0: never.
func (l *lease) forceAt() time.Duration {
	if v := l.revocation(); v != nil {
		return v.forceAt
	}
	return 0
}

// noCause is read where no administrator has ended a lease, and never written.
var noCause reports.Cause

// cause is what is known of the administrator who ended the lease. Its Reason may be another one than the lease's.
func (l *lease) cause() *reports.Cause {
	if c := l.known().cause; c != nil {
		return c
	}
	return &noCause
}

// endedError is the answer to the lease's client after the lease has ended for that reason.
func (l *lease) endedError(reason locks.Reason) *locks.Error {
	return endedError(reason).Because(l.cause().Words, l.cause().By)
}

// dataVersion is the version of the contender's data whose content was applied here.
func (l *lease) dataVersion() int32 { return l.known().version }

func (l *lease) setDataVersion(version int32) {
	if version != l.dataVersion() {
		l.rare().version = version
	}
}

// lockDelay is how long the lease's place stays after its end.
func (l *lease) lockDelay() time.Duration { return l.known().lockDelay }

// atLeast is for how long from its grant on the lease's place stays.
func (l *lease) atLeast() time.Duration { return l.known().atLeast }

// mayStay reports whether the lease's place may stay after its end.
func (l *lease) mayStay() bool { return l.lockDelay() > 0 || l.atLeast() > 0 }

// The holds of a reentrant lease have names, so an acquire and a release are safe to repeat: a counter could not tell a repeat
// from a second release (attack 15). A released name cannot be taken again, so a late repeat does not restore it.

func (l *lease) holdNames() []string { return l.known().holds }

func (l *lease) releasedNames() []string { return l.known().released }

// revocation is what a lease's holder has been asked to do, as its owner knows it.
type revocation struct {
	asked   record.Revocation
	forceAt time.Duration // boot; 0: never
}

// record is the revocation as it is written; nil for none.
func (v *revocation) record() *record.Revocation {
	if v == nil {
		return nil
	}
	return &v.asked
}

func (v *revocation) view(now time.Duration) *locks.Revocation {
	if v == nil {
		return nil
	}
	r := &locks.Revocation{Reason: v.asked.Reason, By: v.asked.By}
	if v.forceAt != 0 {
		r.Forced, r.ForceIn = true, max(v.forceAt-now, 0)
	}
	return r
}

// telling is what is known of a lease's notify_url.
type telling struct {
	url   string
	given bool           // the lease's client may have been given its token
	note  lifecycle.Note // of its grant
	term  locks.Term     // under which that was submitted
}

// notifyURL is the address that is notified of the lease; "": none.
func (l *lease) notifyURL() string {
	if l.rareFields == nil || l.rareFields.telling == nil {
		return ""
	}
	return l.rareFields.telling.url
}

// age is how long ago the lease was enqueued, if that is known.
func (l *lease) age(wall time.Duration) (age time.Duration, known bool) {
	if l.enqueued <= 0 {
		return 0, false
	}
	return max(wall-l.enqueued, 0), true
}

// contents is what the lease's record says, or will say with the given TTL.
func (l *lease) contents(ttl time.Duration) record.Record {
	r := record.Record{Version: record.Version, Owner: l.owner, Principal: l.account.Principal(), Metadata: l.metadata(), Enqueued: l.enqueued.Milliseconds()}
	r.Granted = l.grantedAt().Milliseconds()
	r.SetTTL(ttl)
	if rare := l.rareFields; rare != nil {
		r.Holds, r.Released = rare.holds, rare.released
		r.Beats, r.Told = rare.beats, rare.acknowledgedByPeer
		r.Notify, r.More = l.notifyURL(), rare.more
		r.LockDelay, r.LockDelayOn = rare.lockDelay.Milliseconds(), rare.lockDelayOn
		r.AtLeast = rare.atLeast.Milliseconds()
		if rare.failsOnDeadlock {
			r.OnDeadlock = locks.DeadlockFail
		}
		r.Once = rare.once.record()
		r.Revoke, r.RevokeRound = l.revocation().record(), l.known().revokeRound
		r.Trace = rare.carried()
		r.Purpose = rare.purpose
		if rare.reserve != nil {
			asked := rare.reserve.asked // the reservation goes on to change
			r.Reserve = &asked
		}
	}
	return r
}

// record is the lease's record as it is written.
func (l *lease) record(ttl time.Duration) []byte { return l.contents(ttl).Encode() }

// label is the data of a lease's further contenders: its owner, for programs that read that queue. The metadata of 64 of them
// would exceed a transaction's limit.
func (l *lease) label(ttl time.Duration) []byte {
	r := record.Record{Version: record.Version, Owner: l.owner, Principal: l.account.Principal(), Enqueued: l.enqueued.Milliseconds(), Purpose: l.purpose()}
	r.SetTTL(ttl)
	return r.Encode()
}

// data is what a slot's contender has in it.
func (l *lease) data(s *slot, ttl time.Duration) []byte {
	if s == &l.slot {
		return l.record(ttl)
	}
	return l.label(ttl)
}

// learn takes over what a record says besides TTL and times, and reports whether any of it is news. Slices of a record are
// never changed, so they are shared; strings may be a request's, and are cloned.
func (l *lease) learn(t *leaseTable, r record.Record) (news bool) {
	if r.Owner != l.owner {
		l.taker, news = t.takers.one(r.Owner, l.account), true
	}
	if r.Metadata != l.metadata() {
		l.rare().metadata, news = strings.Clone(r.Metadata), true
	}
	if r.Purpose != l.purpose() {
		l.rare().purpose, news = strings.Clone(r.Purpose), true
	}
	if !slices.Equal(r.Holds, l.holdNames()) || !slices.Equal(r.Released, l.releasedNames()) {
		l.rare().holds, l.rare().released, news = r.Holds, r.Released, true
	}
	if r.LockDelay > 0 {
		l.rare().lockDelay, l.rare().lockDelayOn = time.Duration(r.LockDelay)*time.Millisecond, r.LockDelayOn
	}
	if r.Once != nil && l.once() == nil {
		l.rare().once = &oncePer{Once: periods.OnceOf(r.Once)}
	}
	if r.AtLeast > 0 {
		l.rare().atLeast = time.Duration(r.AtLeast) * time.Millisecond
	}
	if r.OnDeadlock == locks.DeadlockFail {
		l.rare().failsOnDeadlock = true
	}
	t.weigh(l, 0)
	return news
}

// learnMore keeps the record's members that this release does not know.
func (l *lease) learnMore(data []byte) {
	members, ok := record.OtherMembers(data)
	if ok && (len(members) > 0 || l.rareFields != nil && l.rareFields.more != nil) {
		l.rare().more = members
	}
}
