package authtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
)

// Caller is a client with at most one credential.
type Caller struct {
	Name          string
	Authorization string         // the header's value; "" for none
	Certificate   *certtest.Leaf // which the client shows; then it speaks TLS
	Token         *token.Record  // of an API token
	Cookie        string         // of a browser that has logged in; it says with each request that a page of the gateway sends it

	heard Heard
}

// Heard is every byte that a caller has received over connections without TLS.
type Heard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *Heard) add(b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(b)
}

func (h *Heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// Answer is what came back. Err is set when nothing did.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error
}

// Code is the problem's code, or "".
func (a *Answer) Code() string {
	var p api.Problem
	if json.Unmarshal([]byte(a.Body), &p) != nil {
		return ""
	}
	return string(p.Code)
}

// Lease is the answer as a lease.
func (a *Answer) Lease() (l api.Lease) {
	_ = json.Unmarshal([]byte(a.Body), &l)
	return l
}

// Bearer makes an API token of that name, and its caller. A ttl of 0 is for ever.
func (w *World) Bearer(name string, ttl time.Duration, admin bool) *Caller {
	w.t.Helper()
	text, record, err := w.Gateways[0].tokens.Create(context.Background(), token.Request{Name: name, By: "authtest", TTL: ttl, Admin: admin})
	assert.NoError(w.t, err)
	w.Settle() // the other gateway knows it
	return &Caller{Name: name, Authorization: "Bearer " + text, Token: record}
}

// Revoke revokes a caller's API token at the first gateway.
func (w *World) Revoke(c *Caller) {
	w.t.Helper()
	_, err := w.Gateways[0].tokens.Revoke(context.Background(), c.Token.ID, "authtest")
	assert.NoError(w.t, err)
}

// JWT is the caller of a token of an issuer.
func (w *World) JWT(name string, from *Issuer, subject, audience string, valid time.Duration) *Caller {
	w.t.Helper()
	return &Caller{Name: name, Authorization: "Bearer " + from.Sign(w.t, subject, audience, valid)}
}

// recorded keeps what its caller receives.
type recorded struct {
	net.Conn
	heard *Heard
}

func (c *recorded) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.heard.add(b[:n])
	return n, err
}

func (w *World) dialAs(by *Caller, at *Gateway) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		if by.Certificate != nil {
			return w.dial(by.Name, at.name+"-tls")
		}
		conn, err := w.dial(by.Name, at.name)
		if err != nil {
			return nil, err
		}
		return &recorded{conn, &by.heard}, nil
	}
}

