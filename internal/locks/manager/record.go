package manager

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// What a lease has in ZooKeeper: its record, written from the lease and learned from what was read, and its idempotency
// key.

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

// acknowledgedElsewhere notes that another gateway has told the lease's client that it holds:
// its grant needs no claiming.
func (l *lease) acknowledgedElsewhere(t *leaseTable, r record.Record) {
	if r.Told {
		l.rare().acknowledgedByPeer = true
		l.Acknowledge(t)
	}
}

// keyEntry is an idempotency key. Its node is created in the contender's transaction, so no gateway can queue the same
// request twice.
type keyEntry struct {
	hash        string
	fingerprint string
	lease       recipe.LeaseID
	reason      locks.Reason  // once the lease has ended
	endedAt     time.Duration // boot; 0 while the lease lives
}

// keys are the idempotency keys that this gateway keeps, each until keyLife after the end of its lease.
type keys struct {
	byHash map[string]*keyEntry
	ended  []*keyEntry                 // keys of ended leases, in the order of their ends
	others map[string]recipe.GatewayID // keys of other gateways, as the last scan found them
}

func (k *keys) add(one *keyEntry) { k.byHash[one.hash] = one }

// drop forgets a key, unless its hash has another one by now.
func (k *keys) drop(one *keyEntry) {
	if one != nil && k.byHash[one.hash] == one {
		delete(k.byHash, one.hash)
	}
}

func (k *keys) end(one *keyEntry, reason locks.Reason, now time.Duration) {
	one.reason, one.endedAt = reason, now
	k.ended = append(k.ended, one)
}

// pop removes and returns the first key whose lease ended at or before the given time.
func (k *keys) pop(before time.Duration) *keyEntry {
	if len(k.ended) == 0 || k.ended[0].endedAt > before {
		return nil
	}
	one := k.ended[0]
	k.ended[0] = nil
	if k.ended = k.ended[1:]; len(k.ended) == 0 {
		k.ended = nil
	}
	return one
}

func (k *keyEntry) record(q *queues.Queue) []byte {
	return record.Key{LeaseID: string(k.lease), Fingerprint: k.fingerprint, NS: q.Namespace.Name, Lock: q.Name()}.Encode()
}

func (f *fleet) keyPath(hash string) string { return f.root + "/keys/" + hash }

func (f *fleet) readKey(ctx context.Context, session term.Session, hash string) (*keyEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	data, _, err := session.Get(ctx, f.keyPath(hash))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case err != nil:
		e := unavailable()
		e.Err = err
		return nil, e
	}
	var record record.Key
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, &locks.Error{Code: locks.CodeUnavailable, Detail: "the idempotency key's record in ZooKeeper cannot be read", Err: err}
	}
	id, err := recipe.ParseLeaseID(record.LeaseID)
	if err != nil {
		return nil, &locks.Error{Code: locks.CodeUnavailable, Detail: "the idempotency key's record in ZooKeeper names no lease", Err: err}
	}
	return &keyEntry{hash: hash, fingerprint: record.Fingerprint, lease: id}, nil
}

// codeKeyTaken marks, inside the package, a create that failed because its
// idempotency key was there.
const codeKeyTaken locks.Code = "key_taken"
