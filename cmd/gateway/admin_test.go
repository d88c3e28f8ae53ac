package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/embedded/disk"
	"lockkeeper/internal/zk/standalone"
)

// node runs a store of its own in dir until the test ends.
func node(t *testing.T, dir string) *standalone.Node {
	t.Helper()
	n := assert.Value(standalone.Open(standalone.Config{Dir: dir}))(t)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		end()
		assert.Nil(t, <-ended, "the node ended with")
	})
	return n
}

func TestABackupComesThroughASocketThatOnlyItsUserCanOpen(t *testing.T) {
	testkit.NoLeaks(t)
	for name, dir := range map[string]string{"short": "data", "longer than a socket's address may be": strings.Repeat("long/", 40) + "data"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), dir)
			n := node(t, dir)
			path := filepath.Join(dir, adminSocket)
			// What a process left that was killed.
			here, err := os.Open(dir)
			assert.NoError(t, err)
			l := assert.Value(net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", here.Fd(), adminSocket)))(t)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
			here.Close()

			a := assert.Value(openAdmin(dir, n, nil, slog.New(slog.DiscardHandler)))(t)
			info, err := os.Stat(path)
			assert.That(t, err == nil && info.Mode().Perm() == 0o600, "the socket is %v %v", info, err)
			var got bytes.Buffer
			assert.Nil(t, copyStore(t.Context(), dir, &got))
			_, err = disk.Verify(file(t, "backup", got.String(), 0o600))
			assert.Nil(t, err, "what came is no store")
			if answer, err := askAdmin(t.Context(), dir, http.MethodGet, "/other", nil); err != nil || answer.StatusCode != http.StatusNotFound {
				t.Errorf("%+v %v", answer, err)
			} else {
				answer.Body.Close()
			}
			a.close()
			_, err = os.Lstat(path)
			assert.That(t, err != nil, "the socket was left")
		})
	}
}

func TestAFileInTheSocketsPlaceIsLeftAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n := node(t, dir)
	path := filepath.Join(dir, adminSocket)
	assert.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	if a, err := openAdmin(dir, n, nil, slog.New(slog.DiscardHandler)); err == nil {
		a.close()
		t.Error("it was replaced")
	}
	data, err := os.ReadFile(path)
	assert.That(t, err == nil && string(data) == "mine", "it has %q, %v", data, err)
}

func TestABackupOfAStoreThatIsDownSaysSo(t *testing.T) {
	testkit.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "data")
	n := assert.Value(standalone.Open(standalone.Config{Dir: dir}))(t)
	a := assert.Value(openAdmin(dir, n, nil, slog.New(slog.DiscardHandler)))(t)
	defer a.close()
	assert.NoError(t, n.Close())
	var said bytes.Buffer
	code := report(&said, copyStore(t.Context(), dir, io.Discard))
	assert.That(t, code == exitIO && strings.Contains(said.String(), "the embedded ZooKeeper is down"), "exit %d: %s", code, said.String())
}
