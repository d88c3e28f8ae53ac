package clientsuite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The requests of a client, by what they ask for.
const (
	acquire   = "acquire"
	poll      = "poll" // of a ticket
	heartbeat = "heartbeat"
	release   = "release"
	look      = "look" // at the lock
)

// scene is the fleet of one transcript: one lock at some gateways. The test plays them: it takes a request with next and answers
// it. What it does not play is answered as a gateway would: an acquire is granted, a heartbeat is held, a release is 204. The
// methods end the test when a client does something else, and belong to the goroutine of the test.
type scene struct {
	t      testing.TB
	driver *Driver
	call   *Call
	bases  []*httptest.Server
	closed chan struct{} // with the test: unanswered requests end

	token  string // of the lease
	prefix string // of the gateways' paths
	ttl    time.Duration

	mu     sync.Mutex
	asked  []*exchange
	played map[string]chan *exchange // what the test answers itself
	over   chan struct{}             // closed: the gateways have ended the lease with ending
	freed  chan struct{}             // closed: the lease was released; a new one with each acquire
	ending map[string]any
	seen   []Event
}

// exchange is one request and its answer.
type exchange struct {
	kind   string
	base   int
	at     time.Time
	method string
	path   string
	query  url.Values
	header http.Header
	body   map[string]any
	gone   <-chan struct{} // the client has given up, or has the answer
	answer chan func(http.ResponseWriter)

	answered time.Time // by the test or the scene
}

// bound is how long a test waits for what a client must do. It is generous: where a time matters a test compares times.
const bound = 20 * time.Second

func newScene(t testing.TB, d *Driver, gateways int) *scene {
	s := &scene{
		t: t, driver: d, closed: make(chan struct{}), over: make(chan struct{}), freed: make(chan struct{}), played: make(map[string]chan *exchange),
		token: "lk1.secret-of-the-lease", ttl: 3 * time.Second,
	}
	for i := range gateways {
		s.bases = append(s.bases, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(i, w, r) })))
	}
	t.Cleanup(func() {
		close(s.closed)
		for _, b := range s.bases {
			b.CloseClientConnections()
			b.Close()
		}
	})
	return s
}

// urls are the base URLs, with commas between them.
func (s *scene) urls() string {
	var all []string
	for _, b := range s.bases {
		all = append(all, b.URL)
	}
	return strings.Join(all, ",")
}

func kindOf(r *http.Request) string {
	switch path := r.URL.Path; {
	case r.Method == "POST" && (path == "/v1/leases" || strings.HasPrefix(path, "/v1/locks/") && strings.HasSuffix(path, "/leases")):
		return acquire
	case r.Method == "GET" && path == "/v1/leases/self":
		return poll
	case r.Method == "POST" && path == "/v1/leases/self/heartbeat":
		return heartbeat
	case r.Method == "DELETE" && path == "/v1/leases/self":
		return release
	case r.Method == "GET" && strings.HasPrefix(path, "/v1/locks/"):
		return look
	}
	return r.Method + " " + r.URL.Path
}

func (s *scene) handle(base int, w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, s.prefix)
	if r.URL.Path = path; !ok {
		r.URL.Path = "/not-below-the-prefix" + path
	}
	x := &exchange{
		kind: kindOf(r), base: base, at: time.Now(), method: r.Method, path: r.URL.Path, query: r.URL.Query(), header: r.Header,
		gone: r.Context().Done(), answer: make(chan func(http.ResponseWriter), 1), body: make(map[string]any),
	}
	if text, _ := io.ReadAll(r.Body); len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(text, &x.body); err != nil {
			x.kind = "a request whose body is no JSON"
		}
	}
	s.mu.Lock()
	s.asked = append(s.asked, x)
	if x.kind == acquire {
		s.freed = make(chan struct{})
	}
	played, freed := s.played[x.kind], s.freed
	s.mu.Unlock()
	if played != nil {
		played <- x
	} else {
		s.behave(x, freed)
	}
	select {
	case f := <-x.answer:
		s.mu.Lock()
		x.answered = time.Now()
		s.mu.Unlock()
		f(w)
	case <-x.gone:
	case <-s.closed:
	}
}

