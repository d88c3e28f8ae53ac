package e2e

import (
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/conformance"
	"lockkeeper/internal/test/zkreal"
)

// The binary as it comes, with a store of its own; internal/test/conformance runs the same on other servers.
func TestTheGatewayDoesWhatTheScriptsSay(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	g := startStandalone(t, "--embedded-listen="+addr)
	conformance.Run(t, conformance.Place{
		Service: conformance.Remote{Client: g.API()},
		Foreign: func(t testing.TB, lock, znode string) {
			t.Helper()
			assert.NoError(t, zkreal.Mkdir(addr, "/lockkeeper/locks/"+lock+"/"+znode))
		},
	})
}
