package difftest

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/embedded"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range twins.stop {
		stop()
	}
	if code == 0 {
		if err := testkit.Leaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// twins are the two servers that are compared, for the whole test binary: a real one takes seconds to start. Both see the same
// from their first request on, because scenarios leave nodes behind.
var twins struct {
	sync.Once
	pair *Pair
	stop []func()
	err  error
}

const (
	tick       = 2 * time.Second
	minSession = 4 * time.Second
	maxSession = 40 * time.Second
	never      = 24 * time.Hour
)

// serversT are the twins. With LOCKKEEPER_DIFF=real both are real: where they differ ZooKeeper decides by chance, and the
// comparison must not ask for it.
func serversT(t *testing.T) *Pair {
	t.Helper()
	testkit.NotShort(t, "a real ZooKeeper takes seconds")
	twins.Do(func() {
		var a, b Target
		if a, twins.err = startReal("ZooKeeper"); twins.err != nil {
			return
		}
		if os.Getenv("LOCKKEEPER_DIFF") == "real" {
			b, twins.err = startReal("another ZooKeeper")
		} else {
			b, twins.err = startEmbedded()
		}
		twins.pair = &Pair{A: a, B: b}
	})
	assert.NoError(t, twins.err)
	return twins.pair
}

func startReal(name string) (Target, error) {
	s, err := zkreal.Start(
		zkreal.WithoutFsync(), zkreal.WithLogLevel("off"), zkreal.WithConfig("tickTime", fmt.Sprint(tick.Milliseconds())),
		zkreal.WithSessionBounds(minSession, maxSession),
		// Nothing may happen by itself: containers and nodes with a time to live stay.
		zkreal.WithJVMFlag(fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", never.Milliseconds())))
	if err != nil {
		return Target{}, err
	}
	twins.stop = append(twins.stop, s.Close)
	return Target{name, s.Addr()}, nil
}

func startEmbedded() (Target, error) {
	s, err := embeddedtest.Start(quiet)
	if err != nil {
		return Target{}, err
	}
	twins.stop = append(twins.stop, s.Close)
	return Target{"embedded", s.Addr()}, nil
}

// embeddedT is an embedded server of the test's own.
func embeddedT(t *testing.T) Target {
	t.Helper()
	return Target{"embedded", embeddedtest.RunT(t, quiet).Addr()}
}

var quiet = embeddedtest.With(func(c *embedded.Config) {
	c.TickTime, c.MinSessionTimeout, c.MaxSessionTimeout, c.ReapInterval = tick, minSession, maxSession, never
})