// behave answers as a gateway.
func (s *scene) behave(x *exchange, freed chan struct{}) {
	switch x.kind {
	case acquire:
		x.reply(201, s.lease("held", "waited_ms", 0))
	case heartbeat:
		hold, _ := time.ParseDuration(x.query.Get("wait"))
		timer := time.NewTimer(hold)
		defer timer.Stop()
		select {
		case <-timer.C:
			x.reply(200, s.lease("held"))
		case <-s.over:
			x.reply(s.ending["status"].(int), s.ending)
		case <-freed:
			x.reply(410, problem(410, "lease_ended", "reason", "released", "detail", "the lease has ended: released"))
		case <-x.gone:
		case <-s.closed:
		}
	case release:
		select {
		case <-s.over:
			x.reply(s.ending["status"].(int), s.ending)
		default:
			// A held heartbeat is answered first.
			s.mu.Lock()
			select {
			case <-freed:
			default:
				close(freed)
			}
			s.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			x.reply(204, nil)
		}
	case look:
		x.reply(200, map[string]any{"lock": "report", "ns": "default", "state": "held", "holders": holders, "waiters": []any{}, "queue_length": 2})
	default:
		x.reply(404, problem(404, "not_found"))
	}
}

var holders = []map[string]any{{"lease_id": "lkother", "owner": "somebody", "mode": "exclusive", "fencing_token": 5, "held_ms": 1000}}

// lease is the body of an answer that has the lease; more are further members, each a name and a value.
func (s *scene) lease(state string, more ...any) map[string]any {
	body := map[string]any{
		"lease_id": "lkmine", "lock": "report", "ns": "default", "mode": "exclusive", "state": state, "queue_length": 0,
		"ttl_ms": s.ttl.Milliseconds(), "expires_in_ms": s.ttl.Milliseconds(), "owner": "w1", "rev": "a-1",
	}
	if state == "held" {
		body["fencing_token"] = 7
	} else {
		body["position"] = 1
	}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// problem is the body of a refusal.
func problem(status int, code string, more ...any) map[string]any {
	body := map[string]any{"type": "/problems/" + code, "title": "A title", "status": status, "code": code, "detail": "detail of " + code, "request_id": "r1"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// end ends the lease at the gateways: what is asked about it from now on, and held heartbeats, are answered so.
func (s *scene) end(status int, code string, more ...any) time.Time {
	s.ending = problem(status, code, more...)
	close(s.over)
	return time.Now()
}

// reply answers with JSON; headers are names and values.
func (x *exchange) reply(status int, body map[string]any, headers ...string) {
	if x.kind == acquire && body["state"] != nil && body["token"] == nil {
		body = maps.Clone(body)
		body["token"] = "lk1.secret-of-the-lease"
	}
	x.answer <- func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		if status >= 400 {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		if body != nil {
			_ = json.NewEncoder(w).Encode(body) // the client may have gone
		}
	}
}

// page answers with what a proxy says of itself.
func (x *exchange) page(status int) {
	x.answer <- func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<html><body>%d from a proxy</body></html>", status)
	}
}

// drop ends the connection without an answer.
func (x *exchange) drop() {
	x.answer <- func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
}

// silent leaves the request without an answer.
func (x *exchange) silent() {}

// field is a member of the body or the query.
func (x *exchange) field(name string) string {
	if v, ok := x.body[name]; ok {
		return fmt.Sprint(v)
	}
	return x.query.Get(name)
}

// duration is a field that is a duration, of which the API takes several writings.
func (x *exchange) duration(name string) time.Duration {
	text := x.field(name)
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	d, _ := time.ParseDuration(text + "s")
	return d
}

// play says that the test itself answers requests of these kinds.
func (s *scene) play(kinds ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		s.played[k] = make(chan *exchange, 1000)
	}
}

// leave says that the scene answers requests of this kind from now on.
func (s *scene) leave(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.played[kind]
	delete(s.played, kind)
	for len(requests) > 0 {
		go s.behave(<-requests, s.freed)
	}
}

// next is the next request of a kind that the test plays.
func (s *scene) next(kind string) *exchange {
	s.t.Helper()
	s.mu.Lock()
	requests := s.played[kind]
	s.mu.Unlock()
	late := time.NewTimer(bound)
	defer late.Stop()
	for {
		select {
		case x := <-requests: // also when the call has ended since
			return x
		default:
		}
		select {
		case x := <-requests:
			return x
		case e, ok := <-s.call.Events:
			s.must(ok, "the driver ended before the next %s of the call", kind)
			s.seen = append(s.seen, e)
			s.must(!e.last() || len(requests) > 0, "the call ended before its next %s: %v", kind, e)
		case <-late.C:
			s.failf("no %s within %v", kind, bound)
		}
	}
}

// failf ends the test, and tells what was asked.
func (s *scene) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf(format+"\n%s", append(args, s.story())...)
}

