package metrics

import "github.com/prometheus/client_golang/prometheus"

// webhookCollectors count what is told to others, and what waits for that.
type webhookCollectors struct {
	deliveries *prometheus.CounterVec
	outbox     prometheus.Gauge
	dead       prometheus.Gauge
	dropped    prometheus.Counter
	givenUp    prometheus.Counter
}

func newWebhookCollectors(registry *prometheus.Registry) webhookCollectors {
	c := webhookCollectors{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "webhook_deliveries_total",
			Help: "Attempts to deliver a webhook's message, by result: delivered, failed (it is tried again, or dead), gone (the receiver wants nothing more)."}, []string{"result"}),
		outbox: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "outbox_entries",
			Help: "Ends of leases that webhooks have not all been told of, in the whole fleet."}),
		dead: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "webhook_dead_letters",
			Help: "Messages of this gateway that had their last try."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "webhook_dropped_total",
			Help: "Ends that not all webhooks are told of that want to be: more waits for one than the outbox has room for, or the outbox is full."}),
		givenUp: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "notify_given_up_total",
			Help: "Messages to a lease's notify_url that had their last try. There are no dead letters of them."}),
	}
	for _, result := range []string{"delivered", "failed", "gone"} {
		c.deliveries.WithLabelValues(result)
	}
	registry.MustRegister(c.deliveries, c.outbox, c.dead, c.dropped, c.givenUp)
	return c
}

// WebhookAttempt counts an attempt: delivered, failed or gone.
func (m *Metrics) WebhookAttempt(result string) { m.webhooks.deliveries.WithLabelValues(result).Inc() }

// WebhookDead says how many messages of this gateway are dead letters.
func (m *Metrics) WebhookDead(n int) { m.webhooks.dead.Set(float64(n)) }

// OutboxEntries says how many entries the outbox has.
func (m *Metrics) OutboxEntries(n int) { m.webhooks.outbox.Set(float64(n)) }

// WebhookDropped counts an end that not all webhooks are told of, for lack of room in the outbox.
func (m *Metrics) WebhookDropped() { m.webhooks.dropped.Inc() }

// NotifyGivenUp counts a message to a notify_url that had its last try.
func (m *Metrics) NotifyGivenUp() { m.webhooks.givenUp.Inc() }
