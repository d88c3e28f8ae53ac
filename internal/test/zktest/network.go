package zktest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Network connects clients with servers, both known by name.
type Network struct {
	seed uint64

	mu      sync.Mutex
	servers map[string]func(net.Conn)
	dials   map[[3]string]int
	links   []*Link // open ones, in the order of Link.before
	refused map[[2]string]bool
	slow    map[[2]string]Delay
	taken   map[int64]struct{} // nanoseconds at which something is delivered
	orders  []*Order
}

// Delay is a range of times from Min to Max.
type Delay struct{ Min, Max time.Duration }

// LAN is what a connection has by default.
var LAN = Delay{50 * time.Microsecond, 400 * time.Microsecond}

// NewNetwork makes a network without servers.
func NewNetwork(seed uint64) *Network {
	return &Network{
		seed:    seed,
		servers: make(map[string]func(net.Conn)),
		dials:   make(map[[3]string]int),
		refused: make(map[[2]string]bool),
		slow:    make(map[[2]string]Delay),
		taken:   make(map[int64]struct{}),
	}
}

// Serve makes accept called, on a goroutine of its own, with each connection to a server. A nil accept takes the server away:
// connecting to it is refused.
func (n *Network) Serve(server string, accept func(net.Conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[server] = accept
}

// Dial connects. It fails at once when there is no such server or when the two are kept apart.
func (n *Network) Dial(client, server string) (net.Conn, error) { return n.DialBy("", client, server) }

// DialBy is Dial for one of several parts of a client that may connect at one instant: each has a way of its own. Which of
// them is first is up to the scheduler, and is not to decide about the delays of both.
func (n *Network) DialBy(way, client, server string) (net.Conn, error) {
	n.mu.Lock()
	pair := [2]string{client, server}
	accept := n.servers[server]
	if accept == nil || n.refused[pair] {
		n.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "sim", Addr: address(server), Err: syscall.ECONNREFUSED}
	}
	from := [3]string{client, server, way}
	n.dials[from]++
	l := newLink(n, client, server, way, n.dials[from])
	at, _ := slices.BinarySearchFunc(n.links, l, (*Link).before)
	n.links = slices.Insert(n.links, at, l)
	n.mu.Unlock()
	go accept(l.serverEnd())
	return l.clientEnd(), nil
}

// before is the order of links: in which they were dialed, and at one instant by their names.
func (l *Link) before(other *Link) int {
	return cmp.Or(l.dialed.Compare(other.dialed), cmp.Compare(l.Client, other.Client), cmp.Compare(l.Server, other.Server),
		cmp.Compare(l.way, other.way), cmp.Compare(l.Nth, other.Nth))
}

// Links are the open connections of a client with a server, "" for any, oldest first.
func (n *Network) Links(client, server string) []*Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*Link
	for _, l := range n.links {
		if (client == "" || client == l.Client) && (server == "" || server == l.Server) {
			found = append(found, l)
		}
	}
	return found
}

// CutAll breaks connections, each when the world has come to rest after the one before it: what sees them break does so in this
// order. It sleeps, so no lock may be held that another goroutine in the bubble waits for.
func (n *Network) CutAll(links []*Link) {
	for _, l := range links {
		l.Cut()
		time.Sleep(time.Nanosecond)
	}
}

// Part keeps a client from connecting to a server; what is connected stays so.
func (n *Network) Part(client, server string) { n.part(client, server, true) }

// Join is the opposite of Part.
func (n *Network) Join(client, server string) { n.part(client, server, false) }

func (n *Network) part(client, server string, apart bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[[2]string{client, server}] = apart
}

// Slow gives the messages between a client and a server another delay from now on, in both directions.
func (n *Network) Slow(client, server string, d Delay) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[[2]string{client, server}] = d
}

func (n *Network) delay(client, server string) Delay {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d, ok := n.slow[[2]string{client, server}]; ok {
		return d
	}
	return LAN
}

// slot is the first nanosecond from at on in which nothing else is delivered. It is given back by leave.
func (n *Network) slot(at time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if _, taken := n.taken[at.UnixNano()]; !taken {
			n.taken[at.UnixNano()] = struct{}{}
			return at
		}
		at = at.Add(time.Nanosecond)
	}
}

func (n *Network) leave(slot time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, slot.UnixNano())
}

func (n *Network) forget(l *Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links = slices.DeleteFunc(n.links, func(other *Link) bool { return other == l })
}

// random is a source of its own for everything that happens between two names for the nth time.
func (n *Network) random(client, server string, nth int, what string) *rand.Rand {
	return rand.New(rand.NewPCG(n.seed, hash(client, server, nth, what)))
}

func hash(client, server string, nth int, what string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%d\x00%s", client, server, nth, what)
	return h.Sum64()
}

// address is a name as a net.Addr.
type address string

func (a address) Network() string { return "sim" }
func (a address) String() string  { return string(a) }
