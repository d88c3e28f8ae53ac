package layout

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"lockkeeper/internal/zk"
)

const (
	fleetIDLength = 8 // characters: 40 random bits
	keyIDLength   = 4 // characters: 20 random bits tell keys apart, nothing more
	keyBytes      = 32
)

// newSecret makes the secret of a new fleet.
func newSecret() (secretRecord, error) {
	random := make([]byte, 8+2*keyBytes)
	if _, err := rand.Read(random); err != nil {
		return secretRecord{}, fmt.Errorf("making the fleet's secret: %w", err)
	}
	names := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:8]))
	return secretRecord{
		FleetID: names[:fleetIDLength],
		Keys:    []TokenKey{{ID: names[fleetIDLength : fleetIDLength+keyIDLength], Key: random[8 : 8+keyBytes]}},
		NameKey: random[8+keyBytes:],
	}, nil
}

// RenewSecret is the data of a secret node with one new key in place of all that there are. The fleet keeps its id, and the
// key that names the nodes of idempotency keys: a repeated acquire must find its lease. Who read that key can try
// guesses of idempotency keys, and forge nothing.
func RenewSecret(data []byte) ([]byte, error) {
	old, err := ParseSecret(data)
	if err != nil {
		return nil, err
	}
	secret, err := newSecret()
	if err != nil {
		return nil, err
	}
	secret.FleetID, secret.NameKey = old.FleetID, old.NameKey
	return json.Marshal(secret)
}

// NewKey makes a key with an id that the secret has not.
func (s *Secret) NewKey() (TokenKey, error) {
	for {
		fresh, err := newSecret()
		if err != nil {
			return TokenKey{}, err
		}
		if made := fresh.Keys[0]; !s.Has(made.ID) {
			return made, nil
		}
	}
}

// Has reports whether the secret has a key with the id.
func (s *Secret) Has(id string) bool {
	return slices.ContainsFunc(s.Keys, func(k TokenKey) bool { return k.ID == id })
}

// nameKey is what names the nodes of idempotency keys. In a secret that was made without one it is the oldest key: a key that is
// put in front of it changes no name.
func (s *secretRecord) nameKey() []byte {
	if len(s.NameKey) > 0 || len(s.Keys) == 0 {
		return s.NameKey
	}
	return s.Keys[len(s.Keys)-1].Key
}

// MarkSecret is the data of a secret node with what is known about who could read it. An export says so, because the
// node that an import creates has another history. always: also where the data says it already. A rotation that is under way
// goes on from a phase that needs none of the zxids of the ZooKeeper it began on.
func MarkSecret(data []byte, exposed, always bool) ([]byte, error) {
	record := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, corrupt(zk.NodeSecret, err)
	}
	if _, said := record["exposed"]; !said || always {
		record["exposed"] = strconv.AppendBool(nil, exposed)
	}
	delete(record, "acl_changes") // of the node that was exported
	if raw := record["rotation"]; raw != nil {
		var r Rotation
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, corrupt(zk.NodeSecret, err)
		}
		moved, err := json.Marshal(r.moved())
		if err != nil {
			return nil, corrupt(zk.NodeSecret, err)
		}
		record["rotation"] = moved
	}
	return json.Marshal(record)
}

// ParseSecret reads the data of a secret node.
func ParseSecret(data []byte) (*Secret, error) {
	var r secretRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, corrupt(zk.NodeSecret, err)
	}
	if len(r.FleetID) != fleetIDLength || len(r.Keys) == 0 {
		return nil, corrupt(zk.NodeSecret, errors.New("fleet id or keys are missing"))
	}
	return &Secret{FleetID: r.FleetID, Keys: r.Keys, NameKey: r.nameKey(), SaidExposed: r.Exposed, ACLChanges: r.ACLChanges, Rotation: r.Rotation}, nil
}

// ReadSecret is ParseSecret for a node as it was read. open: the fleet has no identity, so every client of ZooKeeper reads the node.
func ReadSecret(data []byte, stat zk.Stat, open bool) (*Secret, error) {
	s, err := ParseSecret(data)
	if err != nil {
		return nil, err
	}
	s.Exposed = open || s.SaidExposed || stat.Aversion != s.ACLChanges
	s.Version, s.Aversion, s.Zxid = stat.Version, stat.Aversion, stat.Mzxid
	return s, nil
}

// Encode is the data of the secret's node.
func (s *Secret) Encode() []byte {
	data, err := json.Marshal(secretRecord{FleetID: s.FleetID, Keys: s.Keys, NameKey: s.NameKey, Exposed: s.SaidExposed, ACLChanges: s.ACLChanges, Rotation: s.Rotation})
	if err != nil {
		panic("encoding the secret: " + err.Error()) // text, numbers and times of this century only
	}
	return data
}

// Keyring is the secret as this process knows it. It changes while the process runs. Its methods may be called from any goroutine.
type Keyring struct{ now atomic.Pointer[Secret] }

// Load is the present secret; nil while it has not been read. What it points to is never changed.
func (k *Keyring) Load() *Secret { return k.now.Load() }

// Take takes in what was read, and reports whether it is news. An older state is ignored: two reads may overtake each other.
func (k *Keyring) Take(s *Secret) bool {
	for {
		have := k.now.Load()
		if have != nil && s.Zxid <= have.Zxid {
			return false
		}
		if k.now.CompareAndSwap(have, s) {
			return true
		}
	}
}

// Keys are the present keys, the signing one first; nil while they are not known.
func (k *Keyring) Keys() []TokenKey {
	if s := k.now.Load(); s != nil {
		return s.Keys
	}
	return nil
}

// Living returns a function that gives the keys of what lives for a time at most: without the old one when nothing that it made is
// left. The signing key is the first; nil while they are not known.
func (k *Keyring) Living(life time.Duration) func() []TokenKey {
	return func() []TokenKey {
		if s := k.now.Load(); s != nil {
			return s.living(life, time.Now())
		}
		return nil
	}
}

func (s *Secret) living(life time.Duration, now time.Time) []TokenKey {
	if r := s.Rotation; r != nil && r.SignedAt != nil && now.After(r.SignedAt.Add(life)) {
		return s.Keys[:1]
	}
	return s.Keys
}
