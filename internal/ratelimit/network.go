package ratelimit

import "net/netip"

// Network is what an address is counted by: an IPv4 address, or the first 64 bits of an IPv6 one. A single machine commonly has
// all of the rest.
func Network(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		prefix, _ := ip.Prefix(64) // of an IPv6 address there is one
		return prefix.Addr()
	}
	return ip
}

// NetworkOf is Network of an address in words. What is no address, as a user of a Unix socket, stays as it is.
func NetworkOf(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	return Network(ip).String()
}
