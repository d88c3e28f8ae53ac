package zk

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
	"lockkeeper/internal/zk/wire"
)

// speaking is a server with a certificate that shakes hands and reads nothing more.
func speaking(t *testing.T, leaf *certtest.Leaf) (addr string) {
	t.Helper()
	pair := assert.Value(tls.X509KeyPair(leaf.Cert, leaf.Key))(t)
	on := assert.Value(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}}))(t)
	t.Cleanup(func() { on.Close() })
	go func() {
		for {
			c, err := on.Accept()
			if err != nil {
				return
			}
			go func() { _ = c.(*tls.Conn).Handshake() }()
			t.Cleanup(func() { c.Close() })
		}
	}()
	return on.Addr().String()
}

func TestOnlyTheServerThatIsNamedIsReachedOverTLS(t *testing.T) {
	ca, now := certtest.New(t, "servers"), time.Now()
	for name, c := range map[string]struct {
		leaf *certtest.Leaf
		by   *certtest.Authority
		want string // in the error; "": none
	}{
		"the one":           {ca.Issue([]string{"127.0.0.1"}), ca, ""},
		"another name":      {ca.Issue([]string{"zk1.example.com"}), ca, "127.0.0.1"},
		"another authority": {ca.Issue([]string{"127.0.0.1"}), certtest.New(t, "others"), "unknown authority"},
		"expired":           {ca.Issue([]string{"127.0.0.1"}, certtest.Valid(now.Add(-time.Hour), now.Add(-time.Minute))), ca, "expired"},
	} {
		dial := OverTLS(func() *tls.Config { return &tls.Config{RootCAs: c.by.Pool()} })
		conn, err := dial(t.Context(), "tcp", speaking(t, c.leaf))
		if err == nil {
			conn.Close()
		}
		assert.That(t, (err == nil) == (c.want == "") && (err == nil || strings.Contains(err.Error(), c.want)), "%s: %v", name, err)
	}
	plain := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer plain.Close()
	go func() {
		if c, err := plain.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	_, err := OverTLS(func() *tls.Config { return &tls.Config{} })(t.Context(), "tcp", plain.Addr().String())
	assert.That(t, err != nil, "a server without TLS")
}

// Locks are held while a connection is closed.
func TestAConnectionOverTLSIsClosedAtOnceAlsoWhenThePeerTakesNothing(t *testing.T) {
	ca := certtest.New(t, "servers")
	leaf := ca.Issue([]string{"zk1"})
	pair := assert.Value(tls.X509KeyPair(leaf.Cert, leaf.Key))(t)
	synctest.Test(t, func(t *testing.T) {
		raw, peer := net.Pipe() // takes nothing that is not read
		defer peer.Close()
		shaken := make(chan error, 1)
		go func() {
			shaken <- tls.Server(peer, &tls.Config{Certificates: []tls.Certificate{pair}, MaxVersion: tls.VersionTLS12}).Handshake()
		}()
		c := secured{tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: "zk1"}), raw}
		assert.NoError(t, c.Handshake())
		assert.NoError(t, <-shaken)
		begun := time.Now()
		assert.NoError(t, c.Close())
		assert.Equal(t, time.Since(begun), 0)
	})
}

// answerOf is a server's answer to the question who the client is.
func answerOf(xid int32, code wire.ErrCode, clients ...wire.ClientInfo) []byte {
	frame := wire.AppendFrame(nil, &wire.ReplyHeader{Xid: xid, Zxid: 7, Err: code}, &wire.WhoAmIReply{Clients: clients})
	return frame[4:]
}

func TestAnIdentityIsLearnedOnceAndNeverReplaced(t *testing.T) {
	ip := wire.ClientInfo{Scheme: "ip", User: "127.0.0.1"}
	gateway, other := wire.ClientInfo{Scheme: "x509", User: "CN=lockkeeper"}, wire.ClientInfo{Scheme: "x509", User: "CN=other"}
	fails := func(a *CertificateAuth, frame []byte, fatal bool, want string) {
		t.Helper()
		err := a.Learn("zk1:2281", frame)
		_, is := err.(*FatalError)
		assert.That(t, err != nil && is == fatal && strings.Contains(err.Error(), want), "%v, fatal %v", err, is)
	}
	var a CertificateAuth
	fails(&a, answerOf(xidWhoAmI, wire.OK, ip), true, "for no identity")
	fails(&a, answerOf(xidWhoAmI, wire.ErrUnimplemented), true, "does not say")
	fails(&a, answerOf(xidWhoAmI, wire.OK, gateway)[:20], true, "does not say")
	fails(&a, answerOf(-4, wire.OK, gateway), true, "answers the request -4")
	assert.Equal(t, a.Name(), "")
	assert.NoError(t, a.Learn("zk1:2281", answerOf(xidWhoAmI, wire.OK, ip, gateway)))
	assert.NoError(t, a.Learn("zk2:2281", answerOf(xidWhoAmI, wire.OK, gateway, other)))
	fails(&a, answerOf(xidWhoAmI, wire.OK, ip), false, "for no identity")
	fails(&a, answerOf(xidWhoAmI, wire.OK, other), false, "CN=other")
	assert.Equal(t, a.Name(), "CN=lockkeeper")
}
