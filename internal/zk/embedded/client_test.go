package embedded_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/wire"
)

// everywhere runs a test with clients that are used as they are: over TCP, and in virtual time over pipes.
func everywhere(t *testing.T, f func(t *testing.T, s *embeddedtest.Server)) {
	t.Run("over TCP", func(t *testing.T) {
		testkit.NoLeaks(t)
		f(t, embeddedtest.RunT(t))
	})
	t.Run("in virtual time", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *embeddedtest.Server) {
			f(t, s)
			time.Sleep(time.Minute) // clients close in their own time, and that ends with the test
		})
	})
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// goZooKeeper opens a session of the unmodified go-zookeeper client.
func goZooKeeper(t *testing.T, s *embeddedtest.Server, timeout time.Duration) (*gozk.Conn, <-chan gozk.Event) {
	t.Helper()
	dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return s.Dial(ctx, network, addr)
	}
	conn, events, err := gozk.Connect([]string{s.Addr()}, timeout, gozk.WithDialer(dial), gozk.WithLogger(quiet{}))
	assert.NoError(t, err)
	t.Cleanup(conn.Close)
	awaitState(t, events, gozk.StateHasSession)
	return conn, events
}

func awaitState(t *testing.T, events <-chan gozk.Event, want gozk.State) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case e, ok := <-events:
			assert.Must(t, ok, "the client ended before %v", want)
			if e.State == want {
				return
			}
		case <-late:
			t.Fatalf("no %v", want)
		}
	}
}

func TestGoZooKeeperWorksUnmodified(t *testing.T) {
	everywhere(t, func(t *testing.T, s *embeddedtest.Server) {
		conn, events := goZooKeeper(t, s, 4*time.Second)
		open := gozk.WorldACL(gozk.PermAll)
		_, err := conn.Create("/a", []byte("one"), 0, open)
		assert.NoError(t, err)
		_, err = conn.Create("/a", nil, 0, open)
		assert.Equal(t, err, gozk.ErrNodeExists, "created twice")
		_, stat, changed, err := conn.GetW("/a")
		assert.Must(t, err == nil && stat.DataLength == 3, "%+v, %v", stat, err)
		_, err = conn.Set("/a", []byte("two"), stat.Version+1)
		assert.Equal(t, err, gozk.ErrBadVersion, "set at a wrong version")
		assert.Value(conn.Set("/a", []byte("two"), stat.Version))(t)
		e := testkit.Receive(t, patience, changed, "the watch")
		assert.That(t, e.Type == gozk.EventNodeDataChanged && e.Path == "/a", "event %+v", e)
		var made []string
		for range 3 {
			path := assert.Value(conn.CreateProtectedEphemeralSequential("/a/n-", nil, open))(t)
			made = append(made, path[len("/a/"):])
		}
		children, _, err := conn.Children("/a")
		slices.Sort(children)
		slices.Sort(made)
		assert.That(t, err == nil && slices.Equal(children, made), "children %v, made %v, %v", children, made, err)
		results, err := conn.Multi(&gozk.CheckVersionRequest{Path: "/a", Version: 1}, &gozk.CreateRequest{Path: "/b", Acl: open}, &gozk.DeleteRequest{Path: "/nope", Version: -1})
		assert.That(t, err == gozk.ErrNoNode && len(results) == 3, "a multi that fails: %v, %v", results, err)
		there, _, err := conn.Exists("/b")
		assert.That(t, err == nil && !there, "a multi was half done: %v, %v", there, err)

		// It finds its session again, with its ephemeral nodes, after its connection or the server was lost.
		id := conn.SessionID()
		s.Kill()
		awaitState(t, events, gozk.StateDisconnected)
		s.RestartT(t)
		awaitState(t, events, gozk.StateHasSession)
		assert.That(t, conn.SessionID() == id, "session 0x%x, was 0x%x", conn.SessionID(), id)
		children, _, err = conn.Children("/a")
		assert.That(t, err == nil && len(children) == 3, "children after the restart: %v, %v", children, err)
	})
}

