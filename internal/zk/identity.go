package zk

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"lockkeeper/internal/zk/wire"
)

// DigestAuth is the identity of the fleet toward ZooKeeper (scheme "digest").
type DigestAuth struct{ User, Password string }

// String hides the password, also from %v and %+v.
func (a DigestAuth) String() string { return a.User + ":(hidden)" }

// LogValue hides it from slog.
func (a DigestAuth) LogValue() slog.Value { return slog.StringValue(a.String()) }

// Packet is the auth information as it travels: "user:password".
func (a *DigestAuth) Packet() []byte { return []byte(a.User + ":" + a.Password) }

// CertificateAuth is the identity that ZooKeeper finds in the client certificate of a connection (scheme "x509"). Its name is
// the server's to say, because the server's settings choose between the subject and other names, and how they are written. The
// first connection learns it, and each later one has to have the same: an ACL with another name would shut the fleet out.
//
// All copies of a Config share one CertificateAuth. Its methods may be called from any goroutine.
type CertificateAuth struct{ name atomic.Pointer[string] }

// SchemeX509 is ZooKeeper's scheme for identities in certificates.
const SchemeX509 = "x509"

// xidWhoAmI is the xid of the question. Those of go-zookeeper are positive, and those that mean something to a server above -10.
const xidWhoAmI int32 = -100

// IsIdentity reports whether a reply of this xid is to the question.
func IsIdentity(xid int32) bool { return xid == xidWhoAmI }

// Name is the identity, "" as long as no connection has learned it.
func (a *CertificateAuth) Name() string {
	if name := a.name.Load(); name != nil {
		return *name
	}
	return ""
}

// AppendQuestion appends the frame that asks a server for the identity. It goes right behind the connect request.
func (*CertificateAuth) AppendQuestion(b []byte) []byte {
	return wire.AppendFrame(b, &wire.RequestHeader{Xid: xidWhoAmI, Op: wire.OpWhoAmI})
}

// Learn reads the server's answer. Its error is a *FatalError as long as no server has named an identity; later ones may
// come from one server of several.
func (a *CertificateAuth) Learn(server string, frame []byte) error {
	name, err := identityIn(frame)
	refuse := func(hint string, err error) error {
		if a.Name() != "" {
			return err
		}
		return &FatalError{Kind: KindAuth, Hint: hint, Err: err}
	}
	switch {
	case err != nil:
		return refuse("ZooKeeper 3.7 or later is needed to be known by a certificate; give --zk-auth-file otherwise", fmt.Errorf("%s does not say who it takes this gateway for: %w", server, err))
	case name == "":
		return refuse("have its secureClientPort ask for certificates (ssl.clientAuth=need) and trust the authority of --zk-cert-file, or give --zk-auth-file",
			fmt.Errorf("%s takes the certificate of this gateway for no identity", server))
	}
	if a.name.CompareAndSwap(nil, &name) || a.Name() == name {
		return nil
	}
	return fmt.Errorf("%s takes this gateway for x509:%s, and was to take it for x509:%s: all certificates of the fleet must have one name", server, name, a.Name())
}

// identityIn is the name in the reply to the question, "" when the connection has none.
func identityIn(frame []byte) (name string, err error) {
	d := wire.NewDecoder(frame)
	var head wire.ReplyHeader
	head.Decode(d)
	switch {
	case d.Err() != nil:
		return "", d.Err()
	case head.Xid != xidWhoAmI:
		return "", fmt.Errorf("it answers the request %d", head.Xid)
	case head.Err != wire.OK:
		return "", head.Err
	}
	var reply wire.WhoAmIReply
	reply.Decode(d)
	if err := d.Finish(); err != nil {
		return "", err
	}
	for _, one := range reply.Clients {
		if one.Scheme == SchemeX509 {
			return one.User, nil
		}
	}
	return "", nil
}
