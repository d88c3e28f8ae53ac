package httpapi

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/history"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// remembering is a hub, and a history in memory that follows it.
func remembering(t *testing.T) (*events.Hub, func(*Options)) {
	hub := events.New(events.Options{})
	h := history.New(history.Options{Hub: hub, Now: history.LocksNow{Locks: newFake()}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = hub.Run(ctx); done <- struct{}{} }()
	go func() { _ = h.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-done; <-done })
	testkit.Eventually(t, 10*time.Second, func() bool { return h.Status().On }, "the history is open")
	return hub, func(o *Options) { o.Events, o.History = hub, h }
}

// holdEvents publish that a lock was held, from a minute ago on.
func holdEvents(hub *events.Hub, ns, lock, lease, owner string, end events.Type) {
	began := time.Now().Add(-time.Minute).UTC()
	hub.Publish(&events.Event{Type: events.LeaseGranted, Time: began, NS: ns, Lock: lock, LeaseID: lease, Owner: owner, Mode: "exclusive", FencingToken: 5, Queued: began.Add(-2 * time.Second).UnixMilli()})
	hub.Publish(&events.Event{Type: end, Time: began.Add(30 * time.Second), NS: ns, Lock: lock, LeaseID: lease, Mode: "exclusive", FencingToken: 5})
}

func awaitRows(t *testing.T, n int, as func() *api.HistoryList) *api.HistoryList {
	t.Helper()
	var list *api.HistoryList
	testkit.Eventually(t, 10*time.Second, func() bool {
		list = as()
		return len(list.Items) >= n
	}, "the history has what happened")
	return list
}

func TestTheHistorySaysWhoHeldALock(t *testing.T) {
	hub, with := remembering(t)
	g := serve(t, with)
	holdEvents(hub, "default", "deploy", "l1", "ci@build-1", events.LeaseExpired)
	holdEvents(hub, "default", "other", "l2", "me", events.LeaseReleased)
	holdEvents(hub, "prod", "deploy", "l3", "me", events.LeaseReleased)
	get := func(path string) *api.HistoryList { return read[*api.HistoryList](t, g.send(t, "GET", path)) }
	awaitRows(t, 3, func() *api.HistoryList { return get("/v1/history") })
	at := time.Now().Add(-45 * time.Second).UTC().Format(time.RFC3339Nano)
	for path, want := range map[string]string{"?lock=deploy": "l1 ", "?lock=deploy&ns=prod": "l3 ", "?owner=me&ns=default": "l2 ", "?host=build-1": "l1 ", "?reason=expired": "l1 ",
		"?kind=wait,hazard": "", "?lock=deploy&from=" + at + "&to=" + at: "l1 ", "?lock=deploy&to=2026-01-01T00:00:00Z": ""} {
		got := ""
		for _, i := range get("/v1/history" + path).Items {
			got += i.LeaseID + " "
		}
		assert.Equal(t, got, want, "%s", path)
	}
	one := get("/v1/history?lock=deploy").Items[0]
	assert.That(t, one.Kind == api.HistoryHold && one.Reason == "expired" && *one.LastedMS == 30_000 && *one.WaitedMS == 2000 && one.Host == "build-1" && one.Postmortem == "/v1/leases/l1/postmortem", "%+v", one)
	first := get("/v1/history?limit=2")
	second := get("/v1/history?limit=2&cursor=" + first.NextCursor)
	assert.That(t, len(first.Items) == 2 && len(second.Items) == 1 && second.NextCursor == "", "pages: %+v, %+v", first, second)

	stats := read[api.Stats](t, g.send(t, "GET", "/v1/stats?lock=deploy&window=24h"))
	assert.That(t, stats.Grants == 1 && *stats.UsualHoldMS == 30_000 && *stats.UsualWaitMS == 2000 && len(stats.Ends) == 1 && stats.Ends[0].Reason == "expired", "%+v", stats)
	all := read[api.Stats](t, g.send(t, "GET", "/v1/stats"))
	assert.That(t, all.Grants == 3 && len(all.Contended) == 3 && len(all.Expired) == 1 && all.Expired[0].Lock == "deploy" && all.UsualHoldMS == nil, "%+v", all)
	info := read[api.Info](t, g.send(t, "GET", "/v1/info"))
	assert.That(t, info.History.State == api.HistoryOn && info.History.Kept == api.InMemory && *info.History.Rows == 3, "%+v", info.History)
}

func TestTheHistoryRefusesWhatItDoesNotUnderstand(t *testing.T) {
	_, with := remembering(t)
	g := serve(t, with)
	for _, path := range []string{"/v1/history?kind=holds", "/v1/history?reason=bored", "/v1/history?limit=1001", "/v1/history?cursor=%3F", "/v1/history?cursor=self", "/v1/history?cursor=" + paging.Leases.Cursor("1z"), "/v1/history?from=yesterday",
		"/v1/history?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "/v1/stats?window=2h", "/v1/history?host=%07"} {
		g.expect(t, 422, "invalid_field", "GET", path)
	}
	off := serve(t)
	off.expect(t, 404, "route_not_found", "GET", "/v1/history")
	off.expect(t, 404, "route_not_found", "GET", "/v1/stats")
	assert.Equal(t, read[api.Info](t, off.send(t, "GET", "/v1/info")).History.State, api.HistoryOff)
	closed := serve(t, func(o *Options) { o.History = history.New(history.Options{}) })
	closed.expect(t, 503, "history_unavailable", "GET", "/v1/history")
	closed.expect(t, 503, "history_unavailable", "GET", "/v1/stats")
	assert.Equal(t, read[api.Info](t, closed.send(t, "GET", "/v1/info")).History.State, api.HistoryFailed)
}

// What one gateway tells another must be what it knows itself.
func TestAnItemOfTheHistoryTravelsWhole(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 0, 0, 123456000, time.UTC)
	for _, i := range []history.Item{
		{Kind: history.Hold, NS: "default", Lock: "x", LeaseID: "l1", Owner: "me@h", Principal: "p", Gateway: "g", Purpose: "why", Mode: locks.Semaphore, Permits: 3, FencingToken: 9, Begin: at, Early: time.Minute,
			End: at.Add(time.Hour), Late: time.Second, Waited: time.Second, WaitedKnown: true, Reason: locks.ReasonRevoked, By: "ops", Detail: "down"},
		{Kind: history.Hold, NS: "default", Lock: "x", Foreign: true, Program: "kazoo", Name: "n-1", Mode: locks.Exclusive, Begin: at},
		{Kind: history.Hold, NS: "default", Lock: "x", LeaseID: "l2", Begin: at, End: at, Reason: locks.ReasonReleased},
		{Kind: history.Hold, NS: "default", Lock: "x", LeaseID: "l3", Begin: at, Early: time.Minute, End: at.Add(time.Second), Late: time.Second, Reason: locks.ReasonUnknown},
		{Kind: history.Many, NS: "default", Lock: "x", Begin: at, End: at.Add(time.Second), Count: 5, Mean: 3 * time.Millisecond, Waited: time.Millisecond, WaitedKnown: true, Reason: locks.ReasonReleased},
		{Kind: history.Hazard, NS: "default", Lock: "x", Begin: at, Code: "unreadable", Programs: []string{"a", "b"}, Detail: "do"},
		{Kind: history.Deadlock, NS: "default", Lock: "x", LeaseID: "l1", Begin: at, Code: "c1"},
	} {
		shape := historyShape(&i, at)
		back := assert.Value(historyItem(&shape))(t)
		assert.Equal(t, fmt.Sprintf("%+v", back), fmt.Sprintf("%+v", i))
	}
}
