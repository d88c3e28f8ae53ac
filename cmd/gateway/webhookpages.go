package main

import (
	"cmp"
	"context"
	"time"

	"lockkeeper/internal/dashboard"
	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

// webhookPages is the API's view of webhooks as the dashboard shows it. api is set
// before the dashboard is served.
type webhookPages struct{ api *httpapi.Server }

func (p *webhookPages) List(ctx context.Context, viewer locks.Principal) (v templates.Webhooks, err error) {
	list, err := p.api.ShowWebhooks(ctx, viewer)
	if err != nil {
		return v, err
	}
	for i := range list.Items {
		v.Rows = append(v.Rows, webhookRow(&list.Items[i]))
	}
	v.Unreached = unreachedNames(list.Unreached)
	if of := list.Outbox; of != nil {
		v.Outbox = templates.WebhookOutbox{Entries: of.Entries, Limit: of.Limit, Dropped: of.Dropped}
		if of.LastDropped != nil {
			v.Outbox.LastDropped = *of.LastDropped
		}
	}
	return v, nil
}

func (p *webhookPages) One(ctx context.Context, viewer locks.Principal, id string) (v templates.Webhook, err error) {
	w, attempts, dead, err := p.api.ShowWebhook(ctx, viewer, id, dashboard.WebhookAttempts, dashboard.WebhookDeadLetters)
	if err != nil {
		return v, err
	}
	v.WebhookRow, v.Headers, v.CA, v.Created, v.Unreached = webhookRow(&w), w.Headers, w.Ca != "", w.Created, unreachedNames(w.Deliveries.Unreached)
	if w.OldSecretUntil != nil {
		v.OldSecretUntil = *w.OldSecretUntil
	}
	for i := range attempts.Items {
		a := &attempts.Items[i]
		v.Attempts = append(v.Attempts, templates.WebhookAttempt{At: a.Time, Message: a.MessageID, Type: a.Type, NS: a.NS, Lock: a.Lock, Number: a.Try,
			Delivered: a.Result == api.Delivered, Status: a.Status, Error: a.Error, Answer: a.Answer, AnswerBytes: a.AnswerBytes, Took: time.Duration(a.TookMS) * time.Millisecond, Gateway: a.GatewayID})
	}
	for i := range dead.Items {
		d := &dead.Items[i]
		v.DeadLetters = append(v.DeadLetters, templates.WebhookDeadLetter{At: d.Time, Message: d.MessageID, Type: d.Event.Type, NS: d.Event.NS, Lock: d.Event.Lock, Owner: d.Event.Owner,
			Attempts: d.Attempts, Error: d.Error, Gateway: d.GatewayID})
	}
	return v, nil
}

func webhookRow(w *api.Webhook) templates.WebhookRow {
	row := templates.WebhookRow{ID: w.ID, Target: w.URL, Description: w.Description, Maker: w.Maker, Events: w.Events, NS: w.NS, Locks: w.Locks, Owner: w.Owner, Reason: w.Reason, Purpose: w.AcquireReason, Format: string(w.Format), Enabled: w.Enabled && w.PausedReason == "", Disabled: cmp.Or(w.DisabledReason, w.PausedReason)}
	for _, t := range w.Delivery.BestEffort {
		row.BestEffort = append(row.BestEffort, string(t))
	}
	if d := w.Deliveries; d != nil {
		row.Waiting, row.Dead, row.Dropped = d.Waiting, d.DeadLetters, d.Dropped
		if d.LastDropped != nil {
			row.LastDropped = *d.LastDropped
		}
		row.Lost = d.BestEffortLost
		if d.LastBestEffortLost != nil {
			row.LastLost = *d.LastBestEffortLost
		}
		if d.FailingSince != nil {
			row.Failing = *d.FailingSince
		}
		if d.NextAttemptAt != nil {
			row.Next = *d.NextAttemptAt
		}
	}
	return row
}

func unreachedNames(list []api.UnreachedGateway) (names []string) {
	for _, g := range list {
		names = append(names, g.GatewayID)
	}
	return names
}
