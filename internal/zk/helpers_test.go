package zk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/wire"
)

// testLimit is the limit of every wait in these tests. Only failures reach it.
const testLimit = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	t.Cleanup(cancel)
	return ctx
}

// testConfig is a root of its own on the shared ZooKeeper.
func testConfig(t testing.TB) Config { return configAt(zkreal.SharedT(t)) }

func configAt(addr, chroot string) Config {
	return Config{Servers: []string{addr}, Chroot: chroot, CreateRoot: true, SessionTimeout: 10 * time.Second}
}

// faulty is a root of its own, and a way to it through a proxy.
func faulty(t testing.TB) (direct, through Config, proxy *netfault.Proxy) {
	direct = testConfig(t)
	proxy = netfault.NewT(t, direct.Servers[0], netfault.Framed())
	through = direct
	through.Servers = []string{proxy.Addr()}
	return direct, through, proxy
}

func gatewayID(n int) string { return fmt.Sprintf("gateway%06d", n) }

func await[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testLimit):
		t.Fatal("waited too long")
		panic("unreachable")
	}
}

// eventually polls for what no event tells.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(testLimit)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within %v", what, testLimit)
		}
	}
}

// probe is another program's session, which looks at what is really there and
// meddles with it. Paths are below its chroot. Its methods fail the test.
type probe struct {
	t      testing.TB
	lib    *gozk.Conn
	chroot string
}

// newProbe connects a probe, with the configuration's servers, chroot and identity.
func newProbe(t testing.TB, cfg Config) *probe {
	t.Helper()
	lib, events, err := gozk.Connect(cfg.Servers, 10*time.Second, gozk.WithLogInfo(false), gozk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lib.Close()
		for range events { // ends when the library has
		}
	})
	if cfg.Auth != nil {
		if err := lib.AddAuth("digest", []byte(cfg.Auth.User+":"+cfg.Auth.Password)); err != nil {
			t.Fatal(err)
		}
	}
	return &probe{t, lib, cfg.Chroot}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (p *probe) full(path string) string {
	if path == "/" && p.chroot != "" {
		return p.chroot
	}
	return p.chroot + path
}

func (p *probe) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("probe: %v", err)
	}
}

// stat is nil for a node that is not there.
func (p *probe) stat(path string) *gozk.Stat {
	p.t.Helper()
	there, stat, err := p.lib.Exists(p.full(path))
	p.must(err)
	if !there {
		return nil
	}
	return stat
}

func (p *probe) children(path string) []string {
	p.t.Helper()
	children, _, err := p.lib.Children(p.full(path))
	p.must(err)
	slices.Sort(children)
	return children
}

// get may be refused.
func (p *probe) get(path string) (string, error) {
	data, _, err := p.lib.Get(p.full(path))
	return string(data), err
}

// create makes a node that everyone may use; tryCreate may be refused.
func (p *probe) create(path, data string) {
	p.t.Helper()
	p.must(p.tryCreate(path, data, gozk.WorldACL(gozk.PermAll)))
}

func (p *probe) tryCreate(path, data string, acl []gozk.ACL) error {
	_, err := p.lib.Create(p.full(path), []byte(data), 0, acl)
	return err
}

func (p *probe) delete(path string) {
	p.t.Helper()
	p.must(p.lib.Delete(p.full(path), -1))
}

// set writes a node; trySet may be refused.
func (p *probe) set(path, data string) {
	p.t.Helper()
	p.must(p.trySet(path, data))
}

func (p *probe) trySet(path, data string) error {
	_, err := p.lib.Set(p.full(path), []byte(data), -1)
	return err
}

func (p *probe) acl(path string) ([]gozk.ACL, *gozk.Stat) {
	p.t.Helper()
	acl, stat, err := p.lib.GetACL(p.full(path))
	p.must(err)
	return acl, stat
}

