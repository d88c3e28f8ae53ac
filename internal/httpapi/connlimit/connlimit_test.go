package connlimit

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// fake is a connection from somewhere that notes whether it was closed.
type fake struct {
	net.Conn
	from   string
	closed bool
}

func (f *fake) Close() error { f.closed = true; return nil }
func (f *fake) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.from), 1000))
}

// scene is a limiter that is told the time.
type scene struct {
	t   *testing.T
	l   *Limiter
	now time.Time
	log bytes.Buffer
}

func newScene(t *testing.T, limits Limits) *scene {
	s := &scene{t: t, now: time.Unix(1_000_000, 0)}
	s.l = New(limits, slog.New(slog.NewTextHandler(&s.log, nil)))
	return s
}

// open opens a connection; nil when there was no room.
func (s *scene) open(from string) *conn {
	c, _ := s.l.admit(&fake{from: from}, s.now).(*conn)
	return c
}

func (s *scene) mustOpen(from string) *conn {
	s.t.Helper()
	c := s.open(from)
	assert.Must(s.t, c != nil, "there was no room")
	return c
}

// served lets a connection have a request that is answered now.
func (s *scene) served(c *conn) *conn {
	assert.Must(s.t, c.asked(false, false, s.now), "the request was not begun")
	c.answered()
	c.since = s.now
	s.now = s.now.Add(time.Millisecond)
	return c
}

func (s *scene) wantClosed(want bool, conns ...*conn) {
	s.t.Helper()
	for i, c := range conns {
		assert.That(s.t, c.Conn.(*fake).closed == want, "connection %d: closed is %v", i, !want)
	}
}

func TestTheLongestQuietConnectionMakesRoom(t *testing.T) {
	s := newScene(t, Limits{Connections: 3, PerAddress: 3})
	a, b, c := s.served(s.mustOpen("10.0.0.1")), s.served(s.mustOpen("10.0.0.2")), s.served(s.mustOpen("10.0.0.3"))
	s.served(a) // b is the longest quiet one now
	d := s.mustOpen("10.0.0.4")
	s.wantClosed(true, b)
	s.wantClosed(false, a, c, d)
	assert.That(t, d.asked(false, false, s.now), "the newcomer's request was not begun")
	assert.That(t, !b.asked(false, false, s.now), "a request was begun on a connection that is closed")
	if got := s.l.State(); got.Open != 3 || got.Displaced != 1 || got.Refused != 0 || len(s.l.addresses) != 3 {
		t.Errorf("%+v, %d addresses", got, len(s.l.addresses))
	}
}

func TestWhereNoConnectionIsQuietTheNewcomerIsClosed(t *testing.T) {
	s := newScene(t, Limits{Connections: 2, PerAddress: 2})
	a, b := s.mustOpen("10.0.0.1"), s.mustOpen("10.0.0.2")
	a.asked(false, false, s.now)
	b.asked(false, false, s.now)
	for range 5 {
		assert.Must(t, s.open("10.0.0.3") == nil, "there was room")
	}
	s.wantClosed(false, a, b)
	got := s.l.State()
	assert.That(t, got.Open == 2 && got.Refused == 5 && got.RefusedOfOneAddress == 0, "%+v", got)
	if n := strings.Count(s.log.String(), "\n"); n != 1 {
		t.Errorf("%d lines are logged:\n%s", n, &s.log)
	}
	s.now = s.now.Add(logEvery)
	s.open("10.0.0.3")
	assert.That(t, strings.Contains(s.log.String(), "closed=5"), "a minute later:\n%s", &s.log)
	a.Close()
	a.Close() // as net/http may
	s.mustOpen("10.0.0.3")
}

func TestAConnectionThatNeverAskedCountsAsQuietAfterItsGrace(t *testing.T) {
	s := newScene(t, Limits{Connections: 2, PerAddress: 2})
	a, b := s.mustOpen("10.0.0.1"), s.mustOpen("10.0.0.1")
	assert.That(t, s.open("10.0.0.2") == nil, "a newcomer took the place of one that had no time to ask")
	s.now = s.now.Add(grace)
	s.mustOpen("10.0.0.2")
	s.wantClosed(true, a)
	s.wantClosed(false, b)
}

func TestOneThatNeverAskedGoesBeforeOneThatHasBeenQuietForLessTime(t *testing.T) {
	s := newScene(t, Limits{Connections: 2, PerAddress: 2})
	mute := s.mustOpen("10.0.0.1")
	s.now = s.now.Add(2 * grace)
	kept := s.served(s.mustOpen("10.0.0.2"))
	s.mustOpen("10.0.0.3")
	s.wantClosed(true, mute)
	s.wantClosed(false, kept)
}

