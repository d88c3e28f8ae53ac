// Package pyclient runs programs of the Python client in clients/python, for tests. It is test support; no shipped code may import it.
package pyclient

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"lockkeeper/internal/test/assert"
)

// Python is Debian's: another one that is first in PATH does not see Debian's packages.
const Python = "/usr/bin/python3"

// Dir is the directory of the client.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../clients/python")
}

// Driver is the command of the program that speaks the protocol of internal/test/clientsuite. With --asyncio it takes its locks so.
func Driver(t testing.TB) []string {
	t.Helper()
	readAll(t)
	return []string{Python, "-B", filepath.Join(Dir(), "testing/driver.py")}
}

// readAll reads all files of the client. Python reads them, and go test must see it: it would repeat a result from its cache
// though they have changed.
func readAll(t testing.TB) (paths []string) {
	t.Helper()
	assert.NoError(t, filepath.WalkDir(Dir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if e.Name() == "__pycache__" {
				return fs.SkipDir
			}
			return nil
		}
		paths = append(paths, path)
		_, err = os.ReadFile(path)
		return err
	}))
	return paths
}
