package clients

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/embedded"
)

// python is Debian's: another one that is first in PATH does not see Debian's packages.
const python = "/usr/bin/python3"

// atOnce is how many scenarios of a program run at the same time: enough to wait together, few enough for short sessions to
// live on two processors.
const atOnce = 16

// server is one that clients are tried on. Restart keeps address and data.
type server interface {
	Addr() string
	Restart() error
}

var servers = []struct {
	name  string
	start func(t *testing.T) server
}{
	{"zookeeper", startZooKeeper},
	{"embedded", startEmbedded},
}

// What the scenarios know of a server (testdata/curator/World.java).
const (
	leastSession    = 400 * time.Millisecond
	greatestSession = time.Minute
	reapEvery       = 500 * time.Millisecond // how often it looks for containers and nodes whose time is over
)

func startZooKeeper(t *testing.T) server {
	return zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithSessionBounds(leastSession, greatestSession),
		zkreal.WithJVMFlag(fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", reapEvery.Milliseconds())))
}

func startEmbedded(t *testing.T) server {
	return embeddedtest.RunT(t, embeddedtest.With(func(c *embedded.Config) {
		c.MinSessionTimeout, c.MaxSessionTimeout, c.ReapInterval = leastSession, greatestSession, reapEvery
	}))
}

func TestKazooWorks(t *testing.T) {
	testkit.NotShort(t, "it starts servers and programs")
	// Python reads it, and go test must see it: it would repeat a result from its cache though that has changed.
	sources, err := os.ReadDir("testdata/kazoo")
	assert.Must(t, err == nil && len(sources) != 0, "no sources: %v", err)
	eachServer(t, func(addr, control, rounds string) []string {
		return []string{python, "-B", "-E", "-s", "testdata/kazoo/main.py", addr, control, rounds}
	})
}

// eachServer runs all scenarios of a program on each server.
func eachServer(t *testing.T, argv func(addr, control, rounds string) []string) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			server := s.start(t)
			p := startT(t, argv(server.Addr(), weatherT(t, server), strconv.Itoa(rounds()))...)
			var disturbing []string // those that all others would notice
			// From goroutines of their own and not by t.Parallel: that runs as many as there are processors, and these wait.
			var running sync.WaitGroup
			places := make(chan struct{}, atOnce)
			for _, name := range p.list(t) {
				if strings.HasPrefix(name, "restart") {
					disturbing = append(disturbing, name)
					continue
				}
				running.Go(func() {
					places <- struct{}{}
					defer func() { <-places }()
					t.Run(name, func(t *testing.T) { p.run(t, name) })
				})
			}
			running.Wait()
			for _, name := range disturbing {
				t.Run(name, func(t *testing.T) { p.run(t, name) })
			}
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
