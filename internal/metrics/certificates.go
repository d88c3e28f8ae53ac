package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificateCollectors show what is in force of the certificates that files have.
type certificateCollectors struct{ expires, failed *prometheus.GaugeVec }

func newCertificateCollectors(registry *prometheus.Registry) certificateCollectors {
	c := certificateCollectors{
		expires: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "certificate_expires_timestamp_seconds",
			Help: "When the gateway's certificate expires, by what it is for: clients, zookeeper."}, []string{"certificates"}),
		failed: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "certificate_reload_failed",
			Help: "Whether files of certificates have changed and cannot be used, so that the old ones stay in force, by what they are for: clients, peers, zookeeper."}, []string{"certificates"}),
	}
	registry.MustRegister(c.expires, c.failed)
	return c
}

// CertificateExpires says when the certificate of a source expires.
func (m *Metrics) CertificateExpires(source string, at time.Time) {
	m.certificates.expires.WithLabelValues(source).Set(float64(at.Unix()))
}

// CertificateReload says whether the files of a source, as they are now, are in force.
func (m *Metrics) CertificateReload(source string, failed bool) {
	m.certificates.failed.WithLabelValues(source).Set(zeroOrOne(failed))
}
