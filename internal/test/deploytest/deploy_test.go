package deploytest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// top is the top of the module.
const top = "../../.."

// gateway is the program that the files are about. TestMain alone writes it.
var gateway string

func TestMain(m *testing.M) { os.Exit(testkit.RunPrograms(m, &gateway)) }

func read(t testing.TB, path string) string {
	t.Helper()
	data := assert.Value(os.ReadFile(filepath.Join(top, path)))(t)
	return string(data)
}

// tool runs a program of Debian's and returns what it says.
func tool(t testing.TB, name string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(name)
	assert.Must(t, err == nil, "%v\nhint: scripts/setup test installs what these tests need", err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_PAGER=", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// accepted checks that the gateway takes these settings, and returns them as it understands them.
func accepted(t testing.TB, environment map[string]string, args ...string) string {
	t.Helper()
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	cmd := exec.Command(gateway, append([]string{"config", "print"}, args...)...)
	cmd.Env = []string{}
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	assert.That(t, err == nil, "gateway %s with %v: %v\n%s", strings.Join(args, " "), environment, err, out)
	// Printing checks each setting, and not whether they go together: starting does. It comes as far as a file that is not there.
	start := exec.Command(gateway, append(slices.Clone(args), "--zk-auth-file=/nowhere/to/be/found")...)
	start.Env = cmd.Env
	if said, err := start.CombinedOutput(); start.ProcessState.ExitCode() != 78 || !strings.Contains(string(said), "/nowhere/to/be/found") {
		t.Errorf("gateway %s with %v does not start: %v\n%s", strings.Join(args, " "), environment, err, said)
	}
	return string(out)
}

// setting is a value in what config print has printed.
func setting(t testing.TB, printed, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `: (.*)$`).FindStringSubmatch(printed)
	assert.Must(t, m != nil, "no %s in\n%s", name, printed)
	return strings.Trim(m[1], `"'`)
}

func duration(t testing.TB, s string) time.Duration {
	t.Helper()
	d := assert.Value(time.ParseDuration(strings.ReplaceAll(s, "min", "m")))(t)
	return d
}

// handover is how long a gateway may take to leave after --drain-delay: shutdownWithin of cmd/gateway.
func handover(t testing.TB) time.Duration {
	t.Helper()
	m := regexp.MustCompile(`shutdownWithin = (\d+) \* time\.Second`).FindStringSubmatch(read(t, "cmd/gateway/gateway.go"))
	assert.Must(t, m != nil, "cmd/gateway does not say how long it takes to leave")
	n := assert.Value(strconv.Atoi(m[1]))(t)
	return time.Duration(n) * time.Second
}
