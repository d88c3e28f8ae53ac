package metrics

import "github.com/prometheus/client_golang/prometheus"

// authCollectors show whether the gateway can tell who sends a request.
type authCollectors struct {
	refused prometheus.Gauge
	issuers *prometheus.GaugeVec
}

func newAuthCollectors(registry *prometheus.Registry) authCollectors {
	c := authCollectors{
		refused: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "auth_file_refused",
			Help: "Whether --auth-file has a content that cannot be used, so that the rules from before stay in force."}),
		issuers: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "auth_issuer_reached",
			Help: "Whether the last attempt to read an issuer's keys succeeded, by its name in --auth-file."}, []string{"issuer"}),
	}
	registry.MustRegister(c.refused, c.issuers)
	return c
}

// AuthFile says whether the content of --auth-file, as it is now, is in force.
func (m *Metrics) AuthFile(inForce bool) { m.auth.refused.Set(zeroOrOne(!inForce)) }

// Issuer says whether an issuer's keys could be read.
func (m *Metrics) Issuer(name string, reached bool) {
	m.auth.issuers.WithLabelValues(name).Set(zeroOrOne(reached))
}

// IssuerGone says that --auth-file has the issuer no more.
func (m *Metrics) IssuerGone(name string) { m.auth.issuers.DeleteLabelValues(name) }
