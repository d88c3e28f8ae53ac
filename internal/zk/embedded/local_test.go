package embedded_test

import (
	"context"
	"net"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/wire"
)

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