// must ends the test when what must be is not.
func (s *scene) must(ok bool, format string, args ...any) {
	s.t.Helper()
	if !ok {
		s.failf(format, args...)
	}
}

// story lists the requests, for the reader of a failure.
func (s *scene) story() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	if len(s.asked) == 0 {
		b.WriteString("nothing was asked\n")
	}
	for _, x := range s.asked {
		fmt.Fprintf(&b, "%6d ms  base %d  %s %s?%s %v", x.at.Sub(s.asked[0].at).Milliseconds(), x.base, x.method, x.path, x.query.Encode(), x.body)
		for _, h := range []string{"Idempotency-Key", "Lease-Token", "Authorization"} {
			if v := x.header.Get(h); v != "" {
				fmt.Fprintf(&b, " %s: %s", h, v)
			}
		}
		if !x.answered.IsZero() {
			fmt.Fprintf(&b, " answered after %d ms", x.answered.Sub(x.at).Milliseconds())
		}
		b.WriteString("\n")
	}
	for _, e := range s.seen {
		fmt.Fprintf(&b, "event %v\n", e)
	}
	return b.String() + "standard error of the driver: " + s.driver.stderr.String()
}

// all are the requests of a kind until now.
func (s *scene) all(kind string) []*exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.asked), func(x *exchange) bool { return x.kind != kind })
}

// event waits for an event; one that was seen before counts.
func (s *scene) event(name string) Event {
	s.t.Helper()
	if i := slices.IndexFunc(s.seen, func(e Event) bool { return e.Event == name }); i >= 0 {
		return s.seen[i]
	}
	late := time.NewTimer(bound)
	defer late.Stop()
	for {
		select {
		case e, ok := <-s.call.Events:
			s.must(ok, "the driver ended, and %q was expected", name)
			s.seen = append(s.seen, e)
			if e.Event == name {
				return e
			}
			s.must(!e.last(), "%q was expected, and the call ended: %v", name, e)
		case <-late.C:
			s.failf("no event %q within %v", name, bound)
		}
	}
}

// listen takes in events for a while, for those that must not come.
func (s *scene) listen(d time.Duration) {
	s.t.Helper()
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case e, ok := <-s.call.Events:
			if !ok {
				return // the call is over
			}
			s.seen = append(s.seen, e)
		case <-over.C:
			return
		}
	}
}

// done waits for the call to end with success.
func (s *scene) done() {
	s.t.Helper()
	s.event("done")
}

// failed waits for the call to end with an error.
func (s *scene) failed(kind string) Event {
	s.t.Helper()
	e := s.event("failed")
	s.must(e.Error == kind, "the call must fail with %s, and it fails with %v", kind, e)
	return e
}

// count is how many events of a name there were.
func (s *scene) count(name string) int {
	n := 0
	for _, e := range s.seen {
		if e.Event == name {
			n++
		}
	}
	return n
}

// released checks that the lease was given back.
func (s *scene) released() {
	s.t.Helper()
	s.must(len(s.all(release)) > 0, "the lease was not released")
}

func equal[V comparable](s *scene, got, want V, about string) {
	s.t.Helper()
	s.must(got == want, "%s is %v, and must be %v", about, got, want)
}

// between checks a time that passes from one moment to another.
func (s *scene) between(from, to time.Time, least, most time.Duration, about string) {
	s.t.Helper()
	took := to.Sub(from)
	s.must(least <= took && took <= most+patience, "%s took %v, and must take %v to %v", about, took.Round(time.Millisecond), least, most)
}

// patience is what a machine that is busy may add to the time that something takes.
const patience = 2 * time.Second
