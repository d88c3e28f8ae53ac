package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// As docs/operate/runbooks.md describes it for a change without a leak: with all gateways stopped the record is written by hand.
func TestTheFleetsKeysAreReplacedByHand(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	lease := g.hold("deploy", "ttl=1m")
	f := newForeign(t, addr, chroot)
	type key struct {
		ID  string `json:"id"`
		Key string `json:"key"`
	}
	var secret struct {
		FleetID string `json:"fleet_id"`
		Keys    []key  `json:"keys"`
	}
	data, _, err := f.Get(chroot + "/lockkeeper/secret")
	if err == nil {
		err = json.Unmarshal(data, &secret)
	}
	assert.NoError(t, err)
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	fresh := key{ID: "xyz7", Key: base64.StdEncoding.EncodeToString(random)}
	replace := func(keys ...key) {
		t.Helper()
		g.terminate()
		secret.Keys = keys
		data, err = json.Marshal(secret)
		assert.NoError(t, err)
		assert.Value(f.Set(chroot+"/lockkeeper/secret", data, -1))(t)
		g.restart()
		g.awaitServing()
	}

	replace(fresh, secret.Keys[0])
	g.beatUntil(lease.Token, api.StateHeld)
	young := g.hold("report", "ttl=1m")

	replace(fresh)
	_, a, err := g.Heartbeat(t.Context(), lease.Token)
	expect(t, a, err, http.StatusForbidden, "lease_token_wrong")
	g.beatUntil(young.Token, api.StateHeld)
	g.awaitLock(patience, "deploy", 1, 0) // its contender is still the fleet's, and ends with its TTL
}
