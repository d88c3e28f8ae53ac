package layout

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
	var old secretRecord
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, corrupt(zk.NodeSecret, err)
	}
	secret, err := newSecret()
	if err != nil {
		return nil, err
	}
	secret.FleetID, secret.NameKey = old.FleetID, old.nameKey()
	return json.Marshal(secret)
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
// node that an import creates has another history. always: also where the data says it already.
func MarkSecret(data []byte, exposed, always bool) ([]byte, error) {
	record := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, corrupt(zk.NodeSecret, err)
	}
	if _, said := record["exposed"]; said && !always {
		return data, nil
	}
	record["exposed"] = strconv.AppendBool(nil, exposed)
	return json.Marshal(record)
}

// SecretExposed reports whether the data of a secret node says that others than the fleet could read it.
func SecretExposed(data []byte) bool {
	var secret secretRecord
	return json.Unmarshal(data, &secret) == nil && secret.Exposed
}

// ParseSecret reads the data of a secret node.
func ParseSecret(data []byte) (fleetID string, keys []TokenKey, err error) {
	var secret secretRecord
	if err := json.Unmarshal(data, &secret); err != nil {
		return "", nil, corrupt(zk.NodeSecret, err)
	}
	if len(secret.FleetID) != fleetIDLength || len(secret.Keys) == 0 {
		return "", nil, corrupt(zk.NodeSecret, errors.New("fleet id or keys are missing"))
	}
	return secret.FleetID, secret.Keys, nil
}

func parseNameKey(data []byte) ([]byte, error) {
	var secret secretRecord
	if err := json.Unmarshal(data, &secret); err != nil {
		return nil, corrupt(zk.NodeSecret, err)
	}
	return secret.nameKey(), nil
}
