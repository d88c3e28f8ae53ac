package parties

import (
	"cmp"
	"maps"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk/wire"
)

// Standing is what is known of a contender.
type Standing struct {
	Party  locks.Party
	Born   int64         // czxid of the first node of its lease; 0: not known
	Fails  bool          // the lease ends in a deadlock
	Own    bool          // this gateway runs the lease
	Queued time.Duration // wall clock: when it came; 0: not known
	look   uint64        // the last look for deadlocks that has found it, or since which it is known
}

// Known is whose the contenders of contended locks are that this gateway does not run.
type Known struct {
	of    map[*recipe.Contender]Standing
	looks uint64
	stale bool // what a contender says of itself has changed
}

// NewKnown knows nothing.
func NewKnown() *Known { return &Known{of: map[*recipe.Contender]Standing{}} }

// Changed forgets what was read of a contender.
func (k *Known) Changed(c *recipe.Contender) {
	delete(k.of, c)
	k.stale = true
}

// Forget forgets all that was read: the stream had a gap.
func (k *Known) Forget() {
	clear(k.of)
	k.stale = true
}

// MarkStale has the next look done though no queue has changed.
func (k *Known) MarkStale() { k.stale = true }

// Stale reports whether a look may find other parties than the one before.
func (k *Known) Stale() bool { return k.stale }

// Len is how many contenders are known.
func (k *Known) Len() int { return len(k.of) }

// BeginLook begins a look for deadlocks.
func (k *Known) BeginLook() {
	k.stale = false
	k.looks++
}

// EndLook forgets the contenders that the look has not found.
func (k *Known) EndLook() {
	maps.DeleteFunc(k.of, func(_ *recipe.Contender, known Standing) bool { return known.look < k.looks })
}

// Get is what is known of a contender; zero: nothing.
func (k *Known) Get(c *recipe.Contender) Standing { return k.of[c] }

// Find is what is known of a contender that a look has found. read is false when its record is to be read first.
func (k *Known) Find(q *queues.Queue, c *recipe.Contender) (s Standing, read bool) {
	if known, there := k.of[c]; there {
		if known.look != k.looks {
			known.look = k.looks
			k.of[c] = known
		}
		return known, true
	}
	if i := q.Node(c.Name); i != nil {
		s = standingOf(q, c, &i.Record, i.IsRecord, i.Data, i.Session, i.Czxid, i.Created)
		s.look = k.looks
		k.of[c] = s
		return s, true
	}
	_, hidden := q.Extras().Hidden[c.Name]
	return Standing{Party: partyOf(q, c, nil, nil, 0)}, hidden
}

// Learn keeps what a contender's data says.
func (k *Known) Learn(q *queues.Queue, c *recipe.Contender, data []byte, stat wire.Stat) {
	r, is := record.Parse(data)
	known := standingOf(q, c, &r, is, data[:min(len(data), maxLabel)], stat.EphemeralOwner, stat.Czxid, time.Duration(stat.Ctime)*time.Millisecond)
	known.look = k.looks
	k.of[c] = known
}

// maxLabel is how much of another program's data is decoded to name it.
const maxLabel = 1 << 10

// OfOwner is the party of leases with an owner. An address stands for none.
func OfOwner(owner string, id recipe.LeaseID) locks.Party {
	if locks.IsParty(owner) {
		return locks.Party{ID: "owner:" + owner, Kind: locks.PartyOwner, Owner: owner}
	}
	return OfLease(owner, id)
}

// OfLease is the party of a lease that is one by itself.
func OfLease(owner string, id recipe.LeaseID) locks.Party {
	return locks.Party{ID: "lease:" + string(id), Kind: locks.PartyLease, Owner: owner}
}

// partyOf is the party of a contender that this gateway does not run; r is nil where its data is no record.
func partyOf(q *queues.Queue, c *recipe.Contender, r *record.Record, data []byte, session int64) locks.Party {
	if c.Ours && c.LeaseID != "" {
		if r == nil || r.Closed != nil {
			return OfLease("", c.LeaseID)
		}
		return OfOwner(strings.Clone(r.Owner), c.LeaseID)
	}
	program, kind := interop.Recipe(c.Name)
	p := locks.Party{Kind: locks.PartyZnode, ID: "znode:" + q.NodeOf(c.Name), Program: program, Label: interop.Decode(program, kind, data).String()}
	if session != 0 {
		p.Kind, p.ID = locks.PartySession, "session:0x"+strconv.FormatUint(uint64(session), 16)
	}
	return p
}

func standingOf(q *queues.Queue, c *recipe.Contender, r *record.Record, isRecord bool, data []byte, session, czxid int64, created time.Duration) Standing {
	queued := created
	if !isRecord {
		r = nil
	} else if c.Ours {
		queued = record.EnqueuedAt(r.Enqueued, created.Milliseconds())
	}
	s := Standing{Party: partyOf(q, c, r, data, session), Born: cmp.Or(c.FirstCzxid, czxid), Queued: queued}
	s.Fails = r != nil && r.OnDeadlock == locks.DeadlockFail
	return s
}
