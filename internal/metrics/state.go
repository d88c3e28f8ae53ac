package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what a scrape shows of the moment.
type State struct {
	Leases         map[LeaseKind]int
	TrustMargin    time.Duration // until the trust window closes if nothing commits; 0 when it is closed
	ReplicaCurrent bool
	SecretExposed  bool
	OldestWaiter   time.Duration  // how long the oldest waiting lease has waited; 0 when none waits
	Hazards        map[string]int // locks by what is wrong with them: every code there is
	Deadlocks      int            // cycles of owners that wait for each other
	Bounds         []Bound
	Displaced      uint64 // idle connections that were closed in a newcomer's favor
}

// Bound is a bound on what clients may leave in this gateway, by the value of the label bound.
type Bound struct {
	Name        string
	Used, Limit int64
	Refused     uint64
}

// LeaseKind is the labels of lockkeeper_leases.
type LeaseKind struct{ State, Mode string }

// Watch registers the gauges that read is asked for at each scrape. It is
// called once, before the registry is served; read must not block.
func (m *Metrics) Watch(read func() State) {
	m.registry.MustRegister(&stateCollector{
		read: read,
		leases: prometheus.NewDesc(namespace+"_leases", "Leases whose clocks this gateway runs; those of more than one lock have the mode several.",
			[]string{"state", "mode"}, nil),
		fenceMargin: prometheus.NewDesc(namespace+"_fence_margin_seconds",
			"Time until this gateway may no longer speak for its leases if nothing commits.", nil, nil),
		replicaCurrent: prometheus.NewDesc(namespace+"_replica_current",
			"Whether grants and heartbeats may be answered from memory.", nil, nil),
		secretExposed: prometheus.NewDesc(namespace+"_secret_exposed",
			"Whether others than the fleet can read the secret of the lease tokens, or could once; gateway secret rotate replaces it.", nil, nil),
		oldestWaiter: prometheus.NewDesc(namespace+"_oldest_waiter_seconds",
			"How long the oldest waiting lease of this gateway has waited.", nil, nil),
		hazards: prometheus.NewDesc(namespace+"_hazards",
			"Locks that have the hazard now, of the whole fleet and other programs' too; docs/operate/interop.md has the codes.", []string{"code"}, nil),
		deadlocks: prometheus.NewDesc(namespace+"_deadlocks",
			"Cycles of owners that wait for each other now, in the whole fleet; GET /v1/graph names them.", nil, nil),
		boundUsed: prometheus.NewDesc(namespace+"_bound_used", "How much of a bound on what clients may leave here is in use; docs/operate/bounds.md has the bounds.",
			[]string{"bound"}, nil),
		boundLimit:   prometheus.NewDesc(namespace+"_bound_limit", "The bound's value.", []string{"bound"}, nil),
		boundRefused: prometheus.NewDesc(namespace+"_bound_refusals_total", "Requests, or connections, that were refused at the bound.", []string{"bound"}, nil),
		displaced: prometheus.NewDesc(namespace+"_connections_displaced_total", "Idle connections that were closed in favor of new ones, at the bounds on connections.",
			nil, nil),
	})
}

// stateCollector reads the state once per scrape, so that its gauges agree.
type stateCollector struct {
	read func() State

	leases, fenceMargin, replicaCurrent, secretExposed, oldestWaiter, hazards, deadlocks, boundUsed, boundLimit, boundRefused, displaced *prometheus.Desc
}

func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.leases
	ch <- c.fenceMargin
	ch <- c.replicaCurrent
	ch <- c.secretExposed
	ch <- c.oldestWaiter
	ch <- c.hazards
	ch <- c.deadlocks
	ch <- c.boundUsed
	ch <- c.boundLimit
	ch <- c.boundRefused
	ch <- c.displaced
}

func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	for kind, n := range s.Leases {
		ch <- prometheus.MustNewConstMetric(c.leases, prometheus.GaugeValue, float64(n), kind.State, kind.Mode)
	}
	ch <- prometheus.MustNewConstMetric(c.fenceMargin, prometheus.GaugeValue, s.TrustMargin.Seconds())
	ch <- prometheus.MustNewConstMetric(c.replicaCurrent, prometheus.GaugeValue, zeroOrOne(s.ReplicaCurrent))
	ch <- prometheus.MustNewConstMetric(c.secretExposed, prometheus.GaugeValue, zeroOrOne(s.SecretExposed))
	ch <- prometheus.MustNewConstMetric(c.oldestWaiter, prometheus.GaugeValue, s.OldestWaiter.Seconds())
	ch <- prometheus.MustNewConstMetric(c.deadlocks, prometheus.GaugeValue, float64(s.Deadlocks))
	for _, b := range s.Bounds {
		ch <- prometheus.MustNewConstMetric(c.boundUsed, prometheus.GaugeValue, float64(b.Used), b.Name)
		ch <- prometheus.MustNewConstMetric(c.boundLimit, prometheus.GaugeValue, float64(b.Limit), b.Name)
		ch <- prometheus.MustNewConstMetric(c.boundRefused, prometheus.CounterValue, float64(b.Refused), b.Name)
	}
	ch <- prometheus.MustNewConstMetric(c.displaced, prometheus.CounterValue, float64(s.Displaced))
	for code, n := range s.Hazards {
		ch <- prometheus.MustNewConstMetric(c.hazards, prometheus.GaugeValue, float64(n), code)
	}
}

func zeroOrOne(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
