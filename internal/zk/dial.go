package zk

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
)

// dialAnyAddress resolves the name afresh and connects to one of its addresses, chosen at random: a name that stands
// for a whole ensemble must not lead to the same unresponsive server for ever.
func dialAnyAddress(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		addrs, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return nil, err
		}
		addr = net.JoinHostPort(addrs[rand.IntN(len(addrs))], port)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// OverTLS is a Dial for servers that speak TLS. Each connection is made with the settings of that moment: certificates change
// while a gateway runs. The server's certificate has to be good for the name, or the address, in Servers.
func OverTLS(settings func() *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		raw, err := dialAnyAddress(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		with := settings()
		with.ServerName = host
		c := secured{tls.Client(raw, with), raw}
		if err := c.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // the handshake's error tells more
			return nil, err
		}
		return c, nil
	}
}

// secured is a connection over TLS that is closed without a word: a session ends with a request of its own, and a peer that
// takes nothing would hold a goodbye up for seconds, and with it the lock of the session.
type secured struct {
	*tls.Conn
	raw net.Conn
}

func (c secured) Close() error { return c.raw.Close() }
