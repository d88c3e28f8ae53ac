package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/otlptest"
	"lockkeeper/internal/traces"
)

const (
	clientsSpan  = "b7ad6b7169203331"
	clientsTrace = "0af7651916cd43dd8448eb211c80319c"
	traceGiven   = "00-" + clientsTrace + "-" + clientsSpan + "-01"
)

// traced lets a gateway export to a collector. flush ends the export: all spans have come then.
func traced(t *testing.T, to *otlptest.Receiver) (change func(*Options), flush func()) {
	t.Helper()
	tracer := assert.Value(traces.New(traces.Options{Endpoint: to.URL + "/v1/traces", Version: "test", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New("test")}))(t)
	return func(o *Options) { o.Traces = tracer }, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		assert.NoError(t, tracer.Shutdown(ctx))
	}
}

func TestARequestHasASpanInTheTraceThatItCarries(t *testing.T) {
	to, log := otlptest.Start(t), new(lines)
	export, flush := traced(t, to)
	g := serve(t, export, logTo(t, log, slog.LevelInfo))
	var of locks.Trace
	inner := g.acquire
	g.acquire = func(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		of = locks.TraceOf(ctx)
		return inner(ctx, req)
	}
	a := g.send(t, "POST", "/v1/locks/deploy/leases?owner=me&wait=1s", apitest.Header("Traceparent", traceGiven))
	assert.Equal(t, log.next(t)["trace_id"], any(clientsTrace))
	g.send(t, "GET", "/v1/locks/deploy")
	own, _ := log.next(t)["trace_id"].(string)
	g.send(t, "GET", "/nothing")
	flush()
	s := to.Await(t, "the acquire's", otlptest.Named("POST /v1/locks/{lock}/leases", "http.request.method", "POST", "http.route", "/v1/locks/{lock}/leases", "http.response.status_code", "201",
		"lockkeeper.operation", "Acquire", "lockkeeper.lock", "deploy", "lockkeeper.namespace", "default", "lockkeeper.lease_id", someID, "client.address", "127.0.0.1",
		"lockkeeper.request_id", a.Header.Get("Lockkeeper-Request-Id")))
	assert.Equal(t, s.Trace()+" "+s.Parent(), clientsTrace+" "+clientsSpan)
	assert.Equal(t, of, locks.Trace{Parent: traceGiven, Request: "00-" + clientsTrace + "-" + s.ID() + "-01"}, "the manager is told")
	s = to.Await(t, "without a trace", otlptest.Named("GET /v1/locks/{lock}"))
	assert.That(t, s.Parent() == "" && s.Trace() == own, "below %q in %s, the log has %s", s.Parent(), s.Trace(), own)
	to.Await(t, "without a route", otlptest.Named("GET", "lockkeeper.code", "route_not_found", "http.response.status_code", "404"))
}

func TestADefectEndsItsSpan(t *testing.T) {
	to := otlptest.Start(t)
	export, flush := traced(t, to)
	g := serve(t, export)
	g.release = func(string, string) error { panic("whoops") }
	g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	g.release = func(string, string) error { panic(http.ErrAbortHandler) }
	_, err := g.client.Send(g.ctx, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	assert.That(t, err != nil, "the connection is cut")
	flush()
	to.Await(t, "that of a panic", otlptest.Named("DELETE /v1/leases/{id}", "error.type", "internal", "http.response.status_code", "500"))
	to.Await(t, "that of an abort", otlptest.Named("DELETE /v1/leases/{id}", "http.response.status_code", ""))
}

func TestProbesHaveNoSpan(t *testing.T) {
	to := otlptest.Start(t)
	export, flush := traced(t, to)
	g := serve(t, export)
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		g.send(t, "GET", path)
	}
	flush()
	assert.Equal(t, to.String(), "")
}

func TestARequestThatIsSentOnContinuesItsTraceThere(t *testing.T) {
	to := otlptest.Start(t)
	export, flush := traced(t, to)
	asked, _ := member(t, "asked", "secret", export)
	owner, _ := member(t, "owner", "secret", export)
	asked.sendsTo("owner", owner.address())
	asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken), apitest.Header("Traceparent", traceGiven))
	asked.send(t, "POST", "/v1/heartbeats", apitest.JSON(`{"tokens":["`+someToken+`"]}`), apitest.Header("Traceparent", traceGiven))
	flush()
	for _, name := range []string{"DELETE /v1/leases/{id}", "POST /v1/heartbeats"} {
		first := to.Await(t, "where the client has asked", func(s otlptest.Span) bool { return s.Name == name && s.Parent() == clientsSpan })
		second := to.Await(t, "the owner's", func(s otlptest.Span) bool { return s.Name == name && s.Parent() == first.ID() })
		assert.That(t, first.Trace() == clientsTrace && second.Trace() == clientsTrace, "%s and %s", first.Trace(), second.Trace())
		assert.That(t, name != "DELETE /v1/leases/{id}" || first.Attr("lockkeeper.forwarded_to") == "owner", "%v", first)
	}
}

// What gateways ask each other for no client has no span: it would be one for each of them, all the time.
func TestWhatGatewaysAskForNoClientHasNoSpan(t *testing.T) {
	to := otlptest.Start(t)
	export, flush := traced(t, to)
	asked, _ := member(t, "asked", "secret")
	owner, _ := member(t, "owner", "secret", export)
	asked.sendsTo("owner", owner.address())
	asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	flush()
	assert.Equal(t, to.String(), "")
}

func TestNoSecretIsExportedWhereverItWasPut(t *testing.T) {
	to := otlptest.Start(t)
	export, flush := traced(t, to)
	g := serve(t, export)
	g.acquire = refuse(&locks.Error{Code: locks.CodeKeyReused, Detail: "the key " + aSecretKey})
	list := misplacedSecrets()
	for _, send := range list {
		g.send(t, send.method, send.path, append(send.options, apitest.Header("Authorization", "Bearer "+secretMAC))...)
	}
	flush()
	assert.Equal(t, len(to.Spans(func(otlptest.Span) bool { return true })), len(list))
	for _, secret := range []string{secretMAC, aSecretKey, someKey} {
		assert.That(t, !strings.Contains(string(to.Raw()), secret), "exported: %q in\n%s", secret, to)
	}
}

func TestATraceparentThatIsNoneIsNotContinued(t *testing.T) {
	for _, given := range []string{"", traceGiven[1:], "ff" + traceGiven[2:], strings.ToUpper(traceGiven), "00-" + strings.Repeat("0", 32) + traceGiven[35:], traceGiven[:36] + strings.Repeat("0", 16) + "-01",
		"00_" + traceGiven[3:], traceGiven + "-00"} {
		assert.Equal(t, locks.TraceParent(given), "", "%q", given)
	}
	assert.Equal(t, locks.TraceParent(traceGiven), traceGiven)
	assert.That(t, slices.Contains([]string{clientsTrace}, locks.TraceID(traceGiven)) && locks.TraceID("") == "", "%q", locks.TraceID(traceGiven))
}
