//go:build !faults

package fault

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheShippedGatewayHasNoFailPoints looks for the names in the binary. Those of one word are in it anyway.
func TestTheShippedGatewayHasNoFailPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	path := filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "lockkeeper/cmd/gateway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, name := range Names {
		if !strings.Contains(name, "-") {
			continue
		}
		looked++
		if bytes.Contains(program, []byte(name)) {
			t.Errorf("the binary has the name of the fail point %s", name)
		}
	}
	if looked < len(Names)/2 {
		t.Errorf("only %d of %d names can be looked for", looked, len(Names))
	}
	if bytes.Contains(program, []byte("lockkeeper/internal/fault.")) {
		t.Error("the binary has a function of package fault")
	}
}

func TestNoPointIsOnWithoutTheTag(t *testing.T) {
	for _, name := range Names {
		if On(name) {
			t.Errorf("%s is on", name)
		}
	}
}
