package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "lockkeeper-chaos-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "gateway")
	args := []string{"build", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "lockkeeper/cmd/gateway")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the gateway: %v\n%s", err, out)
		return 1
	}
	return testkit.Run(zkreal.Wrap(m))
}

// elapse lets real time pass, for what is itself a span of real time.
func elapse(t testing.TB, d time.Duration) {
	t.Helper()
	if !sleep(t.Context(), d) {
		t.Fatal("the test ended meanwhile")
	}
}
