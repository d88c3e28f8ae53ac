package auth

import (
	"context"
	"crypto/x509"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/locks"
)

type peerKey struct{}

// WithPeer is for http.Server.ConnContext: the requests of a connection to a Unix socket know the user id of the process at
// its other end, as it was when that process connected.
func WithPeer(ctx context.Context, c net.Conn) context.Context {
	for {
		wrapped, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = wrapped.NetConn()
	}
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	uid, ok := userOf(socket)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

func userOf(socket syscall.Conn) (uid string, ok bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return "", false
	}
	err = raw.Control(func(fd uintptr) {
		peer, failed := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if ok = failed == nil; ok {
			uid = strconv.FormatUint(uint64(peer.Uid), 10)
		}
	})
	return uid, ok && err == nil
}

// peerUser is the user id at the other end of the request's connection.
func peerUser(ctx context.Context) (string, bool) {
	uid, ok := ctx.Value(peerKey{}).(string)
	return uid, ok
}

// certificateName is the name in a client's certificate, which the listener has verified.
func (p *Policy) certificateName(cert *x509.Certificate) (name string, err error) {
	where := "the subject alternative names"
	switch {
	case p.common:
		name, where = cert.Subject.CommonName, "the common name"
	case len(cert.DNSNames) > 0:
		name = cert.DNSNames[0]
	case len(cert.URIs) > 0:
		name = cert.URIs[0].String()
	case len(cert.EmailAddresses) > 0:
		name = cert.EmailAddresses[0]
	}
	if name == "" || locks.CheckText("name", name, maxName) != nil {
		return "", refused("the client certificate must have a name of at most %d bytes in %s", maxName, where)
	}
	return name, nil
}
