package e2e

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

// As a unit with Type=notify and WatchdogSec runs it. The test is the service manager.
func TestAServiceManagerIsToldWhenTheGatewayServesThatItTurnsAndWhenItLeaves(t *testing.T) {
	t.Parallel()
	socket := assert.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}))(t)
	defer socket.Close()
	addr, chroot := zkreal.SharedT(t)
	network := netfault.NewT(t, addr)
	network.Cut()
	g := newGateway(t, network.Addr()+chroot)
	g.env = []string{"NOTIFY_SOCKET=" + socket.LocalAddr().String(), "WATCHDOG_USEC=600000"}
	told := func() string {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 4096)
		n := assert.Value(socket.Read(buf))(t, "nothing is told")
		return string(buf[:n])
	}
	until := func(what string) (before []string) {
		t.Helper()
		for {
			if s := told(); strings.Contains(s, what) {
				return before
			} else if before = append(before, s); len(before) > 1000 {
				t.Fatalf("%q is never told, but %q", what, before[:10])
			}
		}
	}
	g.start()
	for range 5 { // it lives, and is not up: there is no ZooKeeper
		before := until("WATCHDOG=1")
		assert.Must(t, !strings.Contains(strings.Join(before, " "), "READY=1"), "told before there is a ZooKeeper: %q", before)
	}
	network.Heal()
	until("READY=1")
	assert.Nil(t, g.status("GET", "/readyz", 200), "it is up, and")
	until("WATCHDOG=1")
	g.terminate()
	after := until("STOPPING=1")
	assert.That(t, !strings.Contains(strings.Join(after, " "), "READY=1"), "told after it was up: %q", after)
}
