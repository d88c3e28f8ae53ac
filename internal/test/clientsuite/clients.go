package clientsuite

import (
	"os/exec"
	"path/filepath"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/javaclient"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/tsclient"
)

// language is a client that the suite holds to the contract. A language whose driver cannot be made or started fails.
type language struct {
	name string
	// make builds the driver into a directory and returns the command that starts it.
	make func(t testing.TB, dir string) []string
}

var languages = []language{
	{"go", func(t testing.TB, dir string) []string { return []string{buildGo(t, dir)} }},
	{"typescript", func(t testing.TB, _ string) []string { return tsclient.Driver(t) }},
	{"java", func(t testing.TB, _ string) []string { return javaclient.Driver(t) }},
}

const goDriver = "lockkeeper/internal/test/clientsuite/godriver"

// buildGo builds the driver of the Go client. Flags are for go build.
func buildGo(t testing.TB, dir string, flags ...string) string {
	t.Helper()
	testkit.BuiltFrom(t, goDriver)
	path := filepath.Join(dir, "godriver")
	build := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), goDriver)...)
	out, err := build.CombinedOutput()
	assert.Must(t, err == nil, "building the driver: %v\n%s", err, out)
	return path
}
