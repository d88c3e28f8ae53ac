package proxies

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"

	"lockkeeper/internal/unixsock"
)

// The headers that name a chain of hops. Any other header names the client alone, as X-Real-IP does.
const (
	XForwardedFor = "X-Forwarded-For"
	Forwarded     = "Forwarded" // RFC 7239
)

const xForwardedProto = "X-Forwarded-Proto"

// AnyUser stands for every user of a Unix socket.
const AnyUser = "unix"

// Trust are the proxies that are believed. Make one with New. It is immutable.
type Trust struct {
	networks []netip.Prefix
	users    map[string]bool // of Unix sockets: "unix", and remote addresses as unixsock has them
	header   string
}

// Origin is where a request comes from.
type Origin struct {
	Address string // of the client, as it is logged
	Secure  bool   // the client's connection is encrypted, as far as is known
	// Unreadable: the proxy's own part of the header cannot be read.
	Unreadable bool
}

// New makes a Trust of networks, addresses, AnyUser and single users ("uid:33"), and of the one header that is believed.
func New(trusted []string, header string) (*Trust, error) {
	t := &Trust{users: map[string]bool{}, header: http.CanonicalHeaderKey(header)}
	if !httpguts.ValidHeaderFieldName(header) {
		return nil, fmt.Errorf("%q must be the name of a header", header)
	}
	for _, one := range trusted {
		if _, user := unixsock.UID(one); user || one == AnyUser {
			t.users[one] = true
			continue
		}
		network, err := parseNetwork(one)
		if err != nil {
			return nil, err
		}
		t.networks = append(t.networks, network)
	}
	return t, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return network, fmt.Errorf("%q must be an address, a network such as 10.0.0.0/24, unix, or uid: with the number of a user", text)
	case network.Addr().Is4In6():
		return network, fmt.Errorf("%q must be written as a network of IPv4", text)
	case network.Bits() == 0:
		return network, fmt.Errorf("%q has every address in it: each client could name another one as its own", text)
	}
	return network.Masked(), nil
}

// Trusts reports whether connections from a remote address are those of a proxy.
func (t *Trust) Trusts(remote string) bool {
	if _, user := unixsock.UID(remote); user || remote == AnyUser {
		return t.users[remote] || t.users[AnyUser]
	}
	from, err := netip.ParseAddrPort(remote)
	return err == nil && t.includes(from.Addr().Unmap().WithZone(""))
}

func (t *Trust) includes(addr netip.Addr) bool {
	for _, network := range t.networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// Behind says where a request comes from that a proxy has sent; ok is false for one that a client has sent itself.
func (t *Trust) Behind(r *http.Request) (from Origin, ok bool) {
	if !t.Trusts(r.RemoteAddr) {
		return Origin{}, false
	}
	from.Address = r.RemoteAddr
	if own, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from.Address = own.Addr().Unmap().WithZone("").String()
	}
	lines, proto := r.Header[t.header], ""
	switch t.header {
	case Forwarded:
		proto = t.forwarded(lines, &from)
	case XForwardedFor:
		t.chain(lines, &from)
	default:
		t.single(lines, &from)
	}
	if t.header != Forwarded {
		proto = strings.Join(r.Header[xForwardedProto], ",")
	}
	if from.Secure = r.TLS != nil; proto != "" {
		from.Secure = allHTTPS(proto)
	}
	return from, true
}

// chain follows X-Forwarded-For from its end.
func (t *Trust) chain(lines []string, from *Origin) {
	near := true
	for element := range fromTheEnd(lines) {
		addr, ok := parseHop(element)
		if !ok {
			from.Unreadable = near
			return
		}
		if from.Address, near = addr.String(), false; !t.includes(addr) {
			return
		}
	}
}

// forwarded follows Forwarded from its end. proto is what the hop says that names the client.
func (t *Trust) forwarded(lines []string, from *Origin) (proto string) {
	near := true
	for element := range fromTheEnd(lines) {
		hop, ok := parseElement(element)
		if !ok {
			from.Unreadable = near
			return proto
		}
		proto, near = hop.proto, false
		addr, ok := parseHop(hop.from)
		if !ok {
			return proto // hidden, or left out: nothing is known of what came before
		}
		if from.Address = addr.String(); !t.includes(addr) {
			return proto
		}
	}
	return proto
}

// single takes a header that has the client's address and nothing else.
func (t *Trust) single(lines []string, from *Origin) {
	if len(lines) == 0 {
		return
	}
	addr, ok := parseHop(strings.Trim(lines[0], " \t"))
	if from.Unreadable = !ok || len(lines) > 1; !from.Unreadable {
		from.Address = addr.String()
	}
}

// parseHop reads an address, which may have a port, and brackets.
func parseHop(text string) (netip.Addr, bool) {
	host := text
	if rest, bracket := strings.CutPrefix(text, "["); bracket {
		inner, port, closed := strings.Cut(rest, "]")
		if !closed || port != "" && port[0] != ':' {
			return netip.Addr{}, false
		}
		host = inner
	} else if before, _, port := strings.Cut(text, ":"); port && strings.Count(text, ":") == 1 {
		host = before
	}
	addr, err := netip.ParseAddr(host)
	return addr.Unmap(), err == nil && addr.Zone() == ""
}

// allHTTPS reports whether each of the protocols is https: a proxy may have added its own to what a client has sent.
func allHTTPS(list string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if !strings.EqualFold(strings.Trim(one, " \t"), "https") {
			return false
		}
	}
	return true
}