func TestNothingIsLeftWhenAServerEnds(t *testing.T) {
	testkit.NoLeaks(t)
	s := embeddedtest.RunT(t)
	for range 20 {
		openRaw(t, s, time.Minute)
		dialRaw(t, s)
	}
	s.Kill()
	s.RestartT(t)
	openRaw(t, s, time.Minute)
	synctest.Test(t, func(t *testing.T) { // a bubble would not end with a goroutine left
		s := embeddedtest.RunT(t, embeddedtest.Pipes())
		openRaw(t, s, time.Minute)
		dialRaw(t, s)
	})
}

// patience is for what must happen; a loaded machine may take its time. In a bubble it costs nothing.
const patience = 30 * time.Second

var everyone = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

// raw is a client that fails its test when something goes wrong.
type raw struct {
	*rawzk.Client
	t testing.TB
}

func dialRaw(t testing.TB, s *embeddedtest.Server) *raw {
	t.Helper()
	nc := assert.Value(s.Dial(context.Background(), "tcp", s.Addr()))(t)
	t.Cleanup(func() { nc.Close() })
	return &raw{rawzk.New(nc, patience), t}
}

// openRaw is a client with a new session.
func openRaw(t testing.TB, s *embeddedtest.Server, timeout time.Duration) *raw {
	t.Helper()
	r := dialRaw(t, s)
	reply, err := r.Connect(&wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), Passwd: make([]byte, 16)})
	assert.Must(t, err == nil && reply.SessionID != 0, "no session: %+v, %v", reply, err)
	return r
}

// again connects anew with the session of r.
func (r *raw) again(s *embeddedtest.Server, timeout time.Duration) (*raw, wire.ConnectReply, error) {
	r.t.Helper()
	n := dialRaw(r.t, s)
	reply, err := n.Connect(&wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), SessionID: r.ID, Passwd: r.Passwd})
	return n, reply, err
}

// ended waits for the server to close the connection, and fails when it sends something or nothing.
func (r *raw) ended(why string) {
	r.t.Helper()
	frame, err := r.Next()
	var timeout net.Error
	assert.Must(r.t, err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()),
		"%s: want the end of the connection, got %x, %v", why, frame, err)
}

func (r *raw) receive() rawzk.Frame {
	r.t.Helper()
	f := assert.Value(r.Receive())(r.t, "receive")
	return f
}

// event is the next frame, which must be an event.
func (r *raw) event() (e wire.WatcherEvent) {
	r.t.Helper()
	f := r.receive()
	d := wire.NewDecoder(f.Body)
	if e.Decode(d); f.Xid != wire.XidWatcherEvent || d.Finish() != nil {
		r.t.Fatalf("no event: %+v", f)
	}
	return e
}

// send sends a request and does not wait.
func (r *raw) send(op wire.Op, body wire.Record) {
	r.t.Helper()
	assert.Value(r.Send(op, body))(r.t, "send")
}

// call sends a request and returns its reply, which must be the next frame.
func (r *raw) call(op wire.Op, body wire.Record) rawzk.Frame {
	r.t.Helper()
	f := assert.Value(r.Call(op, body, nil))(r.t)
	return f
}

// must is call for what succeeds.
func (r *raw) must(op wire.Op, body wire.Record) rawzk.Frame {
	r.t.Helper()
	f := r.call(op, body)
	assert.Must(r.t, f.Err == wire.OK, "operation %d: %v", op, f.Err)
	return f
}

func (r *raw) create(path string, data []byte, flags int32) {
	r.t.Helper()
	r.must(wire.OpCreate, &wire.CreateRequest{Path: path, Data: data, ACL: everyone, Flags: flags})
}

func (r *raw) exists(path string) bool {
	r.t.Helper()
	switch f := r.call(wire.OpExists, &wire.ReadRequest{Path: path}); f.Err {
	case wire.OK:
		return true
	case wire.ErrNoNode:
		return false
	default:
		r.t.Fatalf("exists %s: %v", path, f.Err)
		return false
	}
}

func (r *raw) ping() {
	r.t.Helper()
	r.must(wire.OpPing, nil)
}

func (r *raw) close() {
	r.t.Helper()
	r.must(wire.OpCloseSession, nil)
	r.ended("the session is closed")
}
