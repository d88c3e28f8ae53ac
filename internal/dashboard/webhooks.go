package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/webhooks"
	"lockkeeper/web/templates"
)

// Webhooks are what the pages show of webhooks, in the whole fleet: what of a page is not the
// page's own to say. A gateway that does not answer is waited for, for some seconds. A webhook that the principal may not see
// does not exist.
type Webhooks interface {
	List(ctx context.Context, p locks.Principal) (templates.Webhooks, error)
	// One is webhooks.ErrNotFound when there is none.
	One(ctx context.Context, p locks.Principal, id string) (templates.Webhook, error)
}

// WebhookAttempts and WebhookDeadLetters are how many attempts and dead letters a page shows.
const (
	WebhookAttempts    = 50
	WebhookDeadLetters = 50
)

var webhookTypes = templates.WebhookTypes{Durable: webhooks.Durable, BestEffort: webhooks.BestEffort}

func (d *Dashboard) readWebhooks(ctx context.Context, who locks.Principal, page templates.Page) (content, error) {
	if d.opt.Webhooks == nil {
		return content{webhooks: &templates.Webhooks{Page: page, Problem: noWebhooks().detail}}, noWebhooks()
	}
	shown, err := d.opt.Webhooks.List(ctx, who)
	shown.Page, shown.Types, shown.MayCreate = page, webhookTypes, mayChangeWebhooks(who)
	if err != nil {
		shown.Problem = webhookProblem(err)
		return content{webhooks: &shown}, known(err)
	}
	for i := range shown.Rows {
		showWebhook(&shown.Rows[i])
	}
	all(shown.Unreached)
	return content{webhooks: &shown}, nil
}

func (d *Dashboard) readWebhook(ctx context.Context, v view, who locks.Principal, page templates.Page) (content, error) {
	if d.opt.Webhooks == nil {
		return content{webhook: &templates.Webhook{Page: page, Problem: noWebhooks().detail}}, noWebhooks()
	}
	shown, err := d.opt.Webhooks.One(ctx, who, v.lock)
	shown.MayChange = mayChangeWebhooks(who)
	shown.Page, shown.ID, shown.List, shown.API, shown.Types = page, v.lock, webhooksPath, "/v1/webhooks/"+url.PathEscape(v.lock), webhookTypes
	switch {
	case errors.Is(err, webhooks.ErrNotFound):
		shown.Gone = true
		return content{webhook: &shown}, &refusal{status: http.StatusNotFound, title: "There is no such webhook", detail: "It was removed, or never made."}
	case err != nil:
		shown.Problem = webhookProblem(err)
		return content{webhook: &shown}, known(err)
	}
	showWebhook(&shown.WebhookRow)
	all(shown.Headers)
	all(shown.Unreached)
	for i := range shown.Attempts {
		t := &shown.Attempts[i]
		t.NS, t.Lock, t.Type, t.Error, t.Answer, t.Gateway = visible(t.NS), visible(t.Lock), visible(t.Type), sentence(visible(t.Error)), visible(t.Answer), visible(t.Gateway)
	}
	for i := range shown.DeadLetters {
		l := &shown.DeadLetters[i]
		l.NS, l.Lock, l.Type, l.Owner, l.Error, l.Gateway = visible(l.NS), visible(l.Lock), visible(l.Type), visible(l.Owner), sentence(visible(l.Error)), visible(l.Gateway)
	}
	return content{webhook: &shown}, nil
}

// mayChangeWebhooks reports whether a viewer may make webhooks, and change its own.
func mayChangeWebhooks(who locks.Principal) bool {
	return who.Rules.MaySome(access.Acquire) || who.Rules.MayAll(access.Admin)
}

func noWebhooks() *refusal {
	return &refusal{status: http.StatusNotFound, title: "There is no such page", detail: "This gateway has no webhooks."}
}

// showWebhook makes what people wrote fit to be shown.
func showWebhook(r *templates.WebhookRow) {
	r.URL = view{page: pageWebhook, ns: locks.DefaultNamespace, lock: r.ID}.url()
	r.Target, r.Description, r.NS, r.Locks, r.Maker = visible(r.Target), visible(r.Description), visible(r.NS), visible(r.Locks), visible(r.Maker)
	r.Owner, r.Reason, r.Format = visible(r.Owner), visible(r.Reason), visible(r.Format)
	r.Purpose = visible(r.Purpose)
	if r.Disabled != "" {
		r.Disabled = sentence(visible(r.Disabled))
	}
}

func all(list []string) {
	for i := range list {
		list[i] = visible(list[i])
	}
}

func webhookProblem(err error) string {
	if errors.Is(err, webhooks.ErrUnavailable) {
		return notReached
	}
	return "The gateway could not read this. See its log."
}

// known is nil for an error that the page says itself.
func known(err error) error {
	if errors.Is(err, webhooks.ErrUnavailable) {
		return nil
	}
	return err
}
