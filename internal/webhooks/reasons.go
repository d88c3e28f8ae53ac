package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"sync"
)

// For an attempt without an answer, a client gets no address, no resolver and no bytes from the other end: it
// could otherwise explore internal names and services. The log has them. A name that does not resolve and one that
// resolves to a refused address give the same reason. Only the time that an attempt took may differ.

// reason is an error that a client may see as it is.
type reason string

func (r reason) Error() string { return string(r) }

const (
	reasonAddress = reason("the receiver's address could not be used: its name must resolve to an address that messages may go to; see the gateway's log")
	reasonConnect = reason("the connection to the receiver failed, or its answer is not HTTP")
	reasonTLS     = reason("TLS failed")
)

var (
	reasonTimeout = reason("no answer within " + attemptTimeout.String())
	reasonSlow    = reason("no connection within " + connectTimeout.String())
)

// explain is the reason that a client sees for an error. public: every address that was connected to is one of the internet, so
// a certificate's names may be shown.
func explain(err error, public bool) string {
	if r, ok := errors.AsType[reason](err); ok {
		return string(r)
	}
	_, unresolved := errors.AsType[*net.DNSError](err)
	if unresolved || errors.Is(err, ErrAddressRefused) {
		return string(reasonAddress)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return string(reasonTimeout)
	}
	if failed := tlsError(err); failed != nil {
		if public {
			return string(reasonTLS) + ": " + excerpt([]byte(failed.Error()))
		}
		return string(reasonTLS)
	}
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		return string(reasonSlow)
	}
	return string(reasonConnect)
}

// tlsError is the part of an error that comes from TLS; nil when there is none.
func tlsError(err error) error {
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e
	}
	if e, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return e
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return e
	}
	if e, ok := errors.AsType[tls.AlertError](err); ok {
		return e
	}
	return nil
}

// route notes the addresses that one attempt connects to.
type route struct {
	public func(netip.AddrPort) bool

	mu      sync.Mutex
	inside  bool // one address at least is not of the internet
	reached int
}

func (r *route) add(address string) {
	at, err := netip.ParseAddrPort(address)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached++
	r.inside = r.inside || err != nil || !r.public(at)
}

// outside reports whether something was connected to, and only addresses of the internet.
func (r *route) outside() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reached > 0 && !r.inside
}
