package zk

import (
	"os"
	"testing"

	"lockkeeper/internal/testkit"
	"lockkeeper/internal/zk/embedded/embeddedtest"
	"lockkeeper/internal/zk/zkreal"
)

// TestMain ends the shared ZooKeeper and refuses tests that leave goroutines
// behind. zkreal ends its own with the server.
func TestMain(m *testing.M) {
	embeddedtest.StandIn()
	os.Exit(testkit.Run(zkreal.Wrap(m)))
}
