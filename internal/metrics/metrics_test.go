package metrics

import (
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lockkeeper/internal/test/assert"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	assert.Must(t, w.Code == 200, "scraping: %d %s", w.Code, w.Body)
	return w.Body.String()
}

func TestWhatIsMeasuredIsShownUnderItsName(t *testing.T) {
	m := New("v1.2.3")
	m.Watch(func() State {
		return State{Leases: map[LeaseKind]int{{"held", "exclusive"}: 3}, TrustMargin: 1500 * time.Millisecond, ReplicaCurrent: true, SecretExposed: true, OldestWaiter: time.Minute, Deadlocks: 2,
			Hazards: map[string]int{"stray_child": 2, "unreadable": 0}}
	})
	m.Request("Acquire", 201)
	m.Request("", 404)
	m.Refused("cross_origin")
	m.Waiting(2)
	m.Waiting(-1)
	m.Acquire("held", 10*time.Millisecond)
	m.LeaseGranted(time.Second)
	m.LeaseEnded("released", 3*time.Second)
	m.LeaseEnded("cancelled", 0)
	m.Handover(time.Millisecond)
	m.Takeover()
	m.Deposed()
	m.HeartbeatWritten()
	m.WebhookAttempt("failed")
	m.WebhookDead(4)
	m.OutboxEntries(9)
	m.WebhookDropped()
	m.BestEffortLost("no_room")
	m.NotifyGivenUp()
	m.ZKOperation("write", "done", time.Millisecond)
	m.ZKBatch(16)
	m.EventsDropped(7)
	m.EventsDropped(1)
	m.AccessLogDropped(3)
	m.AuditLost(4)
	m.Subscribers(1)
	m.Subscribers(1)
	m.Subscribers(-1)
	text := scrape(t, m)
	for _, line := range []string{
		`lockkeeper_build_info{go_version="go`,
		`lockkeeper_http_requests_total{operation="Acquire",status="201"} 1`,
		`lockkeeper_http_requests_total{operation="none",status="404"} 1`,
		`lockkeeper_http_refused_total{code="cross_origin"} 1`,
		`lockkeeper_http_waiting_requests 1`,
		`lockkeeper_acquire_seconds_count{result="held"} 1`,
		`lockkeeper_queue_wait_seconds_sum 1`,
		`lockkeeper_hold_seconds_count 1`,
		`lockkeeper_hold_seconds_sum 3`,
		`lockkeeper_lease_ended_total{reason="released"} 1`,
		`lockkeeper_lease_ended_total{reason="cancelled"} 1`,
		`lockkeeper_handover_seconds_count 1`,
		`lockkeeper_takeovers_total 1`,
		`lockkeeper_gateways_deposed_total 1`,
		`lockkeeper_heartbeats_written_total 1`,
		`lockkeeper_webhook_deliveries_total{result="failed"} 1`,
		`lockkeeper_webhook_deliveries_total{result="delivered"} 0`,
		`lockkeeper_webhook_dead_letters 4`,
		`lockkeeper_outbox_entries 9`,
		`lockkeeper_webhook_dropped_total 1`,
		`lockkeeper_webhook_best_effort_lost_total{why="no_room"} 1`,
		`lockkeeper_webhook_best_effort_lost_total{why="given_up"} 0`,
		`lockkeeper_zk_op_seconds_count{op="write",outcome="done"} 1`,
		`lockkeeper_zk_batch_size_bucket{le="16"} 1`,
		`lockkeeper_events_dropped_total 8`,
		`lockkeeper_access_log_dropped_total 3`,
		`lockkeeper_audit_lost_total 4`,
		`lockkeeper_event_subscribers 1`,
		`lockkeeper_leases{mode="exclusive",state="held"} 3`,
		`lockkeeper_fence_margin_seconds 1.5`,
		`lockkeeper_replica_current 1`,
		`lockkeeper_secret_exposed 1`,
		`lockkeeper_oldest_waiter_seconds 60`,
		`lockkeeper_hazards{code="stray_child"} 2`,
		`lockkeeper_deadlocks 2`,
		`lockkeeper_hazards{code="unreadable"} 0`,
	} {
		assert.That(t, strings.Contains(text, line), "missing: %s", line)
	}
	for line := range strings.Lines(text) {
		assert.That(t, !strings.HasPrefix(line, "# HELP lockkeeper_") || strings.Count(line, " ") >= 4, "hardly any help: %s", line)
	}
}

func TestTwoGatewaysInOneProcessDoNotShareFigures(t *testing.T) {
	a, b := New(""), New("")
	a.Takeover()
	assert.That(t, strings.Contains(scrape(t, b), "lockkeeper_takeovers_total 0"), "b counts what a did")
}

var variableLabels = regexp.MustCompile(`fqName: "(lockkeeper_[^"]*)".*variableLabels: \{([^}]*)\}`)

// A client of --metrics-listen need not have read of any lock, so no label has the name of a lock, a
// namespace, an owner or a principal. A new label is added here when that is so of it.
func TestNoLabelHasANameThatClientsChoose(t *testing.T) {
	m := New("test")
	m.Watch(func() State { return State{} })
	known := strings.Fields("operation status code result reason op outcome version go_version issuer state mode bound certificates why")
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		m.registry.Describe(all)
	}()
	found := 0
	for desc := range all {
		parts := variableLabels.FindStringSubmatch(desc.String())
		if parts == nil || parts[2] == "" {
			continue
		}
		for label := range strings.SplitSeq(parts[2], ",") {
			found++
			assert.That(t, slices.Contains(known, label), "%s has the label %s", parts[1], label)
		}
	}
	assert.That(t, found > 10, "%d labels were found", found)
}
