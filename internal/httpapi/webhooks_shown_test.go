package httpapi

import (
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// The path of a receiver's URL is its secret at many of them: one who reads the list could send in the gateway's name.
func TestThePathOfAURLIsShownToTheRequestThatSetsItAlone(t *testing.T) {
	r := receiver(t)
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	secret := r.url + "/T000/B000/XXXXSECRET?token=QUERYSECRET"
	shown := strings.TrimSuffix(r.url, "/hook") + "/..."
	a := g.send(t, "POST", "/v1/webhooks", jsonParts(`{"url":"`, secret, `"}`))
	made := read[api.Webhook](t, a)
	assert.That(t, made.URL == secret, "the answer to the request that set it: %s", a.Body)
	at := "/v1/webhooks/" + made.ID
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/webhooks", ""}, {"GET", at, ""}, {"PATCH", at, `{"description":"other"}`}, {"PATCH", at, `{"enabled":true}`}, {"POST", at + "/rotate", ""},
	} {
		var options []apitest.Option
		if c.body != "" {
			options = append(options, apitest.JSON(c.body))
		}
		if a = g.send(t, c.method, c.path, options...); a.Status != 200 || strings.Contains(string(a.Body), "SECRET") || !strings.Contains(string(a.Body), `"url":"`+shown+`"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.Status, a.Body)
		}
	}
	for _, path := range []string{at + "/attempts", at + "/dead-letters"} {
		if a = g.send(t, "GET", path); a.Status != 200 || strings.Contains(string(a.Body), "XXXXSECRET") {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	// What is shown is no address, and a change that leaves the address out keeps it.
	if a = g.send(t, "PATCH", at, jsonParts(`{"url":"`, shown, `"}`)); a.Status != 422 || a.Problem.Field != "url" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a = g.send(t, "PATCH", at, jsonParts(`{"url":"`, secret, `2"}`)); a.Status != 200 || read[api.Webhook](t, a).URL != secret+"2" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a = g.send(t, "POST", at+"/test"); a.Status != 200 || r.count() != 1 || strings.Contains(string(a.Body), "XXXXSECRET") {
		t.Errorf("%d messages, %s", r.count(), a.Body)
	}
}

// On a shared host another path is another tenant's receiver.
func TestHeadersDoNotGoToAnotherPath(t *testing.T) {
	r := receiver(t)
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	made := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks", jsonParts(`{"url":"`, r.url, `?a=1","headers":{"X-A":"s3cr3t"}}`)))
	at := "/v1/webhooks/" + made.ID
	for _, path := range []string{"-other", "/", "/other-path-same-host", "%2e"} {
		a := g.send(t, "PATCH", at, jsonParts(`{"url":"`, r.url, path, `"}`))
		assert.That(t, a.Status == 422 && a.Problem.Field == "headers", "%s: %d %s", path, a.Status, a.Body)
	}
	a := g.send(t, "PATCH", at, jsonParts(`{"url":"`, r.url, `?a=2"}`))
	assert.That(t, a.Status == 200 && strings.Contains(string(a.Body), `"headers":["X-A"]`), "another query: %d %s", a.Status, a.Body)
	g.expect(t, 200, "", "PATCH", at, jsonParts(`{"url":"`, r.url, `/other","headers":{"x-a":"new"}}`))
	g.send(t, "POST", at+"/test")
	assert.That(t, r.count() == 1 && r.heads[0].Get("X-A") == "new", "sent %v", r.heads)
}

// A webhook to what is inside the operator's network tells its client whether it was taken, and reads nothing back.
func TestATestReadsNothingBackFromInside(t *testing.T) {
	r := receiver(t)
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	made := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks", jsonParts(`{"url":"`, r.url, `"}`)))
	for _, a := range []*apitest.Answer{g.send(t, "POST", "/v1/webhooks/"+made.ID+"/test"), g.send(t, "GET", "/v1/webhooks/"+made.ID+"/attempts")} {
		if body := string(a.Body); a.Status != 200 || strings.Contains(body, "thanks") || !strings.Contains(body, `"status":200`) || !strings.Contains(body, `"answer_bytes":6`) {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
}
