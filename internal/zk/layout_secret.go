package zk

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"
)

const (
	fleetIDLength = 8 // characters: 40 random bits
	keyIDLength   = 4 // characters: 20 random bits tell keys apart, nothing more
	keyBytes      = 32
)

// newSecret makes the secret of a new fleet.
func newSecret() (secretRecord, error) {
	random := make([]byte, 8+keyBytes)
	if _, err := rand.Read(random); err != nil {
		return secretRecord{}, fmt.Errorf("making the fleet's secret: %w", err)
	}
	names := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:8]))
	return secretRecord{
		FleetID: names[:fleetIDLength],
		Keys:    []TokenKey{{ID: names[fleetIDLength : fleetIDLength+keyIDLength], Key: random[8:]}},
	}, nil
}
