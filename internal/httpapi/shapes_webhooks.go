package httpapi

import (
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/webhooks"
)

// webhookShape holds no secret, no value of a header, and of the URL the host alone: any client of the API reads it.
func webhookShape(s *webhooks.Subscription) api.Webhook {
	shape := api.Webhook{
		ID: s.ID, URL: webhooks.ShownURL(s.URL), Events: s.Events, NS: s.NS, Locks: s.Locks, Owner: s.Owner, Reason: s.Reason, AcquireReason: s.Purpose, Format: api.WebhookFormat(s.ShownFormat()), Description: s.Description,
		Enabled: s.Enabled, DisabledReason: s.Disabled, Ca: s.CA, Created: s.Created,
		Headers: slices.Sorted(maps.Keys(s.Headers)),
	}
	shape.PausedReason = s.Standing.Paused
	if s.Maker != nil {
		shape.Maker = s.Maker.Name
	}
	if shape.Events == nil {
		shape.Events = []string{}
	}
	if shape.Headers == nil {
		shape.Headers = []string{}
	}
	if len(s.Secrets) > 1 && time.Now().Before(s.Secrets[1].Until) {
		shape.OldSecretUntil = new(s.Secrets[1].Until.UTC())
	}
	durable, bestEffort := s.Deliveries()
	typed := func(name *string) api.WebhookEventType { return api.WebhookEventType(*name) }
	shape.Delivery = api.WebhookDelivery{Durable: each(durable, typed), BestEffort: each(bestEffort, typed)}
	return shape
}

func attemptShape(a *webhooks.Attempt, gateway string) api.WebhookAttempt {
	return api.WebhookAttempt{
		Time: a.At.UTC(), MessageID: a.MessageID, Type: a.Type, NS: a.NS, Lock: a.Lock, Try: a.Try, Result: api.WebhookAttemptResult(a.Result.String()),
		Status: a.Status, Error: a.Error, Answer: a.Answer, AnswerBytes: a.Length, TookMS: a.Took.Milliseconds(), RetryAfterMS: a.RetryAfter.Milliseconds(), GatewayID: gateway,
	}
}

func deadLetterShape(d *webhooks.DeadLetter, gateway string) api.DeadLetter {
	e := &d.Event
	return api.DeadLetter{
		MessageID: d.MessageID, Time: d.At.UTC(), Attempts: d.Attempts, Error: d.Error, GatewayID: gateway,
		Event: api.WebhookEvent{Type: e.Type, Time: e.Time, NS: e.NS, Lock: e.Lock, LeaseID: e.LeaseID, Program: e.Program, Znode: e.Znode,
			Owner: e.Owner, Principal: e.Principal, AcquireReason: e.Purpose, Mode: e.Mode, FencingToken: e.FencingToken, Reason: e.Reason, Detail: e.Detail, By: e.By, Gateway: e.Gateway, Waiting: e.Waiting},
	}
}
