package traces

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// queue stands before the SDK's batch processor, which would drop spans without a count. It counts those that are on their way,
// and passes no more than the processor has room for.
type queue struct {
	sdk.SpanProcessor
	sent *sent
}

// OnEnd queues a span, or drops it.
func (q queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.sent.waiting.Add(1) > MaxQueued {
		q.sent.waiting.Add(-1)
		q.sent.metrics.Spans("dropped", 1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// sent stands behind the batch processor, which calls it with one batch after the other.
type sent struct {
	sdk.SpanExporter
	metrics Metrics
	log     *failures
	waiting atomic.Int64 // spans between the two
}

// ExportSpans sends a batch to the collector. Its errors are logged here.
func (e *sent) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err != nil {
		e.metrics.Spans("failed", len(spans))
		e.log.failed(err)
		return nil
	}
	e.metrics.Spans("exported", len(spans))
	e.log.succeeded()
	return nil
}

// failures logs what fails, once in logEvery, and the first success after that.
type failures struct {
	log     *slog.Logger
	secrets []string // values of headers, which a collector may send back

	mu     sync.Mutex
	logged time.Time // the last line; zero: nothing has failed since the last success
}

const (
	logEvery = time.Minute
	maxError = 512 // bytes of an error, which may have the collector's answer
)

func (f *failures) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.logged.IsZero() && time.Since(f.logged) < logEvery {
		return
	}
	f.logged = time.Now()
	text := err.Error()
	for _, secret := range f.secrets {
		text = strings.ReplaceAll(text, secret, "[secret]")
	}
	f.log.Warn("traces are not exported; locks are served as before", "err", text[:min(len(text), maxError)])
}

func (f *failures) succeeded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.logged.IsZero() {
		f.logged = time.Time{}
		f.log.Info("traces are exported again")
	}
}

// settings logs what the SDK cannot use of a variable OTEL_... Without it the SDK writes to standard error, in a form of its own,
// and with the variable's value, which may be a secret. What it logs below errors is about its own work.
type settings struct{ log *slog.Logger }

func (s settings) Init(logr.RuntimeInfo)          {}
func (s settings) Enabled(int) bool               { return false }
func (s settings) Info(int, string, ...any)       {}
func (s settings) WithValues(...any) logr.LogSink { return s }
func (s settings) WithName(string) logr.LogSink   { return s }
func (s settings) Error(_ error, doing string, _ ...any) {
	s.log.Warn("OpenTelemetry's SDK cannot use a variable OTEL_...; see docs/guides/traces.md", "doing", doing)
}