func TestAnAddressTakesRoomFromItselfAlone(t *testing.T) {
	s := newScene(t, Limits{Connections: 4, PerAddress: 2})
	other := s.served(s.mustOpen("10.0.0.9"))
	a, b := s.served(s.mustOpen("10.0.0.1")), s.served(s.mustOpen("10.0.0.1"))
	c := s.mustOpen("10.0.0.1")
	s.wantClosed(true, a)
	s.wantClosed(false, other, b, c)
	b.asked(false, false, s.now)
	c.asked(false, false, s.now)
	assert.That(t, s.open("10.0.0.1") == nil, "an address has more than its share")
	got := s.l.State()
	assert.That(t, got.RefusedOfOneAddress == 1 && got.Refused == 0 && got.MostOfOneAddress == 2, "%+v", got)
	s.mustOpen("10.0.0.8")
}

func TestWhatIsOneAddress(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"10.0.0.1", "::ffff:10.0.0.1", true},
		{"2001:db8::1", "2001:db8::ffff:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
	} {
		a, b := (&fake{from: test.a}).RemoteAddr(), (&fake{from: test.b}).RemoteAddr()
		assert.That(t, (originOf(a) == originOf(b)) == test.same, "%s and %s: the same is %v", test.a, test.b, !test.same)
	}
	user := func(name string) net.Addr { return &net.UnixAddr{Name: name} } // as unixsock says it
	assert.That(t, originOf(user("uid:1")) == origin{name: "uid:1"} && originOf(user("uid:1")) != originOf(user("uid:2")), "users of a socket")
}

func TestDefaults(t *testing.T) {
	for _, test := range []struct {
		is     Limits
		files  uint64
		memory int64
		want   Limits
	}{
		{Limits{}, 256, gib, Limits{192, 144}},
		{Limits{}, 20_000, gib, Limits{12_000, 9000}},
		{Limits{}, 20_000, 2 * gib, Limits{17_500, 13_125}},
		{Limits{}, 1 << 62, 1 << 62, Limits{1<<20 - 1<<17, 688_128}},
		{Limits{}, 10, gib, Limits{1, 1}},
		{Limits{Connections: 4}, 20_000, gib, Limits{4, 3}},
		{Limits{PerAddress: 5}, 256, gib, Limits{192, 5}},
	} {
		assert.Equal(t, test.is.Default(test.files, test.memory), test.want, "%+v, %d files, %d bytes", test.is, test.files, test.memory)
	}
}

// What happens by chance: after each step everything that is counted is as it is when it is counted anew, and the one that
// made room is the one that a look at all of them finds.
func TestTheCountsAreTrueAfterAnyFailure(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := newScene(t, Limits{Connections: 8, PerAddress: 5})
		var all []*conn
		pick := func() *conn { return all[rng.IntN(len(all))] }
		for range 400 {
			s.now = s.now.Add(time.Duration(rng.IntN(int(grace))))
			switch n := rng.IntN(10); {
			case n < 4 || len(all) == 0:
				from := fmt.Sprintf("10.0.0.%d", rng.IntN(3))
				victim := longestOf(all, s, from)
				c := s.open(from)
				assert.Must(t, victim == nil || c != nil && victim.state == closed,
					"seed %d: the longest quiet connection did not make room", seed)
				if c != nil {
					all = append(all, c)
				}
			case n < 5:
				pick().asked(false, false, s.now)
			case n < 6:
				pick().asked(false, true, s.now)
			case n < 7:
				pick().arrived()
			case n < 9:
				c := pick()
				c.answered()
				if c.state == idle && c.since.After(s.now) { // it has just been answered, by the real clock
					c.since = s.now
				}
			default:
				pick().Close()
			}
			all = slices.DeleteFunc(all, func(c *conn) bool { return c.state == closed })
			s.check(seed, all)
		}
	}
}

// longestOf looks at all connections for the one that has to make room for a newcomer; nil when none has to or can.
func longestOf(all []*conn, s *scene, from string) (victim *conn) {
	at := origin{ip: netip.MustParseAddr(from)}
	scope := all
	if own := slices.DeleteFunc(slices.Clone(all), func(c *conn) bool { return c.from != at }); len(own) >= s.l.limits.PerAddress {
		scope = own
	} else if len(all) < s.l.limits.Connections {
		return nil
	}
	for _, c := range scope {
		quiet := c.state == idle || c.state == fresh && s.now.Sub(c.since) >= grace
		if quiet && (victim == nil || c.since.Before(victim.since)) {
			victim = c
		}
	}
	return victim
}

