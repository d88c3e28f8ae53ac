package traces

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/otlptest"
)

const (
	given       = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	givenTrace  = "0af7651916cd43dd8448eb211c80319c"
	givenSpan   = "b7ad6b7169203331"
	notSampled  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	aCredential = "Bearer what-no-log-may-have"
)

// counts are metrics in memory.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) Spans(result string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[result] += n
}

func (c *counts) get(result string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[result]
}

// log collects lines.
type log struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func tracer(t *testing.T, to *otlptest.Receiver, change ...func(*Options)) (*Tracer, *counts, *log) {
	t.Helper()
	metrics, lines := new(counts), new(log)
	o := Options{Endpoint: to.URL + "/v1/traces", Version: "1.2.3", Log: slog.New(slog.NewTextHandler(lines, nil)), Metrics: metrics}
	for _, f := range change {
		f(&o)
	}
	tr := assert.Value(New(o))(t)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = tr.Shutdown(ended)
	})
	return tr, metrics, lines
}

func flush(t *testing.T, tr *Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	assert.NoError(t, tr.Shutdown(ctx))
}

func TestASpanOfARequestContinuesItsTrace(t *testing.T) {
	to := otlptest.Start(t)
	tr, metrics, _ := tracer(t, to)
	r := tr.Begin(given, "POST", time.Now())
	r.End(&Answered{Method: "POST", Route: "/v1/locks/{lock}/leases", Operation: "Acquire", Status: 503, Code: "zookeeper_unavailable", Client: "127.0.0.1", NS: "default", Lock: "deploy", LeaseID: "x"})
	flush(t, tr)
	s := to.Await(t, "the request's", otlptest.Named("POST /v1/locks/{lock}/leases", "http.request.method", "POST", "http.route", "/v1/locks/{lock}/leases", "http.response.status_code", "503",
		"error.type", "zookeeper_unavailable", "client.address", "127.0.0.1", "lockkeeper.operation", "Acquire", "lockkeeper.lock", "deploy", "lockkeeper.namespace", "default", "lockkeeper.lease_id", "x"))
	assert.Equal(t, s.Trace()+" "+s.Parent(), givenTrace+" "+givenSpan)
	assert.Equal(t, r.Traceparent, "00-"+givenTrace+"-"+s.ID()+"-01", "what the request causes refers to its span")
	assert.Equal(t, s.Service, "lockkeeper")
	assert.Equal(t, metrics.get("exported"), 1)
}

func TestTheParentDecidesWhatIsSampled(t *testing.T) {
	to := otlptest.Start(t)
	tr, _, _ := tracer(t, to)
	r := tr.Begin(notSampled, "GET", time.Now())
	r.End(&Answered{Method: "GET", Status: 200})
	assert.That(t, strings.HasSuffix(r.Traceparent, "-00"), "%s", r.Traceparent)
	tr.LeaseHeld(&locks.LeaseSpan{Trace: locks.Trace{Parent: notSampled}})
	flush(t, tr)
	assert.Equal(t, to.String(), "")
}

func TestTheStandardVariablesHold(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	to := otlptest.Start(t)
	tr, _, _ := tracer(t, to)
	r := tr.Begin("", "GET", time.Now())
	r.End(&Answered{Method: "GET", Status: 200})
	flush(t, tr)
	assert.Equal(t, to.String(), "")

	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=k%20k")
	tr, _, _ = tracer(t, to)
	r = tr.Begin("", "GET", time.Now())
	r.End(&Answered{Method: "GET", Status: 200})
	flush(t, tr)
	assert.Equal(t, to.Await(t, "without a parent", otlptest.Named("GET")).Service, "mine")
	assert.Equal(t, to.Headers().Get("X-Api-Key"), "k k")
}

