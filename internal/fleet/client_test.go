package fleet

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

func secret() []layout.TokenKey { return []layout.TokenKey{first} }

// owner answers like a gateway of the fleet.
func owner(t *testing.T, asked *atomic.Int32) http.Handler {
	keys := keysOf(t, first)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		seal, err := keys.Open(r, body)
		if err != nil {
			t.Error(err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "a=b")
		keys.CloseAnswer(seal, 200, w.Header(), body)
		_, _ = w.Write(body)
	})
}

func TestOverTLSAPeerIsTheOneThatItsAuthorityNames(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewTLSServer(owner(t, &asked))
	defer server.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	request := func() *Request {
		return &Request{Address: server.URL, Method: "POST", URI: "/v1/leases/self/heartbeat", Header: http.Header{"Lease-Token": {"t"}, "Cookie": {"c"}},
			Body: []byte("{}"), Timeout: 5 * time.Second, Seal: Seal{To: "two"}}
	}
	for name, c := range map[string]struct {
		pool *x509.CertPool
		ok   bool
	}{"the one that is named": {trusted, true}, "another": {x509.NewCertPool(), false}, "the system's": {nil, false}} {
		f := New(Options{Secret: secret, Self: func() (string, int64) { return "one", 1 }, TLS: func() *tls.Config { return &tls.Config{RootCAs: c.pool} }})
		asked.Store(0)
		answer, err := f.Send(t.Context(), request())
		var failed *SendError
		switch {
		case c.ok && (err != nil || string(answer.Body) != "{}" || answer.Header.Get("Set-Cookie") != "" || asked.Load() != 1):
			t.Errorf("%s: %+v %v", name, answer, err)
		case !c.ok && (!errors.As(err, &failed) || failed.Sent || asked.Load() != 0):
			t.Errorf("%s: %+v, %v after %d requests", name, answer, err, asked.Load())
		}
		f.Close()
	}
	// Nor does it speak to a port that has no TLS.
	plain := httptest.NewServer(owner(t, &asked))
	defer plain.Close()
	f := New(Options{Secret: secret, Self: func() (string, int64) { return "one", 1 }})
	defer f.Close()
	q := request()
	asked.Store(0)
	q.Address = "https://" + strings.TrimPrefix(plain.URL, "http://")
	answer, err := f.Send(t.Context(), q)
	assert.That(t, err != nil && asked.Load() == 0, "%+v after %d requests", answer, asked.Load())
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var asked, dialled atomic.Int32
	server := httptest.NewUnstartedServer(owner(t, &asked))
	server.Start()
	defer server.Close()
	f := New(Options{Secret: secret, Self: func() (string, int64) { return "one", 1 }})
	defer f.Close()
	dial := f.transport.DialContext
	f.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return dial(ctx, network, address)
	}
	for range 20 {
		_, err := f.Send(t.Context(), &Request{Address: strings.TrimPrefix(server.URL, "http://"), Method: "GET", URI: "/v1/leases/x", Seal: Seal{To: "two"}})
		assert.NoError(t, err)
	}
	assert.That(t, asked.Load() == 20 && dialled.Load() == 1, "%d requests over %d connections", asked.Load(), dialled.Load())
}

func TestNothingIsSentBeforeTheSecretIsKnown(t *testing.T) {
	f := New(Options{Secret: func() []layout.TokenKey { return nil }, Self: func() (string, int64) { return "", 1 }})
	defer f.Close()
	var failed *SendError
	_, err := f.Send(t.Context(), &Request{Address: "127.0.0.1:1", Method: "GET", URI: "/"})
	assert.That(t, errors.As(err, &failed) && !failed.Sent && errors.Is(err, ErrNoKeys), "%v", err)
}

func TestAnAddressIsAHostAndAPort(t *testing.T) {
	for address, want := range map[string]string{
		"gateway:8080": "http://gateway:8080", "http://gateway:8080": "http://gateway:8080", "https://10.0.0.1:8443": "https://10.0.0.1:8443", "[::1]:8080": "http://[::1]:8080",
		"gateway": "", "": "", "https://gateway": "", "ftp://gateway:21": "", "https://gateway:8443/path": "", "https://user@gateway:8443": "", "gateway:8080/": "", "gateway:8080?x": "",
		"https://https://gateway:1": "",
	} {
		got, err := BaseURL(address)
		assert.That(t, got == want && (err == nil) == (want != ""), "%q is %q, %v", address, got, err)
	}
}

