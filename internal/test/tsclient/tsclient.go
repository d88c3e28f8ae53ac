// Package tsclient makes programs of the TypeScript client in clients/typescript, for tests that run them in Node.js or in a
// browser. It is test support; no shipped code may import it.
//
// The programs are made by esbuild, as a Go library: tests need no npm package to run them. The types are checked by the compiler of
// TypeScript, in the tests of this package.
package tsclient

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"lockkeeper/internal/test/assert"
)

// Dir is the directory of the client.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../clients/typescript")
}

// Change takes a protection out of the client: it replaces a text of its source.
type Change struct{ Old, New string }

// CheckT checks that the text is in the source, once.
func (c Change) CheckT(t testing.TB) {
	t.Helper()
	text := string(assert.Value(os.ReadFile(filepath.Join(Dir(), "src/lockkeeper.ts")))(t))
	assert.Must(t, strings.Count(text, c.Old) == 1, "lockkeeper.ts must have %q once, so that it can be taken out: change the mutant with the client", c.Old)
}

// Driver makes the program that speaks the protocol of internal/test/clientsuite, and returns its command.
func Driver(t testing.TB, changes ...Change) []string {
	t.Helper()
	return []string{"node", Bundle(t, filepath.Join(Dir(), "testing/driver.ts"), changes...)}
}

// Bundle makes one JavaScript module of a file and all that it imports but the modules of Node.js, and returns its path.
func Bundle(t testing.TB, entry string, changes ...Change) string {
	t.Helper()
	// The test is run again when one of them has changed.
	for _, name := range []string{entry, filepath.Join(Dir(), "src/lockkeeper.ts")} {
		assert.Value(os.ReadFile(name))(t)
	}
	changed := func(load api.OnLoadArgs) (api.OnLoadResult, error) {
		source, err := os.ReadFile(load.Path)
		text := string(source)
		for _, c := range changes {
			text = strings.Replace(text, c.Old, c.New, 1)
		}
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderTS}, err
	}
	out := filepath.Join(t.TempDir(), filepath.Base(entry)+".mjs")
	built := api.Build(api.BuildOptions{
		EntryPoints: []string{entry}, Outfile: out, Bundle: true, Write: true,
		Format: api.FormatESModule, Target: api.ES2022, External: []string{"node:*"},
		Plugins: []api.Plugin{{Name: "changes", Setup: func(build api.PluginBuild) {
			build.OnLoad(api.OnLoadOptions{Filter: `src/lockkeeper\.ts$`}, changed)
		}}},
		Alias: map[string]string{"lockkeeper-client": filepath.Join(Dir(), "src/lockkeeper.ts")},
	})
	assert.Must(t, len(built.Errors) == 0, "%s: %+v", entry, built.Errors)
	return out
}

// Readme makes one program of the examples in the client's README, in their order, and returns the path of its source. It stands in a
// directory of its own, with a tsconfig.json that has the client, its tests and its driver, too.
func Readme(t testing.TB) string {
	t.Helper()
	text := string(assert.Value(os.ReadFile(filepath.Join(Dir(), "README.md")))(t))
	blocks := regexp.MustCompile("(?ms)^```ts\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	assert.Must(t, len(blocks) > 3, "the README has %d examples", len(blocks))
	program := readmePrelude
	imported := regexp.MustCompile(`(?m)^import .*\n`)
	for _, block := range blocks {
		program = strings.Join(imported.FindAllString(block[1], -1), "") + program
	}
	for i, block := range blocks {
		code := imported.ReplaceAllString(block[1], "")
		if i > 0 { // the first has what the others use
			code = "{\n" + code + "}\n"
		}
		program += code
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "readme.ts")
	assert.NoError(t, os.WriteFile(path, []byte(program+`console.log(done.join(" "));`+"\n"), 0o644))
	config := fmt.Sprintf(`{"extends": %q, "compilerOptions": {"noEmit": true, "rootDir": "/", "types": ["node"], "skipLibCheck": true,
		"paths": {"lockkeeper-client": [%q]}}, "include": [".", %q, %q]}`,
		filepath.Join(Dir(), "tsconfig.json"), filepath.Join(Dir(), "src/lockkeeper.ts"), filepath.Join(Dir(), "test"), filepath.Join(Dir(), "testing"))
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(config), 0o644))
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o644))
	return path
}

// readmePrelude is what the examples take from the program around them.
const readmePrelude = `
const done: string[] = [];
const source = "data:,text";
const rows = ["row1", "row2"];
const write = async (what: string, text: string, fence: number): Promise<void> => void done.push(what, text, fence > 0 ? "fenced" : "");
const store = async (row: string, fence: number): Promise<void> => void done.push(row, fence > 0 ? "fenced" : "");
const work = async (): Promise<void> => void done.push("work");
const lead = async (term: number, signal: AbortSignal): Promise<void> => void done.push(term > 0 && !signal.aborted ? "lead" : "");
`
