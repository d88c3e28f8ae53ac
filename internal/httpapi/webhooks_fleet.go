package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/webhooks"
)

// Each gateway delivers what it has to tell of its own leases, so each knows a part of what became of a webhook's messages. The gateway
// that a client asks asks the others, all at the same time, and puts the answers together; what another gateway asks is
// answered from here alone. A gateway that cannot be reached is named, and what it knows is missing.

// latest puts the later of two moments into the first; nil is none. earliest does the opposite.
func latest(to **time.Time, at *time.Time) {
	if at != nil && (*to == nil || at.After(**to)) {
		*to = at
	}
}

func earliest(to **time.Time, at *time.Time) {
	if at != nil && (*to == nil || at.Before(**to)) {
		*to = at
	}
}

// moment is a time as answers tell it, nil for none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC().Truncate(time.Millisecond))
}

// deliveries are what is known of the webhooks' deliveries, and of what found no room in the outbox, at all gateways.
func (h *hooks) deliveries(ctx context.Context, a asker) (map[string]*api.WebhookDeliveries, api.WebhookOutbox, []api.UnreachedGateway) {
	known := map[string]*api.WebhookDeliveries{}
	add := func(id string, d *api.WebhookDeliveries) {
		sum := known[id]
		if sum == nil {
			sum = &api.WebhookDeliveries{}
			known[id] = sum
		}
		sum.Waiting += d.Waiting
		sum.DeadLetters += d.DeadLetters
		sum.Dropped += d.Dropped
		sum.BestEffortLost += d.BestEffortLost
		latest(&sum.LastBestEffortLost, d.LastBestEffortLost)
		latest(&sum.LastDropped, d.LastDropped)
		earliest(&sum.FailingSince, d.FailingSince)
		earliest(&sum.NextAttemptAt, d.NextAttemptAt)
	}
	for id, status := range h.subscriptions.Statuses() {
		add(id, &api.WebhookDeliveries{Waiting: status.Waiting, DeadLetters: status.Dead, Dropped: status.Dropped,
			LastDropped: moment(status.LastDropped), FailingSince: moment(status.Failing), NextAttemptAt: moment(status.Next),
			BestEffortLost: status.BestEffortLost, LastBestEffortLost: moment(status.LastBestEffortLost)})
	}
	own := h.subscriptions.Outbox()
	outbox := api.WebhookOutbox{Entries: own.Entries, Limit: own.Limit, Dropped: own.Dropped, LastDropped: moment(own.LastDropped)}
	unreached := askOthers(ctx, h.fleet, h.locks, a, http.MethodGet, "/v1/webhooks", func(list *api.WebhookList) {
		if list.Outbox != nil {
			outbox.Dropped += list.Outbox.Dropped
			latest(&outbox.LastDropped, list.Outbox.LastDropped)
		}
		for _, w := range list.Items {
			if w.Deliveries != nil {
				add(w.ID, w.Deliveries)
			}
		}
	})
	return known, outbox, unreached
}

// list is the webhooks that the principal may see. How full the outbox is tells of others' webhooks.
func (h *hooks) list(ctx context.Context, a asker, p locks.Principal) api.WebhookList {
	known, outbox, unreached := h.deliveries(ctx, a)
	subs := slices.DeleteFunc(h.subscriptions.List(), func(sub *webhooks.Subscription) bool { return !maySee(p, sub) })
	list := api.WebhookList{Items: make([]api.Webhook, len(subs)), Unreached: unreached}
	if p.Rules.MayAll(access.Admin) || p.Rules.MayAll(access.Read) {
		list.Outbox = &outbox
	}
	for i, sub := range subs {
		list.Items[i] = webhookShape(sub)
		list.Items[i].Deliveries = cmp.Or(known[sub.ID], &api.WebhookDeliveries{})
	}
	return list
}

func (h *hooks) withDeliveries(ctx context.Context, a asker, sub *webhooks.Subscription) api.Webhook {
	known, _, unreached := h.deliveries(ctx, a)
	shape := webhookShape(sub)
	shape.Deliveries = cmp.Or(known[sub.ID], &api.WebhookDeliveries{})
	shape.Deliveries.Unreached = unreached
	return shape
}

func (h *hooks) listWebhookAttempts(x *exchange) error {
	var in webhookInput
	if err := h.page(x, &in); err != nil {
		return err
	}
	return x.answer(new(h.attempts(x.r.Context(), askedBy(x), x.principal(), in.id, in.limit)))
}