// Requests that wait at a gateway take nothing from those that do not.
func TestHoweverManyWaitWhatIsAnsweredSoonPasses(t *testing.T) {
	var asked atomic.Int32
	there := owner(t, &asked)
	p := &pipes{doors: map[string]chan net.Conn{}}
	end := p.serve(t, "two:8080", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			asked.Add(1)
			<-r.Context().Done()
			return
		}
		there.ServeHTTP(w, r)
	})
	defer end()
	f := p.fleet("one")
	defer f.Close()
	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer leave()
	for range maxConns + 1 {
		waiting.Go(func() {
			_, _ = f.Send(ctx, &Request{Address: "two:8080", Method: "GET", URI: "/waits", Waits: true, Seal: Seal{To: "two"}})
		})
	}
	for deadline := time.Now().Add(30 * time.Second); asked.Load() < maxConns; time.Sleep(time.Millisecond) {
		assert.Must(t, !time.Now().After(deadline), "%d wait", asked.Load())
	}
	answer, err := f.Send(t.Context(), &Request{Address: "two:8080", Method: "POST", URI: "/v1/leases/self/heartbeat", Body: []byte("{}"), Timeout: 5 * time.Second, Seal: Seal{To: "two"}})
	assert.Must(t, err == nil && answer.Status == http.StatusOK, "while %d wait: %+v %v", maxConns, answer, err)
	assert.That(t, asked.Load() == maxConns+1, "%d were asked", asked.Load())
}

// A client may write into its query what no URL has. What arrives is what it was.
func TestARequestArrivesAsItCame(t *testing.T) {
	var uri atomic.Value
	keys := keysOf(t, first)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uri.Store(r.RequestURI)
		seal, err := keys.Open(r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		keys.CloseAnswer(seal, 200, w.Header(), nil)
	}))
	defer server.Close()
	f := New(Options{Secret: secret, Self: func() (string, int64) { return "one", 1 }})
	defer f.Close()
	for _, is := range []string{"/v1/leases/self?owner=a#b", "/v1/leases/a%2Fb?x=%23", "/v1/leases/self?", "/v1/leases/self?owner=\u00fc&metadata=[1]", "//v1/leases?a"} {
		came, err := http.ReadRequest(bufio.NewReader(strings.NewReader("PATCH " + is + " HTTP/1.1\r\nHost: localhost\r\n\r\n")))
		assert.NoError(t, err)
		if _, err := f.Send(t.Context(), &Request{Address: server.URL, Method: "PATCH", URI: came.URL.RequestURI(), Timeout: 5 * time.Second, Seal: Seal{To: "two"}}); err != nil {
			t.Errorf("%s: %v", is, err)
		} else if uri.Load() != came.URL.RequestURI() {
			t.Errorf("%s arrives as %s", is, uri.Load())
		}
	}
}

// Keys follow the secret: what is sealed next has the first key of now, and a key that is gone opens nothing.
func TestTheKeysFollowTheSecret(t *testing.T) {
	first, second := layout.TokenKey{ID: "k1", Key: []byte("one")}, layout.TokenKey{ID: "k2", Key: []byte("two")}
	secret := []layout.TokenKey{first}
	f := New(Options{Secret: func() []layout.TokenKey { return secret }})
	keys := func() *Keys { return assert.Value(f.Keys())(t) }
	sealed := func() *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/v1/info", nil)
		keys().Close(&Seal{From: "a", To: "b"}, r, nil)
		return r
	}
	open := func(r *http.Request) (*Seal, error) { return keys().Open(r.Clone(t.Context()), nil) }
	was, old := keys(), sealed()
	assert.That(t, keys() == was, "the same keys are derived again")
	secret = []layout.TokenKey{second, first}
	seal, err := open(old)
	assert.That(t, err == nil && keys().Know(seal), "a seal of a key that is accepted: %v", err)
	young := sealed()
	secret = secret[:1]
	_, err = open(young)
	assert.NoError(t, err, "a seal of the key that signs")
	_, err = open(old)
	assert.That(t, errors.Is(err, ErrSeal) && !keys().Know(seal), "a seal of a key that is gone: %v", err)
}
