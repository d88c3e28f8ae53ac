// Package idempotency has the idempotency keys that a gateway keeps: which lease each one made, and how that lease ended. A
// key's node is created in the transaction of its lease's contender, so no gateway can queue one request twice. Keys is
// passive, is given the time, and is not safe for concurrent use.
package idempotency

import (
	"encoding/json"
	"fmt"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
)

// Key is one key.
type Key struct {
	Hash        string // the name of its node
	Fingerprint string // of the request's parameters
	Lease       recipe.LeaseID
	Reason      locks.Reason  // once the lease has ended
	EndedAt     time.Duration // boot; 0 while the lease lives
}

// Parse reads what stands in a key's node.
func Parse(hash string, data []byte) (*Key, error) {
	var r record.Key
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("the record of an idempotency key: %w", err)
	}
	lease, err := recipe.ParseLeaseID(r.LeaseID)
	if err != nil {
		return nil, fmt.Errorf("the lease of an idempotency key: %w", err)
	}
	return &Key{Hash: hash, Fingerprint: r.Fingerprint, Lease: lease}, nil
}

// Record is what stands in the key's node.
func (k *Key) Record(ns, lock string) []byte {
	return record.Key{LeaseID: string(k.Lease), Fingerprint: k.Fingerprint, NS: ns, Lock: lock}.Encode()
}

// Keys are the keys that this gateway keeps. The zero Keys is not ready: New makes one.
type Keys struct {
	byHash map[string]*Key
	ended  []*Key // keys of ended leases, in the order of their ends
	// Others are keys of other gateways, as the last scan found them.
	Others map[string]recipe.GatewayID
}

// New makes Keys.
func New() Keys { return Keys{byHash: map[string]*Key{}} }

// Get is the key with that hash, nil when it is not known.
func (ks *Keys) Get(hash string) *Key { return ks.byHash[hash] }

// Len is how many keys there are.
func (ks *Keys) Len() int { return len(ks.byHash) }

// Ended is how many keys wait for the end of their time.
func (ks *Keys) Ended() int { return len(ks.ended) }

// Add keeps a key.
func (ks *Keys) Add(k *Key) { ks.byHash[k.Hash] = k }

// Forget forgets the key with that hash.
func (ks *Keys) Forget(hash string) { delete(ks.byHash, hash) }

// Drop forgets a key, unless its hash has another one by now. k may be nil.
func (ks *Keys) Drop(k *Key) {
	if k != nil && ks.byHash[k.Hash] == k {
		delete(ks.byHash, k.Hash)
	}
}

// End records that a key's lease has ended.
func (ks *Keys) End(k *Key, reason locks.Reason, now time.Duration) {
	k.Reason, k.EndedAt = reason, now
	ks.ended = append(ks.ended, k)
}

// Pop removes the first key whose lease ended at or before the given time from those that wait, and returns it; nil: none.
func (ks *Keys) Pop(before time.Duration) *Key {
	if len(ks.ended) == 0 || ks.ended[0].EndedAt > before {
		return nil
	}
	k := ks.ended[0]
	ks.ended[0] = nil
	if ks.ended = ks.ended[1:]; len(ks.ended) == 0 {
		ks.ended = nil
	}
	return k
}
