package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/browsertest"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// patience ends a wait that has gone wrong.
const patience = 45 * time.Second

// required is the bound that a requirement names. It holds on a machine that has nothing else to do, so LOCKKEEPER_FULL asks
// for it; otherwise the bound is 15 s.
func required(bound time.Duration) time.Duration {
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		return bound
	}
	return 15 * time.Second
}

// built is the gateway that all tests run. TestMain alone writes it, before the first test.
var built string

// binary is what a test runs as the gateway.
func binary(t testing.TB) string {
	t.Helper()
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	return built
}

// lockctl is the path of the command line, which is built when the first test wants it.
func lockctl(t testing.TB) string {
	t.Helper()
	testkit.BuiltFrom(t, "lockkeeper/cmd/lockctl")
	path := filepath.Join(filepath.Dir(built), "lockctl")
	buildLockctl.Do(func() {
		if out, err := exec.Command("go", "build", "-o", path, "lockkeeper/cmd/lockctl").CombinedOutput(); err != nil {
			t.Errorf("building lockctl: %v\n%s", err, out)
		}
	})
	return path
}

var buildLockctl sync.Once

func TestMain(m *testing.M) {
	// Several gateways and servers belong to each test, and most of them wait most of the time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	embeddedtest.StandIn()
	os.Exit(testkit.RunPrograms(browsertest.Wrap(zkreal.Wrap(m)), &built))
}
