package deploytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

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
