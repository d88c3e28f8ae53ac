package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// patience ends a wait that has gone wrong.
const patience = 45 * time.Second

// built is the gateway that all tests run. TestMain alone writes it, before the first test.
var built string

// binary is what a test runs as the gateway.
func binary(t testing.TB) string {
	t.Helper()
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	return built
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "lockkeeper-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = filepath.Join(dir, "gateway")
	build := exec.Command("go", "build", "-race", "-o", built, "lockkeeper/cmd/gateway")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the gateway: %v\n%s", err, out)
		return 1
	}
	// Several gateways and servers belong to each test: more at a time would measure the machine.
	if err := flag.Set("test.parallel", "3"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	embeddedtest.StandIn()
	return zkreal.Wrap(m).Run()
}
