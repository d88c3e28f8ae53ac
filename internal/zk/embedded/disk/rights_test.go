package disk

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestRightsThatGiveTheStoreAwayAreWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string) error
		says   string // "" for nothing
	}{
		"as it is made":                     {func(string) error { return nil }, ""},
		"others may write to the directory": {func(dir string) error { return os.Chmod(dir, 0o770) }, "others may write"},
		"the directory is another user's":   {func(dir string) error { return os.Chown(dir, 65534, -1) }, "belongs to another user"},
		"others can read the file":          {func(dir string) error { return os.Chmod(filepath.Join(dir, FileName), 0o640) }, "others can read the store"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			reopen := func() string {
				t.Helper()
				var log bytes.Buffer
				s, err := Open(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
				assert.NoError(t, err)
				assert.NoError(t, s.Close())
				return log.String()
			}
			assert.MustEqual(t, reopen(), "", "a new store is warned of")
			if err := c.change(dir); os.IsPermission(err) {
				t.Skip("only root can give a directory away")
			} else if err != nil {
				t.Fatal(err)
			}
			said := reopen()
			assert.That(t, strings.Contains(said, c.says) && (c.says != "" || said == ""), "said %q", said)
		})
	}
}