func (s *scene) check(seed uint64, all []*conn) {
	s.t.Helper()
	s.l.mu.Lock() // its timer runs
	defer s.l.mu.Unlock()
	by := map[origin]int{}
	for _, c := range all {
		by[c.from]++
		assert.Must(s.t, c.listed() == (c.state < serving) && c.links[ofAddress].in == c.listed(),
			"seed %d: a connection in state %d is listed: %v", seed, c.state, c.links)
	}
	assert.Must(s.t, s.l.open == len(all) && len(s.l.addresses) == len(by),
		"seed %d: %d open of %d addresses, counted %d of %d", seed, len(all), len(by), s.l.open, len(s.l.addresses))
	for at, n := range by {
		assert.Must(s.t, s.l.addresses[at].open == n, "seed %d: %d of %s, counted %d", seed, n, at, s.l.addresses[at].open)
	}
}

// With net/http: kept connections, one that is hijacked, one that never asks.
func TestAServerKeepsToTheBound(t *testing.T) {
	limiter := New(Limits{Connections: 3, PerAddress: 3}, slog.New(slog.DiscardHandler))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijack" {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		}
	}))
	limiter.Bound(server.Config)
	server.Listener = limiter.Listener(server.Listener)
	server.Start()
	defer server.Close()
	ask := func(c net.Conn, path string) string {
		t.Helper()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		answer := make([]byte, 12)
		_, _ = io.ReadFull(c, answer)
		return string(answer)
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		assert.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	hijacked, kept := dial(), dial()
	assert.MustEqual(t, ask(hijacked, "/hijack"), "HTTP/1.1 101")
	for round := range 10 { // each takes the place of the one before
		assert.MustEqual(t, ask(kept, "/"), "HTTP/1.1 200", "round %d", round)
		awaitIdle(t, limiter)
		kept = dial()
	}
	assert.MustEqual(t, ask(kept, "/hijack"), "HTTP/1.1 101")
	awaitIdle(t, limiter)
	third := dial()
	assert.MustEqual(t, ask(third, "/hijack"), "HTTP/1.1 101")
	if got := ask(dial(), "/"); got != strings.Repeat("\x00", 12) {
		t.Errorf("a newcomer was answered %q though all connections are hijacked", got)
	}
	s := limiter.State()
	assert.That(t, s.RefusedOfOneAddress == 1 && s.Displaced != 0, "%+v", s)
}

// awaitIdle waits until a connection is idle: the server says that a request is over after its client has read the answer.
func awaitIdle(t *testing.T, limiter *Limiter) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() bool {
		limiter.mu.Lock()
		defer limiter.mu.Unlock()
		return limiter.quiet.idle.first != nil
	}, "the connection that asked last is idle")
}

// A connection over TLS is quiet between its requests, and one that is never shaken hands with goes after its grace.
func TestOverTLSAConnectionIsCountedLikeAnother(t *testing.T) {
	limiter := New(Limits{Connections: 2, PerAddress: 2}, slog.New(slog.DiscardHandler))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	limiter.Bound(server.Config)
	server.Listener = limiter.Listener(server.Listener)
	server.StartTLS()
	defer server.Close()
	mute := assert.Value(net.Dial("tcp", server.Listener.Addr().String()))(t)
	defer mute.Close()
	for range 5 {
		c, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		assert.NoError(t, err)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer := make([]byte, 12)
		_, err = io.ReadFull(c, answer)
		assert.That(t, err == nil && string(answer) == "HTTP/1.1 200", "%q %v", answer, err)
		awaitIdle(t, limiter)
	}
	s := limiter.State()
	assert.That(t, s.Open == 2 && s.Displaced == 4 && s.RefusedOfOneAddress == 0, "%+v", s)
}

// The connections of a proxy stand for many clients.
func TestASharedAddressIsBoundedByAllAlone(t *testing.T) {
	s := newScene(t, Limits{Connections: 4, PerAddress: 2})
	s.l.Share(func(at net.Addr) bool { return originOf(at).ip == netip.MustParseAddr("10.0.0.1") })
	for range 3 {
		s.mustOpen("10.0.0.1").asked(false, false, s.now)
	}
	s.mustOpen("10.0.0.2").asked(false, false, s.now)
	assert.That(t, s.open("10.0.0.1") == nil, "there was room for more than all")
	got := s.l.State()
	assert.That(t, got.Refused == 1 && got.RefusedOfOneAddress == 0 && got.MostOfOneAddress == 1, "%+v", got)
}

func BenchmarkARequest(b *testing.B) {
	l := New(Limits{Connections: 10, PerAddress: 10}, slog.New(slog.DiscardHandler))
	c := l.admit(&fake{from: "10.0.0.1"}, time.Now()).(*conn)
	b.ReportAllocs()
	for b.Loop() {
		c.asked(false, false, time.Time{})
		c.answered()
	}
}

