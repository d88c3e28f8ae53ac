//go:build !faults

package fault

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// TestTheShippedGatewayHasNoFailPoints looks for the names in the binary. Those of one word are in it anyway; the documents that
// the gateway serves name all of them, so their text is taken out first.
func TestTheShippedGatewayHasNoFailPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	path := filepath.Join(t.TempDir(), "gateway")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "lockkeeper/cmd/gateway").CombinedOutput()
	assert.Must(t, err == nil, "go build: %v\n%s", err, out)
	program := assert.Value(os.ReadFile(path))(t)
	err = filepath.WalkDir("../../docs", func(path string, entry os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			program = bytes.ReplaceAll(program, assert.Value(os.ReadFile(path))(t), nil)
		}
		return err
	})
	assert.NoError(t, err)
	looked := 0
	for _, name := range Names {
		if !strings.Contains(name, "-") {
			continue
		}
		looked++
		assert.That(t, !bytes.Contains(program, []byte(name)), "the binary has the name of the fail point %s", name)
	}
	assert.That(t, looked >= len(Names)/2, "only %d of %d names can be looked for", looked, len(Names))
	assert.That(t, !bytes.Contains(program, []byte("lockkeeper/internal/fault.")), "the binary has a function of package fault")
}

func TestNoPointIsOnWithoutTheTag(t *testing.T) {
	for _, name := range Names {
		assert.That(t, !On(name), "%s is on", name)
	}
}
