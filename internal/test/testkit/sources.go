package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
)

// BuiltFrom tells go test what the program of a package of this module is built from. Call it wherever a test starts a program that
// it has not linked: go test repeats a result from its cache as long as the files that the tests have looked at are the same, and
// it does not see what the go command reads to build one. Neither does it see what TestMain looks at before m.Run.
//
// Looked at are the sources and embedded files of all packages of this module that the program is made of, their
// directories (a file more or less is a change), go.mod and go.sum.
func BuiltFrom(t testing.TB, pkg string) {
	t.Helper()
	look, _ := seen.LoadOrStore(pkg, sync.OnceValue(func() error {
		files, err := sources(pkg)
		for _, file := range files {
			_, _ = os.Stat(file) // what is gone by now is a change, too
		}
		return err
	}))
	assert.NoError(t, look.(func() error)())
}

// seen has a func() error for each package: once in a process is enough.
var seen sync.Map

// sources are the files and directories of this module that a package is built from.
func sources(pkg string) ([]string, error) {
	const format = `{{with .Module}}{{if .Main}}{{.GoMod}}{{range $.GoFiles}}
{{$.Dir}}/{{.}}{{end}}{{range $.EmbedFiles}}
{{$.Dir}}/{{.}}{{end}}{{end}}{{end}}`
	list := exec.Command("go", "list", "-deps", "-f", format, pkg)
	var said strings.Builder
	list.Stderr = &said
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("what %s is built from: %w\n%s", pkg, err, said.String())
	}
	var paths []string
	known := make(map[string]bool)
	add := func(path string) {
		if !known[path] {
			known[path] = true
			paths = append(paths, path)
		}
	}
	for file := range strings.Lines(string(out)) {
		if file = strings.TrimSpace(file); file == "" {
			continue
		}
		add(file)
		add(filepath.Dir(file))
		if filepath.Base(file) == "go.mod" {
			add(filepath.Join(filepath.Dir(file), "go.sum"))
		}
	}
	return paths, nil
}