// client is a caller's client for a gateway.
func (w *World) client(by *Caller, at *Gateway) *http.Client {
	key := [2]string{at.name, by.Name}
	w.clientsMu.Lock() // requests that wait have goroutines of their own
	defer w.clientsMu.Unlock()
	if c := w.clients[key]; c != nil {
		return c
	}
	transport := &http.Transport{DialContext: w.dialAs(by, at), DisableCompression: true}
	if leaf := by.Certificate; leaf != nil {
		pair := assert.Value(tls.X509KeyPair(leaf.Cert, leaf.Key))(w.t)
		transport.TLSClientConfig = &tls.Config{RootCAs: w.servers.Pool(),
			// Without asking which authorities the gateway knows.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	c := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w.clients[key] = c
	return c
}

func (w *World) request(ctx context.Context, by *Caller, method, path string, options []apitest.Option) *http.Request {
	w.t.Helper()
	scheme := "http"
	if by.Certificate != nil {
		scheme = "https"
	}
	r := assert.Value(http.NewRequestWithContext(ctx, method, scheme+"://localhost"+path, nil))(w.t)
	if by.Authorization != "" {
		r.Header.Set("Authorization", by.Authorization)
	}
	if by.Cookie != "" {
		r.Header.Set("Cookie", by.Cookie)
		r.Header.Set("Origin", "http://localhost")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, option := range options {
		option(r)
	}
	return r
}

// Browser is a caller that has logged in at a gateway with another one's API token.
func (w *World) Browser(name string, at *Gateway, as *Caller) *Caller {
	w.t.Helper()
	b := &Caller{Name: name, Token: as.Token}
	a := w.Send(at, b, http.MethodPost, "/login", apitest.Header("Origin", "http://localhost"), func(r *http.Request) {
		apitest.Body(url.Values{"token": {strings.TrimPrefix(as.Authorization, "Bearer ")}}.Encode())(r)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
	b.Cookie, _, _ = strings.Cut(a.Header.Get("Set-Cookie"), ";")
	assert.Must(w.t, a.Status == http.StatusSeeOther && b.Cookie != "", "%+v", a)
	return b
}

// Send sends a request and reads the answer whole. Of a stream that has begun it reads nothing, and ends it.
func (w *World) Send(at *Gateway, by *Caller, method, path string, options ...apitest.Option) *Answer {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return w.do(ctx, at, by, method, path, options)
}

// Later sends a request that waits. Its answer comes on the channel.
func (w *World) Later(ctx context.Context, at *Gateway, by *Caller, method, path string, options ...apitest.Option) <-chan *Answer {
	done := make(chan *Answer, 1)
	go func() { done <- w.do(ctx, at, by, method, path, options) }()
	return done
}

func (w *World) do(ctx context.Context, at *Gateway, by *Caller, method, path string, options []apitest.Option) *Answer {
	r := w.request(ctx, by, method, path, options)
	response, err := w.client(by, at).Do(r)
	if err != nil {
		return &Answer{Err: err}
	}
	defer response.Body.Close()
	a := &Answer{Status: response.StatusCode, Header: response.Header}
	if streams(response) {
		return a
	}
	body, err := io.ReadAll(response.Body)
	a.Body, a.Err = string(body), err
	if strings.HasPrefix(path, "/v1/") && !strings.Contains(path, "//") && err == nil {
		wrong := w.spec.Check(r, a.Status, a.Header, body)
		assert.That(w.t, wrong == nil, "%s %s: the answer is not what openapi.yaml says: %v\n%s", method, path, wrong, body)
	}
	return a
}

func streams(r *http.Response) bool {
	kind := r.Header.Get("Content-Type")
	return r.StatusCode == http.StatusOK && (strings.HasPrefix(kind, "text/event-stream") || strings.HasPrefix(kind, "application/jsonl") || strings.HasPrefix(kind, "application/x-ndjson"))
}

// Open opens a stream of events. read returns the rest of it once it has ended.
func (w *World) Open(ctx context.Context, at *Gateway, by *Caller, path string, options ...apitest.Option) (a *Answer, ended <-chan string) {
	w.t.Helper()
	response, err := w.client(by, at).Do(w.request(ctx, by, http.MethodGet, path, options))
	assert.NoError(w.t, err)
	rest := make(chan string, 1)
	go func() {
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body) // that it is cut is what the test looks at
		rest <- string(body)
	}()
	return &Answer{Status: response.StatusCode, Header: response.Header}, rest
}

// Socket opens a WebSocket. Without one the answer says why.
func (w *World) Socket(at *Gateway, by *Caller, path string, options ...apitest.Option) (*websocket.Conn, *Answer) {
	w.t.Helper()
	r := w.request(context.Background(), by, http.MethodGet, path, options)
	dialer := &websocket.Dialer{NetDialContext: w.dialAs(by, at)}
	if by.Certificate != nil {
		dialer.TLSClientConfig = w.client(by, at).Transport.(*http.Transport).TLSClientConfig
	}
	conn, response, err := dialer.Dial("ws"+strings.TrimPrefix(r.URL.String(), "http"), r.Header)
	if response == nil {
		return nil, &Answer{Err: err}
	}
	a := &Answer{Status: response.StatusCode, Header: response.Header}
	if err != nil {
		body, _ := io.ReadAll(response.Body) // what there is of it: the library keeps 1 KiB
		a.Body = string(body)
		return nil, a
	}
	return conn, a
}