func TestAHoldIsLinkedToTheAcquire(t *testing.T) {
	to := otlptest.Start(t)
	tr, _, _ := tracer(t, to)
	r := tr.Begin(given, "POST", time.Now())
	start := time.Unix(1_790_000_000, 5)
	l := locks.LeaseSpan{Trace: locks.Trace{Parent: given, Request: r.Traceparent}, Started: start, Ended: start.Add(time.Minute), NS: "default", Locks: []string{"a", "b"}, LeaseID: "x", Owner: "ci",
		Mode: locks.Exclusive, Gateway: "g", FencingToken: 7, Reason: "released"}
	tr.LeaseHeld(&l)
	l.TakenOver, l.Trace.Request, l.Ended = true, "", start.Add(-time.Hour) // another machine's clock was ahead
	tr.LeaseWaited(&l)
	r.End(&Answered{Method: "POST", Status: 201})
	flush(t, tr)
	s := to.Await(t, "the hold", otlptest.Named("lock.hold", "lockkeeper.lock", "a", "lockkeeper.locks", "a,b", "lockkeeper.owner", "ci", "lockkeeper.mode", "exclusive", "lockkeeper.fencing_token", "7",
		"lockkeeper.end_reason", "released", "lockkeeper.gateway", "g", "lockkeeper.lease_id", "x", "lockkeeper.namespace", "default", "lockkeeper.taken_over", ""))
	assert.Equal(t, s.Trace()+" "+s.Parent(), givenTrace+" "+givenSpan)
	assert.Equal(t, strings.Join(s.LinkIDs(), ","), r.Traceparent[36:52])
	assert.That(t, s.StartTimeUnixNano == uint64(start.UnixNano()) && s.EndTimeUnixNano == uint64(start.Add(time.Minute).UnixNano()), "%v", s)
	s = to.Await(t, "the wait", otlptest.Named("lock.wait", "lockkeeper.taken_over", "true"))
	assert.Equal(t, strings.Join(s.LinkIDs(), ","), givenSpan, "the acquire's own span is not known here")
	assert.Equal(t, s.EndTimeUnixNano, s.StartTimeUnixNano)
}

func TestWhatDoesNotFitTheQueueIsDroppedAndCounted(t *testing.T) {
	asked, answer := make(chan struct{}, 8), make(chan struct{})
	to := otlptest.StartWith(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-answer
	})
	tr, metrics, _ := tracer(t, to)
	const more = 100
	for range MaxQueued + more {
		r := tr.Begin("", "GET", time.Now())
		r.End(&Answered{Method: "GET", Status: 200})
	}
	<-asked // the collector hangs, and no request has waited for it
	assert.Equal(t, metrics.get("dropped"), more)
	close(answer)
	flush(t, tr)
	assert.Equal(t, metrics.get("exported"), MaxQueued)
}

func TestACollectorThatFailsIsLoggedOnceAndWithoutASecret(t *testing.T) {
	to := otlptest.StartWith(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no such credential: "+r.Header.Get("Authorization"), http.StatusForbidden)
	})
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
	tr, metrics, lines := tracer(t, to, func(o *Options) {
		o.Headers, o.Secrets = map[string]string{"Authorization": aCredential}, []string{aCredential}
	})
	for range 100 {
		r := tr.Begin("", "GET", time.Now())
		r.End(&Answered{Method: "GET", Status: 200})
	}
	flush(t, tr)
	assert.Equal(t, metrics.get("failed"), 100)
	text := lines.String()
	assert.That(t, strings.Count(text, "traces are not exported") == 1 && strings.Contains(text, "403") && strings.Contains(text, "[secret]") && !strings.Contains(text, "what-no-log"), "%s", text)
}

func TestTheEndWaitsNoLongerThanItMay(t *testing.T) {
	answer := make(chan struct{})
	to := otlptest.StartWith(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-answer
	})
	t.Cleanup(func() { close(answer) })
	tr, _, _ := tracer(t, to)
	r := tr.Begin("", "GET", time.Now())
	r.End(&Answered{Method: "GET", Status: 200})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := tr.Shutdown(ctx)
	assert.That(t, errors.Is(err, context.DeadlineExceeded), "it says that something is left: %v", err)
}

func TestNoTracerCostsNothing(t *testing.T) {
	var none *Tracer
	allocated := testing.AllocsPerRun(100, func() {
		r := none.Begin(given, "POST", time.Time{})
		assert.That(t, !r.Is(), "a span")
		r.End(nil)
	})
	assert.Equal(t, allocated, 0.0)
	assert.NoError(t, none.Shutdown(t.Context()))
}
