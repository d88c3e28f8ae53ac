// Package tsclient makes programs of the TypeScript client in clients/typescript, for tests that run them in Node.js or in a
// browser. It is test support; no shipped code may import it.
//
// The programs are made by esbuild, as a Go library: tests need no npm package to run them. The types are checked by the compiler of
// TypeScript, in the tests of this package.
package tsclient

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"lockkeeper/internal/test/assert"
)

// Dir is the directory of the client.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../clients/typescript")
}

// Driver makes the program that speaks the protocol of internal/test/clientsuite, and returns its command.
func Driver(t testing.TB) []string {
	t.Helper()
	return []string{"node", Bundle(t, filepath.Join(Dir(), "testing/driver.ts"))}
}

// Bundle makes one JavaScript module of a file and all that it imports but the modules of Node.js, and returns its path.
func Bundle(t testing.TB, entry string) string {
	t.Helper()
	// The test is run again when one of them has changed.
	for _, name := range []string{entry, filepath.Join(Dir(), "src/lockkeeper.ts")} {
		assert.Value(os.ReadFile(name))(t)
	}
	out := filepath.Join(t.TempDir(), filepath.Base(entry)+".mjs")
	built := api.Build(api.BuildOptions{
		EntryPoints: []string{entry}, Outfile: out, Bundle: true, Write: true,
		Format: api.FormatESModule, Target: api.ES2022, External: []string{"node:*"},
	})
	assert.Must(t, len(built.Errors) == 0, "%s: %+v", entry, built.Errors)
	return out
}
