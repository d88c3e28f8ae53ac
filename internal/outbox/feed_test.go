package outbox

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
)

// readers counts the subscribers of a hub.
type readers struct{ atomic.Int64 }

func (r *readers) Subscribers(delta int) { r.Add(int64(delta)) }
func (r *readers) EventsDropped(uint64)  {}

// newTeller is a member whose hub runs.
func newTeller(t *testing.T, server *embeddedtest.Server) (*member, *readers) {
	t.Helper()
	of := &readers{}
	hub := events.New(events.Options{Metrics: of})
	runHub(t, hub)
	return newMemberOf(t, server, 0, hub), of
}

func runHub(t *testing.T, hub *events.Hub) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = hub.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// all are the types of a lock's messages, repeats too.
func (r *audience) all(lock string) (types []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.messages {
		if e.Lock == lock {
			types = append(types, e.Type)
		}
	}
	return types
}

func TestTheTypesThatAreToldAreTheHubs(t *testing.T) {
	for _, name := range webhooks.BestEffort {
		set, err := events.ParseTypes(name)
		assert.That(t, err == nil && set&bestEffort == set, "%s is not read from the hub: %v", name, err)
	}
	n := 0
	for kind := events.LeaseQueued; kind <= events.NodeDeleted; kind++ {
		if bestEffort.Has(kind) {
			n++
		}
	}
	assert.Equal(t, n, len(webhooks.BestEffort), "types read from the hub")
	for _, name := range webhooks.Durable {
		set, err := events.ParseTypes(name)
		assert.That(t, err == nil && set&bestEffort == events.Types(), "%s is told twice: %v", name, err)
	}
}

func TestTheHubIsReadOnlyWhileAWebhookWantsIt(t *testing.T) {
	t.Parallel()
	server := embeddedtest.RunT(t)
	m, of := newTeller(t, server)
	sub, err := m.hooks.Create(t.Context(), &webhooks.Subscription{URL: "http://127.0.0.1:1/", Enabled: true})
	assert.NoError(t, err)
	assert.Equal(t, of.Load(), 0, "read for ends alone")
	_, err = m.hooks.Update(t.Context(), sub.ID, -1, func(s *webhooks.Subscription) error { s.Events = []string{webhooks.Granted}; return nil })
	assert.NoError(t, err)
	assert.Equal(t, of.Load(), 1, "read for grants")
	assert.NoError(t, m.hooks.Delete(t.Context(), sub.ID, -1, func(*webhooks.Subscription) bool { return true }))
	assert.Equal(t, of.Load(), 0, "read when the webhook is removed")
}

func TestEventsThatTheHubHasLostAreCountedAndLaterOnesTold(t *testing.T) {
	t.Parallel()
	server := embeddedtest.RunT(t)
	receiver := newAudience(t)
	hub := events.New(events.Options{Ring: 64})
	m := newMemberOf(t, server, 0, hub)
	sub, err := m.hooks.Create(t.Context(), &webhooks.Subscription{URL: receiver.URL, Enabled: true, Events: []string{webhooks.Granted}})
	assert.NoError(t, err)
	for range 100 { // the hub wakes no reader yet
		hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: "lost", LeaseID: "l", Here: true})
	}
	runHub(t, hub)
	testkit.Eventually(t, 20*time.Second, func() bool { return m.hooks.Statuses()[sub.ID].BestEffortLost > 0 }, "it is counted")
	testkit.Eventually(t, 20*time.Second, func() bool {
		return slices.ContainsFunc(hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.WebhookDropped)}, 10), func(e *events.Event) bool { return e.Dropped.Webhook == sub.ID && e.Detail != "" })
	}, "an event says so")
	assert.Value(m.Acquire(t.Context(), locks.AcquireRequest{Principal: locks.Anonymous, Lock: "later", TTL: time.Minute}))(t)
	testkit.Eventually(t, 20*time.Second, func() bool { return len(receiver.all("later")) == 1 }, "a later grant is told")
}

// A successor may tell again that a lease was queued or granted. Its hub has no number in common with the first gateway's.
func TestWhatALeaseIsOnceHasOneNameAtEachGateway(t *testing.T) {
	publish := func(e *events.Event) string {
		events.New(events.Options{}).Publish(e)
		return nameOf(e)
	}
	for _, c := range []struct {
		kind  events.Type
		lease string
		one   bool
	}{{events.LeaseQueued, "l1", true}, {events.LeaseGranted, "l1", true}, {events.LeaseUpdated, "l1", false}, {events.LeaseRevokeRequested, "l1", false},
		{events.LeaseGranted, "", false}, {events.LockHazard, "", false}} {
		a, b := publish(&events.Event{Type: c.kind, LeaseID: c.lease}), publish(&events.Event{Type: c.kind, LeaseID: c.lease})
		assert.That(t, a != "" && (a == b) == c.one, "%s of %q: %s and %s", c.kind, c.lease, a, b)
	}
	assert.That(t, publish(&events.Event{Type: events.LeaseQueued, LeaseID: "l1"}) != publish(&events.Event{Type: events.LeaseGranted, LeaseID: "l1"}), "a grant has the name of a queueing")
}

