package zk

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
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

// runtimeSource is the runtime's source of random numbers as a rand.Source.
type runtimeSource struct{}

func (runtimeSource) Uint64() uint64 { return rand.Uint64() }

// Backoff is the one retry policy: exponential, capped, with full jitter (a
// delay is anything from nothing to twice the interval). The jitter is not the
// library's, which cannot be given a source.
type Backoff struct {
	intervals backoff.ExponentialBackOff
	random    *rand.Rand
}

// NewBackoff starts with an interval of first, which doubles up to last. A nil
// source is the runtime's.
func NewBackoff(source rand.Source, first, last time.Duration) *Backoff {
	if source == nil {
		source = runtimeSource{}
	}
	b := &Backoff{random: rand.New(source), intervals: backoff.ExponentialBackOff{InitialInterval: first, MaxInterval: last, Multiplier: 2}}
	b.Reset()
	return b
}

// NextBackOff implements backoff.BackOff.
func (b *Backoff) NextBackOff() time.Duration {
	return time.Duration(b.random.Int64N(2*int64(b.intervals.NextBackOff()) + 1))
}

// Reset implements backoff.BackOff.
func (b *Backoff) Reset() { b.intervals.Reset() }

func newBackoff(source rand.Source) *Backoff {
	return NewBackoff(source, firstReconnectDelay, lastReconnectDelay)
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
	backoff *Backoff
	random  *rand.Rand
	delay   time.Duration // before the coming dial
	done    bool
}

func newHosts(source rand.Source) *hosts {
	return &hosts{backoff: newBackoff(source), random: rand.New(source)}
}

// Init implements HostProvider. The servers come shuffled, but by a source of
// the library's own.
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
	return pause(ctx, delay)
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
