package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// What one attempt may take.
const (
	connectTimeout = 5 * time.Second
	attemptTimeout = 15 * time.Second // the answer's head and body included
	maxAnswer      = 64 << 10         // read so that the connection can be used again
	keptAnswer     = 256              // of it in the attempt log
	maxHeaderKB    = 64 << 10
	idleFor        = 90 * time.Second
	pingAfter      = 5 * time.Second // without a frame, over HTTP/2
	pingTimeout    = 5 * time.Second // a connection whose ping is not answered for so long is closed
	maxSigners     = 1024
	idleInAll      = 256 // connections that are kept for the next message: clients may name any number of hosts
)

var (
	contentJSON     = []string{"application/json"}
	headerID        = http.CanonicalHeaderKey(standardwebhooks.HeaderWebhookID)
	headerTimestamp = http.CanonicalHeaderKey(standardwebhooks.HeaderWebhookTimestamp)
	headerSignature = http.CanonicalHeaderKey(standardwebhooks.HeaderWebhookSignature)
)

// Message is one notice on its way to one subscription.
type Message struct {
	ID          string // webhook-id
	Type        string
	NS, Lock    string
	Body        []byte
	Headers     map[string]string // of its format, such as Content-Type; those of the subscription win
	TraceParent string
}

// Result is what an attempt came to.
type Result uint8

// The results.
const (
	Delivered Result = iota + 1
	Failed           // try again
	Gone             // 410: the receiver accepts no more messages
)

func (r Result) String() string {
	switch r {
	case Delivered:
		return "delivered"
	case Gone:
		return "gone"
	}
	return "failed"
}

// Attempt is one try, as the attempt log shows it.
type Attempt struct {
	At         time.Time
	MessageID  string
	Type       string
	NS, Lock   string
	Try        int // from 1
	Result     Result
	Status     int    // 0 without an answer
	Error      string // what went wrong, for clients: no secret, and nothing of what is inside one's own network
	Answer     string // the first bytes of the body, of a receiver at an address of the internet
	Length     int    // of the body, as far as it was read
	Took       time.Duration
	RetryAfter time.Duration // what the receiver asked for
}

// SenderOptions configure a Sender.
type SenderOptions struct {
	Addresses *Addresses
	// Proxy is where everything goes through; nil: no proxy. The proxy resolves names
	// and must check addresses: only what the URL shows is refused here.
	Proxy   *url.URL
	Version string // of this program, for User-Agent
	// Logger gets in detail why attempts got no answer; nil: nothing is logged.
	Logger *slog.Logger
}

// Sender makes single attempts. It is safe for concurrent use.
type Sender struct {
	opt       SenderOptions
	userAgent []string
	failures  failures
	public    func(netip.AddrPort) bool // isPublic, but for tests

	mu         sync.Mutex
	transports map[string]http.RoundTripper         // by CA; "" is the system's
	signers    map[string]*standardwebhooks.Webhook // by secret, at most maxSigners
}

// NewSender makes a sender.
func NewSender(o SenderOptions) *Sender {
	return &Sender{opt: o, userAgent: []string{"Lockkeeper/" + o.Version}, failures: failures{log: o.Logger}, public: isPublic, transports: map[string]http.RoundTripper{}, signers: map[string]*standardwebhooks.Webhook{}}
}

// Send makes one attempt. A canceled ctx is a failed attempt.
func (s *Sender) Send(ctx context.Context, to *Subscription, m *Message) Attempt {
	began := time.Now()
	a := Attempt{At: began.UTC(), MessageID: m.ID, Type: m.Type, NS: m.NS, Lock: m.Lock, Result: Failed}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	way := route{public: s.public}
	if err := s.send(ctx, to, m, &a, &way); err != nil {
		a.Error = explain(err, s.opt.Proxy == nil && way.outside())
		if _, clear := errors.AsType[reason](err); !clear && s.opt.Logger != nil && !errors.Is(err, context.Canceled) {
			s.failures.add(to, err)
		}
	}
	a.Took = time.Since(began)
	return a
}

