package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
)

// audience is a receiver.
type audience struct {
	*httptest.Server
	mu       sync.Mutex
	down     bool
	messages []webhooks.Event
	ids      []string
	traces   []string
}

func newAudience(t *testing.T) *audience {
	r := &audience{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var m struct {
			Type string         `json:"type"`
			Data webhooks.Event `json:"data"`
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := json.Unmarshal(body, &m); err != nil || r.down {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.messages, r.ids, r.traces = append(r.messages, m.Data), append(r.ids, req.Header.Get("Webhook-Id")), append(r.traces, req.Header.Get("Traceparent"))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *audience) set(down bool) { r.mu.Lock(); defer r.mu.Unlock(); r.down = down }

// of are the types of a lock's messages, each message once.
func (r *audience) of(lock string) (types []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for i, e := range r.messages {
		if e.Lock == lock && !seen[r.ids[i]] {
			seen[r.ids[i]] = true
			types = append(types, e.Type)
		}
	}
	return types
}

// member is a gateway without HTTP.
type member struct {
	*manager.Manager
	hooks *webhooks.Service
	stop  context.CancelFunc
}

func newMember(t *testing.T, server *embeddedtest.Server) *member {
	t.Helper()
	return newMemberOf(t, server, 0, nil)
}

func newMemberOf(t *testing.T, server *embeddedtest.Server, room int, hub *events.Hub) *member {
	t.Helper()
	addresses := assert.Value(webhooks.NewAddresses(true, nil))(t)
	cfg := zk.Config{Servers: []string{server.Addr()}, Root: "/lockkeeper", SessionTimeout: time.Second, PromiseWindow: 2 * time.Second, CreateRoot: true}
	box := &Box{}
	m := &member{Manager: manager.New(manager.Options{Store: &term.ZooKeeper{Config: cfg}, Root: cfg.Root, SessionTimeout: cfg.SessionTimeout, Outbox: box, Events: hub})}
	m.hooks = box.Connect(m.Manager, hub, webhooks.Options{Root: cfg.Root, MaxEntries: room, Addresses: addresses, Transport: webhooks.NewSender(webhooks.SenderOptions{Addresses: addresses, Version: "test"})})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { assert.Nil(t, m.Run(ctx), "run") })
	all.Go(func() { _ = m.hooks.Run(ctx) })
	m.stop = func() { cancel(); all.Wait() }
	t.Cleanup(m.stop)
	testkit.Eventually(t, 20*time.Second, func() bool { return m.Ready() == nil && m.Trusted() }, "the manager is usable")
	return m
}

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func (m *member) cycle(t *testing.T, lock string) {
	t.Helper()
	res, err := m.Acquire(t.Context(), locks.AcquireRequest{Principal: locks.Anonymous, Lock: lock, TTL: time.Minute})
	if err == nil {
		err = m.Release(locks.WithTraceParent(t.Context(), someTrace), locks.Anonymous, res.Lease.ID, res.Lease.Token)
	}
	assert.NoError(t, err)
}

func TestReleasesOnZooKeeperAreDelivered(t *testing.T) {
	t.Parallel()
	server := embeddedtest.RunT(t)
	receiver := newAudience(t)
	first, second := newMember(t, server), newMember(t, server)
	sub := assert.Value(first.hooks.Create(t.Context(), &webhooks.Subscription{URL: receiver.URL, Locks: "deploy*", Enabled: true}))(t)
	first.cycle(t, "deploy-1")
	second.cycle(t, "deploy-2") // with or without the watch's event
	second.cycle(t, "other")
	empty := func() bool {
		names, _, err := first.Nodes().Children(t.Context(), "/lockkeeper/outbox")
		return err == nil && len(names) == 0
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return len(receiver.of("deploy-1")) == 1 && len(receiver.of("deploy-2")) == 1 && empty() }, "both are told, and the outbox is empty")
	testkit.Eventually(t, 10*time.Second, func() bool { _, err := second.hooks.Get(sub.ID); return err == nil }, "its watch tells the other one of the subscription")
	got := receiver.of("other")
	assert.That(t, len(got) == 0, "told without a subscription: %q", got)
	assert.Slices(t, receiver.of("deploy-1"), []string{webhooks.Released}, "told")

	// What a gateway has not delivered when it goes, the other one delivers.
	receiver.set(true)
	for i := range 20 {
		first.cycle(t, fmt.Sprint("deploy-late-", i%5))
	}
	first.stop()
	receiver.set(false)
	testkit.Eventually(t, 30*time.Second, func() bool {
		for i := range 5 {
			if len(receiver.of(fmt.Sprint("deploy-late-", i))) != 4 {
				return false
			}
		}
		names, _, err := second.Nodes().Children(t.Context(), "/lockkeeper/outbox")
		return err == nil && len(names) == 0
	}, "what a gateway left is told by the other one")
	receiver.mu.Lock()
	for i, trace := range receiver.traces {
		if trace != someTrace {
			t.Errorf("%s is told with the trace %q, also of another gateway's releases", receiver.messages[i].Lock, trace)
		}
	}
	receiver.mu.Unlock()

	// Another program's contender, by no gateway's transaction.
	res := second.Nodes().Commit(t.Context(), []zk.Op{{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy-theirs"},
		{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy-theirs/_c_6a9ed4c8-5ba5-4b63-a1e3-96de7b4a7ccc-lock-", Sequential: true}})
	assert.Must(t, res.Outcome == zk.Done, "%+v", res)
	testkit.Eventually(t, 10*time.Second, func() bool {
		q, err := second.Lock(t.Context(), locks.LockRequest{Principal: locks.Anonymous, Lock: "deploy-theirs"})
		return err == nil && len(q.Holders) == 1
	}, "it holds")
	assert.MustEqual(t, second.Nodes().Commit(t.Context(), []zk.Op{{Kind: zk.OpDelete, Path: res.Paths[1], Version: -1}}).Outcome, zk.Done)
	testkit.Eventually(t, 10*time.Second, func() bool { return slices.Equal(receiver.of("deploy-theirs"), []string{webhooks.Removed}) }, "its end is told")
}

func TestAReleaseWithoutRoomInTheOutboxSucceedsAndIsAnEvent(t *testing.T) {
	t.Parallel()
	server := embeddedtest.RunT(t)
	receiver := newAudience(t)
	receiver.set(true)
	hub := events.New(events.Options{})
	m := newMemberOf(t, server, 2, hub)
	assert.Value(m.hooks.Create(t.Context(), &webhooks.Subscription{URL: receiver.URL, Enabled: true}))(t)
	for i := range 5 {
		m.cycle(t, fmt.Sprint("lock-", i)) // fails the test when the release fails
	}
	dropped := func() (list []*events.Event) {
		return hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.WebhookDropped)}, 100)
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return len(dropped()) > 0 }, "an event tells of it")
	lost := m.hooks.Outbox().Dropped
	if lost < 2 || lost > 3 { // about: an entry that is made while they are counted may be missing from the count
		t.Errorf("%d of 5 had no room", lost)
	}
	e := dropped()[0]
	assert.That(t, e.Dropped.Count >= 1 && e.Dropped.Count <= lost && e.Gateway == m.GatewayID() && e.Detail != "" && len(dropped()) == 1, "%+v", e)
	receiver.set(false)
	testkit.Eventually(t, 30*time.Second, func() bool {
		names, _, err := m.Nodes().Children(t.Context(), "/lockkeeper/outbox")
		return err == nil && len(names) == 0 && m.hooks.Outbox().Entries == 0
	}, "what is in the outbox is delivered")
	m.cycle(t, "lock-5")
	testkit.Eventually(t, 10*time.Second, func() bool { return len(receiver.of("lock-5")) == 1 }, "there is room again")
	for i := range 5 {
		got := len(receiver.of(fmt.Sprint("lock-", i)))
		assert.That(t, (got == 1 || i >= 5-lost) && (got == 0 || i < 5-lost), "lock-%d is told %d times", i, got)
	}
	assert.Equal(t, m.hooks.Outbox().Dropped, lost)
}

func TestAWebhookThatIsLeftOutIsNamedByTheEvent(t *testing.T) {
	t.Parallel()
	server := embeddedtest.RunT(t)
	dead, well := newAudience(t), newAudience(t)
	dead.set(true)
	hub := events.New(events.Options{})
	m := newMemberOf(t, server, 10, hub)
	left := assert.Value(m.hooks.Create(t.Context(), &webhooks.Subscription{URL: dead.URL, Enabled: true}))(t)
	assert.Value(m.hooks.Create(t.Context(), &webhooks.Subscription{URL: well.URL, Enabled: true}))(t)
	const ends = 30
	for i := range ends {
		lock := fmt.Sprint("lock-", i)
		m.cycle(t, lock)
		testkit.Eventually(t, 10*time.Second, func() bool { return len(well.of(lock)) == 1 }, "the other one is told of %s", lock)
	}
	named := func() (list []*events.Event) {
		return hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.WebhookDropped)}, 100)
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return len(named()) > 0 }, "an event tells of it")
	status := m.hooks.Statuses()[left.ID]
	e := named()[0]
	assert.That(t, e.Dropped.Webhook == left.ID && e.Dropped.Count >= 1 && e.Detail != "" && e.Gateway == m.GatewayID(), "%+v", e)
	assert.That(t, status.Waiting <= 8 && status.Waiting+status.Dropped == ends, "%+v of %d", status, ends)
}

