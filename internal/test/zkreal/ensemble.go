package zkreal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
)

// Ensemble is several servers with a quorum among them. Every link goes through a proxy: one before each server for its
// clients, and one for each pair of servers, direction and purpose (quorum, election) for its peers. So a server can be
// cut off from its peers and still serve its clients, for as long as ZooKeeper lets it (WithSyncLimit).
type Ensemble struct {
	members []*member
	within  time.Duration
}

type member struct {
	server *Server
	client *netfault.Proxy
	peers  []*netfault.Proxy // all proxies that carry this server's talk with its peers, both ways
}

// StartEnsembleT runs n servers for one test and returns once all of them serve with one leader. n is odd and at least 3.
// There is no stand-in for an ensemble.
func StartEnsembleT(t testing.TB, n int, opts ...Option) *Ensemble {
	t.Helper()
	notShort(t, append(opts, Real()))
	e, err := startEnsemble(n, opts)
	for try := 1; try < 5 && errors.Is(err, errPortTaken); try++ {
		e, err = startEnsemble(n, opts)
	}
	assert.NoError(t, err, "zkreal")
	t.Cleanup(func() {
		if t.Failed() {
			for i, m := range e.members {
				t.Logf("the end of the log of server %d (%s):\n%s", i, m.server.Addr(), m.server.LogTail(30))
			}
		}
		e.Close()
	})
	return e
}

func startEnsemble(n int, opts []Option) (e *Ensemble, err error) {
	if n < 3 || n%2 == 0 {
		panic(fmt.Sprintf("zkreal: an ensemble of %d servers", n))
	}
	cfg := newConfig(opts)
	e = &Ensemble{within: cfg.startWithin}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	ports, err := freePorts(3 * n)
	if err != nil {
		return nil, err
	}
	client, quorum, election := ports[:n], ports[n:2*n], ports[2*n:]
	for i := range n {
		s, err := newServer(cfg, client[i])
		if err != nil {
			return nil, err
		}
		s.id = i + 1
		m := &member{server: s}
		e.members = append(e.members, m)
		if m.client, err = netfault.New(s.Addr(), netfault.Framed()); err != nil {
			return nil, err
		}
	}
	if err := e.connectPeers(quorum, election); err != nil {
		return nil, err
	}
	for _, m := range e.members {
		if err := m.server.launch(); err != nil {
			return nil, err
		}
	}
	return e, e.AwaitServing()
}

// connectPeers makes the proxies between the servers and tells each server its own view of the ensemble: itself at the
// ports it binds, every peer at the proxy that leads there.
func (e *Ensemble) connectPeers(quorum, election []int) error {
	n := len(e.members)
	electionProxy := make([][]*netfault.Proxy, n) // [from][to]
	for i := range n {
		electionProxy[i] = make([]*netfault.Proxy, n)
	}
	known := make(chan struct{}) // closed when all proxies have an address
	defer close(known)
	views := make([][]string, n)
	for from := range n {
		for to := range n {
			if from == to {
				views[from] = append(views[from], fmt.Sprintf("server.%d=127.0.0.1:%d:%d", to+1, quorum[to], election[to]))
				continue
			}
			// A server that is called by a peer with a lower number hangs up and calls back, at the address that the
			// caller has named as its own. That address is the caller's real port: left alone, the call back would
			// bypass the proxies.
			callBack := func(conn, onward net.Conn) error {
				<-known
				return renameCaller(conn, onward, electionProxy[to][from].Addr())
			}
			// A follower is quicker than its new leader: it retries when refused, but starts a new election when it is
			// accepted and reset.
			patience := netfault.WithPatience(2 * time.Second)
			q, err := netfault.New(fmt.Sprintf("127.0.0.1:%d", quorum[to]), patience)
			if err != nil {
				return err
			}
			e.addPeerLink(from, to, q)
			el, err := netfault.New(fmt.Sprintf("127.0.0.1:%d", election[to]), netfault.WithPreamble(callBack))
			if err != nil {
				return err
			}
			e.addPeerLink(from, to, el)
			electionProxy[from][to] = el
			views[from] = append(views[from], fmt.Sprintf("server.%d=%s:%s", to+1, q.Addr(), portOf(el)))
		}
	}
	for i, m := range e.members {
		m.server.peers = views[i]
	}
	return nil
}

func (e *Ensemble) addPeerLink(from, to int, p *netfault.Proxy) {
	e.members[from].peers = append(e.members[from].peers, p)
	e.members[to].peers = append(e.members[to].peers, p)
}

func portOf(p *netfault.Proxy) string {
	_, port, _ := strings.Cut(p.Addr(), ":")
	return port
}

