package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"lockkeeper/internal/zk"
)

const (
	// layoutVersion is what this release writes, oldestReader the oldest release's layout version that can read it.
	layoutVersion = 1
	oldestReader  = 1

	defaultNamespace = "default"
)

// TokenKey is a key that authenticates lease tokens.
type TokenKey struct {
	ID  string `json:"id"`
	Key []byte `json:"key"`
}

// Secret is the fleet's secret. It is never changed.
type Secret struct {
	FleetID string
	Keys    []TokenKey // the first one signs, and all are accepted
	// NameKey names the nodes of idempotency keys. It outlives the keys.
	NameKey []byte
	// Exposed: others than the fleet can read one of the keys, or could once. See the package's comment.
	Exposed bool
	// SaidExposed: the node's data says so. ACLChanges is how often the node's ACL had been changed when the keys were made.
	SaidExposed bool
	ACLChanges  int32
	Rotation    *Rotation // nil while none is under way

	// Of the node.
	Version, Aversion int32
	Zxid              int64 // of the last change
}

// Layout is what is recorded for the whole fleet.
type Layout struct {
	Root    string
	FleetID string  // 8 characters of base32
	Secret  *Secret // as it was when the layout was read; Keyring has the present one
	// FenceBase is added to every czxid to make a fencing token.
	FenceBase        int64
	FenceBaseVersion int32
	// PromiseWindow is W. A successor waits LargestWindow, the largest ever recorded.
	PromiseWindow        time.Duration
	LargestWindow        time.Duration
	PromiseWindowVersion int32
	Namespaces           map[string]zk.Namespace
}

type versionRecord struct {
	Layout       int `json:"layout"`
	OldestReader int `json:"oldest_reader"`
}

type secretRecord struct {
	FleetID string     `json:"fleet_id"`
	Keys    []TokenKey `json:"keys"`
	NameKey []byte     `json:"name_key,omitempty"`
	// Exposed is written by an export of a secret that others could read, and while such a secret is rotated: the keys are known
	// there, wherever they go.
	Exposed    bool      `json:"exposed,omitempty"`
	ACLChanges int32     `json:"acl_changes,omitempty"`
	Rotation   *Rotation `json:"rotation,omitempty"`
}

// Phase is how far a rotation of the secret has come; internal/secret has the rules.
type Phase string

// The phases, in their order.
const (
	Accepting Phase = "accepting" // every gateway is to accept the new key
	Signing   Phase = "signing"   // every gateway is to sign with the new key
	Retiring  Phase = "retiring"  // leases whose tokens the old key may have made still live
	Dropping  Phase = "dropping"  // the old key goes at DropAt
)

// Rotation is how the fleet's key is being replaced.
type Rotation struct {
	Key       string    `json:"key"` // id of the new one
	Phase     Phase     `json:"phase"`
	Begun     time.Time `json:"begun"`
	By        string    `json:"by,omitempty"`
	DropAfter int64     `json:"drop_after_ms"`
	// Cut, from Retiring on: the token of a lease that was created later is of the new key.
	Cut int64 `json:"cut,omitempty"`
	// SignedAt, from Retiring on: the old key makes nothing any more.
	SignedAt *time.Time `json:"signed_at,omitempty"`
	DropAt   *time.Time `json:"drop_at,omitempty"` // in Dropping
}

// moved is the rotation on another ZooKeeper, whose zxids say nothing about the leases that are moved there.
func (r Rotation) moved() Rotation {
	if r.Phase == Retiring || r.Phase == Dropping {
		r.Phase, r.Cut, r.SignedAt, r.DropAt = Signing, 0, nil, nil
	}
	return r
}

type windowRecord struct {
	Window  string `json:"window"`
	Largest string `json:"largest"`
}

// CheckVersion refuses the data of a version node when this release cannot read such a layout.
func CheckVersion(data []byte) error {
	var v versionRecord
	if err := json.Unmarshal(data, &v); err != nil {
		return corrupt(zk.NodeVersion, err)
	}
	if v.OldestReader > layoutVersion {
		return &zk.FatalError{Kind: zk.KindLayoutTooNew, Hint: "run the release that the other gateways run",
			Err: fmt.Errorf("the root has layout %d, which needs a reader of at least %d; this release reads %d", v.Layout, v.OldestReader, layoutVersion)}
	}
	return nil
}

func (r *windowRecord) durations() (window, largest time.Duration, err error) {
	window, err = time.ParseDuration(r.Window)
	if err == nil {
		largest, err = time.ParseDuration(r.Largest)
	}
	if err == nil && (window < zk.MinPromiseWindow || largest < window) {
		err = errors.New("the window is below its minimum or above the largest")
	}
	if err != nil {
		return 0, 0, corrupt(zk.NodePromiseWindow, err)
	}
	return window, largest, nil
}

// ParseWindow reads the data of a promise window's node: the one in force, and the largest ever recorded.
func ParseWindow(data []byte) (window, largest time.Duration, err error) {
	var record windowRecord
	if err := json.Unmarshal(data, &record); err != nil {
		return 0, 0, corrupt(zk.NodePromiseWindow, err)
	}
	return record.durations()
}

func corrupt(name string, err error) error {
	return &zk.FatalError{Kind: zk.KindLayoutCorrupt, Hint: "restore the node from a backup, or use another --root",
		Err: fmt.Errorf("cannot understand %s: %w", strconv.Quote(name), err)}
}
