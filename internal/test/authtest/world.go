package authtest

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
	"lockkeeper/internal/test/zktest"
)

// World is a fleet, and what surrounds it.
type World struct {
	t        testing.TB
	zk       *zktest.Ensemble
	rules    string // path of the file of rules
	clientCA *certtest.Authority
	servers  *certtest.Authority

	Tree     *Tree
	Gateways []*Gateway
	Issuer   *Issuer // in the file of rules
	Stranger *Issuer // not in it
	Log      *Journal
	Mail     *Mail // what receivers of webhooks have got

	spec *apitest.Spec

	clientsMu sync.Mutex
	clients   map[[2]string]*http.Client // by gateway and caller
}

// New starts a fleet of two gateways with that file of rules. It must be called inside a bubble; the world ends with the test.
func New(t testing.TB, rules string) *World {
	t.Helper()
	dir := t.TempDir()
	w := &World{t: t, zk: zktest.Start(t, zktest.Config{Seed: 1}), rules: filepath.Join(dir, "auth.yaml"), Tree: newTree(), Log: &Journal{}, Mail: &Mail{},
		clientCA: certtest.New(t, "clients"), servers: certtest.New(t, "servers"), Issuer: newIssuer("https://id.example.com"), Stranger: newIssuer("https://id.example.net"), spec: assert.Value(apitest.Load())(t), clients: map[[2]string]*http.Client{}}
	w.zk.OnCommit(w.Tree.commit)
	w.Rule(rules)
	t.Cleanup(w.end)
	w.Join("gw1")
	w.Join("gw2")
	return w
}

// Join starts one gateway more, and waits until all serve and know each other.
func (w *World) Join(name string) *Gateway {
	w.t.Helper()
	joined := w.start(name)
	w.Gateways = append(w.Gateways, joined)
	for _, g := range w.Gateways {
		w.await(g)
	}
	return joined
}

// Rule writes the file of rules. Gateways that run read it within 5 s.
func (w *World) Rule(text string) {
	w.t.Helper()
	assert.NoError(w.t, os.WriteFile(w.rules, []byte(text), 0o600))
}

// await waits until the gateway serves and knows the others.
func (w *World) await(g *Gateway) {
	w.t.Helper()
	ready := func() bool {
		registered := 0
		for _, p := range g.manager.Peers() {
			if p.Registered {
				registered++
			}
		}
		_, err := g.tokens.List()
		return g.manager.Ready() == nil && g.manager.Trusted() && registered == len(w.Gateways) && err == nil
	}
	for range 600 {
		if ready() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("%s does not serve: %v\n%s", g.name, g.manager.Ready(), w.Log)
}

// end stops the gateways.
func (w *World) end() {
	for _, c := range w.clients {
		c.CloseIdleConnections()
	}
	for _, g := range w.Gateways {
		g.stop()
	}
	time.Sleep(time.Second) // requests whose connections were closed end in their own time
	if w.t.Failed() {
		w.t.Logf("the end of the log:\n%s", w.Log.tail())
	}
}

// Settle waits until nothing is under way.
func (w *World) Settle() {
	time.Sleep(50 * time.Millisecond) // connections take up to a millisecond for a message
	synctest.Wait()
}

// dial connects a client with a server of the world, by the server's name.
func (w *World) dial(client, server string) (net.Conn, error) {
	return w.zk.Network.Dial(client, server)
}

// Lists is what the gateways show an administrator: locks with their queues, leases with their deadlines, namespaces.
func (w *World) Lists() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	put := func(name string, v any) { all[name] = string(assert.Value(json.Marshal(v))(w.t)) }
	for _, g := range w.Gateways {
		page, err := g.manager.Locks(context.Background(), locks.LockFilter{Principal: locks.Anonymous, NS: locks.DefaultNamespace, Limit: locks.MaxPage})
		assert.NoError(w.t, err)
		for i := range page.Items {
			l, err := g.manager.Lock(context.Background(), locks.LockRequest{Principal: locks.Anonymous, NS: locks.DefaultNamespace, Lock: page.Items[i].Name, Limit: locks.MaxPage})
			assert.NoError(w.t, err)
			forget(l.Holders)
			forget(l.Waiters)
			put(g.name+" lock "+l.Name, l)
		}
		leases, err := g.manager.Leases(context.Background(), locks.LeaseFilter{Principal: locks.Anonymous, Limit: locks.MaxPage})
		assert.NoError(w.t, err)
		for _, l := range leases.Items {
			// The deadline, to a tenth of a second: looking takes no virtual time, and a heartbeat would move it by a second.
			deadline := time.Now().Add(l.ExpiresIn).Round(100 * time.Millisecond)
			l.ExpiresIn, l.LastHeartbeat, l.Term = 0, 0, 0
			put(g.name+" lease "+l.ID, struct {
				locks.Lease
				Deadline time.Time
			}{l, deadline})
		}
		spaces, err := g.manager.Namespaces(context.Background(), locks.Anonymous)
		assert.NoError(w.t, err)
		put(g.name+" namespaces", spaces)
	}
	return all
}

// forget takes out of contenders what passes with time; deadlines are compared with the leases.
func forget(list []locks.Contender) {
	for i := range list {
		list[i].At, list[i].Age, list[i].HeldFor, list[i].HeldAtMost, list[i].ExpiresIn, list[i].LastHeartbeat = time.Time{}, 0, 0, 0, 0, 0
	}
}

// Journal is what the gateways log: log, access log and audit log.
type Journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *Journal) tail() string {
	text := j.String()
	return text[max(0, len(text)-8000):]
}

func (j *Journal) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Mail keeps the messages to receivers of webhooks.
type Mail struct {
	mu   sync.Mutex
	mail []Letter
}

// Letter is one message.
type Letter struct {
	URL     string
	Headers map[string]string
	Body    string
}

func (m *Mail) add(l Letter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mail = append(m.mail, l)
}

// All are the messages so far.
func (m *Mail) All() []Letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mail)
}

// listening is a server and where it listens.
type listening struct {
	server *http.Server
	on     *listener
}

// listener is a net.Listener on the world's network.
type listener struct {
	name   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener(name string) *listener {
	return &listener{name: name, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) take(nc net.Conn) {
	select {
	case l.conns <- nc:
	case <-l.closed:
		nc.Close()
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return name(l.name) }

type name string

func (n name) Network() string { return "world" }
func (n name) String() string  { return string(n) }