// setACL gives a node another ACL; trySetACL may be refused.
func (p *probe) setACL(path string, acl []gozk.ACL) {
	p.t.Helper()
	p.must(p.trySetACL(path, acl))
}

func (p *probe) trySetACL(path string, acl []gozk.ACL) error {
	_, err := p.lib.SetACL(p.full(path), acl, -1)
	return err
}

// locksDir is a lock's directory that exists.
func locksDir(t testing.TB, p *probe, name string) string {
	t.Helper()
	dir := DefaultRoot + "/locks/" + name
	p.create(dir, "")
	return dir
}

// about matches transactions that mention a path or a part of it.
func about(part string) func(netfault.Frame) bool {
	return func(f netfault.Frame) bool {
		return f.Op() == netfault.OpMulti && strings.Contains(string(f.Raw), part)
	}
}

// multis counts the transactions that were passed on.
func multis(c *netfault.Counter) int { return c.Counts()[netfault.OpMulti] }

// manualClock is a Clock that a test sets.
type manualClock struct {
	mu  sync.Mutex
	now Instant
}

func newManualClock(now Instant) *manualClock { return &manualClock{now: now} }

func (c *manualClock) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) advance(boot, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = At(c.now.Boot()+boot, c.now.Wall()+wall)
}

// mustBeFatal checks that an error is final, and of that kind.
func mustBeFatal(t *testing.T, doing string, err error, kind FatalKind) {
	t.Helper()
	var fatal *FatalError
	if !errors.As(err, &fatal) || fatal.Kind != kind {
		t.Errorf("%s: %v, want a FatalError of kind %s", doing, err, kind)
	} else if fatal.Hint == "" {
		t.Errorf("%s: %v has no hint", doing, err)
	}
}

// script is a server that accepts connections and does with each what the test
// says.
func script(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr().String()
}

// handshake answers a connect request as a server does.
func handshake(conn net.Conn) error {
	request := make([]byte, 4+44)
	if _, err := io.ReadFull(conn, request); err != nil {
		return err
	}
	answer := make([]byte, 4+36)
	binary.BigEndian.PutUint32(answer, 36)
	binary.BigEndian.PutUint32(answer[8:], 4000)
	binary.BigEndian.PutUint64(answer[12:], 77)
	binary.BigEndian.PutUint32(answer[20:], 16)
	_, err := conn.Write(answer)
	return err
}

// authRefusal is a server's no to an auth request.
func authRefusal() []byte {
	return wire.AppendFrame(nil, &wire.ReplyHeader{Xid: wire.XidAuth, Err: wire.ErrAuthFailed})
}

// Try says how a row is met: at the first attempt, or after an attempt that
// was lost on the way there (failed) or on the way back (failed but persisted).
type Try string

const (
	First          Try = "first"
	AfterFailed    Try = "after one that failed"
	AfterPersisted Try = "after one that failed but persisted"
)

// Lose makes the next matching request fail in the way of the try.
func (how Try) Lose(proxy *netfault.Proxy, match func(netfault.Frame) bool) {
	switch how {
	case AfterFailed:
		proxy.FailRequest(1, match)
	case AfterPersisted:
		proxy.FailReply(1, match)
	}
}

// Tries are all ways of meeting a row.
var Tries = []Try{First, AfterFailed, AfterPersisted}

// Assassin ends the session of the connection that it dialed, as an expiry
// does, without the wait: it sends the request to close it.
type Assassin struct {
	mu   sync.Mutex
	conn net.Conn
}

func (a *Assassin) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = conn
	return conn, err
}

func (a *Assassin) Strike(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	const xid = 1 << 30
	frame := wire.BeginFrame(nil)
	frame = wire.AppendInt(frame, xid)
	frame = wire.AppendInt(frame, int32(wire.OpCloseSession))
	if _, err := a.conn.Write(wire.EndFrame(frame, 0)); err != nil {
		t.Fatal(err)
	}
}
