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

func TestTheAlertsFireWhenTheyShouldAndNotOtherwise(t *testing.T) {
	dir := filepath.Join(top, "deploy/prometheus")
	out, err := tool(t, "promtool", "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(dir, "alerts.yaml"))
	assert.That(t, err == nil, "%v\n%s", err, out)
	out, err = tool(t, "promtool", "test", "rules", filepath.Join(dir, "alerts_test.yaml"))
	assert.That(t, err == nil, "%v\n%s", err, out)
	rules, cases := read(t, "deploy/prometheus/alerts.yaml"), read(t, "deploy/prometheus/alerts_test.yaml")
	for line := range strings.Lines(rules) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: ")
		assert.That(t, !ok || strings.Count(cases, name) != 0, "nothing shows that %s ever fires", name)
	}
	// A rule that never fires is noticed.
	copied := t.TempDir()
	for name, text := range map[string]string{"alerts.yaml": strings.Replace(rules, "lockkeeper_replica_current{", "lockkeeper_replica_curent{", 1), "alerts_test.yaml": cases} {
		assert.NoError(t, os.WriteFile(filepath.Join(copied, name), []byte(text), 0o600))
	}
	_, err = tool(t, "promtool", "test", "rules", filepath.Join(copied, "alerts_test.yaml"))
	assert.That(t, err != nil, "promtool notices nothing")
}

const unit = "deploy/systemd/lockkeeper.service"

// directive is the last value that the unit gives it.
func directive(t testing.TB, text, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(text, -1)
	assert.Must(t, found != nil, "the unit has no %s", name)
	return found[len(found)-1][1]
}

func TestTheUnitIsWhatSystemdUnderstandsAndTrusts(t *testing.T) {
	// verify looks whether the program is there.
	text := strings.ReplaceAll(read(t, unit), "/usr/local/bin/gateway", gateway)
	verify := func(text string) (string, error) {
		path := filepath.Join(t.TempDir(), "lockkeeper.service")
		assert.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return tool(t, "systemd-analyze", "verify", "--man=no", path)
	}
	out, err := verify(text)
	assert.That(t, err == nil && strings.TrimSpace(out) == "", "%v: %s", err, out)
	out, _ = verify(strings.Replace(text, "ProtectHome=yes", "ProtectHouse=yes", 1))
	assert.That(t, strings.Contains(out, "ProtectHouse"), "systemd-analyze takes anything: %q", out)
	// From 0 to 10, times ten. What is left is the network, and what every program may call.
	out, err = tool(t, "systemd-analyze", "security", "--offline=true", "--threshold=15", filepath.Join(top, unit))
	assert.That(t, err == nil, "%v\n%s", err, out)
	open := filepath.Join(t.TempDir(), "lockkeeper.service")
	assert.NoError(t, os.WriteFile(open, []byte(strings.Replace(text, "DynamicUser=yes", "", 1)), 0o644))
	_, err = tool(t, "systemd-analyze", "security", "--offline=true", "--threshold=15", open)
	assert.That(t, err != nil, "a service of root's would be let through")
}

func TestTheUnitGivesTheGatewayTheTimeThatItTakes(t *testing.T) {
	text := read(t, unit)
	printed := accepted(t, nil, strings.Fields(directive(t, text, "ExecStart"))[1:]...)
	stop, takes := duration(t, directive(t, text, "TimeoutStopSec")), duration(t, setting(t, printed, "drain-delay"))+handover(t)
	assert.That(t, stop > takes, "it is killed after %v, and may take %v to hand over", stop, takes)
	start, takes := duration(t, directive(t, text, "TimeoutStartSec")), duration(t, setting(t, printed, "zk-connect-timeout"))
	assert.That(t, start > takes, "it is killed after %v, and looks for ZooKeeper for %v", start, takes)
	// Where the gateway keeps everything is below its working directory.
	if directive(t, text, "Type") != "notify" || directive(t, text, "WorkingDirectory") != "%S/"+directive(t, text, "StateDirectory") {
		t.Error("it does not say when it serves, or stores its data where it may not write")
	}
	// So is the file of the audit log, which the page names.
	audit := regexp.MustCompile(`--audit-log (/\S+)/audit\.log`).FindStringSubmatch(read(t, "docs/operate/audit.md"))
	assert.That(t, audit != nil && audit[1] == "/var/log/"+directive(t, text, "LogsDirectory"), "the page writes to %q, where the unit lets it not", audit)
	accepted(t, map[string]string{"LOCKKEEPER_ZK": "zk1:2181,zk2:2181,zk3:2181/apps"})
	if wants, has := directive(t, text, "RestartPreventExitStatus"), read(t, "cmd/gateway/main.go"); wants != "64 78" ||
		!strings.Contains(has, "exitUsage       = 64") || !strings.Contains(has, "exitConfig      = 78") {
		t.Errorf("it is not started again after exit codes %s", wants)
	}
}