func TestAnEndIsDescribedInOneOrderByEachGateway(t *testing.T) {
	parts := []manager.EndingPart{{NS: "default", Lock: "b", Znode: "/2"}, {NS: "default", Lock: "a", Znode: "/1"}, {NS: "a", Lock: "z", Znode: "/3"}}
	owner := endOf(&manager.Ending{LeaseID: "l", Reason: locks.ReasonRevoked, Parts: slices.Clone(parts)})
	slices.Reverse(parts)
	other := endOf(&manager.Ending{LeaseID: "l", Reason: locks.ReasonRemoved, Parts: parts})
	for i := range owner.Events {
		if owner.Events[i].Lock != other.Events[i].Lock || owner.Entry != other.Entry {
			t.Errorf("%+v and %+v: the receiver would take one message for two", owner.Events[i], other.Events[i])
		}
	}
}

func TestTheEndOfOneLockAloneHasAnEntryOfItsOwn(t *testing.T) {
	e := manager.Ending{LeaseID: "l", Part: 2, Reason: locks.ReasonGatewayLeft, Parts: []manager.EndingPart{{NS: "default", Lock: "b", Znode: "/2"}}}
	got := endOf(&e).Entry
	assert.That(t, got != "l" && got == webhooks.PartEntry("l", 2), "it is %s: the other locks find it there and stay untold", got)
}

