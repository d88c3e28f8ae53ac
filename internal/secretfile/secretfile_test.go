package secretfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lockkeeper/internal/test/assert"
)

// owned is a file as stat shows it.
type owned struct {
	fs.FileInfo
	mode fs.FileMode
	uid  int
}

func (o owned) Mode() fs.FileMode { return o.mode }
func (o owned) Sys() any          { return &syscall.Stat_t{Uid: uint32(o.uid)} }

func TestASecretFileIsThisUsersAloneOrGivenToItsGroup(t *testing.T) {
	mine, theirs := os.Geteuid(), os.Geteuid()+1
	for _, f := range []struct {
		uid     int
		mode    fs.FileMode
		refused bool
	}{
		{mine, 0o600, false}, {mine, 0o400, false}, {mine, 0o640, true}, {mine, 0o604, true}, {mine, 0o620, true},
		{theirs, 0o440, false}, {theirs, 0o400, false}, {theirs, 0o444, true}, {theirs, 0o460, true}, {theirs, 0o442, true},
	} {
		assert.Equal(t, othersRead(owned{mode: f.mode, uid: f.uid}), f.refused, "mode %04o, this user's %v: refused", f.mode, f.uid == mine)
	}
}

func TestAFileIsReadWholeOrRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	write := func(content string, mode fs.FileMode) {
		t.Helper()
		assert.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		assert.NoError(t, os.Chmod(path, mode))
	}
	write("secret", 0o600)
	data, err := Read(path, 6)
	assert.That(t, err == nil && string(data) == "secret", "%q %v", data, err)
	_, err = Read(path, 5)
	_, large := errors.AsType[*TooLargeError](err)
	assert.That(t, large, "one byte too many: %v", err)
	write("secret", 0o644)
	_, err = Read(path, 6)
	_, open := errors.AsType[*OpenError](err)
	assert.That(t, open && strings.Contains(err.Error(), "0644"), "others can read it: %v", err)
	data, err = ReadPublic(path, 6)
	assert.That(t, err == nil && string(data) == "secret", "%q %v", data, err)
	_, err = Read(path+".none", 6)
	assert.That(t, errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), path), "%v", err)
}
