package clients

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/embeddedtest"
	"lockkeeper/internal/zk/zkreal"
)

// python is Debian's: another one that is first in PATH does not see Debian's packages.
const python = "/usr/bin/python3"

// atOnce is how many scenarios of a program run at the same time: enough to wait together, few enough for short sessions to
// live on two processors.
const atOnce = 16

// server is a kind of server that the clients are tried on.
type server struct {
	name  string
	start func(t *testing.T) (addr string)
}

var servers = []server{
	{"zookeeper", startZooKeeper},
	{"embedded", startEmbedded},
}

// What the scenarios know of a server (testdata/curator/World.java).
const (
	leastSession    = 400 * time.Millisecond
	greatestSession = time.Minute
	reapEvery       = 500 * time.Millisecond // how often it looks for containers and nodes whose time is over
)

func startZooKeeper(t *testing.T) string {
	return zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithSessionBounds(leastSession, greatestSession),
		zkreal.WithJVMFlag(fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", reapEvery.Milliseconds()))).Addr()
}

func startEmbedded(t *testing.T) string {
	return embeddedtest.RunT(t, embeddedtest.With(func(c *embedded.Config) {
		c.MinSessionTimeout, c.MaxSessionTimeout, c.ReapInterval = leastSession, greatestSession, reapEvery
	})).Addr()
}

func TestKazooWorks(t *testing.T) {
	eachServer(t, func(addr, control, rounds string) []string {
		return []string{python, "-B", "-E", "-s", "testdata/kazoo/main.py", addr, control, rounds}
	})
}

// eachServer runs all scenarios of a program on each server.
func eachServer(t *testing.T, argv func(addr, control, rounds string) []string) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			addr := s.start(t)
			p := startT(t, argv(addr, weatherT(t, addr), strconv.Itoa(rounds()))...)
			// From goroutines of their own and not by t.Parallel: that runs as many as there are processors, and these wait.
			var running sync.WaitGroup
			places := make(chan struct{}, atOnce)
			for _, name := range p.list(t) {
				running.Go(func() {
					places <- struct{}{}
					defer func() { <-places }()
					t.Run(name, func(t *testing.T) { p.run(t, name) })
				})
			}
			running.Wait()
			p.finish(t)
		})
	}
}

// rounds is by how much scenarios multiply their work.
func rounds() int {
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		return 5
	}
	return 1
}
