package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// surroundings make the page's commands mean the gateway under test: what serves goes
// into the background, as a service manager would have it, and a status that is no
// success ends the script.
const surroundings = `set -eu
trap '[ -z "${GATEWAY:-}" ] || { kill "$GATEWAY" && wait "$GATEWAY"; } || true' EXIT
curl() { command curl --fail-with-body --max-time 30 --retry 100 --retry-delay 1 --retry-all-errors --retry-max-time 30 "$@"; }
gateway() {
	case "$1" in
	export|import) "$BINARY" "$@" ;;
	*) "$BINARY" "$@" & GATEWAY=$!; command curl -s --retry 300 --retry-delay 1 --retry-all-errors --retry-max-time 40 -o /dev/null --fail "$LOCKKEEPER_LISTEN/readyz" ;;
	esac
}
systemctl() { kill "$GATEWAY"; wait "$GATEWAY"; GATEWAY=; }
`

func TestTheStepsOfMovingToAnEnsembleWorkAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	const page = "../../../docs/operate/moving-to-an-ensemble.md"
	text := assert.Value(os.ReadFile(page))(t)
	listen := freeAddr(t)
	z := zkreal.StartT(t, zkreal.Real(), zkreal.WithoutFsync())
	var script strings.Builder
	script.WriteString(surroundings + "gateway --data-dir ./lockkeeper-data\n")
	commands, err := examples(string(text))
	assert.NoError(t, err)
	assert.That(t, len(commands) >= 10, "only %d commands", len(commands))
	for _, e := range commands {
		fmt.Fprintf(&script, "printf '\\n@line %d\\n' >&2\n%s\n", e.line, e.command)
	}
	script.WriteString("printf '\\n@end\\n' >&2\n")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "BINARY="+binary(t), "LOCKKEEPER_LISTEN="+listen, "GORACE=halt_on_error=1")
	cmd.Stdin = strings.NewReader(strings.NewReplacer("localhost:8080", listen, "zk1:2181,zk2:2181,zk3:2181", z.Addr()).Replace(script.String()))
	out, err := cmd.CombinedOutput()
	assert.Must(t, err == nil && strings.Contains(string(out), "\n@end\n") && !strings.Contains(string(out), "DATA RACE"),
		"%s: %v; the last @line did not work\n%s", page, err, out)
	n := strings.Count(string(out), `"state":"held"`)
	assert.That(t, n >= 2, "the lease was seen held %d times after a move\n%s", n, out)
	left, err := filepath.Glob(cmd.Dir + "/*")
	if err != nil || len(left) != 4 { // both data directories, the last export and the identity
		t.Errorf("left behind: %v, %v", left, err)
	}
}
