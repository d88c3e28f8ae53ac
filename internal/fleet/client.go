package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/zk/layout"
)

// Bounds.
const (
	// MaxAnswer is the largest answer that is passed on, in bytes: a bulk heartbeat of the most leases has
	// a quarter of it.
	MaxAnswer = 4 << 20
	// maxConns is how many connections there are to one gateway for requests that are answered soon, and how many
	// for requests that wait there. So heartbeats pass however many requests wait.
	maxConns = 2048
	// maxIdle is how many of them wait for the next request, and idleTimeout how long; the
	// gateway at the other end keeps them longer.
	maxIdle     = 256
	idleTimeout = 2 * time.Minute
	// dialTimeout bounds the making of a connection.
	dialTimeout = 2 * time.Second
)

// Options of a Fleet.
type Options struct {
	// Secret are the cluster secret's keys, the one that signs first; nil while they are not known. They may change; a list that was
	// returned does not.
	Secret func() []layout.TokenKey
	// Self is this gateway's id and a zxid that is not before its registration; "" while it has no session.
	Self func() (gateway string, registered int64)
	// Address is where other gateways reach this one; "": nowhere. Nothing is sent there, and no gateway at it is followed: a gateway registered
	// with it is this one before it knows its id, a former session of this one, or one with a wrong address.
	Address string
	// TLS is for one connection to an https:// address; nil: the system's authorities sign the certificates there.
	TLS func() *tls.Config
	// Dial makes connections; nil: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Fleet sends requests to other gateways, and checks what they send.
type Fleet struct {
	opt       Options
	transport *http.Transport
	waits     *http.Transport // for requests that wait, which keep their connections for long

	numbers  numbers // of what is sent
	received received

	mu   sync.Mutex
	of   []layout.TokenKey // what keys are derived from
	keys *Keys             // nil until they are known
	self identity
}

// identity is a gateway id with a zxid that is not before its registration.
type identity struct {
	gateway    string
	registered int64
}

// New prepares a fleet. It starts nothing.
func New(o Options) *Fleet {
	f := &Fleet{opt: o, numbers: numbers{name: rand.Text()}, received: received{senders: map[senderKey]*receivedFrom{}}}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	f.transport = &http.Transport{
		DialContext: dial, DialTLSContext: overTLS(dial, o.TLS),
		MaxConnsPerHost: maxConns, MaxIdleConnsPerHost: maxIdle, MaxIdleConns: 4 * maxIdle, IdleConnTimeout: idleTimeout,
		DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
	}
	f.waits = f.transport.Clone()
	return f
}

// overTLS makes connections with the settings of that moment: certificates change while a gateway runs. They speak HTTP/1 only.
func overTLS(dial func(context.Context, string, string) (net.Conn, error), settings func() *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	if settings == nil {
		settings = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := settings()
		config.ServerName = host
		conn := tls.Client(raw, config)
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		return conn, nil
	}
}

// Close closes the connections that wait for the next request.
func (f *Fleet) Close() {
	f.transport.CloseIdleConnections()
	f.waits.CloseIdleConnections()
}

// ErrNoKeys is the error while the cluster secret has not been read.
var ErrNoKeys = errors.New("the cluster secret has not been read yet")

// Keys are the fleet's at this moment. They are derived anew when the secret has changed.
func (f *Fleet) Keys() (*Keys, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	secret := f.opt.Secret()
	switch {
	case len(secret) == 0:
		return nil, ErrNoKeys
	case f.keys != nil && len(f.of) == len(secret) && &f.of[0] == &secret[0]:
		return f.keys, nil
	}
	keys, err := NewKeys(secret)
	if err != nil {
		return nil, err
	}
	f.of, f.keys = secret, keys
	return keys, nil
}

// ErrNoSession is the error while this gateway has never had a session: no other gateway would know it.
var ErrNoSession = errors.New("this gateway has no ZooKeeper session yet")

// identity is this gateway's id, or that of its last session: others know it by that until the next one.
func (f *Fleet) identity() (identity, error) {
	gateway, registered := f.opt.Self()
	f.mu.Lock()
	defer f.mu.Unlock()
	if gateway != "" && gateway != f.self.gateway {
		f.self = identity{gateway, registered} // the first zxid of a session is the one closest to its registration
	}
	if f.self.gateway == "" {
		return identity{}, ErrNoSession
	}
	return f.self, nil
}

// sendSealed sends a request and returns its answer, whose body the caller closes, and the seal under which it was sent; a nil
// seal says that no connection was made.
//
// The request is sealed when its connection is there, so its number is no older than that however long it has waited. net/http
// sends some requests once more when a kept connection turns out to be closed; that is another connection, so it is another number.
func (f *Fleet) sendSealed(transport *http.Transport, keys *Keys, s Seal, r *http.Request, body []byte) (*http.Response, *Seal, error) {
	self, err := f.identity()
	if err != nil {
		return nil, nil, err
	}
	s.From, s.Registered, s.Sender = self.gateway, self.registered, f.numbers.name
	var sent *Seal
	// Called by RoundTrip on this goroutine: the transport speaks HTTP/1 only.
	got := func(httptrace.GotConnInfo) {
		now := s
		now.Number = f.numbers.last.Add(1)
		keys.Close(&now, r, body)
		sent = &now
	}
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: got}))
	response, err := transport.RoundTrip(r) // no redirects, no cookies
	return response, sent, err
}

