package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/webhooks"
	"lockkeeper/web/templates"
)

const someHook = "wh_aaaabbbbccccdddd"

// fakeHooks has given answers.
type fakeHooks struct {
	one    templates.Webhook
	outbox templates.WebhookOutbox
	err    error
}

func (f *fakeHooks) List(context.Context) (templates.Webhooks, error) {
	return templates.Webhooks{Rows: []templates.WebhookRow{f.one.WebhookRow}, Unreached: []string{"lost"}, Outbox: f.outbox}, f.err
}

func (f *fakeHooks) One(context.Context, string) (templates.Webhook, error) { return f.one, f.err }

func TestThePagesOfWebhooksNameTheGatewaysThatDidNotAnswer(t *testing.T) {
	r := newRig(t)
	hooks := &fakeHooks{one: templates.Webhook{
		WebhookRow: templates.WebhookRow{ID: someHook, Target: "https://example.com/hook", Description: "the \u202eboard", Events: []string{webhooks.Expired}, Locks: "deploy:*", Enabled: true, Failing: time.Now().Add(-time.Minute), Waiting: 3, Dead: 2},
		Headers:    []string{"Authorization"}, Created: time.Now(), Unreached: []string{"lost"},
		Attempts:    []templates.WebhookAttempt{{At: time.Now(), Message: "msg_a", Lock: "deploy:prod", Number: 2, Status: 503, Error: "the receiver answered 503", Answer: "busy\x1b[31m", Gateway: "one"}},
		DeadLetters: []templates.WebhookDeadLetter{{At: time.Now(), Message: "msg_b", Lock: "deploy:old", Attempts: 10, Error: "no answer within 15s"}},
	}}
	r.opt.Webhooks = hooks
	list := r.get(t, "/webhooks").Body.String()
	for _, part := range []string{"/webhooks/" + someHook, "lease.expired of deploy:*", "failing", "No answer from lost:", "https://example.com/hook"} {
		assert.That(t, strings.Contains(list, part), "the list lacks %s", part)
	}
	page := r.get(t, "/webhooks/"+someHook).Body.String()
	for _, part := range []string{"3 waiting", "2 dead letters", "Authorization", "The receiver answered 503.", "deploy:old", "No answer within 15s.", `the \u{202e}board`, "busy\u241b", "/v1/webhooks/" + someHook + "/replay"} {
		assert.That(t, strings.Contains(page, part), "the page lacks %s", part)
	}
	// Nothing that is meant for the templates gets out.
	assert.That(t, !strings.Contains(list+page, "@since") && !strings.Contains(list+page, "@countdown"), "a part was not rendered")
	fragments := r.get(t, "/ui/fragments?page=webhook&lock="+someHook).Body.String()
	assert.That(t, strings.Contains(fragments, `id="attempts"`) && strings.Contains(fragments, `id="dead-letters"`), "%v", fragments)
}

func TestAFullOutboxIsSaidInRed(t *testing.T) {
	r := newRig(t)
	hooks := &fakeHooks{outbox: templates.WebhookOutbox{Entries: 99_999, Limit: 100_000}}
	r.opt.Webhooks = hooks
	assert.That(t, !strings.Contains(r.get(t, "/webhooks").Body.String(), "outbox"), "it is said before it is so")
	hooks.outbox = templates.WebhookOutbox{Entries: 100_000, Limit: 100_000, Dropped: 1312, LastDropped: time.Now()}
	if list := r.get(t, "/webhooks").Body.String(); !strings.Contains(list, `<p class="banner bad">The outbox`) || !strings.Contains(list, "The outbox is full (100,000 entries)") || !strings.Contains(list, "1,312 ends had no room") {
		t.Errorf("it is not said that the outbox is full: %s", list)
	}
	hooks.outbox.Entries = 7
	if list := r.get(t, "/webhooks").Body.String(); strings.Contains(list, "is full") || !strings.Contains(list, "1,312 ends had no room") {
		t.Error("what was lost is forgotten, or it is still said to be full")
	}
}

func TestAWebhookThatIsLeftOutSaysSoOnItsPage(t *testing.T) {
	r := newRig(t)
	hooks := &fakeHooks{one: templates.Webhook{WebhookRow: templates.WebhookRow{ID: someHook, Target: "https://example.com/...", Enabled: true}}}
	r.opt.Webhooks = hooks
	assert.That(t, !strings.Contains(r.get(t, "/webhooks/"+someHook).Body.String(), "no room"), "it is said before it is so")
	hooks.one.Dropped, hooks.one.LastDropped = 1312, time.Now()
	if page := r.get(t, "/webhooks/"+someHook).Body.String(); !strings.Contains(page, "1,312 ends had no room in the outbox and will not be delivered to this webhook.") {
		t.Errorf("it is not said: %s", page)
	}
}

func TestAWebhookThatIsNotThereIsSaidToBeGone(t *testing.T) {
	r := newRig(t)
	hooks := &fakeHooks{err: webhooks.ErrNotFound}
	r.opt.Webhooks = hooks
	assert.Equal(t, r.get(t, "/webhooks/"+someHook).Code, http.StatusNotFound)
	assert.Equal(t, r.get(t, "/webhooks/deploy").Code, http.StatusNotFound)
	if a := r.get(t, "/ui/fragments?page=webhook&lock="+someHook); a.Code != http.StatusOK || !strings.Contains(a.Body.String(), "This webhook was removed.") {
		t.Error(a.Code, a.Body.String())
	}
	hooks.err = webhooks.ErrUnavailable
	for _, path := range []string{"/webhooks", "/webhooks/" + someHook} {
		a := r.get(t, path)
		assert.That(t, a.Code == http.StatusOK && strings.Contains(a.Body.String(), notReached), "%v %v", path, a.Code)
	}
	r.opt.Webhooks = nil
	for _, path := range []string{"/webhooks", "/webhooks/" + someHook, "/ui/fragments?page=webhooks"} {
		a := r.get(t, path)
		assert.That(t, a.Code == http.StatusNotFound || path == "/ui/fragments?page=webhooks", "%v %v", path, a.Code)
	}
}
