package difftest

import (
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/embeddedtest"
	"lockkeeper/internal/zk/zkreal"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if real.server != nil {
		real.server.Close()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// real is the one real server of this test binary, which takes seconds to start. Nothing happens on it but what one Pair does
// at a time.
var real struct {
	sync.Once
	server *zkreal.Server
	err    error
}

const (
	tick       = 2 * time.Second
	minSession = 4 * time.Second
	maxSession = 40 * time.Second
)

func options() []zkreal.Option {
	return []zkreal.Option{
		zkreal.WithoutFsync(), zkreal.WithLogLevel("off"), zkreal.WithConfig("tickTime", "2000"),
		zkreal.WithSessionBounds(minSession, maxSession),
		// Nothing may happen by itself: containers and nodes with a time to live stay.
		zkreal.WithJVMFlag("-Dznode.container.checkIntervalMs=86400000"),
	}
}

func realT(t *testing.T) Target {
	t.Helper()
	real.Do(func() {
		real.server, real.err = zkreal.Start(options()...)
	})
	if real.err != nil {
		t.Fatal(real.err)
	}
	return Target{"ZooKeeper", real.server.Addr()}
}

func embeddedT(t *testing.T) Target {
	t.Helper()
	s := embeddedtest.RunT(t, embeddedtest.With(func(c *embedded.Config) {
		c.TickTime, c.MinSessionTimeout, c.MaxSessionTimeout, c.ReapInterval = tick, minSession, maxSession,
			24*time.Hour
	}))
	return Target{"embedded", s.Addr()}
}

// serversT are the two that are compared. LOCKKEEPER_DIFF=real compares two real ones instead: what differs then is not
// determined by ZooKeeper, and the comparison must not ask for it.
func serversT(t *testing.T) *Pair {
	t.Helper()
	a := realT(t)
	if os.Getenv("LOCKKEEPER_DIFF") == "real" {
		b := zkreal.StartT(t, options()...)
		return &Pair{A: a, B: Target{"another ZooKeeper", b.Addr()}}
	}
	return &Pair{A: a, B: embeddedT(t)}
}
