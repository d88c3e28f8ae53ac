package clients

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/netfault"
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

// weatherT serves proxies before s until the test ends: a connection to the returned address is one proxy. It
// answers with the proxy's address, then obeys lines (see obey) with "ok" or with what is wrong, and the proxy ends with it.
func weatherT(t *testing.T, s server) (control string) {
	t.Helper()
	l := assert.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	var (
		mu      sync.Mutex
		conns   []net.Conn
		running sync.WaitGroup
	)
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			running.Go(func() { serveProxy(c, s) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().String()
}

func serveProxy(c net.Conn, s server) {
	defer c.Close()
	p, err := netfault.New(s.Addr(), netfault.Framed())
	if err != nil {
		fmt.Fprintln(c, err)
		return
	}
	defer p.Close()
	fmt.Fprintln(c, p.Addr())
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if err := obey(s, p, lines.Text()); err != nil {
			fmt.Fprintln(c, err)
			continue
		}
		fmt.Fprintln(c, "ok")
	}
}

// obey carries out one order of a scenario.
func obey(s server, p *netfault.Proxy, order string) error {
	verb, arg, _ := strings.Cut(order, " ")
	switch verb {
	case "cut": // connections end, new ones are refused
		p.Cut()
	case "stall": // nothing gets through, nothing ends
		p.Stall()
	case "reset": // connections end, new ones are welcome
		p.Reset()
	case "heal":
		p.Heal()
	case "fail-reply": // the next request of this operation is carried out, and its connection ends instead of the reply
		op, err := strconv.Atoi(arg)
		if err != nil {
			return fmt.Errorf("fail-reply wants an operation's number: %w", err)
		}
		p.FailReply(1, netfault.IsOp(netfault.Op(op)))
	case "restart":
		return s.Restart()
	default:
		return fmt.Errorf("no such weather: %q", order)
	}
	return nil
}

// cliCommands are given to zkCli in one session; answers depend on nothing but them.
var cliCommands = []string{
	"create /n one", "create /n again", "create /no/parent", "get /n", "get -s /n", "set -s /n two", "set -v 7 /n three", "get /n",
	"create -s /n/s- x", "create -s /n/s- y", "create -e /n/e mine", "create /n/e/child",
	"create -c /n/c", "create -t 3600000 /n/t", "create /n/p p", "stat /n/e", "stat /n/c", "stat /n/t", "stat /nowhere",
	"ls /n", "ls -s /n", "ls -R /n", "ls /nowhere", "ls /", "ls -R /zookeeper", "get /zookeeper/config", "config",
	"getEphemerals", "getEphemerals /n", "getAllChildrenNumber /n", "sync /n", "whoami",

	"getAcl -s /n", "getAcl /nowhere", "addauth digest user:secret", "whoami", "create /n/auth x auth::cdrwa", "getAcl -s /n/auth",
	"setAcl -s /n world:anyone:ra", "getAcl -s /n", "create /n/refused", "delete /n/p", "ls /n", "setAcl -v 9 /n/c world:anyone:r",
	"setAcl /n digest:nonsense", "setAcl /n world:somebody:r", "setAcl -R /n world:anyone:cdrwa", "getAcl /n/c",

	"delete -v 9 /n/p", "delete /n/p", "delete /n/p", "delete /n", "delete /nowhere",
	"setquota -n 5 /n", "listquota /n", "setquota -b 1000 /n", "create /n/q1", "set /n 12345", "listquota /n",
	"create /n/q2", "create /n/q3", "create /n/q4", "listquota /n", "setquota -n 5 /n/q1", "delquota -n /n", "listquota /n",
	"delete /n/q1", "listquota /n", "delquota /n", "listquota /n", "ls -R /zookeeper",
	"removewatches /n", "reconfig -add server.2=localhost:1:2:participant;3", "deleteall /n", "ls /",
}

// What two servers cannot have in common: numbers of transactions and sessions, times, the temporary directory.
var cliOwn = []*regexp.Regexp{
	regexp.MustCompile(`0x[0-9a-f]+`),
	regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d [A-Z]+ \d{4}`),
	regexp.MustCompile(`\d\d:\d\d:\d\d[.,]\d{3}|\d{4}-\d\d-\d\d`),
}

// cliCounts are the lines that show what a quota's statistics count. Ours count nothing.
var cliCounts = regexp.MustCompile(`(?m)^(Output stat for|\[Warning\]: the (count|bytes) quota you create is less) .*\n`)

func TestZkCliIsAnsweredTheSameByBothServers(t *testing.T) {
	var (
		answers = make([]string, len(servers))
		running sync.WaitGroup
	)
	for i, s := range servers {
		addr := s.start(t).Addr()
		running.Go(func() {
			var err error
			answers[i], err = zkreal.CLI(addr, cliCommands...)
			assert.Nil(t, err, "%s", s.name)
		})
	}
	running.Wait()
	assert.That(t, strings.Contains(answers[1], "Output stat for /n count=0,bytes=0\n"),
		"ours does not show a quota's statistics:\n%s", answers[1])
	for i, a := range answers {
		for _, own := range cliOwn {
			a = own.ReplaceAllString(a, "*")
		}
		answers[i] = cliCounts.ReplaceAllString(a, "")
	}
	theirs, ours := strings.Split(answers[0], "\n"), strings.Split(answers[1], "\n")
	if len(theirs) < 2*len(cliCommands) {
		t.Errorf("zkCli has said little:\n%s", answers[0])
	}
	for i := range min(len(theirs), len(ours)) {
		if theirs[i] != ours[i] {
			t.Fatalf("line %d: theirs %q, ours %q\ntheirs:\n%s\nours:\n%s", i+1, theirs[i], ours[i], answers[0], answers[1])
		}
	}
	assert.That(t, len(theirs) == len(ours), "theirs has %d lines, ours %d", len(theirs), len(ours))
}
