package clients

import (
	"os"
	"strconv"
	"sync"
	"testing"

	"lockkeeper/internal/zk/zkreal"
)

// python is Debian's: another one that is first in PATH does not see Debian's packages.
const python = "/usr/bin/python3"

// server is a kind of server that the clients are tried on.
type server struct {
	name  string
	start func(t *testing.T) (addr string)
}

var servers = []server{
	{"zookeeper", startZooKeeper},
}

func startZooKeeper(t *testing.T) string {
	return zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithJVMFlag("-Dznode.container.checkIntervalMs=500")).Addr()
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
			addr := s.start(t)
			p := startT(t, argv(addr, weatherT(t, addr), strconv.Itoa(rounds()))...)
			// From goroutines of their own and not by t.Parallel: that runs as many as there are processors, and these wait.
			var running sync.WaitGroup
			for _, name := range p.list(t) {
				running.Go(func() { t.Run(name, func(t *testing.T) { p.run(t, name) }) })
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
