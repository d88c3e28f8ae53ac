package embedded_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/wire"
)

// The forms of connect requests that the difference test has no words for, good and bad, are answered as by the real server.
// Each case has a connection of its own, waits for the answer to its connect request, and sends the rest.
func TestConnectRequestsAreAnsweredAsByTheRealServer(t *testing.T) {
	connect := func(change ...func(*wire.ConnectRequest)) []byte {
		r := &wire.ConnectRequest{TimeoutMs: 5000, Passwd: make([]byte, 16)}
		for _, f := range change {
			f(r)
		}
		return wire.AppendFrame(nil, r)
	}
	frame := func(b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	readOnly := func(r *wire.ConnectRequest) { r.HasReadOnly, r.ReadOnly = true, true }
	cases := map[string]struct{ hello, rest []byte }{
		"a new session":                      {hello: connect()},
		"a new session, long form":           {hello: connect(readOnly)},
		"a negative timeout":                 {hello: connect(func(r *wire.ConnectRequest) { r.TimeoutMs = -1 })},
		"a huge timeout":                     {hello: connect(func(r *wire.ConnectRequest) { r.TimeoutMs = 1 << 30 })},
		"another protocol version":           {hello: connect(func(r *wire.ConnectRequest) { r.ProtocolVersion = 7 })},
		"a zxid of the future":               {hello: connect(func(r *wire.ConnectRequest) { r.LastZxidSeen = 1 << 60 })},
		"a negative zxid":                    {hello: connect(func(r *wire.ConnectRequest) { r.LastZxidSeen = -1 })},
		"an unknown session":                 {hello: connect(func(r *wire.ConnectRequest) { r.SessionID = 77 })},
		"an unknown session, long form":      {hello: connect(func(r *wire.ConnectRequest) { r.SessionID = 77 }, readOnly)},
		"no password":                        {hello: connect(func(r *wire.ConnectRequest) { r.Passwd = nil })},
		"a short password":                   {hello: connect(func(r *wire.ConnectRequest) { r.Passwd = []byte("ab") })},
		"a long password":                    {hello: connect(func(r *wire.ConnectRequest) { r.Passwd = make([]byte, 99) })},
		"a short connect request":            {hello: frame(make([]byte, 10)...)},
		"an empty connect request":           {hello: frame()},
		"a long connect request":             {hello: frame(append(connect()[4:], 0, 0, 0, 0, 0, 0)...)},
		"a password of absurd length":        {hello: frame(append(make([]byte, 24), 0x7f, 0xff, 0xff, 0xff)...)},
		"a ping with an xid of its own":      {connect(), rawzk.Request(7, wire.OpPing, nil)},
		"a ping with something behind it":    {connect(), rawzk.Request(wire.XidPing, wire.OpPing, &wire.IntReply{})},
		"closing a session, something added": {connect(), rawzk.Request(5, wire.OpCloseSession, &wire.IntReply{})},
	}
	real := zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithSessionBounds(4*time.Second, time.Minute))
	ours := embeddedtest.RunT(t, embeddedtest.With(func(c *embedded.Config) { c.MinSessionTimeout = 4 * time.Second }))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			theirs, mine := transcript(t, real.Addr(), c.hello, c.rest), transcript(t, ours.Addr(), c.hello, c.rest)
			assert.That(t, theirs == mine, "theirs\n%s\nours\n%s", theirs, mine)
		})
	}
}

// The documentation says that this differs on purpose, and how.
func TestCreateSessionAsARequestEndsTheConnectionAlone(t *testing.T) {
	hello := wire.AppendFrame(nil, &wire.ConnectRequest{TimeoutMs: 5000, Passwd: make([]byte, 16)})
	rest := append(rawzk.Request(9, wire.OpCreateSession, &wire.IntReply{Value: 7000}), rawzk.Request(wire.XidPing, wire.OpPing, nil)...)
	real := zkreal.StartT(t, zkreal.WithoutFsync())
	theirs := transcript(t, real.Addr(), hello, rest)
	// A connect reply is protocol version 0, the timeout and so on: read as a reply's header it is xid 0.
	assert.That(t, strings.Contains(theirs, "\nxid 0, ") && strings.Contains(theirs, "\nxid -2, ") && strings.HasSuffix(theirs, "open"),
		"ZooKeeper does not answer with a second connect reply and go on:\n%s", theirs)
	s := embeddedtest.RunT(t)
	c := openRaw(t, s, time.Minute)
	c.create("/mine", nil, wire.FlagEphemeral)
	c.send(wire.OpCreateSession, &wire.IntReply{Value: 7000})
	c.ended("createSession as a request")
	back, reply, err := c.again(s, time.Minute)
	assert.That(t, err == nil && reply.SessionID == c.ID && back.exists("/mine"), "its session did not live on: %+v, %v", reply, err)
	assert.Equal(t, metric(t, s, "global_sessions"), 1, "sessions")
}

