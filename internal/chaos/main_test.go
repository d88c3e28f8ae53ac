package chaos

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

	"go.uber.org/goleak"

	"lockkeeper/internal/zk/zkreal"
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
	touchSources()
	args := []string{"build", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "lockkeeper/cmd/gateway")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the gateway: %v\n%s", err, out)
		return 1
	}
	code := zkreal.Wrap(m).Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintf(os.Stderr, "left running: %v\n", err)
		return 1
	}
	return code
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

// elapse lets real time pass, for what is itself a span of real time.
func elapse(t testing.TB, d time.Duration) {
	t.Helper()
	if !sleep(t.Context(), d) {
		t.Fatal("the test ended meanwhile")
	}
}
