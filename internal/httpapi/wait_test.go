package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// blocking makes acquires and looks wait until their context ends, and tells when one has begun.
func blocking(g *gateway) (begun chan struct{}, ended chan error) {
	begun, ended = make(chan struct{}, 16), make(chan error, 16)
	wait := func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return &locks.Error{Code: locks.CodeCancelled, Detail: "the client went away", Err: context.Cause(ctx)}
	}
	g.acquire = func(ctx context.Context, _ locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{}, wait(ctx)
	}
	g.lease = func(ctx context.Context, _ locks.LeaseRequest) (locks.Lease, error) { return locks.Lease{}, wait(ctx) }
	g.lock = func(ctx context.Context, _ locks.LockRequest) (locks.Lock, error) { return locks.Lock{}, wait(ctx) }
	return begun, ended
}

func TestADrainAnswersEveryWaitingRequestAndRefusesMore(t *testing.T) {
	g := serve(t)
	begun, _ := blocking(g)
	paths := []struct{ method, path string }{
		{"POST", "/v1/locks/deploy/leases?wait=forever"},
		{"GET", "/v1/leases/" + someID + "?wait=5m&since=x"},
		{"GET", "/v1/locks/deploy?wait=5m&since=x"},
	}
	var answers []<-chan *apitest.Answer
	for _, p := range paths {
		answers = append(answers, g.later(t, p.method, p.path))
		<-begun
	}
	g.server.Drain()
	for _, answer := range answers {
		a := <-answer
		assert.That(t, a != nil && a.Status == 503 && a.Code() == "draining" && a.Header.Get("Retry-After") == "0", "%+v", a)
	}
	g.expect(t, 503, "draining", "GET", "/v1/locks/deploy?wait=5m&since=x")
	g.expect(t, 503, "draining", "GET", "/readyz")
	// What does not wait is the manager's to answer until it has handed over, and then another gateway's, at once.
	g.expect(t, 200, "", "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
	g.release = func(string, string) error {
		return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: time.Second, Detail: "shutting down"}
	}
	if a := g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken)); a.Status != 503 || a.Code() != "draining" || a.Header.Get("Retry-After") != "0" {
		t.Errorf("a release that the manager refuses: %d %s", a.Status, a.Body)
	}
	g.release = func(string, string) error { return &locks.Error{Code: locks.CodeOutcomeUnknown} }
	if a := g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken)); a.Code() != "outcome_unknown" {
		t.Errorf("a release whose outcome is not known: %d %s", a.Status, a.Body)
	}
	assert.Equal(t, g.server.waiting.taken.Load(), 0, "places are still taken")
}

// The manager keeps the place of an acquire with a key when it hands over.
// At a drain the waiters leave the queue; a client that watches the lock may see that before its own answer comes.
func TestAPollThatSeesADrainEmptyTheQueueIsSentAway(t *testing.T) {
	g := serve(t)
	begun := make(chan struct{})
	g.lock = func(ctx context.Context, _ locks.LockRequest) (locks.Lock, error) {
		close(begun)
		<-ctx.Done()
		return locks.Lock{NS: "default", Name: "deploy", State: locks.LockFree, Rev: "other"}, nil
	}
	answers := g.later(t, "GET", "/v1/locks/deploy?wait=5m&since=one")
	<-begun
	g.server.Drain()
	a := <-answers
	assert.That(t, a != nil && a.Status == 503 && a.Code() == "draining", "%+v", a)
}

func TestABlockingAcquireIsNotToldOfATicketWhenTheGatewayDrains(t *testing.T) {
	g := serve(t)
	begun := make(chan struct{})
	g.acquire = func(ctx context.Context, _ locks.AcquireRequest) (locks.AcquireResult, error) {
		close(begun)
		<-ctx.Done()
		return locks.AcquireResult{Lease: waiting()}, nil
	}
	answers := g.later(t, "POST", "/v1/locks/deploy/leases?wait=forever", apitest.Key(someKey))
	<-begun
	g.server.Drain()
	a := <-answers
	assert.That(t, a != nil && a.Status == 503 && a.Code() == "draining" && a.Header.Get("Retry-After") == "0", "%+v", a)
}