func TestEachEventIsToldOnceByTheGatewayThatOwnsIt(t *testing.T) {
	t.Parallel()
	server := embeddedtest.RunT(t)
	receiver := newAudience(t)
	one, _ := newTeller(t, server)
	other, _ := newTeller(t, server)
	_, err := one.hooks.Create(t.Context(), &webhooks.Subscription{URL: receiver.URL, Enabled: true, Events: slices.Concat(webhooks.Durable, webhooks.BestEffort)})
	assert.NoError(t, err)
	testkit.Eventually(t, 20*time.Second, func() bool { return len(other.hooks.List()) == 1 }, "the other gateway knows the webhook")

	holder := assert.Value(one.Acquire(t.Context(), locks.AcquireRequest{Principal: locks.Anonymous, Lock: "deploy", TTL: time.Minute, Owner: "a"}))(t)
	ticket := assert.Value(other.Acquire(t.Context(), locks.AcquireRequest{Principal: locks.Anonymous, Lock: "deploy", TTL: time.Minute, Owner: "b", Async: true}))(t)
	testkit.Eventually(t, 20*time.Second, func() bool {
		l, err := one.Lock(t.Context(), locks.LockRequest{Principal: locks.Anonymous, Lock: "deploy"})
		return err == nil && l.QueueLength == 1
	}, "it waits")
	const asker = "10.0.0.9"
	_, err = other.Revoke(t.Context(), locks.RevokeRequest{Principal: locks.Anonymous, Lock: "deploy", Reason: "please", Client: asker}) // of a lease that one runs
	assert.NoError(t, err)
	testkit.Eventually(t, 20*time.Second, func() bool { return slices.Contains(receiver.all("deploy"), webhooks.RevokeRequested) }, "the request is told")
	assert.NoError(t, one.Release(t.Context(), locks.Anonymous, holder.Lease.ID, holder.Lease.Token))
	testkit.Eventually(t, 20*time.Second, func() bool { return len(receiver.all("deploy")) >= 6 }, "all is told: %q", receiver.all("deploy"))
	assert.NoError(t, other.Release(t.Context(), locks.Anonymous, ticket.Lease.ID, ticket.Lease.Token))
	testkit.Eventually(t, 20*time.Second, func() bool { return len(receiver.all("deploy")) >= 7 }, "the last end is told")

	// Programs that do not wait for each other: a hazard, which both gateways publish.
	for _, path := range []string{"/locks/odd", "/locks/odd/_c_3d7c1a26-8a2c-4a59-a1c5-8f8b6f3d4a11-lock-", "/locks/odd/0123456789abcdef0123456789abcdef__lock__"} {
		op := zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper" + path}
		if strings.Count(path, "/") > 2 {
			op.Sequential = true
		}
		res := one.Nodes().Commit(t.Context(), []zk.Op{op})
		assert.Equal(t, res.Outcome, zk.Done, "create %s: %v", path, res.Err)
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return slices.Contains(receiver.all("odd"), webhooks.HazardAppeared) }, "the hazard is told")
	// Another program's holder is asked by one gateway, and no other sees that.
	for _, m := range []*member{one, other} {
		assert.Value(m.Revoke(t.Context(), locks.RevokeRequest{Principal: locks.Anonymous, Lock: "odd", Client: asker}))(t)
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return slices.Contains(receiver.all("odd"), webhooks.RevokeRequested) }, "the request is told")
	assert.Value(one.Acquire(t.Context(), locks.AcquireRequest{Principal: locks.Anonymous, Lock: "last", TTL: time.Minute}))(t)
	assert.Value(other.Acquire(t.Context(), locks.AcquireRequest{Principal: locks.Anonymous, Lock: "last-of-other", TTL: time.Minute}))(t)
	testkit.Eventually(t, 20*time.Second, func() bool { return len(receiver.all("last")) == 2 && len(receiver.all("last-of-other")) == 2 }, "what comes later is told")

	got := receiver.all("deploy")
	slices.Sort(got)
	assert.Slices(t, got, []string{webhooks.Granted, webhooks.Granted, webhooks.Queued, webhooks.Queued, webhooks.Released, webhooks.Released, webhooks.RevokeRequested}, "told")
	count := map[string]int{}
	for _, kind := range receiver.all("odd") {
		count[kind]++
	}
	assert.That(t, count[webhooks.HazardAppeared] >= 1 && count[webhooks.Queued] == 2 && count[webhooks.RevokeRequested] == 1, "%v", count)
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	hazards := map[string]int{}
	for _, e := range receiver.messages {
		switch {
		case e.Type == webhooks.HazardAppeared:
			hazards[e.Code+" "+strings.Join(e.Programs, " ")]++
			assert.That(t, e.Code != "" && e.Detail != "", "%+v", e)
		case e.Type == webhooks.RevokeRequested && e.LeaseID != "":
			assert.That(t, e.By == asker, "asked by %q: %+v", e.By, e)
		case e.Type == webhooks.Granted && e.LeaseID != "":
			assert.That(t, e.FencingToken != 0 && e.Gateway != "" && e.Mode != "", "%+v", e)
		}
	}
	for hazard, n := range hazards {
		assert.Equal(t, n, 1, "the hazard %s is told", hazard)
	}
}
