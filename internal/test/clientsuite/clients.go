package clientsuite

import (
	"os/exec"
	"path"
	"path/filepath"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/javaclient"
	"lockkeeper/internal/test/pyclient"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/tsclient"
)

// language is a client that the suite holds to the contract. A language whose driver cannot be made or started fails.
type language struct {
	name string
	// make builds the driver into a directory and returns the command that starts it.
	make func(t testing.TB, dir string) []string
	// tree says that the driver starts a process for each work, so that faults are for its descendants.
	tree bool
}

var languages = []language{
	{name: "go", make: func(t testing.TB, dir string) []string { return []string{buildGo(t, dir)} }},
	{name: "typescript", make: func(t testing.TB, _ string) []string { return tsclient.Driver(t) }},
	{name: "python", make: func(t testing.TB, _ string) []string { return pyclient.Driver(t) }},
	{name: "asyncio", make: func(t testing.TB, _ string) []string { return append(pyclient.Driver(t), "--asyncio") }},
	{name: "java", make: func(t testing.TB, _ string) []string { return javaclient.Driver(t) }},
}

// lockctl is lockctl run. It has no transcripts of its own: the Go client in it has. A work is a command with descendants.
var lockctl = []language{
	{name: "lockctl", tree: true, make: func(t testing.TB, dir string) []string {
		return []string{build(t, dir, runDriver), build(t, dir, "lockkeeper/cmd/lockctl")}
	}},
}

const runDriver = "lockkeeper/internal/test/clientsuite/rundriver"

const goDriver = "lockkeeper/internal/test/clientsuite/godriver"

// buildGo builds the driver of the Go client.
func buildGo(t testing.TB, dir string, flags ...string) string {
	return build(t, dir, goDriver, flags...)
}

// build builds a program. Flags are for go build.
func build(t testing.TB, dir, pkg string, flags ...string) string {
	t.Helper()
	testkit.BuiltFrom(t, pkg)
	program := filepath.Join(dir, path.Base(pkg))
	cmd := exec.Command("go", append(append([]string{"build", "-o", program}, flags...), pkg)...)
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil, "building %s: %v\n%s", pkg, err, out)
	return program
}
