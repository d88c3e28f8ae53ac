package e2e

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/zk/embedded/embeddedtest"
	"lockkeeper/internal/zk/zkreal"
)

// patience ends a wait that has gone wrong.
const patience = 45 * time.Second

// binary is the gateway that all tests run. TestMain alone writes it, before the first test.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "lockkeeper-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "gateway")
	touchSources()
	build := exec.Command("go", "build", "-race", "-o", binary, "lockkeeper/cmd/gateway")
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

// touchSources looks at every source file of the module. go test repeats a result from its cache as long as the files
// that the tests have looked at are the same, and it does not see what the build of the gateway reads.
func touchSources() {
	_ = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // gone since it was listed
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".mod"):
			_, _ = os.Stat(path)
		}
		return nil
	})
}
