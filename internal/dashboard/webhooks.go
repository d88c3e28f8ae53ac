package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/a-h/templ"

	"lockkeeper/internal/events"
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

const (
	pageWebhooks = "webhooks"
	pageWebhook  = "webhook"
)

// ofWebhooks is how both pages of webhooks behave. What they show is asked of other gateways, at each tick: few events tell of it.
type ofWebhooks struct{ plain }

func (ofWebhooks) follows(rules *access.Rules) events.Filter {
	return events.Filter{Rules: rules, Types: webhookNews}
}
func (ofWebhooks) waits() bool { return true }

// personal: they show a viewer its own webhooks.
func (ofWebhooks) personal() bool { return true }

// webhookNews are the events after which a page of webhooks may show something else.
var webhookNews = events.Types(events.GatewayJoined, events.GatewayLeft, events.WebhookDropped)

// webhooksPage is the list of webhooks.
type webhooksPage struct{ ofWebhooks }

func (webhooksPage) name() string  { return pageWebhooks }
func (webhooksPage) title() string { return "Webhooks" }

func (webhooksPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	if from.Webhooks == nil {
		return &webhooksContent{templates.Webhooks{Page: as.frame, Problem: noWebhooks().detail}}, noWebhooks()
	}
	list, err := from.Webhooks.List(ctx, as.who)
	shown := &webhooksContent{list}
	shown.Page, shown.Types, shown.MayCreate = as.frame, webhookTypes, mayChangeWebhooks(as.who)
	if err != nil {
		shown.Problem = webhookProblem(err)
		return shown, known(err)
	}
	for i := range shown.Rows {
		showWebhook(&shown.Rows[i])
	}
	all(shown.Unreached)
	return shown, nil
}

type webhooksContent struct{ templates.Webhooks }

func (c *webhooksContent) document() templ.Component { return templates.WebhooksPage(c.Webhooks) }
func (c *webhooksContent) parts() []part {
	return []part{{"webhooks", templates.WebhooksFragment(c.Webhooks)}}
}

// webhookPage is one webhook with its attempts.
type webhookPage struct {
	ofWebhooks
	id string
}

func parseWebhook(id string, _ url.Values) (page, *refusal) {
	if !webhooks.IsID(id) {
		return nil, &refusal{status: http.StatusNotFound, title: "There is no such webhook", detail: "None has the id " + quoted(id) + "."}
	}
	return webhookPage{id: id}, nil
}

func (webhookPage) name() string { return pageWebhook }

func (p webhookPage) title() string { return p.id }

func (p webhookPage) own() (subject string, parameters url.Values) { return p.id, nil }

func (p webhookPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	if from.Webhooks == nil {
		return &webhookContent{templates.Webhook{Page: as.frame, Problem: noWebhooks().detail}}, noWebhooks()
	}
	one, err := from.Webhooks.One(ctx, as.who, p.id)
	shown := &webhookContent{one}
	shown.MayChange = mayChangeWebhooks(as.who)
	shown.Page, shown.ID, shown.List, shown.API, shown.Types = as.frame, p.id, urlOf(webhooksPage{}), "/v1/webhooks/"+url.PathEscape(p.id), webhookTypes
	switch {
	case errors.Is(err, webhooks.ErrNotFound):
		shown.Gone = true
		return shown, &refusal{status: http.StatusNotFound, title: "There is no such webhook", detail: "It was deleted, or never created."}
	case err != nil:
		shown.Problem = webhookProblem(err)
		return shown, known(err)
	}
	showWebhook(&shown.WebhookRow)
	shown.Title = shown.Target + " · Lockkeeper"
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
	return shown, nil
}

type webhookContent struct{ templates.Webhook }

func (c *webhookContent) document() templ.Component { return templates.WebhookPage(c.Webhook) }
func (c *webhookContent) parts() []part {
	return []part{{"webhook-head", templates.WebhookHeadFragment(c.Webhook)}, {"dead-letters", templates.DeadLettersFragment(c.Webhook)},
		{"attempts", templates.AttemptsFragment(c.Webhook)}}
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
	r.URL = urlOf(webhookPage{id: r.ID})
	r.Target, r.Description, r.NS, r.Locks, r.Maker = visible(r.Target), visible(r.Description), visible(r.NS), visible(r.Locks), visible(r.Maker)
	r.Owner, r.Reason, r.Format = visible(r.Owner), visible(r.Reason), visible(r.Format)
	r.Purpose = visible(r.Purpose)
	if r.Disabled != "" {
		r.Disabled = sentence(visible(r.Disabled))
	}
}

func visibleAll(list []string) []string {
	shown := slices.Clone(list)
	all(shown)
	return shown
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
