package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/otlptest"
	"lockkeeper/internal/test/zkreal"
)

const (
	clientsTraceID = "0af7651916cd43dd8448eb211c80319c"
	clientsSpanID  = "b7ad6b7169203331"
)

var traced = apitest.Header("Traceparent", "00-"+clientsTraceID+"-"+clientsSpanID+"-01")

// exportSoon has spans exported at once, to keep the tests short.
const exportSoon = "OTEL_BSP_SCHEDULE_DELAY=10"

// tracing starts a gateway that exports to the collector.
func tracing(t *testing.T, zk string, to *otlptest.Receiver) *gateway {
	t.Helper()
	g := newGateway(t, zk, "--otlp="+to.URL)
	g.env = []string{exportSoon}
	g.start()
	g.awaitServing()
	return g
}

// checkDocumentedSpans looks for the spans and attributes that the guide names.
func checkDocumentedSpans(t *testing.T, c *otlptest.Receiver, text string) {
	named := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:the|its) ").FindAllStringSubmatch(text, -1)
	assert.Must(t, len(named) == 4, "the guide names %d spans", len(named))
	for _, m := range named {
		s := c.Await(t, m[1], otlptest.Named(m[1]))
		assert.Equal(t, s.Trace()+" "+s.Parent(), clientsTraceID+" "+clientsSpanID)
		for _, a := range s.Attributes {
			assert.That(t, strings.Contains(text, "`"+a.Key+"`"), "the guide does not name %s of %s", a.Key, s.Name)
		}
	}
}

func TestALeaseIsTracedFromItsAcquireToItsEndAlsoAtItsSuccessor(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	to := otlptest.Start(t)
	one, two := tracing(t, addr+chroot, to), tracing(t, addr+chroot, to)

	lease := one.hold("deploy", "ttl=1m&owner=first&metadata=canary-metadata", traced)
	waiter := one.queue("deploy", "ttl=1m&owner=second", traced)
	two.awaitLock(patience, "deploy", 1, 1)
	acquire := to.Await(t, "the acquire's", otlptest.Named("POST /v1/locks/{lock}/leases", "lockkeeper.lease_id", lease.LeaseID))
	assert.Equal(t, acquire.Trace()+" "+acquire.Parent(), clientsTraceID+" "+clientsSpanID)
	wait := to.Await(t, "the first wait", otlptest.Named("lock.wait", "lockkeeper.owner", "first", "lockkeeper.end_reason", "granted"))
	assert.Equal(t, wait.Trace()+" "+wait.Parent(), clientsTraceID+" "+clientsSpanID)
	assert.Equal(t, strings.Join(wait.LinkIDs(), ","), acquire.ID())

	// Sent on to the gateway that runs the lease.
	a, err := two.Send(t.Context(), http.MethodPost, "/v1/leases/self/heartbeat", apitest.Token(lease.Token), traced)
	assert.NoError(t, answeredWith(a, err, http.StatusOK))
	sentOn := to.Await(t, "where the client asks", func(s otlptest.Span) bool {
		return s.Attr("lockkeeper.operation") == "Heartbeat" && s.Parent() == clientsSpanID && s.Attr("lockkeeper.forwarded_to") != ""
	})
	there := to.Await(t, "at the owner", func(s otlptest.Span) bool { return s.Parent() == sentOn.ID() })
	assert.That(t, there.Trace() == clientsTraceID && there.Attr("lockkeeper.gateway") == sentOn.Attr("lockkeeper.forwarded_to"), "%v", there)

	one.kill()
	eventually(t, patience, func() error { // a heartbeat is answered before
		_, a, err := two.Lease(t.Context(), lease.LeaseID)
		return answeredWith(a, err, http.StatusOK)
	}, "the other gateway has taken over")
	two.beatUntil(waiter.Token, "waiting")
	two.beatUntil(lease.Token, "held")
	a, err = two.Send(t.Context(), http.MethodDelete, "/v1/leases/self", apitest.Token(lease.Token), traced)
	assert.NoError(t, answeredWith(a, err, http.StatusNoContent))
	token := fmt.Sprint(lease.FencingToken)
	hold := to.Await(t, "the hold", otlptest.Named("lock.hold", "lockkeeper.owner", "first", "lockkeeper.end_reason", "released", "lockkeeper.taken_over", "true", "lockkeeper.fencing_token", token, "lockkeeper.mode", "exclusive"))
	assert.Equal(t, hold.Trace()+" "+hold.Parent(), clientsTraceID+" "+clientsSpanID)
	wait = to.Await(t, "the second wait", otlptest.Named("lock.wait", "lockkeeper.owner", "second", "lockkeeper.end_reason", "granted", "lockkeeper.taken_over", "true"))
	assert.Equal(t, wait.Trace()+" "+wait.Parent(), clientsTraceID+" "+clientsSpanID)
	assert.That(t, wait.EndTimeUnixNano >= hold.EndTimeUnixNano && wait.StartTimeUnixNano < hold.StartTimeUnixNano, "the wait lasts from before the takeover to the release: %v, %v", wait, hold)
	held := to.Spans(otlptest.Named("lock.wait", "lockkeeper.owner", "first"))
	assert.That(t, len(held) == 1, "the hold that went on has waited again: %v", held)

	two.letGo(waiter.Token)
	to.Await(t, "the last hold", otlptest.Named("lock.hold", "lockkeeper.owner", "second"))
	for _, secret := range []string{lease.Token, waiter.Token, lease.Token[strings.LastIndexByte(lease.Token, '.')+1:], "canary-metadata"} {
		assert.That(t, !strings.Contains(string(to.Raw()), secret), "exported: %q", secret)
	}
}

func TestACollectorThatIsDownCostsNoRequest(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := newGateway(t, addr+chroot, "--otlp=http://"+freeAddr(t))
	g.env = []string{exportSoon, "OTEL_EXPORTER_OTLP_HEADERS=a=%zzcanary", "OTEL_EXPORTER_OTLP_TIMEOUT=never"}
	g.start()
	g.awaitServing()
	text := g.log.String()
	assert.That(t, strings.Contains(text, "cannot use a variable OTEL_") && !strings.Contains(text, "canary"), "%s", text)
	for line := range strings.Lines(text) {
		assert.That(t, strings.HasPrefix(line, "{"), "a line is not of the log: %s", line)
	}
	for i := range 50 {
		lease := g.hold(fmt.Sprint("lock-", i), "ttl=1m", traced)
		g.letGo(lease.Token)
	}
	eventually(t, patience, func() error {
		if !strings.Contains(g.log.String(), "traces are not exported") {
			return fmt.Errorf("nothing is logged")
		}
		return nil
	}, "the log says that traces are lost")
	g.terminate()
}
