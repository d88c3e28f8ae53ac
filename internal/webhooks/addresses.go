package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Addresses says which addresses may be connected to. It is immutable.
type Addresses struct {
	guard   *ssrf.Guardian // nil: all of them
	hosts   map[string]bool
	private bool
}

// ErrAddressRefused: the receiver's address is inside one's own network, or is
// no address of the internet at all.
var ErrAddressRefused = errors.New("the receiver's address must be one of the internet, not private, loopback or link-local")

// NewAddresses takes what --webhook-allow-private and --webhook-allow say: each
// entry is a network, an address, or the name of a host whose addresses are
// all allowed.
func NewAddresses(private bool, allow []string) (*Addresses, error) {
	a := &Addresses{hosts: map[string]bool{}, private: private}
	var v4, v6 []netip.Prefix
	for _, entry := range allow {
		prefix, err := parsePrefix(entry)
		switch {
		case err == nil && prefix.Addr().Is4():
			v4 = append(v4, prefix)
		case err == nil:
			v6 = append(v6, prefix)
		case strings.Contains(entry, "/") || !isHostname(entry):
			return nil, fmt.Errorf("%q must be a network (10.0.0.0/8), an address or a host name", entry)
		default:
			a.hosts[canonicalHost(entry)] = true
		}
	}
	if !private {
		a.guard = guardian(ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))
	}
	return a, nil
}

// azureHost is the agent of the machine that an Azure instance runs on: an address of the internet by its number alone. The agents of
// other clouds are in ranges that are special anyway.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

func guardian(options ...ssrf.Option) *ssrf.Guardian {
	return ssrf.New(append(options, ssrf.WithAnyPort(), ssrf.WithNetworks("tcp4", "tcp6"), ssrf.WithDeniedV4Prefixes(azureHost))...)
}

// internet lets through what needs no permission.
var internet = &Addresses{guard: guardian()}

// isPublic reports whether an address is one of the internet. The operator's exceptions do not count.
func isPublic(at netip.AddrPort) bool { return internet.allows(at) == nil }

func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, errors.New("an address with a zone")
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err == nil && prefix.Addr().Is4In6() {
		return netip.Prefix{}, errors.New("an IPv4 network in IPv6 form")
	}
	return prefix.Masked(), err
}

func canonicalHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// isHostname is true of names that DNS can have. A name of digits and dots is
// none: resolvers take it for an address in an old form (inet_aton).
func isHostname(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
				return false
			}
		}
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return !looksNumeric(last)
}

// looksNumeric: the WHATWG's rule for a host that ends in a number and hence is
// an IPv4 address or nothing.
func looksNumeric(label string) bool {
	if rest, hex := strings.CutPrefix(strings.ToLower(label), "0x"); hex {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// CheckHost refuses what the host's text shows. What a name
// resolves to is checked when the connection is made.
func (a *Addresses) CheckHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return errors.New("must not be an address with a zone, which is a link of this machine")
		}
		if err := a.allows(netip.AddrPortFrom(addr, 443)); err != nil {
			return fmt.Errorf("%w (--webhook-allow %s would let it through)", ErrAddressRefused, host)
		}
		return nil
	}
	if a.private || a.hosts[canonicalHost(host)] {
		if !isHostname(host) {
			return fmt.Errorf("%q must be a host name", host)
		}
		return nil
	}
	switch name := canonicalHost(host); {
	case !isHostname(host):
		return fmt.Errorf("%q must be a host name, or an address such as 192.0.2.1", host)
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return fmt.Errorf("%w (--webhook-allow localhost would let it through)", ErrAddressRefused)
	}
	return nil
}

// allows checks an address itself.
func (a *Addresses) allows(at netip.AddrPort) error {
	if a.guard == nil {
		return nil
	}
	addr := at.Addr()
	if addr.Is4In6() {
		addr = addr.Unmap() // ::ffff:127.0.0.1 goes to 127.0.0.1
	}
	network := "tcp6"
	if addr.Is4() {
		network = "tcp4"
	}
	if addr.Zone() != "" {
		return ErrAddressRefused
	}
	if err := a.guard.Safe(network, netip.AddrPortFrom(addr, at.Port()).String(), nil); err != nil {
		return fmt.Errorf("%w: %s", ErrAddressRefused, addr)
	}
	return nil
}

// dial connects, and checks the address that the name resolved to right before.
func (a *Addresses) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !a.hosts[canonicalHost(host)] {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %q", ErrAddressRefused, address)
			}
			return a.allows(at)
		}
	}
	return d.DialContext(ctx, network, address)
}
