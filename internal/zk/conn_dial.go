package zk

import (
	"context"
	"math/rand/v2"
	"net"
)

// dialAnyAddress resolves the name afresh and connects to one of its
// addresses, chosen at random: a name that stands for a whole ensemble must
// not lead to the same unresponsive server for ever.
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
