// Package metrics keeps the gateway's Prometheus collectors. No lock, owner or
// lease is ever a label: their number has no bound.
//
// Its methods are called from hot paths by the packages that measure; each
// declares the small interface that it needs and does not import this package
// for it. All methods are safe for concurrent use.
package metrics

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is a registry of its own and the collectors in it.
type Metrics struct {
	registry *prometheus.Registry

	requests     *handles[request, counter]
	refused      *prometheus.CounterVec
	waiting      prometheus.Gauge
	acquire      *handles[string, observer]
	forwarded    *prometheus.CounterVec
	hold         prometheus.Histogram
	queueWait    prometheus.Histogram
	handover     prometheus.Histogram
	ended        *handles[string, counter]
	takeovers    prometheus.Counter
	deposed      prometheus.Counter
	written      prometheus.Counter
	deadlocks    prometheus.Counter
	zkOperation  *handles[operation, observer]
	commits      *commits
	zkBatch      prometheus.Histogram
	dropped      prometheus.Counter
	unlogged     prometheus.Counter
	unaudited    prometheus.Counter
	spans        *prometheus.CounterVec
	subscribers  prometheus.Gauge
	webhooks     webhookCollectors
	certificates certificateCollectors
	auth         authCollectors
	history      historyCollectors
}

// The labels of vectors, and their collectors.
type (
	request struct {
		operation string
		status    int
	}
	operation struct{ op, outcome string }

	counter  = prometheus.Counter
	observer = prometheus.Observer
)

// Buckets: a write takes about half a millisecond, a wait up to a day.
var (
	writeBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	waitBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400}
	batchBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}
)

const namespace = "lockkeeper"