// Request is one request to another gateway.
type Request struct {
	Address string // "host:port", or with https:// before it
	Seal    Seal   // From, Sender, Number and Registered are filled in
	Method  string
	URI     string // path and query
	Header  http.Header
	Trace   string // the traceparent, instead of the header's; "": the header's
	Body    []byte
	// Waits: the answer may take long.
	Waits bool
	// Seals is the newest version of seals that the gateway has registered; 0: not known. One below Seals does not ask what a
	// caller may do, and gets no request with one.
	Seals int
	// TokenAlone: a lease token is all the right that the request needs. A gateway that knows no callers gets it without.
	TokenAlone bool
	// Timeout bounds the whole request; 0: ctx alone does.
	Timeout time.Duration
}

// Answer is a gateway's.
type Answer struct {
	Status int
	Header http.Header // those that a client may see
	Body   []byte
}

// SendError is why there is no answer.
type SendError struct {
	// Sent: the request may have arrived and been done.
	Sent bool
	Err  error
}

func (e *SendError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *SendError) Unwrap() error { return e.Err }

// Send sends a request and returns the sealed answer. Its error is a *SendError.
func (f *Fleet) Send(ctx context.Context, q *Request) (*Answer, error) {
	keys, err := f.Keys()
	if err != nil {
		return nil, &SendError{Err: err}
	}
	base, err := f.baseURL(q.Address)
	proof := q.Seal
	if q.Seals < Seals && q.TokenAlone {
		proof.Caller, proof.Roles = "", nil
	}
	if err == nil && proof.Caller != "" && q.Seals < Seals {
		err = ErrCallers
	}
	if err != nil {
		return nil, &SendError{Err: err}
	}
	transport := f.transport
	if q.Waits {
		transport = f.waits
	}
	if q.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.Timeout)
		defer cancel()
	}
	r, err := http.NewRequestWithContext(ctx, q.Method, base, bytes.NewReader(q.Body))
	if err != nil {
		return nil, &SendError{Err: err}
	}
	// Parsed like the client's request line: a # in it starts no fragment.
	uri, err := url.ParseRequestURI(q.URI)
	if err != nil {
		return nil, &SendError{Err: fmt.Errorf("the request's URI: %w", errors.Unwrap(err))} // without the URI, which the client wrote
	}
	uri.Scheme, uri.Host = r.URL.Scheme, r.URL.Host
	r.URL = uri
	for _, name := range covered {
		if values := q.Header[name]; values != nil {
			r.Header[name] = values
		}
	}
	if q.Trace != "" {
		r.Header["Traceparent"] = []string{q.Trace}
	}
	r.Header["User-Agent"] = nil
	response, seal, err := f.sendSealed(transport, keys, proof, r, q.Body)
	if err != nil {
		return nil, &SendError{Sent: seal != nil, Err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxAnswer+1))
	switch {
	case err != nil:
		return nil, &SendError{Sent: true, Err: err}
	case len(body) > MaxAnswer:
		return nil, &SendError{Sent: true, Err: fmt.Errorf("the answer must be at most %d bytes", MaxAnswer)}
	}
	if err := keys.OpenAnswer(seal, response.StatusCode, response.Header, body); err != nil {
		return nil, &SendError{Sent: true, Err: fmt.Errorf("status %d: %w", response.StatusCode, err)}
	}
	a := &Answer{Status: response.StatusCode, Header: http.Header{}, Body: body}
	for _, name := range answered {
		if values := response.Header[name]; values != nil {
			a.Header[name] = values
		}
	}
	return a, nil
}

// ErrCallers is the error for a gateway that would not ask what a caller may do.
var ErrCallers = errors.New("the gateway has no --auth-file, or is of a release without authentication, or its registration has not been read")

// ErrOwnAddress is the error for a gateway that is registered with this gateway's own address.
var ErrOwnAddress = errors.New("the gateway is registered with this gateway's own address: a former session of this one, or both have the same --advertise")

// baseURL is where a gateway can be reached; an error for this gateway's own address.
func (f *Fleet) baseURL(address string) (string, error) {
	base, err := BaseURL(address)
	if err != nil {
		return "", fmt.Errorf("the gateway's address: %w", err)
	}
	if own, _ := BaseURL(f.opt.Address); base == own { // "" is no address, and no base
		return "", ErrOwnAddress
	}
	return base, nil
}

// BaseURL is the URL of an advertised address: HOST:PORT, optionally with http:// or
// https:// before it, and nothing after it.
func BaseURL(address string) (string, error) {
	scheme, host, ok := strings.Cut(address, "://")
	if !ok {
		scheme, host = "http", address
	}
	if scheme != "http" && scheme != "https" {
		return "", fmt.Errorf("%q must begin with http:// or https://, or be a host and a port", address)
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		return "", err
	}
	if u, err := url.Parse(scheme + "://" + host); err != nil || u.Host != host || u.User != nil || u.Path != "" {
		return "", fmt.Errorf("%q must be a host and a port", address)
	}
	return scheme + "://" + host, nil
}