// transcript sends bytes and tells what comes back, without what differs between any two servers: session ids, passwords and
// zxids. A last request of its own tells whether the connection is still open, however long the server takes.
func transcript(t *testing.T, addr string, hello, rest []byte) string {
	t.Helper()
	nc := assert.Value(net.Dial("tcp", addr))(t)
	defer nc.Close()
	assert.Value(nc.Write(hello))(t)
	var said strings.Builder
	frames := wire.NewFrameReader(nc, 1<<20)
	for i := 0; ; i++ {
		assert.NoError(t, nc.SetReadDeadline(time.Now().Add(20*time.Second)))
		frame, err := frames.Next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatalf("neither an answer nor an end; before it:\n%s", said.String())
		case err != nil: // also a reset: there was unread input
			return said.String() + "closed"
		}
		d := wire.NewDecoder(frame)
		if i == 0 {
			var r wire.ConnectReply
			r.Decode(d)
			fmt.Fprintf(&said, "session %v, timeout %d, password of %d, long form %v %v\n", r.SessionID != 0, r.TimeoutMs, len(r.Passwd), r.HasReadOnly, r.ReadOnly)
			_, _ = nc.Write(append(rest[:len(rest):len(rest)], rawzk.Request(lastXid, wire.OpExists, &wire.ReadRequest{Path: "/"})...))
			continue // a server that has closed the connection is found out by reading
		}
		var h wire.ReplyHeader
		if h.Decode(d); h.Xid == lastXid && h.Err == wire.ErrSessionExpired {
			continue // a closed session: its connection ends behind this answer, which ZooKeeper sends or not
		}
		if h.Xid == lastXid {
			return said.String() + "open"
		}
		fmt.Fprintf(&said, "xid %d, zxid %d, error %d, body %s\n", h.Xid, sign(h.Zxid), h.Err, hex.EncodeToString(frame[min(16, len(frame)):]))
	}
}

// lastXid is the xid of transcript's own request.
const lastXid = 1 << 20

func sign(n int64) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// running runs a server over a storage until the returned function is called.
func running(t *testing.T, storage embedded.Storage, newProcess bool) (s *embedded.Server, kill func()) {
	t.Helper()
	s, err := embedded.New(embedded.Config{Storage: storage, EndLocalSessions: newProcess, TickTime: 100 * time.Millisecond, MaxConns: 4})
	assert.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(context.Background()) // ends by Close
	}()
	kill = func() {
		s.Close()
		<-ended
	}
	t.Cleanup(kill)
	return s, kill
}

// shake opens a connection and a session, or takes one over; the reply is nil when the server closed the connection instead.
func shake(t *testing.T, serve func(net.Conn), id int64, password []byte) (*rawzk.Client, *wire.ConnectReply) {
	t.Helper()
	client, server := net.Pipe()
	go serve(server)
	t.Cleanup(func() { client.Close() })
	if password == nil {
		password = make([]byte, 16)
	}
	c := rawzk.New(client, patience)
	reply, err := c.Connect(&wire.ConnectRequest{TimeoutMs: 4000, SessionID: id, Passwd: password})
	if err != nil {
		return c, nil
	}
	return c, &reply
}

