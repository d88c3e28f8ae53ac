package unixsock

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l := assert.Value(Listen(path, 0o660))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestAConnectionSaysWhichUserItComesFrom(t *testing.T) {
	for name, dir := range map[string]string{"short": "", "longer than an address may be": strings.Repeat("long/", 40)} {
		path := filepath.Join(t.TempDir(), dir, "s.sock")
		assert.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		l := listen(t, path)
		info, err := os.Stat(path)
		assert.That(t, err == nil && info.Mode().Perm() == 0o660, "%s: the socket is %v %v", name, info, err)
		assert.Equal(t, l.Addr().String(), path)
		client := assert.Value(Dial(t.Context(), path))(t)
		defer client.Close()
		c := assert.Value(l.Accept())(t)
		defer c.Close()
		uid, ok := UID(c.RemoteAddr().String())
		assert.That(t, ok && uid == strconv.Itoa(os.Geteuid()), "%s: %s", name, c.RemoteAddr())
		assert.NoError(t, l.Close())
		_, err = os.Lstat(path)
		assert.That(t, errors.Is(err, os.ErrNotExist), "%s: the socket was left: %v", name, err)
	}
	for _, remote := range []string{"127.0.0.1:1000", "[::1]:1000", "", "@", "unix"} {
		_, ok := UID(remote)
		assert.That(t, !ok, "%q is a user", remote)
	}
}

func TestASocketOfADeadProcessIsReplacedAndNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	dead := assert.Value(net.Listen("unix", path))(t)
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	first := listen(t, path)
	_, err := Listen(path, 0o660)
	assert.That(t, errors.Is(err, ErrInUse), "a socket that is served: %v", err)
	first.Close()
	second := listen(t, path)
	first.Close() // again, as a server may
	client := assert.Value(Dial(t.Context(), path))(t)
	client.Close()
	second.Close()
	assert.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err = Listen(path, 0o660)
	assert.That(t, errors.Is(err, ErrNoSocket), "a file: %v", err)
	data, err := os.ReadFile(path)
	assert.That(t, err == nil && string(data) == "mine", "it has %q, %v", data, err)
}

func TestTheConnectionItselfCanBeReached(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l := listen(t, path)
	client := assert.Value(Dial(t.Context(), path))(t)
	c := assert.Value(l.Accept())(t)
	defer c.Close()
	_, ok := c.(interface{ NetConn() net.Conn }).NetConn().(*net.UnixConn)
	assert.That(t, ok, "%T", c)
	_, _ = io.WriteString(client, "x")
	client.Close()
	all, err := io.ReadAll(c)
	assert.That(t, err == nil && string(all) == "x", "%q %v", all, err)
}
