package zkreal

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
)

// StartT runs a standalone server for one test and stops it when the test ends. When the test has failed, the end of the
// server's log is added to the test's output.
func StartT(t testing.TB, opts ...Option) *Server {
	t.Helper()
	notShort(t, opts)
	s := assert.Value(Start(opts...))(t, "zkreal")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of ZooKeeper's log (%s):\n%s", s.Addr(), s.LogTail(40))
		}
		s.Close()
	})
	return s
}

// notShort skips the test with -short when its server would be Debian's.
func notShort(t testing.TB, opts []Option) {
	t.Helper()
	if testing.Short() && (standIn == nil || newConfig(opts).real) {
		t.Skip("-short: a real ZooKeeper takes seconds")
	}
}

// RestartT is Restart; a failure ends the test.
func (s *Server) RestartT(t testing.TB) {
	t.Helper()
	assert.NoError(t, s.Restart(), "zkreal")
}

// shared are the servers of this test binary: the one that tests use unless they say otherwise, and the real one for those
// that do. It is package state because its life is the binary's: TestMain is the
// only place that can end it, and it has no way to hand anything to the tests.
var shared struct {
	sync.Mutex
	inMain       bool
	server, real sharedServer
	chroot       int // how many were handed out
}

// sharedServer is nothing until a test asks for it.
type sharedServer struct {
	*Server
	err error
}

// Main is the TestMain of a package that uses SharedT:
//
//	func TestMain(m *testing.M) { zkreal.Main(m) }
//
// It runs the tests, stops the shared server if one was started, and exits.
func Main(m *testing.M) { os.Exit(Wrap(m).Run()) }

// Wrap is Main for a package whose TestMain does more (testkit.Run(zkreal.Wrap(m)), say): Run runs the tests,
// then stops the shared server, and returns the exit code.
func Wrap(m interface{ Run() int }) interface{ Run() int } { return mainRun{m} }

type mainRun struct{ m interface{ Run() int } }

func (r mainRun) Run() int {
	shared.Lock()
	shared.inMain = true
	shared.Unlock()
	code := r.m.Run()
	shared.Lock()
	defer shared.Unlock()
	for _, s := range []sharedServer{shared.server, shared.real} {
		if s.Server != nil {
			s.Close()
		}
	}
	return code
}

// SharedT gives a test a ZooKeeper that it shares with the other tests of its binary, and a chroot that is its own: a
// node "/t-<n>-<name>" that exists and is empty. The server runs without fsync. A test that stops, freezes, counts or
// configures the server needs StartT.
func SharedT(t testing.TB) (addr, chroot string) {
	t.Helper()
	return sharedT(t, &shared.server)
}

// SharedRealT is SharedT with Debian's server where this test binary uses a stand-in: for what is about ZooKeeper itself.
func SharedRealT(t testing.TB) (addr, chroot string) {
	t.Helper()
	return sharedT(t, &shared.real, Real())
}

func sharedT(t testing.TB, s *sharedServer, opts ...Option) (addr, chroot string) {
	t.Helper()
	notShort(t, opts)
	shared.Lock()
	defer shared.Unlock()
	assert.Must(t, shared.inMain, "zkreal.SharedT needs: func TestMain(m *testing.M) { zkreal.Main(m) }")
	if s.Server == nil && s.err == nil {
		s.Server, s.err = Start(append(opts, WithoutFsync())...)
	}
	assert.Must(t, s.err == nil, "zkreal: %v", s.err)
	shared.chroot++
	chroot = fmt.Sprintf("/t-%d-%s", shared.chroot, strings.Map(plainRune, t.Name()))
	assert.NoError(t, Mkdir(s.Addr(), chroot), "zkreal")
	return s.Addr(), chroot
}

// plainRune keeps letters, digits and dashes of a test's name, so that it can stand in a path and in a connect string.
func plainRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return r
	}
	return '-'
}