func TestALocalSessionEndsWithItsProcessAndNoOther(t *testing.T) {
	testkit.NoLeaks(t)
	storage := embedded.NewMemoryStorage()
	s, kill := running(t, storage, true)
	_, local := shake(t, s.ServeLocal, 0, nil)
	_, remote := shake(t, s.ServeConn, 0, nil)
	assert.Must(t, local.SessionID>>56 == 0x7e && remote.SessionID>>56 == 1, "sessions 0x%x and 0x%x", local.SessionID, remote.SessionID)
	kill()

	s, kill = running(t, storage, false) // the same process
	for name, c := range map[string]struct {
		serve func(net.Conn)
		*wire.ConnectReply
	}{"local": {s.ServeLocal, local}, "remote": {s.ServeConn, remote}} {
		_, back := shake(t, c.serve, c.SessionID, c.Passwd)
		assert.That(t, back.SessionID == c.SessionID, "the %s session did not live on in its process: 0x%x", name, back.SessionID)
	}
	_, second := shake(t, s.ServeLocal, 0, nil)
	assert.That(t, second.SessionID > local.SessionID, "local session 0x%x follows 0x%x", second.SessionID, local.SessionID)
	kill()

	s, kill = running(t, storage, true)
	for _, ended := range []*wire.ConnectReply{local, second} {
		_, back := shake(t, s.ServeLocal, ended.SessionID, ended.Passwd)
		assert.That(t, back.SessionID == 0, "a session of a process that is gone was found: 0x%x", back.SessionID)
	}
	_, back := shake(t, s.ServeConn, remote.SessionID, remote.Passwd)
	assert.That(t, back.SessionID == remote.SessionID, "a remote session did not outlive the process: 0x%x", back.SessionID)
	_, third := shake(t, s.ServeLocal, 0, nil)
	assert.That(t, third.SessionID > second.SessionID, "local session 0x%x follows 0x%x", third.SessionID, second.SessionID)
	kill()
}

func TestARemoteConnectionCannotTakeALocalSessionNorTheOtherWayRound(t *testing.T) {
	testkit.NoLeaks(t)
	s, _ := running(t, embedded.NewMemoryStorage(), true)
	_, local := shake(t, s.ServeLocal, 0, nil)
	_, remote := shake(t, s.ServeConn, 0, nil)
	_, taken := shake(t, s.ServeConn, local.SessionID, local.Passwd)
	assert.That(t, taken.SessionID == 0, "a remote connection took a local session over")
	_, taken = shake(t, s.ServeLocal, remote.SessionID, remote.Passwd)
	assert.That(t, taken.SessionID == 0, "a local connection took a remote session over")
	_, back := shake(t, s.ServeLocal, local.SessionID, local.Passwd)
	assert.That(t, back.SessionID == local.SessionID, "the local session did not survive the attempt")
}

func TestRemoteConnectionsCannotKeepTheProcessOut(t *testing.T) {
	testkit.NoLeaks(t)
	s, _ := running(t, embedded.NewMemoryStorage(), true)
	for range 4 {
		_, reply := shake(t, s.ServeConn, 0, nil)
		assert.Must(t, reply != nil, "refused below the bound")
	}
	_, reply := shake(t, s.ServeConn, 0, nil)
	assert.That(t, reply == nil, "a remote connection above the bound was served")
	_, reply = shake(t, s.ServeLocal, 0, nil)
	assert.That(t, reply != nil, "the process's own connection was refused")
}

func TestALocalConnectionPassesEveryACLAndARemoteOneDoesNot(t *testing.T) {
	testkit.NoLeaks(t)
	s, _ := running(t, embedded.NewMemoryStorage(), true)
	ask := func(c *rawzk.Client, op wire.Op, body wire.Record) wire.ErrCode {
		t.Helper()
		f := assert.Value(c.Call(op, body, nil))(t)
		return f.Err
	}
	remote, _ := shake(t, s.ServeConn, 0, nil)
	local, _ := shake(t, s.ServeLocal, 0, nil)
	got := ask(remote, wire.OpCreate, &wire.CreateRequest{Path: "/closed", ACL: []wire.ACL{{Scheme: "world", ID: "anyone"}}})
	assert.MustEqual(t, got, wire.OK)
	assert.Equal(t, ask(remote, wire.OpGetData, &wire.ReadRequest{Path: "/closed"}), wire.ErrNoAuth, "a remote connection")
	assert.Equal(t, ask(local, wire.OpGetData, &wire.ReadRequest{Path: "/closed"}), wire.OK, "the process's own connection")
	assert.Equal(t, ask(remote, wire.OpAuth, &wire.AuthRequest{Scheme: "super", Auth: []byte("super:admin")}), wire.ErrAuthFailed,
		"auth super")
}
