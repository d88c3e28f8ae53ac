package deptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

const module = "lockkeeper"

func TestTheCodeKeepsTheImportRules(t *testing.T) {
	touchSources(t)
	g := load(t)
	for _, v := range Check(g) {
		t.Error(v)
	}
	// A graph that was read wrongly has no violations either.
	assert.That(t, len(g["internal/test/zkreal"]) != 0 && len(g) >= 5, "the graph has only %d packages: %v", len(g), g)
}

// touchSources opens every Go file and directory of the module. go test repeats a result from its cache as long as the files
// that the test has opened are the same, and it does not see what the go command opens for us.
func touchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // gone since it was listed
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			_, _ = os.Stat(path)
		}
		return nil
	})
	assert.NoError(t, err)
}

// load asks the go command for the imports of all packages of this module, without those of test files.
func load(t *testing.T) Graph {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	assert.Must(t, err == nil, "go list: %v\n%s", err, &stderr)
	g := make(Graph)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return g
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for i, imp := range pkg.Imports {
			pkg.Imports[i] = strings.TrimPrefix(imp, module+"/")
		}
		g[strings.TrimPrefix(pkg.ImportPath, module+"/")] = pkg.Imports
	}
}

func TestViolationsAreFoundAndExplained(t *testing.T) {
	for name, c := range map[string]struct {
		pkg, imp string
		reason   string // part of it; "" when the import is fine
	}{
		"down one layer":                        {"internal/locks/manager", "internal/zk", ""},
		"down several layers":                   {"cmd/gateway", "internal/zk/wire", ""},
		"down from one branch to another":       {"internal/httpapi", "internal/fleet", ""},
		"within a part":                         {"internal/httpapi", "internal/httpapi/api", ""},
		"within a part, upward":                 {"internal/zk/embedded", "internal/zk", ""},
		"a part's own bottom":                   {"internal/zk", "internal/zk/wire", ""},
		"up":                                    {"internal/zk", "internal/locks/manager", "imports point down"},
		"up from the bottom of a part":          {"internal/zk/wire", "internal/zk", "imports point down"},
		"sideways":                              {"internal/httpapi", "internal/dashboard", "must not know each other"},
		"sideways at the bottom":                {"internal/zk/wire", "internal/locks/recipe", "must not know each other"},
		"a name that only begins like a part":   {"internal/zk", "internal/zkother", "no place"},
		"go-zookeeper where it belongs":         {"internal/zk/conn", "github.com/go-zookeeper/zk", ""},
		"go-zookeeper beside it":                {"internal/zk/session", "github.com/go-zookeeper/zk", "only internal/zk/conn"},
		"a session and its connection":          {"internal/zk/session", "internal/zk/conn", ""},
		"the observer and a connection":         {"internal/zk/observer", "internal/zk/conn", "the nouns alone"},
		"the nouns and a session":               {"internal/zk", "internal/zk/session", "the nouns alone"},
		"go-zookeeper above":                    {"internal/locks/manager", "github.com/go-zookeeper/zk", "only internal/zk"},
		"another module":                        {"internal/locks/manager", "github.com/tidwall/btree", ""},
		"the recipe stays pure":                 {"internal/locks/recipe", "strings", ""},
		"the recipe and input or output":        {"internal/locks/recipe", "os", "pure functions"},
		"the recipe and the clock":              {"internal/locks/recipe", "time", "pure functions"},
		"the recipe and other packages of ours": {"internal/locks/recipe", "internal/zk/wire", "pure functions"},
		"the recipe and other modules":          {"internal/locks/recipe", "github.com/tidwall/btree", "pure functions"},
		"test support in shipped code":          {"internal/zk", "internal/test/zkreal", "exists for tests"},
		"test support in a program":             {"cmd/gateway", "internal/test/testkit", "exists for tests"},
		"a tool in shipped code":                {"cmd/gateway", "bench/load", "tool for those"},
		"test support in the benchmarks":        {"bench", "internal/test/zkreal", ""},
		"go-zookeeper in the benchmarks":        {"bench", "github.com/go-zookeeper/zk", ""},
		"the client and the generated types":    {"client", "internal/httpapi/api", ""},
		"the client and the server":             {"client", "internal/locks", "link the server"},
		"a program and the client":              {"cmd/lockctl", "client", ""},
		"the server and the client":             {"internal/fleet", "client", "outside the gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			// The importer is given a place of its own in the graph; what it imports is there if it is ours.
			g := Graph{c.pkg: {c.imp}}
			if !strings.Contains(c.imp, ".") && strings.Contains(c.imp, "/") || c.imp == client {
				g[c.imp] = nil
			}
			var got string
			for _, v := range Check(g) {
				if v.Package == c.pkg {
					got = v.String()
				}
			}
			assert.That(t, c.reason != "" || got == "", "refused: %s", got)
			assert.That(t, c.reason == "" || strings.Contains(got, c.reason) && strings.HasPrefix(got, c.pkg+" imports "+c.imp),
				"got %q, want a violation with %q", got, c.reason)
		})
	}
}

func TestAPackageWithoutAPlaceIsAViolation(t *testing.T) {
	got := Check(Graph{"internal/misc": nil, "internal/zk": nil})
	assert.That(t, len(got) == 1 && strings.Contains(got[0].String(), "internal/misc: has no place"), "got %v", got)
}
