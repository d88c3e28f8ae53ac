package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// The commands of docs/operate/security.md, exactly as they are written: from no configuration to two teams over TLS.
func TestTwoTeamsShareAGatewayAsThePageSays(t *testing.T) {
	t.Parallel()
	const page = "docs/operate/security.md"
	list, err := examples(documents(t)[page])
	assert.NoError(t, err)
	bin, listen := t.TempDir(), freeAddr(t)
	assert.NoError(t, os.Symlink(binary(t), filepath.Join(bin, "gateway")))
	first := example{command: "trap 'kill $(jobs -p); wait' EXIT; export GORACE=halt_on_error=1 LOCKKEEPER_LISTEN=" + listen + " PATH=" + bin + ":$PATH"}
	// The log is shown when a line fails, and says whether the gateway ended well.
	last := example{command: "for job in 1 2; do kill %$job; wait %$job; echo ended with $?; done; trap - EXIT; cat gateway.log users.log", shows: "ended with 0 … ended with 0"}
	list = append(append([]example{first}, list...), last)
	ran := runExamples(t, list, "localhost:8080", listen)
	for i, r := range ran {
		if err := r.check(&list[i]); err != nil {
			t.Errorf("%s:%d: %s\n%v\nanswer: %s%s", page, list[i].line, list[i].command, err, r.out, r.complaints)
		}
	}
	said := ran[len(ran)-1].out
	assert.That(t, !strings.Contains(said, "DATA RACE") && !strings.Contains(said, "level=WARN msg=\"every client"), "the log:\n%s", said)
	refused := slices.IndexFunc(list, func(e example) bool {
		return strings.Contains(e.command, "audit.log") && strings.HasPrefix(e.command, "grep")
	})
	assert.Equal(t, strings.TrimSpace(ran[refused].out), "3", "refusals in the audit log")
	if t.Failed() {
		t.Log(said)
	}
}
