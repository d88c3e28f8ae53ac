package httpapi

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"

	"lockkeeper/internal/httpapi/proxies"
	"lockkeeper/internal/ratelimit"
)

// behind knows the proxies that are believed, and what the clients behind them hold of the places for requests that wait. The
// bound on the connections of one address does not reach these clients: they share their proxy's connections.
type behind struct {
	trust *proxies.Trust // nil: none is believed
	limit int            // places of one address; 0: no bound

	mu         sync.Mutex
	held       map[netip.Addr]int // places, by address; an IPv6 one stands for its /64
	complained time.Time
}

// unwrap makes a request that a trusted proxy has sent one of the client behind it. What the proxy's own connection proves, a
// certificate or a user of a Unix socket, is no client's: the proxy stands for many. The request has TLS, without a certificate,
// where the client's own connection has: cookies and the check of origins go by that.
func (x *exchange) unwrap() {
	b := &x.s.behind
	from, ok := b.trust.Behind(x.r)
	if !ok {
		return
	}
	if from.Unreadable && b.complains(time.Now()) {
		x.s.log.Warn("a trusted proxy sends a header that has no address: see --forwarded-header; such requests count as the proxy's own", "proxy", x.r.RemoteAddr)
	}
	x.from = from.Address
	x.r.RemoteAddr, x.r.TLS = net.JoinHostPort(from.Address, "0"), nil
	if from.Secure {
		x.r.TLS = new(tls.ConnectionState)
	}
}

// complains reports whether to log that headers cannot be read: once a minute.
func (b *behind) complains(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complained.IsZero() && now.Sub(b.complained) < time.Minute {
		return false
	}
	b.complained = now
	return true
}

// take takes one of the places of a client behind a proxy; a client of any other kind needs none. give gives it back.
func (b *behind) take(client string) bool {
	if client == "" || b.limit <= 0 {
		return true
	}
	key := placeOf(client)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[key] >= b.limit {
		return false
	}
	if b.held == nil {
		b.held = map[netip.Addr]int{}
	}
	b.held[key]++
	return true
}

func (b *behind) give(client string) {
	if client == "" || b.limit <= 0 {
		return
	}
	key := placeOf(client)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[key]--; b.held[key] == 0 {
		delete(b.held, key)
	}
}

// placeOf is what a client's places are counted by, as connlimit counts connections.
func placeOf(client string) netip.Addr {
	addr, _ := netip.ParseAddr(client) // what is no address counts as one all together
	return ratelimit.Network(addr)
}
