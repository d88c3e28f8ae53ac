package record

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"slices"
	"strconv"
	"time"

	"lockkeeper/internal/locks"
)

// keyNames names the nodes of idempotency keys. The name is an HMAC under a key that is derived from the fleet's: every client of
// ZooKeeper can list the names, and must not be able to try guesses of a client's key on them. It is immutable.
type keyNames struct{ key []byte }

// keyNamesInfo separates the derived key from others that are made of the fleet's (RFC 5869, section 3.2).
const keyNamesInfo = "lockkeeper idempotency key names v1"

// newKeyNames takes the fleet's key for names, which stays when the others change: a repeated acquire finds its node.
func newKeyNames(key []byte) keyNames {
	derived, err := hkdf.Key(sha256.New, key, nil, keyNamesInfo, sha256.Size)
	if err != nil {
		panic("deriving a key: " + err.Error()) // only of more bytes than there can be
	}
	return keyNames{derived}
}

// Name is the key's node: the scope (principal, namespace and lock, or the
// locks of a group in any order) and the key itself, each with its length so that
// no two scopes collide.
func (n keyNames) Name(req *locks.AcquireRequest) string {
	mac := hmac.New(sha256.New, n.key)
	if len(req.Group) == 0 {
		return digest(mac, req.Principal.Name, req.NS, req.Lock, req.IdempotencyKey)
	}
	scope := make([]string, 0, len(req.Group)+3)
	for _, w := range req.Group {
		scope = append(scope, w.NS+"/"+w.Lock)
	}
	slices.Sort(scope)
	// Where a single lock has its name, which has no slash, a group has one.
	parts := append([]string{"group", req.Principal.Name}, scope...)
	return digest(mac, append(parts, req.IdempotencyKey)...)
}

// Fingerprint tells whether a repeat is the same request. How long a client
// is ready to wait is not part of it.
func Fingerprint(req *locks.AcquireRequest) string {
	parts := []string{req.TTL.String(), req.Owner, req.Metadata}
	for _, w := range req.Wants() {
		parts = append(parts, string(w.Mode))
		if w.Mode == locks.Semaphore || len(req.Group) > 0 {
			parts = append(parts, w.NS, w.Lock, strconv.Itoa(w.Limit), strconv.Itoa(w.Permits))
		}
	}
	return digest(sha256.New(), append(parts, extrasOf(req)...)...)
}

// extrasOf are what few acquires ask for. What is not asked for is not there, so
// that a key of an older gateway's fits.
func extrasOf(r *locks.AcquireRequest) (extras []string) {
	if r.Hold != "" {
		extras = append(extras, "hold", r.Hold)
	}
	if r.LockDelay != 0 {
		extras = append(extras, "lock_delay", r.LockDelay.String(), string(r.LockDelayOn))
	}
	if r.AtLeast != 0 {
		extras = append(extras, "at_least", r.AtLeast.String())
	}
	if r.OncePer != 0 {
		extras = append(extras, "once_per", r.OncePer.String(), r.Period, string(r.DoneOn))
	}
	if r.Ephemeral {
		extras = append(extras, "ephemeral")
	}
	if r.NotifyURL != "" {
		extras = append(extras, "notify_url", r.NotifyURL)
	}
	if r.Purpose != "" {
		extras = append(extras, "reason", r.Purpose)
	}
	if r.For != 0 {
		extras = append(extras, "for", r.For.String())
	}
	if !r.Until.IsZero() {
		extras = append(extras, "until", r.Until.UTC().Format(time.RFC3339Nano))
	}
	if r.Deadlock == locks.DeadlockFail {
		extras = append(extras, "deadlock", string(r.Deadlock))
	}
	return extras
}

func digest(h hash.Hash, parts ...string) string {
	for _, part := range parts {
		h.Write(strconv.AppendInt(nil, int64(len(part)), 10))
		h.Write([]byte{':'})
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// Key is the data of an idempotency key's node.
type Key struct {
	Version     int    `json:"v"`
	LeaseID     string `json:"lease_id"`
	Fingerprint string `json:"fingerprint"`
	NS          string `json:"ns"`
	Lock        string `json:"lock"`
}

func (k Key) Encode() []byte {
	k.Version = Version
	data, err := json.Marshal(k)
	if err != nil {
		panic("encoding a key's record: " + err.Error()) // strings only
	}
	return data
}
