// Package proxies says which client a proxy asks for.
//
// # What it promises
//
// A header is believed when it comes from a proxy that the operator has named, and one header alone is: a proxy passes the
// others on as its client has sent them. The address is that of the rightmost hop that is no such proxy. What a client writes
// into the header stands to the left of that, so no client can choose its address.
//
// A header that cannot be read ends at its last hop that can: at worst the address is the proxy's own. It refuses no request.
// The address is for logs, for bounds and for the owner of a lease that names none, and no lease may end because of it.
//
// An address has one spelling: without a port, a zone, and the prefix of an IPv4 address in IPv6.
//
// # What it refuses
//
// Networks that all addresses are in. Certificates, users and host names in headers: an address is all that is believed, and
// whether the client's connection was encrypted.
package proxies
