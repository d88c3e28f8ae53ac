package testkit

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// RunPrograms is for the TestMain of a package whose tests start the gateway: it builds it (BuildGateway), tells its path, runs the
// tests as Run does, and returns the exit code. With -short it does nothing and returns 0: programs and servers take seconds.
func RunPrograms(m interface{ Run() int }, gateway *string) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("testing: skipped with -short: these tests start programs")
		return 0
	}
	dir, err := os.MkdirTemp("", "lockkeeper-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		*gateway, err = BuildGateway(dir, Race)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return Run(m)
}

// BuildGateway builds the gateway into a directory and returns its path. A test that starts it calls BuiltFrom.
func BuildGateway(dir string, race bool) (path string, err error) {
	path = filepath.Join(dir, "gateway")
	build := exec.Command("go", "build", fmt.Sprintf("-race=%v", race), "-o", path, "lockkeeper/cmd/gateway")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the gateway: %w\n%s", err, out)
	}
	return path, nil
}
