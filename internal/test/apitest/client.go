package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
)

// Client talks to one gateway.
type Client struct {
	t    testing.TB
	base string
	http *http.Client
	spec *Spec
}

// New makes a client of the gateway at base, such as http://127.0.0.1:8080. Its
// connections are closed when the test ends.
func New(t testing.TB, base string) *Client {
	t.Helper()
	spec := assert.Value(Load())(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{t: t, base: strings.TrimSuffix(base, "/"), http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, spec: spec}
}

// API is the generated client; what it receives is judged like everything else.
func (c *Client) API() *api.Client {
	generated := assert.Value(api.NewClient(c.base, api.WithHTTPClient(doer{c})))(c.t)
	return generated
}

type doer struct{ c *Client }

func (d doer) Do(req *http.Request) (*http.Response, error) {
	a, err := d.c.Do(req)
	if err != nil {
		return nil, err
	}
	a.response.Body = io.NopCloser(bytes.NewReader(a.Body))
	return a.response, nil
}

// Answer is a response that was read whole and judged.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Problem is what the answer says when Status is 400 or more, else nil. Shell lines have its code and status alone.
	Problem *api.Problem

	response *http.Response
}

// Code is the problem's code, or "".
func (a *Answer) Code() string {
	if a == nil || a.Problem == nil {
		return ""
	}
	return string(a.Problem.Code)
}

// Do sends any request, also a malformed one, and judges what comes back.
func (c *Client) Do(req *http.Request) (*Answer, error) {
	c.t.Helper()
	response, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	return c.answer(req, response)
}

// answer reads a response whole and judges it.
func (c *Client) answer(req *http.Request, response *http.Response) (*Answer, error) {
	c.t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if err := c.spec.Check(req, response.StatusCode, response.Header, body); err != nil {
		c.t.Errorf("%s %s: the answer is not what openapi.yaml says: %v\n%s", req.Method, req.URL, err, body)
	}
	a := &Answer{Status: response.StatusCode, Header: response.Header, Body: body, response: response}
	switch {
	case a.Status < 400 || req.Method == http.MethodHead:
	case strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain"):
		a.Problem = shellProblem(a.Body)
	default:
		a.Problem = decode[api.Problem](c, a)
	}
	return a, nil
}

// Option changes a request before it is sent.
type Option func(*http.Request)

// Query adds to the query, as it would be typed: "ttl=10s&owner=me".
func Query(raw string) Option {
	return func(r *http.Request) {
		if r.URL.RawQuery != "" && raw != "" {
			raw = "&" + raw
		}
		r.URL.RawQuery += raw
	}
}

// Header sets a header.
func Header(name, value string) Option {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// Token sets the Lease-Token header; "" sets none.
func Token(token string) Option {
	return func(r *http.Request) {
		if token != "" {
			r.Header.Set("Lease-Token", token)
		}
	}
}

// Key sets the Idempotency-Key header.
func Key(key string) Option { return Header("Idempotency-Key", key) }

// JSON sets a body and says that it is JSON.
func JSON(body string) Option {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
		setBody(r, body)
	}
}

// Body sets a body and says nothing about it.
func Body(body string) Option { return func(r *http.Request) { setBody(r, body) } }

func setBody(r *http.Request, body string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
}

// Send sends one request. path begins with a slash and may have a query.
func (c *Client) Send(ctx context.Context, method, path string, options ...Option) (*Answer, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	for _, option := range options {
		option(req)
	}
	return c.Do(req)
}

// Acquire posts to /v1/locks/{lock}/leases. The lease is zero unless the answer is a success in JSON.
func (c *Client) Acquire(ctx context.Context, lock string, options ...Option) (api.Lease, *Answer, error) {
	c.t.Helper()
	return call[api.Lease](c, ctx, http.MethodPost, "/v1/locks/"+url.PathEscape(lock)+"/leases", options)
}

// Lease looks at a lease. Wait and since go into the options.
func (c *Client) Lease(ctx context.Context, id string, options ...Option) (api.Lease, *Answer, error) {
	c.t.Helper()
	return call[api.Lease](c, ctx, http.MethodGet, "/v1/leases/"+id, options)
}

// Heartbeat renews the lease that the token names.
func (c *Client) Heartbeat(ctx context.Context, token string, options ...Option) (api.Heartbeat, *Answer, error) {
	c.t.Helper()
	return call[api.Heartbeat](c, ctx, http.MethodPost, "/v1/leases/self/heartbeat", append(options, Token(token)))
}

// Heartbeats renews many leases.
func (c *Client) Heartbeats(ctx context.Context, tokens []string) (api.HeartbeatList, *Answer, error) {
	c.t.Helper()
	body, err := json.Marshal(api.HeartbeatsRequest{Tokens: tokens})
	if err != nil {
		return api.HeartbeatList{}, nil, err
	}
	return call[api.HeartbeatList](c, ctx, http.MethodPost, "/v1/heartbeats", []Option{JSON(string(body))})
}

// Release lets the lease go that the token names.
func (c *Client) Release(ctx context.Context, token string, options ...Option) (*Answer, error) {
	c.t.Helper()
	return c.Send(ctx, http.MethodDelete, "/v1/leases/self", append(options, Token(token))...)
}

// Lock looks at a queue.
func (c *Client) Lock(ctx context.Context, lock string, options ...Option) (api.Lock, *Answer, error) {
	c.t.Helper()
	return call[api.Lock](c, ctx, http.MethodGet, "/v1/locks/"+url.PathEscape(lock), options)
}

// Locks lists locks.
func (c *Client) Locks(ctx context.Context, options ...Option) (api.LockList, *Answer, error) {
	c.t.Helper()
	return call[api.LockList](c, ctx, http.MethodGet, "/v1/locks", options)
}

// Leases lists leases.
func (c *Client) Leases(ctx context.Context, options ...Option) (api.LeaseList, *Answer, error) {
	c.t.Helper()
	return call[api.LeaseList](c, ctx, http.MethodGet, "/v1/leases", options)
}

// Namespaces lists the namespaces.
func (c *Client) Namespaces(ctx context.Context) (api.NamespaceList, *Answer, error) {
	c.t.Helper()
	return call[api.NamespaceList](c, ctx, http.MethodGet, "/v1/namespaces", nil)
}

// Info asks the gateway about itself.
func (c *Client) Info(ctx context.Context) (api.Info, *Answer, error) {
	c.t.Helper()
	return call[api.Info](c, ctx, http.MethodGet, "/v1/info", nil)
}

func call[T any](c *Client, ctx context.Context, method, path string, options []Option) (value T, a *Answer, err error) {
	c.t.Helper()
	a, err = c.Send(ctx, method, path, options...)
	if err == nil && a.Status < 300 && strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
		value = *decode[T](c, a)
	}
	return value, a, err
}

// decode is strict: the members that the Go type lacks are a defect of the generated code.
func decode[T any](c *Client, a *Answer) *T {
	c.t.Helper()
	value := new(T)
	d := json.NewDecoder(bytes.NewReader(a.Body))
	d.DisallowUnknownFields()
	err := d.Decode(value)
	assert.That(c.t, err == nil, "status %d: decoding the answer: %v\n%s", a.Status, err, a.Body)
	return value
}
