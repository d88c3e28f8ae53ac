package deploytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

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
	accepted(t, map[string]string{"LOCKKEEPER_ZK": "zk1:2181,zk2:2181,zk3:2181/apps"})
	if wants, has := directive(t, text, "RestartPreventExitStatus"), read(t, "cmd/gateway/main.go"); wants != "64 78" ||
		!strings.Contains(has, "exitUsage       = 64") || !strings.Contains(has, "exitConfig      = 78") {
		t.Errorf("it is not started again after exit codes %s", wants)
	}
}