func TestTheNumberOfWaitingRequestsIsBounded(t *testing.T) {
	g := serve(t, func(o *Options) { o.MaxWaiting = 2 })
	begun, ended := blocking(g)
	ctx, cancel := context.WithCancel(g.ctx)
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() { _, _ = g.client.Send(ctx, "GET", "/v1/locks/deploy?wait=5m&since=x") })
		<-begun
	}
	a := g.send(t, "POST", "/v1/locks/deploy/leases?wait=1s")
	assert.That(t, a.Status == 429 && a.Code() == "too_many_waiting" && a.Header.Get("Retry-After") == "1", "%d %s", a.Status, a.Body)
	cancel()
	clients.Wait()
	<-ended
	<-ended
	// The places come back when the handlers return, a moment after.
	waitFor(t, func() bool { return g.server.waiting.taken.Load() == 0 })
}

func TestAClientThatGoesAwayEndsItsWait(t *testing.T) {
	for _, body := range []string{"", "Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"wait\":\"10m\"}  "} {
		g := serve(t)
		begun, ended := blocking(g)
		conn, err := net.Dial("tcp", g.url[len("http://"):])
		assert.NoError(t, err)
		if body == "" {
			fmt.Fprintf(conn, "POST /v1/locks/deploy/leases?wait=10m HTTP/1.1\r\nHost: localhost\r\n\r\n")
		} else {
			fmt.Fprintf(conn, "POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: localhost\r\n%s", body)
		}
		<-begun
		_ = conn.Close()
		if err := <-ended; err == nil {
			t.Error("the wait ended without a cause")
		}
	}
}

// In virtual time, with the deadlines that the gateway really has: a wait of hours is not cut, its answer arrives, and
// the connection serves the next request.
func TestAWaitOutlivesTheConnectionsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.acquire = func(ctx context.Context, _ locks.AcquireRequest) (locks.AcquireResult, error) {
			select {
			case <-time.After(20 * time.Hour):
				return locks.AcquireResult{Lease: held()}, nil
			case <-ctx.Done():
				return locks.AcquireResult{}, &locks.Error{Code: locks.CodeCancelled, Err: context.Cause(ctx)}
			}
		}
		listener := pipe()
		srv := &http.Server{Handler: New(Options{Locks: f})}
		Configure(srv)
		go func() { _ = srv.Serve(listener) }()
		conn := listener.dial()
		reader := bufio.NewReader(conn)
		for _, c := range []struct {
			request string
			status  int
		}{
			{"POST /v1/locks/deploy/leases?wait=forever HTTP/1.1\r\nHost: localhost\r\n\r\n", 201},
			{"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 200},
			{"POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n{\"wait\":\"forever\"}", 201},
		} {
			if _, err := io.WriteString(conn, c.request); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Errorf("%q: %v", c.request, err)
				break
			}
			if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != c.status {
				t.Errorf("%q: %v %s", c.request, err, response.Status)
			}
		}
		_ = conn.Close()
		_ = srv.Close()
		synctest.Wait()
	})
}

// A client that begins a request and goes silent, or one that never reads its
// answer, is not waited for. Whose body does not come is told so.
func TestASlowClientIsCutOff(t *testing.T) {
	for begun, answer := range map[string]string{
		"": "",
		"POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: loc": "",
		"POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n{\"wait\"": "HTTP/1.1 400 Bad Request\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			listener := pipe()
			srv := &http.Server{Handler: New(Options{Locks: f})}
			Configure(srv)
			go func() { _ = srv.Serve(listener) }()
			conn := listener.dial()
			started := time.Now()
			_, err := io.WriteString(conn, begun)
			assert.NoError(t, err)
			got, _ := io.ReadAll(conn) // until the server closes
			assert.That(t, strings.HasPrefix(string(got), answer) && (answer != "" || len(got) <= 0),
				"after %q it was answered %q", begun, got)
			took := time.Since(started)
			assert.That(t, took <= idleTimeout+readTimeout, "after %q it took %s", begun, took)
			calls := f.asked()
			assert.That(t, len(calls) <= 0, "the manager was asked: %q", calls)
			_ = srv.Close()
			synctest.Wait()
		})
	}
}

// The answer to one who has waited has its deadline, too.
func TestAClientThatDoesNotReadItsAnswerIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.lock = func(_ context.Context, req locks.LockRequest) (locks.Lock, error) {
			time.Sleep(time.Minute)
			return queue(), nil
		}
		listener := pipe()
		srv := &http.Server{Handler: New(Options{Locks: f})}
		Configure(srv)
		go func() { _ = srv.Serve(listener) }()
		conn := listener.dial()
		_, err := io.WriteString(conn, "GET /v1/locks/deploy?wait=5m&since=x HTTP/1.1\r\nHost: localhost\r\n\r\n")
		assert.NoError(t, err)
		time.Sleep(time.Minute + writeTimeout + time.Second)
		got, _ := io.ReadAll(conn)
		assert.That(t, len(got) <= 0, "the server still writes: %s", got)
		_ = srv.Close()
		synctest.Wait()
	})
}

