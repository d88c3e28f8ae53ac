package httpapi

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
)

const someHook = "wh_aaaabbbbccccdddd"

func TestAWebhookIsMadeLookedAtChangedAndRemoved(t *testing.T) {
	r := receiver(t)
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	a := g.send(t, "POST", "/v1/webhooks", jsonParts(`{"url":"`, r.url, `","events":["lease.expired","lease.released"],"locks":"deploy:*","description":"for me","headers":{"authorization":"Bearer s3cr3t"}}`))
	made := read[api.Webhook](t, a)
	if a.Status != 201 || a.Header.Get("Location") != "/v1/webhooks/"+made.ID || a.Header.Get("ETag") != `"0"` || !strings.HasPrefix(made.Secret, "whsec_") || !made.Enabled {
		t.Fatalf("%d %v %s", a.Status, a.Header, a.Body)
	}
	at := "/v1/webhooks/" + made.ID
	for _, path := range []string{at, "/v1/webhooks"} {
		a = g.send(t, "GET", path)
		for _, secret := range []string{made.Secret, "secret", "s3cr3t"} {
			assert.That(t, !strings.Contains(string(a.Body), secret), "%s shows %s: %s", path, secret, a.Body)
		}
		if !strings.Contains(string(a.Body), `"headers":["Authorization"]`) || !strings.Contains(string(a.Body), `"events":["lease.expired","lease.released"],"delivery":{"durable":["lease.expired","lease.released"],"best_effort":[]},"locks":"deploy:*","format":"standard","description":"for me","enabled":true`) ||
			!strings.Contains(string(a.Body), `"deliveries":{"waiting":0,"dead_letters":0}`) {
			t.Errorf("%s: %s", path, a.Body)
		}
	}
	// A client with an older version changes nothing.
	if a = g.send(t, "PATCH", at, jsonParts(`{"enabled":false,"headers":{"X-One":"1"},"events":[]}`), apitest.Header("If-Match", `"0"`)); a.Status != 200 || a.Header.Get("ETag") != `"1"` {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if w := read[api.Webhook](t, a); w.Enabled || len(w.Events) != 0 || !slices.Equal(w.Headers, []string{"Authorization", "X-One"}) || w.Description != "for me" || w.Secret != "" {
		t.Errorf("%+v", w)
	}
	for _, method := range []string{"PATCH", "DELETE"} {
		if a = g.send(t, method, at, apitest.Header("If-Match", `"0"`)); a.Status != 412 || a.Code() != "precondition_failed" || a.Problem.Field != "If-Match" {
			t.Errorf("%s: %d %s", method, a.Status, a.Body)
		}
		if a = g.send(t, method, at, apitest.Header("If-Match", `abc`)); a.Status != 422 || a.Problem.Field != "If-Match" {
			t.Errorf("%s: %d %s", method, a.Status, a.Body)
		}
	}
	if a = g.send(t, "PATCH", at+"?description=other", apitest.Header("If-Match", `*`)); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a = g.send(t, "DELETE", at, apitest.Header("If-Match", `"2"`)); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, c := range [][2]string{{"GET", ""}, {"PATCH", ""}, {"DELETE", ""}, {"POST", "/rotate"}, {"POST", "/test"}, {"POST", "/replay"}, {"GET", "/attempts"}, {"GET", "/dead-letters"}} {
		if a = g.send(t, c[0], at+c[1]); a.Status != 404 || a.Code() != "webhook_not_found" {
			t.Errorf("%v of a removed one: %d %s", c, a.Status, a.Body)
		}
	}
}

// A header's value cannot be looked at, so it must not be had by having it sent elsewhere either.
func TestHeadersDoNotGoToAnotherReceiver(t *testing.T) {
	r, other := receiver(t), receiver(t)
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	made := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks", jsonParts(`{"url":"`, r.url, `","headers":{"Authorization":"s3cr3t","X-Two":"2"}}`)))
	at := "/v1/webhooks/" + made.ID
	for _, body := range []string{`{"url":"` + other.url + `"}`, `{"url":"` + other.url + `","headers":{"X-Two":"3"}}`, `{"url":"` + strings.Replace(r.url, "http:", "https:", 1) + `"}`} {
		a := g.send(t, "PATCH", at, apitest.JSON(body))
		assert.That(t, a.Status == 422 && a.Problem.Field == "headers", "%s: %d %s", body, a.Status, a.Body)
	}
	a := g.send(t, "PATCH", at, jsonParts(`{"url":"`, other.url, `","headers":{"authorization":null,"X-TWO":"3"}}`))
	assert.That(t, a.Status == 200 && strings.Contains(string(a.Body), `"headers":["X-Two"]`), "%d %s", a.Status, a.Body)
	g.send(t, "POST", at+"/test")
	assert.That(t, other.count() == 1 && other.heads[0].Get("X-Two") == "3" && other.heads[0].Get("Authorization") == "",
		"sent %v", other.heads)
}

func TestEachWrongFieldOfAWebhookIsNamed(t *testing.T) {
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	made := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks?url=http://127.0.0.1:9/"))
	at := "/v1/webhooks/" + made.ID
	for _, c := range []struct {
		method, path, body, code, field string
	}{
		{"POST", "/v1/webhooks", ``, "invalid_field", "url"},
		{"POST", "/v1/webhooks", `{"url":"ftp://example.com"}`, "invalid_field", "url"},
		{"POST", "/v1/webhooks", `{"url":"http://user:pass@example.com"}`, "invalid_field", "url"},
		{"POST", "/v1/webhooks", `{"url":7}`, "invalid_field", "url"},
		{"POST", "/v1/webhooks", `{"URL":"http://example.com"}`, "unknown_field", "URL"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","url":"http://b.example"}`, "repeated_field", "url"},
		{"POST", "/v1/webhooks?url=http://a.example", `{"url":"http://b.example"}`, "repeated_field", "url"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","events":["node.created"]}`, "invalid_field", "events"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","events":"lease.released"}`, "invalid_field", "events"},
		{"POST", "/v1/webhooks?events=lease.lost", `{"url":"http://a.example"}`, "invalid_field", "events"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","ns":"a?"}`, "invalid_field", "ns"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","locks":"[a]"}`, "invalid_field", "locks"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","format":"irc"}`, "invalid_field", "format"},
		{"POST", "/v1/webhooks?format=ntfy", `{"url":"http://a.example/"}`, "invalid_field", "url"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","owner":"a\u0007"}`, "invalid_field", "owner"},
		{"PATCH", at, `{"reason":"*********"}`, "invalid_field", "reason"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","enabled":"yes"}`, "invalid_field", "enabled"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","description":"a\nb"}`, "invalid_field", "description"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","ca":"none"}`, "invalid_field", "ca"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","headers":["a"]}`, "invalid_field", "headers"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","headers":{"A":"1","a":"2"}}`, "invalid_field", "headers"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","headers":{"A":null}}`, "invalid_field", "headers"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","headers":{"A":{"b":"c"}}}`, "invalid_field", "headers"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","headers":{"Webhook-Id":"1"}}`, "invalid_field", "headers"},
		{"POST", "/v1/webhooks", `{"url":"http://a.example","headers":{"A":"x\r\nB: y"}}`, "invalid_field", "headers"},
		{"POST", "/v1/webhooks?headers=a", `{"url":"http://a.example"}`, "unknown_field", "headers"},
		{"PATCH", at, `{"id":"x"}`, "unknown_field", "id"},
		{"PATCH", at, `{"url":""}`, "invalid_field", "url"},
		{"POST", at + "/rotate", `{"overlap":"8d"}`, "invalid_field", "overlap"},
		{"POST", at + "/rotate?overlap=169h", ``, "invalid_field", "overlap"},
		{"POST", at + "/rotate?overlap=24", ``, "duration_needs_unit", "overlap"},
		{"POST", at + "/replay?message_id=", ``, "invalid_field", "message_id"},
		{"POST", at + "/replay?waiting=1", ``, "invalid_field", "waiting"},
		{"POST", at + "/replay?waiting=true", `{"message_id":"msg_abcdefghijklmnopqrstuvwxyz"}`, "invalid_field", "waiting"},
		{"GET", at + "/attempts?limit=0", ``, "invalid_field", "limit"},
		{"GET", at + "/dead-letters?cursor=1", ``, "unknown_field", "cursor"},
		{"POST", at + "/test?x=1", ``, "unknown_field", "x"},
	} {
		var options []apitest.Option
		if c.body != "" {
			options = append(options, apitest.JSON(c.body))
		}
		if a := g.send(t, c.method, c.path, options...); a.Status != 422 || a.Code() != c.code || a.Problem.Field != c.field {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, a.Status, a.Body)
		}
	}
	list := read[api.WebhookList](t, g.send(t, "GET", "/v1/webhooks"))
	assert.That(t, len(list.Items) == 1, "%d were made of refused ones", len(list.Items)-1)
}

func TestATestIsSentAndTold(t *testing.T) {
	r := receiver(t)
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	made := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks", jsonParts(`{"url":"`, r.url, `","enabled":false}`)))
	for _, c := range []struct {
		status int
		result api.WebhookAttemptResult
	}{{204, "delivered"}, {500, "failed"}, {410, "gone"}} {
		r.answers(c.status)
		a := read[api.WebhookAttempt](t, g.send(t, "POST", "/v1/webhooks/"+made.ID+"/test"))
		assert.That(t, a.Result == c.result && a.Status == c.status && a.Type == "webhook.test" && a.Try == 1, "%d: %+v", c.status, a)
	}
	list := read[api.WebhookAttemptList](t, g.send(t, "GET", "/v1/webhooks/"+made.ID+"/attempts?limit=2"))
	assert.That(t, len(list.Items) == 2 && list.Items[0].Result == "gone" && list.Items[1].Result == "failed" && r.count() == 3,
		"%+v", list)
}

func TestARotatedSecretSignsBesideItsPredecessorForAWhile(t *testing.T) {
	r := receiver(t)
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	made := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks?url="+r.url))
	at := "/v1/webhooks/" + made.ID
	rotated := read[api.Webhook](t, g.send(t, "POST", at+"/rotate", jsonParts(`{"overlap":"48h"}`)))
	if rotated.Secret == made.Secret || rotated.OldSecretUntil == nil || time.Until(*rotated.OldSecretUntil).Round(time.Hour) != 48*time.Hour {
		t.Errorf("%+v", rotated)
	}
	g.send(t, "POST", at+"/test")
	assert.Equal(t, len(strings.Fields(r.heads[0].Get("Webhook-Signature"))), 2, "signatures")
	rotated = read[api.Webhook](t, g.send(t, "POST", at+"/rotate?overlap=0s"))
	g.send(t, "POST", at+"/test")
	n := len(strings.Fields(r.heads[1].Get("Webhook-Signature")))
	assert.That(t, n == 1 && rotated.OldSecretUntil == nil, "%d signatures, %+v", n, rotated)
}

// hooked is a gateway of a fleet, with webhooks.
func hooked(t *testing.T, id string, on *shelf) (*gateway, *webhooks.Service) {
	t.Helper()
	service, with := withWebhooks(t, on)
	g, _ := member(t, id, "secret", with)
	return g, service
}

func TestWhatBecameOfMessagesIsToldForTheWholeFleet(t *testing.T) {
	t.Parallel()
	r, on := receiver(t), newShelf()
	one, first := hooked(t, "one", on)
	two, second := hooked(t, "two", on)
	one.peers = []locks.Peer{{Gateway: "one", Self: true, Registered: true}, {Gateway: "two", Registered: true, Address: two.address()}, {Gateway: "gone", Address: noListener}}
	two.peers = []locks.Peer{{Gateway: "two", Self: true, Registered: true}, {Gateway: "one", Registered: true, Address: one.address()}}
	made := read[api.Webhook](t, one.send(t, "POST", "/v1/webhooks?url="+r.url))
	at := "/v1/webhooks/" + made.ID
	second.Refresh()
	until(t, "the other gateway knows it", func() bool { _, err := second.Get(made.ID); return err == nil })
	// Both gateways have an end to tell, and both receivers are gone for good.
	r.answers(410)
	tell(first, "leaseone", "a")
	tell(second, "leasetwo", "b")
	until(t, "both are dead", func() bool {
		w := read[api.Webhook](t, one.send(t, "GET", at))
		return w.Deliveries.DeadLetters == 2 && w.Deliveries.Waiting == 0 && w.Deliveries.FailingSince != nil && !w.Enabled && w.DisabledReason != ""
	})
	for _, g := range []*gateway{one, two} {
		dead := read[api.DeadLetterList](t, g.send(t, "GET", at+"/dead-letters"))
		if len(dead.Items) != 2 || len(dead.Unreached) != 0 || dead.Items[0].GatewayID == dead.Items[1].GatewayID || dead.Items[0].Event.FencingToken != 7 {
			t.Errorf("%+v", dead)
		}
		list := read[api.WebhookAttemptList](t, g.send(t, "GET", at+"/attempts"))
		if len(list.Items) != 2 || list.Items[0].Time.Before(list.Items[1].Time) || list.Items[0].GatewayID == list.Items[1].GatewayID {
			t.Errorf("%+v", list)
		}
		assert.Equal(t, read[api.WebhookList](t, g.send(t, "GET", "/v1/webhooks")).Items[0].Deliveries.DeadLetters, 2)
	}
	if a := one.send(t, "POST", at+"/replay"); a.Status != 422 || a.Problem.Field != "enabled" {
		t.Errorf("a replay to a disabled one: %d %s", a.Status, a.Body)
	}
	// The answer names a gateway that cannot be asked, and has the rest.
	one.peers = append(one.peers, locks.Peer{Gateway: "lost", Registered: true, Address: noListener}, locks.Peer{Gateway: "mute", Registered: true})
	for _, path := range []string{"/attempts", "/dead-letters"} {
		a := one.send(t, "GET", at+path)
		if list := read[api.DeadLetterList](t, a); len(list.Items) != 2 || len(list.Unreached) != 2 || list.Unreached[0].GatewayID != "lost" || list.Unreached[1].GatewayID != "mute" {
			t.Errorf("%s", a.Body)
		}
	}
	r.answers(200)
	if a := one.send(t, "PATCH", at, jsonParts(`{"enabled":true}`)); a.Status != 200 || strings.Contains(string(a.Body), "disabled_reason") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	until(t, "the other gateway knows that too", func() bool {
		second.Refresh()
		s, err := second.Get(made.ID)
		return err == nil && s.Enabled
	})
	dead := read[api.DeadLetterList](t, one.send(t, "GET", at+"/dead-letters"))
	there := dead.Items[slices.IndexFunc(dead.Items, func(d api.DeadLetter) bool { return d.GatewayID == "two" })]
	if a := read[api.Replayed](t, one.send(t, "POST", at+"/replay", jsonParts(`{"message_id":"`, there.MessageID, `"}`))); a.Replayed != 1 || len(a.Unreached) != 2 {
		t.Errorf("%+v", a)
	}
	until(t, "it is delivered", func() bool { return r.count() == 3 })
	if a := read[api.Replayed](t, two.send(t, "POST", at+"/replay")); a.Replayed != 1 || len(a.Unreached) != 0 {
		t.Errorf("%+v", a)
	}
	until(t, "all is delivered", func() bool {
		w := read[api.Webhook](t, two.send(t, "GET", at))
		return w.Deliveries.DeadLetters == 0 && w.Deliveries.Waiting == 0 && w.Deliveries.FailingSince == nil
	})
	assert.That(t, r.count() == 4 && r.heads[2].Get("Webhook-Id") == there.MessageID, "%d arrived", r.count())
}

func TestWhatFoundNoRoomInTheOutboxIsToldForTheWholeFleet(t *testing.T) {
	t.Parallel()
	r, on := receiver(t), newShelf()
	r.answers(500)
	gateways, services := make([]*gateway, 2), make([]*webhooks.Service, 2)
	for i, id := range []string{"one", "two"} {
		service, with := withRoomFor(t, on, 1)
		gateways[i], _ = member(t, id, "secret", with)
		services[i] = service
	}
	gateways[0].peers = []locks.Peer{{Gateway: "one", Self: true, Registered: true}, {Gateway: "two", Registered: true, Address: gateways[1].address()}}
	a := gateways[0].send(t, "GET", "/v1/webhooks")
	assert.That(t, strings.Contains(string(a.Body), `"outbox":{"entries":0,"limit":1,"dropped":0}`), "%s", a.Body)
	made := read[api.Webhook](t, gateways[0].send(t, "POST", "/v1/webhooks?url="+r.url))
	for i, service := range services {
		service.Refresh()
		until(t, "it knows the webhook", func() bool { _, err := service.Get(made.ID); return err == nil })
		for n := 0; service.Outbox().Dropped == 0; n++ {
			tell(service, "lease"+strings.Repeat("x", i*100+n), "a")
			until(t, "it is noted, or there was no room", func() bool { o := service.Outbox(); return o.Entries+o.Dropped > 0 })
		}
	}
	list := read[api.WebhookList](t, gateways[0].send(t, "GET", "/v1/webhooks"))
	if want := services[0].Outbox().Dropped + services[1].Outbox().Dropped; list.Outbox.Entries < 1 || list.Outbox.Limit != 1 || list.Outbox.Dropped != want || list.Outbox.LastDropped == nil {
		t.Errorf("%+v, not %d", list.Outbox, want)
	}
}

func TestWebhooksThatAreNotKnownAreNoEmptyList(t *testing.T) {
	on := newShelf()
	on.down = zk.ErrUnavailable
	allowed, _ := webhooks.NewAddresses(true, nil)
	service := webhooks.New(webhooks.Options{Store: on, Root: "/l", Addresses: allowed})
	g := serve(t, func(o *Options) { o.Webhooks = service })
	for _, c := range [][2]string{{"GET", "/v1/webhooks"}, {"GET", "/v1/webhooks/" + someHook}, {"POST", "/v1/webhooks?url=http://a.example/"}, {"DELETE", "/v1/webhooks/" + someHook}, {"POST", "/v1/webhooks/" + someHook + "/test"}} {
		g.expect(t, 503, "zookeeper_unavailable", c[0], c[1])
	}
}

func TestWithoutWebhooksThereIsNothingAtTheirPaths(t *testing.T) {
	g := serve(t)
	for _, r := range routeTable() {
		if strings.HasPrefix(r.pattern, "/v1/webhooks") {
			g.expect(t, 404, "route_not_found", r.method, strings.Replace(r.pattern, "{id}", someHook, 1))
		}
	}
}

func TestD17AWebhookTakesEventsBesidesEndsAndSaysHowTheyAreDelivered(t *testing.T) {
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	made := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks?url=https://example.com/&events=lease.granted,lease.queued,lock.hazard,lease.released"))
	assert.Slices(t, made.Delivery.Durable, []api.WebhookEventType{"lease.released"}, "durable")
	assert.Slices(t, made.Delivery.BestEffort, []api.WebhookEventType{"lease.granted", "lease.queued", "lock.hazard"}, "best effort")
	shown := read[api.Webhook](t, g.send(t, "PATCH", "/v1/webhooks/"+made.ID, apitest.JSON(`{"events":[]}`)))
	assert.That(t, len(shown.Delivery.Durable) == 7 && len(shown.Delivery.BestEffort) == 0 && shown.Delivery.BestEffort != nil, "without types: %+v", shown.Delivery)
	for _, w := range read[api.WebhookList](t, g.send(t, "GET", "/v1/webhooks")).Items {
		assert.That(t, len(w.Delivery.Durable) == 7, "in the list: %+v", w.Delivery)
	}
}

// A receiver has failed at both gateways and is mended: one request to one of them delivers what waits at both.
func TestWhatWaitsIsDeliveredAtOnceInTheWholeFleet(t *testing.T) {
	t.Parallel()
	r, on := receiver(t), newShelf()
	one, first := hooked(t, "one", on)
	two, second := hooked(t, "two", on)
	one.peers = []locks.Peer{{Gateway: "one", Self: true, Registered: true}, {Gateway: "two", Registered: true, Address: two.address()}}
	two.peers = []locks.Peer{{Gateway: "one", Registered: true, Address: one.address()}, {Gateway: "two", Self: true, Registered: true}}
	made := read[api.Webhook](t, one.send(t, "POST", "/v1/webhooks?url="+r.url))
	at := "/v1/webhooks/" + made.ID
	second.Refresh()
	until(t, "the other gateway knows it", func() bool { _, err := second.Get(made.ID); return err == nil })
	r.answers(500)
	tell(first, "leaseone", "a")
	tell(second, "leasetwo", "b")
	until(t, "both were tried once", func() bool { return r.count() == 2 })
	until(t, "and again after 5 seconds", func() bool { return r.count() == 4 }) // then each waits for 5 minutes
	until(t, "the next try is told", func() bool {
		next := read[api.Webhook](t, two.send(t, "GET", at)).Deliveries.NextAttemptAt
		return next != nil && time.Until(*next) > 4*time.Minute && time.Until(*next) < 7*time.Minute
	})
	r.answers(200)
	a := read[api.Replayed](t, one.send(t, "POST", at+"/replay", jsonParts(`{"waiting":true}`)))
	assert.That(t, a.Replayed == 2 && len(a.Unreached) == 0, "%+v", a)
	until(t, "all is delivered", func() bool {
		d := read[api.Webhook](t, one.send(t, "GET", at)).Deliveries
		return r.count() == 6 && d.Waiting == 0 && d.FailingSince == nil && d.NextAttemptAt == nil
	})
}
