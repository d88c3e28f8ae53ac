package conn

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// knowing is a server that grants sessions, and takes its clients for the names that it is given, one for each connection; ""
// is none. Pings are answered, and nothing else.
type knowing struct {
	names chan string
	heard chan bool // a request came on a connection whose name was wrong
}

func (k *knowing) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	name := <-k.names
	go func() {
		defer there.Close()
		frame := func() []byte {
			var head [4]byte
			if _, err := io.ReadFull(there, head[:]); err != nil {
				return nil
			}
			body := make([]byte, binary.BigEndian.Uint32(head[:]))
			_, _ = io.ReadFull(there, body)
			return body
		}
		if frame() == nil {
			return
		}
		reply := wire.AppendFrame(nil, &wire.ConnectReply{TimeoutMs: 60_000, SessionID: 7, Passwd: make([]byte, 16)})
		xid := int32(binary.BigEndian.Uint32(frame()))
		who := &wire.WhoAmIReply{Clients: []wire.ClientInfo{{Scheme: "ip", User: "pipe"}}}
		if name != "" {
			who.Clients = append(who.Clients, wire.ClientInfo{Scheme: "x509", User: name})
		}
		_, _ = there.Write(wire.AppendFrame(reply, &wire.ReplyHeader{Xid: xid, Zxid: 1}, who))
		for request := frame(); request != nil; request = frame() {
			if name != "CN=fleet" {
				k.heard <- true
			}
			if h := int32(binary.BigEndian.Uint32(request)); h == wire.XidPing {
				_, _ = there.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: wire.XidPing}))
			}
		}
	}()
	return here, nil
}

// The library must not hear of a session at a server that does not know the fleet: its writes would be another's.
func TestNoSessionIsUsedAtAServerThatTakesTheFleetForAnother(t *testing.T) {
	k := &knowing{names: make(chan string, 8), heard: make(chan bool, 8)}
	cfg := assert.Value(zk.Config{Servers: []string{"zk1:1", "zk2:1"}, Certificate: new(zk.CertificateAuth), Dial: k.dial, SessionTimeout: time.Minute}.WithDefaults())(t)
	k.names <- "CN=fleet"
	c := assert.Value(Open(t.Context(), &cfg, func() {}))(t)
	defer func() { k.names <- "CN=fleet"; c.End(errLost); <-c.Gone() }()
	ours := ACL{Perms: 31, Scheme: "x509", ID: "CN=fleet"}
	assert.That(t, SameACL(c.ACL(Private), []ACL{ours}) && len(c.wireACLs[Private]) == 1 && c.wireACLs[Private][0].ID == "CN=fleet", "%v %v", c.ACL(Private), c.wireACLs[Private])
	for _, wrong := range []string{"CN=other", ""} {
		k.names <- wrong
	}
	c.Cut()
	testkit.Eventually(t, 30*time.Second, func() bool { return len(k.names) == 0 && !c.Connected() }, "the other servers were tried")
	k.names <- "CN=fleet"
	testkit.Eventually(t, 30*time.Second, c.Connected, "the session is back")
	testkit.Nothing(t, k.heard, "a request to a server that does not know the fleet")
	assert.NoError(t, c.Err())
}

func TestASessionIsRefusedWhereTheCertificateIsNoIdentity(t *testing.T) {
	k := &knowing{names: make(chan string, 1), heard: make(chan bool, 8)}
	cfg := assert.Value(zk.Config{Servers: []string{"zk1:1"}, Certificate: new(zk.CertificateAuth), Dial: k.dial}.WithDefaults())(t)
	k.names <- ""
	_, err := Open(t.Context(), &cfg, func() {})
	fatal, ok := err.(*zk.FatalError)
	assert.That(t, ok && fatal.Kind == zk.KindAuth && cfg.Certificate.Name() == "", "%v", err)
	close(k.names)
}
