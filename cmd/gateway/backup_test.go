package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded/disk"
	"lockkeeper/internal/zk/layout"
)

func TestRestoreAndBackupSayWhatIsWrongAndWhatToDo(t *testing.T) {
	testkit.NoLeaks(t)
	dir := t.TempDir()
	running, backup := filepath.Join(dir, "running"), filepath.Join(dir, "1.backup")
	own := &ownStore{node: node(t, running)}
	cfg := zk.Config{Servers: []string{embeddedServer}, CreateRoot: true}
	own.reach(&cfg)
	assert.Value(layout.Open(t.Context(), cfg))(t)
	stopped := filepath.Join(dir, "stopped")
	code, _, stderr := command(t, "restore", "--input", copyOf(t, running), "--data-dir", stopped)
	assert.Must(t, code == 0, "exit %d:\n%s", code, stderr)
	code, _, stderr = command(t, "backup", "--data-dir", stopped, "--output", backup)
	assert.Must(t, code == 0, "exit %d:\n%s", code, stderr)
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"restore --input /nowhere", exitUsage, []string{"no such file", "gateway backup"}},
		{"restore --input " + dir, exitIO, []string{"not a regular file", "gateway backup"}},
		{"restore --input " + file(t, "text", strings.Repeat("lines\n", 9000), 0o644), exitIO,
			[]string{"warning: others can read", "damaged", "hint: nothing was restored", "gateway backup"}},
		{"restore --input " + filepath.Join(running, "lockkeeper.db"), exitInUse, []string{"in use by another process", "hint: nothing was restored", "gateway backup"}},
		{"restore --root /other --input " + backup, exitConfig, []string{"no such root: /other", "hint: give the --root"}},
		{"import --input /nowhere", exitUsage, []string{"no such file"}},
		{"import --input " + backup, exitIO, []string{"no export of Lockkeeper", "gateway export"}},
		{"import --input " + dir, exitIO, []string{"is a directory", "gateway export"}},
	} {
		to := filepath.Join(t.TempDir(), "data")
		code, stdout, stderr := command(t, append(strings.Fields(c.args), "--data-dir", to)...)
		assert.That(t, code == c.code && stdout == "" && strings.Contains(stderr, "error: "),
			"%q: exit %d, stdout %q, stderr:\n%s", c.args, code, stdout, stderr)
		for _, part := range append(c.says, "hint: ") {
			assert.That(t, strings.Contains(stderr, part), "%q does not say %q:\n%s", c.args, part, stderr)
		}
		// A gateway that was started there now would begin with nothing, and say nothing.
		left, err := os.ReadDir(to)
		assert.That(t, errors.Is(err, fs.ErrNotExist) || len(left) <= 0, "%q has left %v, %v", c.args, left, err)
	}
}

// copyOf copies the store that a node of this test has, with its journal, and gives the copy's path.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	from, to := filepath.Join(dir, disk.FileName), filepath.Join(t.TempDir(), disk.FileName)
	for _, path := range []func(string) string{func(p string) string { return p }, disk.JournalPath} {
		data := assert.Value(os.ReadFile(path(from)))(t) // no process writes meanwhile
		assert.NoError(t, os.WriteFile(path(to), data, 0o600))
	}
	return to
}

func TestWhatIsOnAReadOnlyDiskCanBeSaved(t *testing.T) {
	dir := t.TempDir()
	running := filepath.Join(dir, "running")
	cfg := zk.Config{Servers: []string{embeddedServer}, CreateRoot: true}
	(&ownStore{node: node(t, running)}).reach(&cfg)
	if _, err := layout.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	err := &disk.Error{Path: running, Err: &fs.PathError{Op: "open", Path: running, Err: syscall.EROFS}}
	code := report(&said, storeProblem(running, err))
	assert.That(t, code == exitIO && strings.Contains(said.String(), "gateway restore --input lockkeeper.db takes a copy"), "exit %d: %s", code, said.String())
	to := filepath.Join(dir, "to")
	code, _, stderr := command(t, "restore", "--input", copyOf(t, running), "--data-dir", to)
	assert.That(t, code == 0, "exit %d: %s", code, stderr)
}
