package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

func TestALineThatIsChangedLeftOutRepeatedOrAnothersIsRefused(t *testing.T) {
	keys := keysOf(t, first)
	ends := func() (teller, listener *Lines) {
		r, body, sent := sealed(keys)
		got := assert.Value(keys.Open(r, body))(t)
		return keys.Lines(got), keys.Lines(sent)
	}
	line := func(l *Lines, n int) []byte {
		closed := l.Close(fmt.Sprint("place-", n), [][]byte{fmt.Appendf(nil, `{"n":%d}`, n)})
		return closed[:len(closed)-1]
	}
	teller, listener := ends()
	for n := range 3 {
		at, news, err := listener.Open(line(teller, n))
		assert.Must(t, err == nil && at == fmt.Sprint("place-", n) && len(news) == 1 && string(news[0]) == fmt.Sprintf(`{"n":%d}`, n),
			"%q %s %v", at, news, err)
	}
	for name, other := range map[string]func(teller *Lines) []byte{
		"changed":  func(l *Lines) []byte { return []byte(strings.Replace(string(line(l, 0)), "place-0", "place-1", 1)) },
		"left out": func(l *Lines) []byte { line(l, 0); return line(l, 1) },
		"of another stream": func(*Lines) []byte {
			another, _ := ends()
			return line(another, 0)
		},
		"without a seal": func(l *Lines) []byte {
			_, doc, _ := strings.Cut(string(line(l, 0)), " ")
			return []byte(doc)
		},
		"with a wrong one": func(l *Lines) []byte { return append([]byte("AAAA"), line(l, 0)...) },
		"empty":            func(*Lines) []byte { return nil },
	} {
		teller, listener := ends()
		_, news, err := listener.Open(other(teller))
		assert.That(t, errors.Is(err, ErrSeal), "a line that is %s: %s %v", name, news, err)
	}
	teller, listener = ends()
	once := line(teller, 0)
	_, _, err := listener.Open(once)
	assert.NoError(t, err)
	_, _, err = listener.Open(once)
	assert.That(t, errors.Is(err, ErrSeal), "a line that is repeated: %v", err)
}

// pipes are a network in memory: its connections are known to virtual time.
type pipes struct {
	mu    sync.Mutex
	doors map[string]chan net.Conn
}

func (p *pipes) dial(_ context.Context, _, address string) (net.Conn, error) {
	p.mu.Lock()
	door := p.doors[address]
	p.mu.Unlock()
	if door == nil {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	door <- there
	return here, nil
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// serve has an address answered until the test ends, or close is called.
func (p *pipes) serve(t *testing.T, address string, h http.HandlerFunc) (end func()) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.mu.Lock()
	p.doors[address] = l.conns
	p.mu.Unlock()
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(l) }()
	end = func() {
		p.mu.Lock()
		delete(p.doors, address)
		p.mu.Unlock()
		_ = server.Close()
	}
	t.Cleanup(end)
	return end
}

func (p *pipes) fleet(self string) *Fleet {
	return New(Options{Secret: func() []layout.TokenKey { return []layout.TokenKey{first} }, Self: func() (string, int64) { return self, 1 }, Dial: p.dial})
}

// plain says what the answer is, which net/http would guess too late for the seal.
func plain(h http.Header) http.Header {
	h.Set("Content-Type", "text/plain")
	return h
}

// reporter answers followers: each gets the lines from its place on, and then nothing until it leaves.
func reporter(t *testing.T, keys *Keys, told func(since string) (at string, news [][]byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seal, err := keys.Open(r, nil)
		if err != nil || r.URL.Path != StreamPath {
			t.Errorf("%s: %v", r.URL, err)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		keys.CloseAnswer(seal, http.StatusOK, plain(w.Header()), nil)
		w.WriteHeader(http.StatusOK)
		at, news := told(r.URL.Query().Get("since"))
		_, _ = w.Write(keys.Lines(seal).Close(at, news))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

func TestAStreamIsNotFollowedWhenAnotherProgramAnswers(t *testing.T) {
	keys := keysOf(t, first)
	never := func(string, [][]byte) { t.Error("something was heard") }
	for name, answer := range map[string]http.HandlerFunc{
		"another program": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) },
		"another fleet": func(w http.ResponseWriter, r *http.Request) {
			others := keysOf(t, second)
			seal := &Seal{From: "a", To: "b"}
			others.Close(seal, r, nil)
			others.CloseAnswer(seal, http.StatusOK, plain(w.Header()), nil)
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(others.Lines(seal).Close("x", [][]byte{[]byte(`{}`)}))
		},
		"lines that another program put in": func(w http.ResponseWriter, r *http.Request) {
			seal, err := keys.Open(r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			keys.CloseAnswer(seal, http.StatusOK, plain(w.Header()), nil)
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte("AAAA {\"at\":\"x\"}\n"))
		},
		"one that is a gateway no more": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) },
		"one that leads elsewhere":      func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
	} {
		server := httptest.NewServer(answer)
		f := New(Options{Secret: func() []layout.TokenKey { return []layout.TokenKey{first} }, Self: func() (string, int64) { return "gatewayone", 1 }})
		err := f.Follow(t.Context(), Peer{"gatewaytwo", strings.TrimPrefix(server.URL, "http://")}, "", never)
		assert.That(t, err != nil && !errors.Is(err, io.EOF), "%s: %v", name, err)
		f.Close()
		server.Close()
	}
}

func TestAStreamThatFallsSilentIsBegunAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{doors: map[string]chan net.Conn{}}
		p.serve(t, "two:8080", reporter(t, keysOf(t, first), func(string) (string, [][]byte) { return "a", nil }))
		f := p.fleet("gatewayone")
		defer f.Close()
		began := time.Now()
		err := f.Follow(t.Context(), Peer{"gatewaytwo", "two:8080"}, "", func(string, [][]byte) {})
		took := time.Since(began)
		assert.That(t, errors.Is(err, errSilent) && took >= streamSilence && took <= streamSilence+time.Second, "%v after %v", err, took)
	})
}

func TestEveryOtherGatewayIsFollowedAsLongAsItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keysOf(t, first)
		p := &pipes{doors: map[string]chan net.Conn{}}
		var mu sync.Mutex
		var asked, heard, following []string
		note := func(list *[]string, format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			*list = append(*list, fmt.Sprintf(format, args...))
		}
		want := func(what string, got []string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			assert.That(t, slices.Equal(got, want), "%s: %q, want %q", what, got, want)
		}
		serve := func(name string) func() {
			return p.serve(t, name+":8080", reporter(t, keys, func(since string) (string, [][]byte) {
				note(&asked, "%s since %s", name, since)
				return "place-of-" + name, [][]byte{[]byte(`"` + name + `"`)}
			}))
		}
		var peers []Peer
		changed := make(chan struct{})
		move := func(now ...Peer) {
			mu.Lock()
			peers = now
			close(changed)
			changed = make(chan struct{})
			mu.Unlock()
			synctest.Wait()
		}
		f := p.fleet("gatewayone")
		l := &Listener{Fleet: f, Peers: func() []Peer { mu.Lock(); defer mu.Unlock(); return peers },
			Changed:   func() <-chan struct{} { mu.Lock(); defer mu.Unlock(); return changed },
			Receive:   func(g string, news [][]byte) { note(&heard, "%s: %s", g, news[0]) },
			Following: func(g string, is bool) { note(&following, "%s %v", g, is) }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		defer func() {
			cancel()
			<-ended
			f.Close()
		}()

		endTwo := serve("two")
		move(Peer{"g2", "two:8080"}, Peer{"g3", "three:8080"})
		want("followed", following, "g2 true")
		want("heard", heard, `g2: "two"`)
		serve("three") // later than its registration
		time.Sleep(time.Minute / 2)
		endTwo()
		synctest.Wait()
		serve("two")
		time.Sleep(time.Minute / 2)
		mu.Lock()
		n := len(asked)
		assert.That(t, n >= 3 && n <= 20, "asked %d times: %q", n, asked)
		if !slices.Contains(asked, "three since ") || !slices.Contains(asked, "two since place-of-two") || !slices.Contains(following, "g2 false") {
			t.Errorf("asked %q, followed %q", asked, following)
		}
		asked, heard, following = nil, nil, nil
		mu.Unlock()
		move(Peer{"g2again", "two:8080"}) // it has a new session; the other one is gone
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(following)
		if !slices.Equal(asked, []string{"two since place-of-two"}) || !slices.Equal(following, []string{"g2 false", "g2again true", "g3 false"}) {
			t.Errorf("asked %q, followed %q", asked, following)
		}
	})
}

// A gateway's registration can be seen before the gateway knows that it is its own, and as long as that of a former session.
func TestAGatewayNeitherFollowsNorAsksItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		p := &pipes{doors: map[string]chan net.Conn{}}
		for _, door := range []string{"one:8080", "two:8080"} {
			p.serve(t, door, reporter(t, keysOf(t, first), func(string) (string, [][]byte) {
				asked.Add(1)
				return "a", nil
			}))
		}
		f := New(Options{Secret: secret, Self: func() (string, int64) { return "former", 1 }, Dial: p.dial, Address: "one:8080"})
		defer f.Close()
		var following []string
		l := &Listener{Fleet: f, Changed: func() <-chan struct{} { return nil }, Receive: func(string, [][]byte) {},
			Peers: func() []Peer {
				return []Peer{{"fresh", "one:8080"}, {"former", "http://one:8080"}, {"two", "two:8080"}}
			},
			Following: func(gateway string, is bool) { following = append(following, fmt.Sprint(gateway, " ", is)) }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		time.Sleep(time.Minute)
		var failed *SendError
		_, err := f.Send(ctx, &Request{Address: "one:8080", Method: "GET", URI: "/", Seal: Seal{To: "fresh"}})
		assert.That(t, errors.As(err, &failed) && !failed.Sent && errors.Is(err, ErrOwnAddress), "it asks itself: %v", err)
		cancel()
		<-ended
		assert.That(t, !slices.ContainsFunc(following, func(f string) bool { return !strings.HasPrefix(f, "two ") }) && asked.Load() != 0,
			"it followed %q", following)
	})
}

func TestOthersAreFollowedAsSoonAsThereIsASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{doors: map[string]chan net.Conn{}}
		p.serve(t, "two:8080", reporter(t, keysOf(t, first), func(string) (string, [][]byte) { return "a", nil }))
		var session atomic.Bool
		f := New(Options{Secret: secret, Dial: p.dial, Self: func() (string, int64) {
			if session.Load() {
				return "one", 1
			}
			return "", 0
		}})
		defer f.Close()
		var log bytes.Buffer
		var followed atomic.Bool
		l := &Listener{Fleet: f, Changed: func() <-chan struct{} { return nil }, Receive: func(string, [][]byte) {}, Peers: func() []Peer { return []Peer{{"two", "two:8080"}} },
			Following: func(_ string, is bool) { followed.Store(is) }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		time.Sleep(time.Minute)
		assert.That(t, !followed.Load(), "it follows before others can know who it is")
		session.Store(true)
		time.Sleep(2 * firstPause)
		synctest.Wait()
		assert.That(t, followed.Load(), "it does not follow")
		cancel()
		<-ended
		assert.That(t, log.Len() <= 0, "it complains: %s", log.String())
	})
}
