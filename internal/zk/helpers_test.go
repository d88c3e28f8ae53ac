package zk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
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

func openLayout(t testing.TB, cfg Config) *Layout {
	t.Helper()
	layout, err := OpenLayout(testContext(t), cfg)
	if err != nil {
		t.Fatalf("OpenLayout: %v", err)
	}
	return layout
}

func gatewayID(n int) string { return fmt.Sprintf("gateway%06d", n) }

func openSession(t testing.TB, cfg Config, layout *Layout, n int) *Session {
	t.Helper()
	s, err := OpenSession(testContext(t), cfg, layout, gatewayID(n), []byte("here"))
	if err != nil {
		t.Fatalf("OpenSession: %v", err)
	}
	t.Cleanup(func() { closeSession(t, s) })
	return s
}

// closeSession ends a session and waits until nothing of it is left.
func closeSession(t testing.TB, s *Session) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = s.Close(ctx) // a session that the test has broken does not close in good order
	select {
	case <-s.released:
	case <-time.After(testLimit):
		t.Error("the session's goroutines did not end")
	}
}

// write submits and waits.
func write(t testing.TB, s *Session, ops ...Op) Result {
	t.Helper()
	return await(t, submit(t, s, &Write{Ops: ops}))
}

func submit(t testing.TB, s *Session, w *Write) <-chan Result {
	t.Helper()
	result := make(chan Result, 2) // a second answer would be found by mustBeDone
	w.Done = func(r Result) { result <- r }
	if err := s.Submit(w); err != nil {
		t.Fatalf("Submit: %v", err)
	}
	return result
}

// attempt is submit and await for goroutines that are not the test's own.
func attempt(s *Session, w *Write) Result {
	result := make(chan Result, 1)
	w.Done = func(r Result) { result <- r }
	if err := s.Submit(w); err != nil {
		return Result{Outcome: NotDone, Err: err}
	}
	select {
	case r := <-result:
		return r
	case <-time.After(testLimit):
		return Result{Err: errors.New("waited too long")}
	}
}

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

func mustBeDone(t testing.TB, r Result) Result {
	t.Helper()
	if r.Outcome != Done {
		t.Fatalf("outcome %d, error %v, culprit %d; want Done", r.Outcome, r.Err, r.Culprit)
	}
	return r
}

// probe is a second session's connection, without registration, that looks at
// what is really there.
type probe struct {
	t testing.TB
	c *conn
}

func newProbe(t testing.TB, cfg Config) *probe {
	t.Helper()
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(testContext(t), &cfg, func() {})
	if err != nil {
		t.Fatalf("connecting a probe: %v", err)
	}
	t.Cleanup(func() {
		c.end(errLayoutRead)
		await(t, c.closed)
	})
	return &probe{t, c}
}

func (p *probe) stat(path string) *Stat {
	p.t.Helper()
	stat, err := p.c.exists(testContext(p.t), path)
	if err != nil {
		p.t.Fatalf("probe: %v", err)
	}
	return stat
}

func (p *probe) children(path string) []string {
	p.t.Helper()
	children, _, err := p.c.list(testContext(p.t), path)
	if err != nil {
		p.t.Fatalf("probe: %v", err)
	}
	slices.Sort(children)
	return children
}

func (p *probe) create(path string, data string) {
	p.t.Helper()
	if err := p.c.create(testContext(p.t), p.c.cfg, path, []byte(data), above); err != nil {
		p.t.Fatalf("probe: %v", err)
	}
}

func (p *probe) delete(path string) {
	p.t.Helper()
	if err := p.c.lib.Delete(p.c.cfg.full(path), -1); err != nil {
		p.t.Fatalf("probe: deleting %s: %v", path, err)
	}
}

func (p *probe) set(path, data string) {
	p.t.Helper()
	if _, err := p.c.lib.Set(p.c.cfg.full(path), []byte(data), -1); err != nil {
		p.t.Fatalf("probe: setting %s: %v", path, err)
	}
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

func (c *manualClock) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) advance(boot, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = At(c.now.boot+boot, c.now.wall+wall)
}