// pipeListener accepts connections that live in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func pipe() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
}

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// waitFor polls a condition that nothing announces.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("it did not come")
		}
	}
}

func TestD5AWaitForNothingIsRefused(t *testing.T) {
	g := serve(t)
	for path, names := range map[string][]string{
		"/v1/leases/self?wait=30s":                      {"wait", "since", "until=granted|ended|changed"},
		"/v1/locks/x?wait=30s":                          {"wait", "since", "until=free|changed"},
		"/v1/locks/x?until=free":                        {"until", "wait"},
		"/v1/leases/self?wait=1s&until=free":            {"until", "granted, ended or changed"},
		"/v1/leases/self?wait=1s&until=ended&since=abc": {"since", "until=changed"},
		// Also where the answer does not have to wait.
		"/v1/leases/self?wait=10h&until=granted": {"wait", "between 0 and 5m"},
		"/v1/leases/self?wait=-1s&until=ended":   {"wait", "between 0 and 5m"},
		"/v1/locks/x?wait=5m1s&until=free":       {"wait", "between 0 and 5m"},
		"/v1/locks/x/leader?wait=-1s&since=a":    {"wait", "between 0 and 5m"},
	} {
		a := g.expect(t, 422, "invalid_field", "GET", path, apitest.Token(someToken))
		if a.Problem == nil || a.Problem.Field != names[0] {
			t.Errorf("%s: %s", path, a.Body)
			continue
		}
		for _, name := range names[1:] {
			assert.That(t, strings.Contains(a.Problem.Detail, name), "%s: %q lacks %s", path, a.Problem.Detail, name)
		}
	}
	calls := g.asked()
	assert.That(t, len(calls) <= 0, "asked %q", calls)
}

func TestD5ALookWaitsUntilTheLeaseIsGranted(t *testing.T) {
	g := serve(t)
	states := []locks.State{locks.Waiting, locks.Waiting, locks.Held}
	var asked []locks.LeaseRequest
	g.lease = func(_ context.Context, req locks.LeaseRequest) (locks.Lease, error) {
		l := waiting()
		l.State, l.Token = states[len(asked)], ""
		l.Rev = string(rune('a' + len(asked)))
		asked = append(asked, req)
		return l, nil
	}
	a := g.send(t, "GET", "/v1/leases/self?wait=50s&until=granted", apitest.Token(someToken))
	assert.Must(t, a.Status == 200 && a.Header.Get("ETag") == `"c"` && len(asked) == 3, "%d %s after %+v", a.Status, a.Body, asked)
	if asked[0].Wait != 0 || asked[1].Since != "a" || asked[2].Since != "b" || asked[2].Wait <= 0 || asked[2].Wait > asked[1].Wait || asked[1].Wait > 50*time.Second {
		t.Errorf("asked %+v", asked)
	}
}

func TestD5AnAwaitEndsWithTheWaitOrWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		until, since string
		states       string // of the lock, one at each second from now: f is free, h held, g held with another rev
		wait         time.Duration
		after        time.Duration
		last         string
	}{
		{until: "free", states: "f", wait: time.Minute, last: "f"},
		{until: "free", states: "hhf", wait: time.Minute, after: 2 * time.Second, last: "f"},
		{until: "free", states: "hgh", wait: time.Minute, after: time.Minute, last: "h"},
		{until: "changed", states: "hhg", wait: time.Minute, after: 2 * time.Second, last: "g"},
		{until: "changed", states: "h", wait: time.Minute, after: time.Minute, last: "h"},
		{until: "changed", since: "h", states: "hg", wait: time.Minute, after: time.Second, last: "g"},
		{since: "g", states: "h", wait: time.Minute, last: "h"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			look := func(wait time.Duration, since string) (locks.Lock, error) {
				for {
					at := min(int(time.Since(begun)/time.Second), len(c.states)-1)
					rev := c.states[at : at+1]
					if rev != since || wait <= 0 {
						return locks.Lock{Rev: rev, State: map[string]locks.LockState{"f": locks.LockFree, "h": locks.LockHeld, "g": locks.LockHeld}[rev]}, nil
					}
					step := min(wait, time.Second)
					time.Sleep(step)
					wait -= step
				}
			}
			p := &poll{until: c.until}
			l, err := await(p, c.wait, c.since, look, p.free)
			took := time.Since(begun)
			assert.That(t, err == nil && l.Rev == c.last && took == c.after, "%+v: %v %v after %s", c, l.Rev, err, took)
		})
	}
}
