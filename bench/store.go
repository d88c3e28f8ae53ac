package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/test/zkreal"
)

// store is Debian's ZooKeeper: one server, or several with a quorum.
type store struct{ servers []*zkreal.Server }

// zooKeeperFlags undo what zkreal does for quick tests: the server gets both of the JVM's compilers and the heap of
// Debian's zkEnv.sh. The serial collector stays: it is the better one on two cores.
var zooKeeperFlags = []zkreal.Option{
	zkreal.WithJVMFlag("-XX:TieredStopAtLevel=4"),
	zkreal.WithJVMFlag("-Xmx1000m"),
	zkreal.WithLogLevel("warn"),
}

// startStore runs n servers and returns once they serve.
func (r *rig) startStore(n int) (*store, error) {
	s := &store{servers: make([]*zkreal.Server, n)}
	r.atEnd(s.close)
	options := zooKeeperFlags
	if n > 1 {
		for i := range n {
			quorum, err := freeAddr()
			if err != nil {
				return nil, err
			}
			election, err := freeAddr()
			if err != nil {
				return nil, err
			}
			_, port, _ := net.SplitHostPort(election)
			options = append(options[:len(options):len(options)], zkreal.WithConfig(fmt.Sprintf("server.%d", i+1), quorum+":"+port))
		}
	}
	var starting errgroup.Group // servers of a quorum need each other to serve
	for i := range n {
		dir := filepath.Join(r.dir, fmt.Sprintf("zookeeper-%d-of-%d", i+1, n))
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "data", "myid"), []byte(strconv.Itoa(i+1)), 0o600); err != nil {
			return nil, err
		}
		starting.Go(func() (err error) {
			s.servers[i], err = zkreal.Start(append(options[:len(options):len(options)], zkreal.WithDir(dir))...)
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, fmt.Errorf("start ZooKeeper: %w", err)
	}
	return s, nil
}

func (s *store) close() {
	for _, server := range s.servers {
		if server != nil {
			server.Close()
		}
	}
}

// addrs is "host:port,host:port,...".
func (s *store) addrs() string { return strings.Join(s.addrList(), ",") }

func (s *store) addrList() (all []string) {
	for _, server := range s.servers {
		all = append(all, server.Addr())
	}
	return all
}

func (s *store) pids() (all []int) {
	for _, server := range s.servers {
		all = append(all, server.PID())
	}
	return all
}

// version is what the first server says of itself.
func (s *store) version() string {
	answer, err := s.servers[0].FourLetter("srvr")
	if err != nil {
		return "ZooKeeper of unknown version"
	}
	v, _, _ := strings.Cut(field(answer, "Zookeeper version: "), "-")
	return "ZooKeeper " + v
}

// count adds the counters of all servers to c.
func (s *store) count(c *cost) error {
	for _, server := range s.servers {
		counters, err := server.FourLetter("mntr")
		if err != nil {
			return err
		}
		fsyncs, err := counter(counters, "zk_cnt_fsynctime")
		if err != nil {
			return err
		}
		requests, err := counter(counters, "zk_packets_received")
		if err != nil {
			return err
		}
		c.fsyncs += fsyncs
		c.requests += requests
		state, err := server.FourLetter("srvr")
		if err != nil {
			return err
		}
		zxid, err := strconv.ParseInt(field(state, "Zxid: "), 0, 64)
		if err != nil {
			return fmt.Errorf("zxid of ZooKeeper: %w", err)
		}
		c.transactions = max(c.transactions, float64(zxid)) // all servers commit the same ones
	}
	return nil
}
