package manager

import (
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks/record"
)

// What a lease's record says: written from the lease, and learned from what was read.

// contents is what the lease's record says, or will say with the given TTL.
func (l *lease) contents(ttl time.Duration) record.Record {
	r := record.Record{Version: record.Version, Owner: l.owner, Metadata: l.metadata(), Enqueued: l.enqueued.Milliseconds()}
	r.SetTTL(ttl)
	if rare := l.rareFields; rare != nil {
		r.Holds, r.Released = rare.holds, rare.released
		r.Beats, r.Told = rare.beats, rare.acknowledgedByPeer
		r.Notify, r.More = l.notifyURL(), rare.more
		r.LockDelay, r.LockDelayOn = rare.lockDelay.Milliseconds(), rare.lockDelayOn
		r.Revoke, r.RevokeRound = l.revocation().record(), l.revokeRound()
	}
	return r
}

// record is the lease's record as it is written.
func (l *lease) record(ttl time.Duration) []byte { return l.contents(ttl).Encode() }

// label is the data of a lease's further contenders: its owner, for programs that
// read that queue. The metadata of 64 of them would be larger than a transaction
// may be.
func (l *lease) label(ttl time.Duration) []byte {
	r := record.Record{Version: record.Version, Owner: l.owner, Enqueued: l.enqueued.Milliseconds()}
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

// learn takes over what a record says besides TTL and times, and reports
// whether any of it is news. Slices of a record are never changed, so they are
// shared; strings may be a request's, and are not.
func (l *lease) learn(t *leaseTable, r record.Record) (news bool) {
	if r.Owner != l.owner {
		l.owner, news = t.owners.one(r.Owner), true
	}
	if r.Metadata != l.metadata() {
		l.rare().metadata, news = strings.Clone(r.Metadata), true
	}
	if !slices.Equal(r.Holds, l.holdNames()) || !slices.Equal(r.Released, l.releasedNames()) {
		l.rare().holds, l.rare().released, news = r.Holds, r.Released, true
	}
	if r.LockDelay > 0 {
		l.rare().lockDelay, l.rare().lockDelayOn = time.Duration(r.LockDelay)*time.Millisecond, r.LockDelayOn
	}
	t.weigh(l, 0)
	return news
}

// age is how long ago the lease was enqueued, if that is known: that of a lease that was taken over is read.
func (l *lease) age(wall time.Duration) (age time.Duration, known bool) {
	if l.enqueued <= 0 {
		return 0, false
	}
	return max(wall-l.enqueued, 0), true
}

// A later release may write more members into a record. A successor of an older release keeps them when it rewrites
// the record.

// learnMore keeps the record's members that this release does not know.
func (l *lease) learnMore(data []byte) {
	members, ok := record.OtherMembers(data)
	if ok && (len(members) > 0 || l.rareFields != nil && l.rareFields.more != nil) {
		l.rare().more = members
	}
}

// learnNotify takes the address from the record of a lease that was taken over.
func (l *lease) learnNotify(r record.Record) {
	if url := r.NotifyURL(); url != "" {
		l.rare().telling = &telling{url: strings.Clone(url), given: true}
	}
}

// acknowledgedElsewhere notes that another gateway has told the lease's client that it holds:
// its grant needs no claiming.
func (l *lease) acknowledgedElsewhere(t *leaseTable, r record.Record) {
	if r.Told {
		l.rare().acknowledgedByPeer = true
		l.acknowledge(t)
	}
}
