package manager

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// codeKeyTaken marks, inside the package, a create that failed because its
// idempotency key was there.
const codeKeyTaken locks.Code = "key_taken"

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

// learnKey keeps a key that was read, unless it is already known or another gateway keeps it.
func (m *Manager) learnKey(entry *keyEntry) *keyEntry {
	if known := m.keys.byHash[entry.hash]; known != nil {
		return known
	}
	if m.leases.byID[entry.lease] == nil && (m.replica.HasNewer(entry.lease) || !m.members.Owns(entry.lease.Gateway())) {
		return entry // its own gateway, or one of a later release, knows when it expires
	}
	m.keys.add(entry)
	m.attachKey(entry)
	return entry
}

// readKey reads a key's node; nil without an error means that there is none.

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

// attachKey connects a key that was read with its lease. When the lease is gone, the key's remaining life begins.
func (m *Manager) attachKey(k *keyEntry) {
	if l := m.leases.byID[k.lease]; l != nil {
		l.rare().key = k.hash
		return
	}
	if past, ok := m.history.Get(k.lease); ok {
		m.keys.end(k, past.Reason(), m.clock.Now().Boot())
		return
	}
	if m.members.Owns(k.lease.Gateway()) && m.stream.synced && m.mayMiss(k.lease) == nil {
		// The lease ended before this gateway could know the reason; keyLife counts from now.
		m.keys.end(k, locks.ReasonUnknown, m.clock.Now().Boot())
	}
}