// New makes the collectors. version is what lockkeeper_build_info says.
func New(version string) *Metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "http_requests_total",
		Help: "HTTP requests by operation of openapi.yaml and status."}, []string{"operation", "status"})
	acquire := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "acquire_seconds", Buckets: waitBuckets,
		Help: "Time from an acquire's arrival to its answer, by result."}, []string{"result"})
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "lease_ended_total",
		Help: "Leases that ended, by reason."}, []string{"reason"})
	zkOperation := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "zk_op_seconds", Buckets: writeBuckets,
		Help: "Time of ZooKeeper operations by kind and outcome."}, []string{"op", "outcome"})
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: newHandles(func(r request) counter { return requests.WithLabelValues(r.operation, strconv.Itoa(r.status)) }),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "http_refused_total",
			Help: "HTTP requests that were refused for who sends them, by code: cross_origin, host_not_allowed, fleet_seal_refused, owned_by_other_gateway (a seal for another gateway), unauthenticated, rate_limited, principal_limit."}, []string{"code"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "http_waiting_requests",
			Help: "HTTP requests that wait now: blocking acquires and long polls."}),
		acquire: newHandles(func(result string) observer { return acquire.WithLabelValues(result) }),
		forwarded: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "forwarded_total",
			Help: "Requests that were sent on to the gateway that runs the lease, by result."}, []string{"result"}),
		hold: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "hold_seconds", Buckets: waitBuckets,
			Help: "How long leases were held."}),
		queueWait: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "queue_wait_seconds", Buckets: waitBuckets,
			Help: "How long leases waited until they were granted."}),
		handover: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "handover_seconds", Buckets: writeBuckets,
			Help: "Time from the end of a lease to the grant of the next one in its queue, where this gateway saw both."}),
		ended: newHandles(func(reason string) counter { return ended.WithLabelValues(reason) }),
		takeovers: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "takeovers_total",
			Help: "Gateways whose leases this one took over."}),
		deposed: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "gateways_deposed_total",
			Help: "Of those: gateways that were registered and committed nothing."}),
		written: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "heartbeats_written_total",
			Help: "Heartbeats written into ZooKeeper for a gateway that could not be reached."}),
		deadlocks: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "deadlocks_detected_total",
			Help: "Cycles of owners that wait for each other, as they appeared."}),
		zkOperation: newHandles(func(o operation) observer { return zkOperation.WithLabelValues(o.op, o.outcome) }),
		commits:     newCommits(zkOperation),
		zkBatch: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "zk_batch_size", Buckets: batchBuckets,
			Help: "Writes in one ZooKeeper transaction."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "events_dropped_total",
			Help: "Events that a subscriber missed and that made it resync."}),
		unaudited: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "audit_lost_total",
			Help: "Lines of the audit log that were not written: too many waited, or the output refused them."}),
		spans: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "trace_spans_total",
			Help: "Spans by what became of them: exported, failed (the collector did not take them), dropped (too many waited)."}, []string{"result"}),
		unlogged: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "access_log_dropped_total",
			Help: "Lines about requests that were not logged: standard error took them too slowly, or not at all."}),
		subscribers: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "event_subscribers",
			Help: "Those who watch events now: streams, WebSockets and pages."}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info",
		Help: "Always 1; the version is the label."}, []string{"version", "go_version"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.webhooks = newWebhookCollectors(m.registry)
	m.certificates = newCertificateCollectors(m.registry)
	m.auth = newAuthCollectors(m.registry)
	m.history = newHistoryCollectors(m.registry)
	m.registry.MustRegister(requests, m.refused, m.waiting, acquire, m.forwarded, m.hold, m.queueWait, m.handover, ended, m.takeovers, m.deposed,
		m.written,
		m.deadlocks,
		zkOperation, m.zkBatch, m.dropped, m.unlogged, m.unaudited, m.spans, m.subscribers, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the registry.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Request counts an answered HTTP request.
func (m *Metrics) Request(operation string, status int) {
	if operation == "" {
		operation = "none"
	}
	m.requests.of(request{operation, status}).Inc()
}

// Refused counts an HTTP request that was refused for who sends it.
func (m *Metrics) Refused(code string) { m.refused.WithLabelValues(code).Inc() }

// Waiting moves the number of HTTP requests that wait.
func (m *Metrics) Waiting(delta int) { m.waiting.Add(float64(delta)) }

// Acquire measures an acquire. result is a state or a problem's code.
func (m *Metrics) Acquire(result string, took time.Duration) {
	m.acquire.of(result).Observe(took.Seconds())
}

// Forwarded counts a request that was sent on to another gateway.
func (m *Metrics) Forwarded(result string) { m.forwarded.WithLabelValues(result).Inc() }

// LeaseGranted measures how long a lease waited in its queue.
func (m *Metrics) LeaseGranted(waited time.Duration) { m.queueWait.Observe(waited.Seconds()) }

// LeaseEnded counts a lease's end; held is 0 when it was never granted.
func (m *Metrics) LeaseEnded(reason string, held time.Duration) {
	m.ended.of(reason).Inc()
	if held > 0 {
		m.hold.Observe(held.Seconds())
	}
}

// Handover measures the time between a lease's end and the next one's grant.
func (m *Metrics) Handover(took time.Duration) { m.handover.Observe(took.Seconds()) }

// Takeover counts a gateway whose leases were taken over.
func (m *Metrics) Takeover() { m.takeovers.Inc() }

// Deposed counts a takeover of a gateway that was registered and committed nothing.
func (m *Metrics) Deposed() { m.deposed.Inc() }

// HeartbeatWritten counts a heartbeat that was written down for a gateway that could not be reached.
func (m *Metrics) HeartbeatWritten() { m.written.Inc() }

// Deadlock counts a cycle of owners that have come to wait for each other.
func (m *Metrics) Deadlock() { m.deadlocks.Inc() }

// ZKOperation measures one operation on ZooKeeper. outcome is ok, refused
// or unknown.
func (m *Metrics) ZKOperation(op, outcome string, took time.Duration) {
	m.zkOperation.of(operation{op, outcome}).Observe(took.Seconds())
}

// ZKBatch measures how many writes travelled in one transaction.
func (m *Metrics) ZKBatch(writes int) { m.zkBatch.Observe(float64(writes)) }

// EventsDropped counts events that a subscriber was not given.
func (m *Metrics) EventsDropped(n uint64) { m.dropped.Add(float64(n)) }

// AccessLogDropped counts lines about requests that were not logged.
func (m *Metrics) AccessLogDropped(lines int) { m.unlogged.Add(float64(lines)) }

// AuditLost counts lines of the audit log that were not written.
func (m *Metrics) AuditLost(lines int) { m.unaudited.Add(float64(lines)) }

// Spans counts what became of spans.
func (m *Metrics) Spans(result string, n int) { m.spans.WithLabelValues(result).Add(float64(n)) }

// Subscribers moves the number of those who watch events.
func (m *Metrics) Subscribers(delta int) { m.subscribers.Add(float64(delta)) }