func TestEveryReasonHasAType(t *testing.T) {
	for reason, want := range map[locks.Reason]string{locks.ReasonReleased: webhooks.Released, locks.ReasonExpired: webhooks.Expired, locks.ReasonCancelled: webhooks.Cancelled,
		locks.ReasonUnclaimed: webhooks.Unclaimed, locks.ReasonRevoked: webhooks.Revoked, locks.ReasonDestroyed: webhooks.Destroyed,
		locks.ReasonRemoved: webhooks.Removed, locks.ReasonGatewayLeft: webhooks.Removed, locks.ReasonUnknown: webhooks.Removed} {
		got := typeOf(&manager.Ending{Reason: reason})
		assert.That(t, got == want && slices.Contains(webhooks.Durable, got), "%s is told as %s", reason, got)
	}
}

func TestAMessageForANotifyURLAloneGoesToNoOtherReceiver(t *testing.T) {
	e := manager.Ending{LeaseID: "l", Notify: "https://example.com/", Reason: locks.ReasonExpired, Parts: []manager.EndingPart{{NS: "default", Lock: "a", Znode: "/1", FencingToken: 7}}}
	held := endOf(&e)
	if held.NotifyOnly || held.NotifyURL != e.Notify || held.Entry != "l" || held.Events[0].Waiting || held.Events[0].FencingToken != 7 {
		t.Errorf("%+v", held)
	}
	e.Waiting = true
	waited := endOf(&e)
	if !waited.NotifyOnly || waited.Entry != "l" || waited.Events[0].Type != webhooks.Expired || !waited.Events[0].Waiting || waited.Events[0].FencingToken != 0 {
		t.Errorf("%+v", waited)
	}
	e.Waiting, e.Granted, e.Reason = false, true, ""
	granted := endOf(&e)
	if !granted.NotifyOnly || granted.Entry != webhooks.GrantEntry("l") || granted.Events[0].Type != webhooks.Granted || granted.Events[0].FencingToken != 7 {
		t.Errorf("%+v", granted)
	}
}