func (s *Sender) send(ctx context.Context, to *Subscription, m *Message, a *Attempt, way *route) error {
	var used net.Conn // that the message went over
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectDone: func(_, address string, _ error) { way.add(address) },
		GotConn:     func(c httptrace.GotConnInfo) { used = c.Conn },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(m.Body))
	if err != nil {
		return err
	}
	if err := s.opt.Addresses.CheckHost(req.URL.Hostname()); err != nil {
		return reason(err.Error()) // the flags may have changed since it was accepted; it tells of the URL alone
	}
	for name, value := range to.Headers {
		req.Header[name] = []string{value}
	}
	if user := req.URL.User; user != nil && req.Header.Get("Authorization") == "" { // as http.Client does
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	if err := s.sign(req.Header, to, m, a.At); err != nil {
		return err
	}
	req.Header["Content-Type"] = contentJSON
	for name, value := range m.Headers {
		if _, given := to.Headers[name]; !given {
			req.Header[name] = []string{value}
		}
	}
	req.Header["User-Agent"] = s.userAgent
	if m.TraceParent != "" {
		req.Header.Set("Traceparent", m.TraceParent)
	}
	transport, err := s.transport(to.CA)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req) // no redirect is followed, and no cookie kept
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a.Status = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body is the bare connection, which no context ends: reading it might never return.
		return reason("the receiver answered 101: messages are sent by HTTP alone")
	}
	var body []byte
	if resp.Body != http.NoBody {
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	}
	a.Length = len(body)
	if len(body) > 0 && s.opt.Proxy == nil && s.outside(used) {
		a.Answer = excerpt(body)
	}
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		a.Result = Delivered // the head says so; the body does not matter
		return nil
	case resp.StatusCode == http.StatusGone:
		a.Result = Gone
		return reason("the receiver answered 410: it accepts no more messages")
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return reason(fmt.Sprintf("the receiver answered %d: redirects are not followed; set the address that it points to", resp.StatusCode))
	}
	a.RetryAfter = retryAfter(resp.Header, a.At)
	if err != nil {
		return reason(fmt.Sprintf("the receiver answered %d, and its answer was cut off", resp.StatusCode))
	}
	return reason(fmt.Sprintf("the receiver answered %d", resp.StatusCode))
}

// outside reports whether a connection leads to an address of the internet.
func (s *Sender) outside(conn net.Conn) bool {
	way := route{public: s.public}
	if conn != nil {
		way.add(conn.RemoteAddr().String())
	}
	return way.outside()
}

// sign sets the three headers of Standard Webhooks. Each secret that is in force
// signs, so a receiver may know the old or the new one.
func (s *Sender) sign(h http.Header, to *Subscription, m *Message, at time.Time) error {
	var signatures []string
	for _, secret := range to.signing(at) {
		signer, err := s.signer(secret)
		if err != nil {
			return reason("the subscription's secret is damaged: rotate it") // the cause would quote it
		}
		signature, err := signer.Sign(m.ID, at, m.Body)
		if err != nil {
			return reason("the message could not be signed")
		}
		signatures = append(signatures, signature)
	}
	if len(signatures) == 0 {
		return reason("the subscription has no secret in force: rotate it")
	}
	h[headerID], h[headerTimestamp] = []string{m.ID}, []string{strconv.FormatInt(at.Unix(), 10)}
	h[headerSignature] = []string{strings.Join(signatures, " ")}
	return nil
}

// signer signs with a secret. Those in use are kept; each notify_url has one of its own, so there may be any number.
func (s *Sender) signer(secret string) (*standardwebhooks.Webhook, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if signer := s.signers[secret]; signer != nil {
		return signer, nil
	}
	signer, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	if len(s.signers) >= maxSigners {
		clear(s.signers)
	}
	s.signers[secret] = signer
	return signer, nil
}

// transport is the HTTP client for receivers whose certificates this CA signs.
func (s *Sender) transport(ca string) (http.RoundTripper, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.transports[ca]; t != nil {
		return t, nil
	}
	t := &http.Transport{
		DialContext:            s.opt.Addresses.dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  attemptTimeout,
		MaxIdleConns:           idleInAll,
		MaxIdleConnsPerHost:    4 * perReceiver, // several subscriptions may have one host, and a proxy has all
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxHeaderKB,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // an answer is read up to a bound
		// The messages to a host share a connection, and nothing tells that a NAT has forgotten it: without pings each fails on it.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	if s.opt.Proxy != nil {
		t.Proxy = http.ProxyURL(s.opt.Proxy)
		t.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext // to the proxy, which the operator chose
	}
	if ca != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(ca)) {
			return nil, reason("the subscription's CA is no certificate in PEM")
		}
		t.TLSClientConfig.RootCAs = pool
	}
	s.transports[ca] = t
	return t, nil
}

// Keep closes the connections that were made with CAs which no subscription has any more, and forgets secrets.
func (s *Sender) Keep(subscriptions []*Subscription) {
	used := map[string]bool{"": true}
	for _, sub := range subscriptions {
		used[sub.CA] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.signers)
	for ca, t := range s.transports {
		if !used[ca] {
			closeIdle(t)
			delete(s.transports, ca)
		}
	}
}

// Close closes idle connections.
func (s *Sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.transports {
		closeIdle(t)
	}
}

func closeIdle(t http.RoundTripper) { (&http.Client{Transport: t}).CloseIdleConnections() }

// retryAfter is what the receiver asks for: seconds or a date, RFC 9110 section 10.2.3.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseInt(v, 10, 32); err == nil {
		return min(max(time.Duration(seconds)*time.Second, 0), maxRetryAfter)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// excerpt is the beginning of an answer as text that can be shown.
func excerpt(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), keptAnswer)]), "\uFFFD")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// withoutURL is an error without the URL, which http.Client puts in front: what is in its path and query may be secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
