package metrics

import "github.com/prometheus/client_golang/prometheus"

// webhookCollectors count deliveries, and what waits for them.
type webhookCollectors struct {
	deliveries *prometheus.CounterVec
	outbox     prometheus.Gauge
	dead       prometheus.Gauge
	dropped    prometheus.Counter
	givenUp    prometheus.Counter
	lost       *prometheus.CounterVec
}

func newWebhookCollectors(registry *prometheus.Registry) webhookCollectors {
	c := webhookCollectors{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "webhook_deliveries_total",
			Help: "Attempts to deliver a webhook's message, by result: delivered, failed (it is tried again, or dead), gone (the receiver accepts no more)."}, []string{"result"}),
		outbox: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "outbox_entries",
			Help: "Ends of leases that are not yet delivered to all webhooks, in the whole fleet."}),
		dead: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "webhook_dead_letters",
			Help: "Messages of this gateway that had their last try."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "webhook_dropped_total",
			Help: "Ends that are not delivered to all their webhooks: one has more waiting than its share of the outbox, or the outbox is full."}),
		givenUp: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "notify_given_up_total",
			Help: "Messages to a lease's notify_url that had their last try. There are no dead letters of them."}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "webhook_best_effort_lost_total",
			Help: "Best-effort messages that are not delivered, by why: no_room (too many wait), given_up (the last try failed, or five minutes were over)."}, []string{"why"}),
	}
	for _, result := range []string{"delivered", "failed", "gone"} {
		c.deliveries.WithLabelValues(result)
	}
	for _, why := range []string{"no_room", "given_up"} {
		c.lost.WithLabelValues(why)
	}
	registry.MustRegister(c.deliveries, c.outbox, c.dead, c.dropped, c.givenUp, c.lost)
	return c
}

// WebhookAttempt counts an attempt: delivered, failed or gone.
func (m *Metrics) WebhookAttempt(result string) { m.webhooks.deliveries.WithLabelValues(result).Inc() }

// WebhookDead says how many messages of this gateway are dead letters.
func (m *Metrics) WebhookDead(n int) { m.webhooks.dead.Set(float64(n)) }

// OutboxEntries says how many entries the outbox has.
func (m *Metrics) OutboxEntries(n int) { m.webhooks.outbox.Set(float64(n)) }

// WebhookDropped counts an end that is not delivered to all its webhooks, for lack of room in the outbox.
func (m *Metrics) WebhookDropped() { m.webhooks.dropped.Inc() }

// NotifyGivenUp counts a message to a notify_url that had its last try.
func (m *Metrics) NotifyGivenUp() { m.webhooks.givenUp.Inc() }

// BestEffortLost counts a best-effort message that is not delivered: no_room or given_up.
func (m *Metrics) BestEffortLost(why string) { m.webhooks.lost.WithLabelValues(why).Inc() }
