package traces

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

// MaxQueued is how many ended spans wait for their export.
const MaxQueued = 2048

// retryWithin is how long the export of one batch is tried again.
const retryWithin = 10 * time.Second

// What may stand in one span: nothing that the gateway records is longer, except a list of many locks.
const (
	maxAttributes = 32
	maxValue      = 1024
)

// Metrics counts spans. It must be safe for concurrent use.
type Metrics interface {
	// Spans counts what became of spans: exported, failed (the collector did not take them) or dropped (the queue was full).
	Spans(result string, n int)
}

// Options of a Tracer.
type Options struct {
	Endpoint string            // the whole URL, with its path: http://127.0.0.1:4318/v1/traces
	Headers  map[string]string // for the collector; nil: those of OTEL_EXPORTER_OTLP_HEADERS
	Secrets  []string          // what no line of the log may have: values of headers
	Version  string            // of the gateway
	Log      *slog.Logger
	Metrics  Metrics
}

// Tracer makes spans and exports them. A nil Tracer makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// New makes a Tracer and starts its export. The standard variables of the SDK hold for what Options does not say:
// OTEL_EXPORTER_OTLP_* (headers, certificates, timeout, compression), OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_SCHEDULE_DELAY. Call Shutdown when the last request has been answered.
func New(o Options) (*Tracer, error) {
	otel.SetLogger(logr.New(settings{o.Log}))
	log := &failures{log: o.Log, secrets: o.Secrets}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(log.failed))
	options := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(o.Endpoint),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: retryWithin})}
	if o.Headers != nil {
		options = append(options, otlptracehttp.WithHeaders(o.Headers))
	}
	exporter, err := otlptrace.New(context.Background(), otlptracehttp.NewClient(options...))
	if err != nil {
		return nil, fmt.Errorf("preparing the export of traces: %w", err)
	}
	described, err := resource.New(context.Background(), resource.WithAttributes(semconv.ServiceName("lockkeeper"), semconv.ServiceVersion(o.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES must be KEY=VALUE,...: %w", err)
	}
	limits := sdk.NewSpanLimits()
	limits.AttributeCountLimit, limits.AttributeValueLengthLimit = maxAttributes, maxValue
	behind := &sent{SpanExporter: exporter, metrics: o.Metrics, log: log}
	before := queue{sdk.NewBatchSpanProcessor(behind, sdk.WithMaxQueueSize(MaxQueued)), behind}
	t := &Tracer{provider: sdk.NewTracerProvider(sdk.WithResource(described), sdk.WithRawSpanLimits(limits), sdk.WithSpanProcessor(before))}
	t.tracer = t.provider.Tracer("lockkeeper", trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))
	return t, nil
}

// Shutdown exports what waits, until ctx ends. No span is recorded from then on.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// W3C trace context, as the SDK reads and writes it.

func remote(traceparent string) context.Context {
	if traceparent == "" {
		return context.Background()
	}
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
}

func traceparent(of trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), of), carrier)
	return carrier["traceparent"]
}

// attributes is a list that leaves out what is not known.
type attributes []attribute.KeyValue

func (a *attributes) text(key attribute.Key, value string) {
	if value != "" {
		*a = append(*a, key.String(value))
	}
}
