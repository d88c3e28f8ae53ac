package conn

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/backoff"
)

// Reconnecting: each server is tried once without delay, then with a delay
// that doubles from first to last, with full jitter.
const (
	firstReconnectDelay = 25 * time.Millisecond
	lastReconnectDelay  = 500 * time.Millisecond
	// steadyAfter is how long a connection has to last before its loss counts
	// as news; a server that accepts and hangs up at once is not tried at once.
	steadyAfter = time.Second
)

// NewBackoff gives the delays between attempts to reach ZooKeeper.
func NewBackoff(source rand.Source) *backoff.Backoff {
	return backoff.New(source, firstReconnectDelay, lastReconnectDelay)
}

// hosts is go-zookeeper's HostProvider. The library's own resolves names once,
// and waits a second before each attempt when there is one server.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	tried   int // attempts since the last steady connection
	since   time.Time
	up      bool
	backoff *backoff.Backoff
	random  *rand.Rand
	delay   time.Duration // before the coming dial
	done    bool
}

func newHosts(source rand.Source) *hosts {
	return &hosts{backoff: NewBackoff(source), random: rand.New(source)}
}

// Init implements HostProvider. The servers come shuffled, but by a source of the library's own.
func (h *hosts) Init(servers []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers = slices.Sorted(slices.Values(servers))
	h.random.Shuffle(len(h.servers), func(i, j int) { h.servers[i], h.servers[j] = h.servers[j], h.servers[i] })
	return nil
}

// Len implements HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements HostProvider. It says "start over" only to make the library
// look whether it was closed; otherwise that would cost a second.
func (h *hosts) Next() (server string, startOver bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.up {
		h.up = false
		if time.Since(h.since) >= steadyAfter {
			h.tried = 0
			h.backoff.Reset()
		}
	}
	h.delay = 0
	if h.tried >= len(h.servers) {
		h.delay = h.backoff.NextBackOff()
	}
	h.tried++
	server = h.servers[h.next%len(h.servers)]
	h.next++
	return server, h.done
}

// Connected implements HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up, h.since = true, time.Now()
}

// quit makes the library look for its end instead of dialing on.
func (h *hosts) quit() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = true
}

// wait waits for the delay that Next decided on.
func (h *hosts) wait(ctx context.Context) error {
	h.mu.Lock()
	delay := h.delay
	h.mu.Unlock()
	return backoff.Sleep(ctx, delay)
}
