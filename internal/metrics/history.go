package metrics

import "github.com/prometheus/client_golang/prometheus"

// historyCollectors show the store of what was.
type historyCollectors struct {
	rows, bytes, on prometheus.Gauge
	dropped, failed prometheus.Counter
}

func newHistoryCollectors(registry *prometheus.Registry) historyCollectors {
	c := historyCollectors{
		rows: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "history_rows",
			Help: "Holds, and what else the gateway remembers."}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "history_bytes",
			Help: "Bytes of the history's store that are in use; --history-size bounds them."}),
		on: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "history_on",
			Help: "Whether the history takes what happens. 0 also with --history=off."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "history_dropped_total",
			Help: "Operations that the history did not write: the store failed, or was too slow. Each is in a gap that GET /v1/history tells."}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "history_errors_total",
			Help: "Failures of the history's store: a full disk, a damaged file. The gateway goes on without it."}),
	}
	registry.MustRegister(c.rows, c.bytes, c.on, c.dropped, c.failed)
	return c
}

// HistoryState says how full the history's store is, and whether it takes what happens.
func (m *Metrics) HistoryState(rows, bytes int64, on bool) {
	m.history.rows.Set(float64(rows))
	m.history.bytes.Set(float64(bytes))
	m.history.on.Set(zeroOrOne(on))
}

// HistoryDropped counts what was not written.
func (m *Metrics) HistoryDropped(n int) { m.history.dropped.Add(float64(n)) }

// HistoryFailed counts a failure of the store.
func (m *Metrics) HistoryFailed() { m.history.failed.Inc() }