// renameCaller passes on the first message of an election connection (QuorumCnxManager.InitialMessage: a protocol
// version, the caller's number, the length and text of its election address) with another address in it.
func renameCaller(from io.Reader, to io.Writer, addr string) error {
	head := make([]byte, 8+8+4)
	if _, err := io.ReadFull(from, head); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[16:])
	if size > 4096 {
		return fmt.Errorf("election address of %d bytes", size)
	}
	if _, err := io.CopyN(io.Discard, from, int64(size)); err != nil {
		return err
	}
	head = binary.BigEndian.AppendUint32(head[:16], uint32(len(addr)))
	_, err := to.Write(append(head, addr...))
	return err
}

// Servers are the members, in the order of their numbers. Server.Addr leads past the client proxy; Addrs does not.
func (e *Ensemble) Servers() []*Server {
	servers := make([]*Server, len(e.members))
	for i, m := range e.members {
		servers[i] = m.server
	}
	return servers
}

// Addrs is "host:port,host:port,...": every server, each through its client proxy.
func (e *Ensemble) Addrs() string {
	addrs := make([]string, len(e.members))
	for i := range e.members {
		addrs[i] = e.Addr(i)
	}
	return strings.Join(addrs, ",")
}

// Addr is the address of server i through its client proxy.
func (e *Ensemble) Addr(i int) string { return e.members[i].client.Addr() }

// Client is the proxy between server i and its clients. It knows frames, so observers and triggers work on it.
func (e *Ensemble) Client(i int) *netfault.Proxy { return e.members[i].client }

// Leader is the index of the server that says it leads; -1 when none does. A leader that has just been cut off from its
// peers says so too, until it notices: then the one that has followers is meant, and this may return either.
func (e *Ensemble) Leader() int {
	for i, mode := range e.modes(askWithin) {
		if mode == "leader" {
			return i
		}
	}
	return -1
}

// Followers are the indexes of the servers that say they follow.
func (e *Ensemble) Followers() []int {
	var followers []int
	for i, mode := range e.modes(askWithin) {
		if mode == "follower" {
			followers = append(followers, i)
		}
	}
	return followers
}

// modes asks all servers at once: several that are frozen cost no more time than one.
func (e *Ensemble) modes(within time.Duration) []string {
	modes := make([]string, len(e.members))
	var asked sync.WaitGroup
	for i, m := range e.members {
		asked.Go(func() { modes[i] = m.server.modeWithin(within) })
	}
	asked.Wait()
	return modes
}

// AwaitServing waits until all servers that run serve, one of them as leader, for up to a minute.
func (e *Ensemble) AwaitServing() error {
	deadline := time.NewTimer(e.within)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		modes := e.modes(askStartingWithin)
		serving, leaders, running := 0, 0, 0
		for i, m := range e.members {
			if m.server.PID() != 0 {
				running++
			} else if strings.Contains(m.server.LogTail(20), "Address already in use") {
				return fmt.Errorf("server %d of the ensemble: %w", i, errPortTaken)
			}
			if modes[i] != "" {
				serving++
			}
			if modes[i] == "leader" {
				leaders++
			}
		}
		if serving == running && leaders == 1 {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("ensemble does not serve after %v: modes %q; the end of server 0's log:\n%s",
				e.within, modes, e.members[0].server.LogTail(20))
		}
	}
}

// CutPeers pulls the cable between server i and its peers: what they send each other is held, nothing is told to either
// side, and each finds out by silence (WithSyncLimit). Clients of server i notice nothing until then.
func (e *Ensemble) CutPeers(i int) {
	for _, p := range e.members[i].peers {
		p.Stall()
	}
}

// ResetPeers ends all connections between server i and its peers and refuses new ones: both sides notice at once.
func (e *Ensemble) ResetPeers(i int) {
	for _, p := range e.members[i].peers {
		p.Cut()
	}
}

// HealPeers ends CutPeers and ResetPeers. What was held is delivered, as after an outage that TCP has survived.
func (e *Ensemble) HealPeers(i int) {
	for _, p := range e.members[i].peers {
		p.Heal()
	}
}

// DelayPeers makes everything between server i and its peers arrive that much later, both ways, until it is set again.
func (e *Ensemble) DelayPeers(i int, d time.Duration) {
	for _, p := range e.members[i].peers {
		p.SetDelay(netfault.Requests, d)
		p.SetDelay(netfault.Replies, d)
	}
}

// Close stops all servers and proxies and removes their directories.
func (e *Ensemble) Close() {
	var stopped sync.WaitGroup
	for _, m := range e.members {
		stopped.Go(m.server.Close)
	}
	stopped.Wait()
	for _, m := range e.members {
		if m.client != nil {
			m.client.Close()
		}
		for _, p := range m.peers {
			p.Close() // twice for each, once for either end: closing again does nothing
		}
	}
}