// attempts are those about locks that the principal may read, and tests.
func (h *hooks) attempts(ctx context.Context, a asker, p locks.Principal, id string, limit int) (list api.WebhookAttemptList) {
	hidden := func(kind, ns, lock string) bool { return kind != webhooks.Test && !p.Rules.May(access.Read, ns, lock) }
	own := slices.DeleteFunc(h.subscriptions.Attempts(id), func(a webhooks.Attempt) bool { return hidden(a.Type, a.NS, a.Lock) })
	list.Items = each(own[:min(len(own), limit)], func(a *webhooks.Attempt) api.WebhookAttempt { return attemptShape(a, h.locks.GatewayID()) })
	list.Unreached = askOthers(ctx, h.fleet, h.locks, a, http.MethodGet, fmt.Sprintf("/v1/webhooks/%s/attempts?limit=%d", id, limit), func(more *api.WebhookAttemptList) {
		list.Items = append(list.Items, slices.DeleteFunc(more.Items, func(a api.WebhookAttempt) bool { return hidden(a.Type, a.NS, a.Lock) })...)
	})
	slices.SortStableFunc(list.Items, func(a, b api.WebhookAttempt) int { return b.Time.Compare(a.Time) })
	list.Items = list.Items[:min(len(list.Items), limit)]
	return list
}

func (h *hooks) listWebhookDeadLetters(x *exchange) error {
	var in webhookInput
	if err := h.page(x, &in); err != nil {
		return err
	}
	return x.answer(new(h.deadLetters(x.r.Context(), askedBy(x), x.principal(), in.id, in.limit)))
}

// deadLetters are those about locks that the principal may read.
func (h *hooks) deadLetters(ctx context.Context, a asker, p locks.Principal, id string, limit int) (list api.DeadLetterList) {
	readable := func(ns, lock string) bool { return p.Rules.May(access.Read, ns, lock) }
	own := h.subscriptions.DeadLetters(id, limit, func(e *webhooks.Event) bool { return readable(e.NS, e.Lock) })
	list.Items = each(own, func(d *webhooks.DeadLetter) api.DeadLetter { return deadLetterShape(d, h.locks.GatewayID()) })
	list.Unreached = askOthers(ctx, h.fleet, h.locks, a, http.MethodGet, fmt.Sprintf("/v1/webhooks/%s/dead-letters?limit=%d", id, limit), func(more *api.DeadLetterList) {
		list.Items = append(list.Items, slices.DeleteFunc(more.Items, func(d api.DeadLetter) bool { return !readable(d.Event.NS, d.Event.Lock) })...)
	})
	slices.SortStableFunc(list.Items, func(a, b api.DeadLetter) int { return a.Time.Compare(b.Time) })
	list.Items = list.Items[:min(len(list.Items), limit)]
	return list
}

func (h *hooks) replayWebhook(x *exchange) error {
	var in webhookInput
	sub, err := h.find(x, &replayWebhook, &in)
	if err != nil {
		return err
	}
	uri := "/v1/webhooks/" + sub.ID + "/replay"
	var n int
	switch {
	case in.waiting && in.message != "":
		return invalid("waiting", "waiting must not be true with message_id: one message is a dead letter, and all that wait are tried")
	case in.waiting:
		uri += "?waiting=true"
		n, err = h.subscriptions.DeliverNow(sub.ID)
	default:
		if in.message != "" {
			uri += "?message_id=" + url.QueryEscape(in.message)
		}
		n, err = h.subscriptions.Replay(x.r.Context(), sub.ID, in.message)
	}
	if err != nil {
		return webhookProblem(err)
	}
	answer := api.Replayed{Replayed: n}
	answer.Unreached = askOthers(x.r.Context(), h.fleet, h.locks, askedBy(x), http.MethodPost, uri, func(more *api.Replayed) { answer.Replayed += more.Replayed })
	return x.answer(&answer)
}

// The dashboard shows of webhooks what the API shows its viewer of them, without secrets and of the whole fleet; so it comes
// from here. ctx bounds it, and askTimeout what others may take. The others are asked for all, for the
// gateway itself, and the viewer's part is shown.

// ShowWebhooks is the list.
func (s *Server) ShowWebhooks(ctx context.Context, viewer locks.Principal) (api.WebhookList, error) {
	if err := s.subscriptions.Known(); err != nil {
		return api.WebhookList{}, err
	}
	return s.hooks.list(ctx, s.forPage(), viewer), nil
}

// ShowWebhook is one of them, with its last attempts and its first dead letters.
func (s *Server) ShowWebhook(ctx context.Context, viewer locks.Principal, id string, tries, letters int) (w api.Webhook, attempts api.WebhookAttemptList, dead api.DeadLetterList, err error) {
	sub, err := s.subscriptions.Get(id)
	if err == nil && !maySee(viewer, sub) {
		err = webhooks.ErrNotFound
	}
	if err != nil {
		return w, attempts, dead, err
	}
	a := s.forPage()
	w = s.withDeliveries(ctx, a, sub)
	attempts = s.attempts(ctx, a, viewer, id, tries)
	if w.Deliveries.DeadLetters > 0 {
		dead = s.deadLetters(ctx, a, viewer, id, letters)
	}
	return w, attempts, dead, nil
}

// forPage is the asker for a page, which no request's client stands behind.
func (s *Server) forPage() asker {
	a := asker{request: newRequestID()}
	if s.auth != nil {
		a.caller = new(auth.Gateway())
	}
	return a
}