// A request keeps its place from when its body has been read, not before.
func TestARequestWhoseBodyIsAwaitedIsQuietAfterItsGrace(t *testing.T) {
	s := newScene(t, Limits{Connections: 2, PerAddress: 2})
	mute, whole := s.mustOpen("10.0.0.1"), s.mustOpen("10.0.0.2")
	mute.asked(false, true, s.now)
	whole.asked(false, true, s.now)
	assert.That(t, s.open("10.0.0.3") == nil, "a newcomer took the place of a request that had no time to arrive")
	assert.That(t, whole.arrived(), "the body did not arrive")
	s.now = s.now.Add(grace)
	s.mustOpen("10.0.0.3")
	s.wantClosed(true, mute)
	s.wantClosed(false, whole)
	assert.That(t, !mute.arrived(), "a body arrived on a connection that is closed")
}

func TestAConnectionOfHTTP2IsQuietWhenNoRequestOfItIsServed(t *testing.T) {
	s := newScene(t, Limits{Connections: 2, PerAddress: 2})
	c := s.mustOpen("10.0.0.1")
	state := func(want state, since time.Time) {
		t.Helper()
		assert.That(t, c.state == want && (want == serving || c.since.Equal(since)), "state %d since %s, want %d since %s", c.state, c.since, want, since)
	}
	opened := s.now
	c.answered() // net/http says so before the first request
	state(fresh, opened)
	at := func() time.Time { s.now = s.now.Add(time.Second); return s.now }
	first := at()
	assert.Must(t, c.asked(true, true, first), "not begun")
	state(fresh, opened) // a body that never comes buys no time
	assert.Must(t, c.asked(true, true, at()), "not begun")
	state(fresh, opened)
	assert.Must(t, c.asked(true, false, at()), "not begun")
	state(serving, time.Time{})
	c.answered() // the client has given up a request that is still served
	state(serving, time.Time{})
	quiet := at()
	c.finished(true, quiet)
	state(fresh, quiet) // two bodies are awaited
	assert.Must(t, c.arrived(), "closed")
	state(serving, time.Time{})
	c.finished(true, at())
	state(fresh, s.now)
	c.finished(false, at())
	state(idle, s.now)
	s.mustOpen("10.0.0.2")
	s.mustOpen("10.0.0.3")
	s.wantClosed(true, c)
	assert.That(t, !c.asked(true, false, at()), "a request was begun on a connection that is closed")
}

func TestAServerOfHTTP2KeepsToTheBound(t *testing.T) {
	t.Run("plain", func(t *testing.T) { serverOfHTTP2KeepsToTheBound(t, false) })
	t.Run("TLS", func(t *testing.T) { serverOfHTTP2KeepsToTheBound(t, true) })
}

func serverOfHTTP2KeepsToTheBound(t *testing.T, secure bool) {
	limiter := New(Limits{Connections: 2, PerAddress: 2}, slog.New(slog.DiscardHandler))
	arrived, release := make(chan string, 8), make(chan bool)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if r.URL.Path == "/wait" {
			arrived <- r.Proto
			<-release
		}
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetHTTP2(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	limiter.Bound(server.Config)
	server.Listener = limiter.Listener(server.Listener)
	start, scheme := server.Start, "http"
	if secure {
		server.EnableHTTP2 = true
		start, scheme = server.StartTLS, "https"
	}
	start()
	defer server.Close()
	let := sync.OnceFunc(func() { close(release) })
	defer let()                         // Close waits for the requests
	client := func() *http.ClientConn { // one connection, where an http.Client may open several
		t.Helper()
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(!secure)
		if secure {
			transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // what it counts is tested
		}
		c, err := transport.NewClientConn(t.Context(), scheme, server.Listener.Addr().String())
		assert.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	get := func(c *http.ClientConn, path string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader("body"))
		if err != nil {
			return err
		}
		response, err := c.RoundTrip(request)
		if err == nil {
			_, _ = io.ReadAll(response.Body)
			response.Body.Close()
		}
		return err
	}
	busy := client()
	waits := make(chan error, 2)
	for range 2 { // over one connection
		go func() { waits <- get(busy, "/wait") }()
	}
	assert.MustEqual(t, <-arrived, "HTTP/2.0")
	<-arrived
	for range 5 { // each takes the place of the one before, and none that of the busy one
		assert.NoError(t, get(client(), "/"))
		awaitIdle(t, limiter)
	}
	s := limiter.State()
	assert.That(t, s.Open <= 2, "%+v", s)
	let()
	assert.NoError(t, <-waits)
	assert.NoError(t, <-waits)
}
