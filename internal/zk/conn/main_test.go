package conn

import (
	"os"
	"testing"

	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// TestMain ends the shared ZooKeeper and refuses tests that leave goroutines
// behind. zkreal ends its own with the server.
func TestMain(m *testing.M) {
	embeddedtest.StandIn()
	os.Exit(testkit.Run(zkreal.Wrap(m)))
}
