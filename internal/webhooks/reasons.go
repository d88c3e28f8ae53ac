package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// What a client is told of an attempt that got no answer names no address, no resolver and nothing that the other end has sent: a client
// could otherwise ask what internal names resolve to, and what listens there. The log has it. A name that does not resolve and one that
// resolves to a refused address are told alike. Only how long an attempt took may differ.

// reason is an error that a client may be told as it is.
type reason string

func (r reason) Error() string { return string(r) }

const (
	reasonAddress = reason("the receiver's address could not be used: its name must resolve to an address that messages may go to; the gateway's log says more")
	reasonConnect = reason("the connection to the receiver failed, or what it answered is not HTTP")
	reasonTLS     = reason("TLS failed")
)

var (
	reasonTimeout = reason("no answer within " + attemptTimeout.String())
	reasonSlow    = reason("no connection within " + connectTimeout.String())
)

// explain is what a client is told of an error. public: every address that was connected to is one of the internet, so that a
// certificate's names may be told.
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

// tlsError is the part of an error that TLS is the cause of; nil when it is not.
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

// route notes where the connections of one attempt go.
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

// failures logs why attempts got no answer: some in a minute, the others counted, since a receiver that is down may fail very often.
type failures struct {
	log *slog.Logger

	mu     sync.Mutex
	since  time.Time // when the minute began
	logged int       // in it
	more   int       // that were not logged
}

// add logs a failure of a subscription, or of a notify_url, of which only the host is named.
func (f *failures) add(to *Subscription, err error) {
	if f.log == nil {
		return
	}
	f.mu.Lock()
	now := time.Now()
	if now.Sub(f.since) >= time.Minute {
		f.since, f.logged = now, 0
	}
	if f.logged >= loggedAMinute {
		f.more++
		f.mu.Unlock()
		return
	}
	f.logged++
	more := f.more
	f.more = 0
	f.mu.Unlock()
	who := slog.String("webhook", to.ID)
	if isNotify(to.ID) {
		who = slog.String("host", receiverOf(to.ID))
	}
	f.log.Warn("webhooks: an attempt got no answer", who, "url", ShownURL(to.URL), "err", withoutURL(err), "not_logged_before", more)
}
