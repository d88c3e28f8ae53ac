package httpapi

import (
	"context"

	"lockkeeper/internal/httpapi/api"
)

// What the dashboard shows of webhooks is what the API tells of them, without secrets and of the whole
// fleet; so it comes from here. ctx bounds it, and askTimeout what others may take.

// ShowWebhooks is the list.
func (s *Server) ShowWebhooks(ctx context.Context) (api.WebhookList, error) {
	if err := s.webhooks.Known(); err != nil {
		return api.WebhookList{}, err
	}
	return s.webhookList(ctx, forPage()), nil
}

// ShowWebhook is one of them, with its last attempts and its first dead letters.
func (s *Server) ShowWebhook(ctx context.Context, id string, tries, letters int) (w api.Webhook, attempts api.WebhookAttemptList, dead api.DeadLetterList, err error) {
	sub, err := s.webhooks.Get(id)
	if err != nil {
		return w, attempts, dead, err
	}
	a := forPage()
	w = s.webhookWithDeliveries(ctx, a, sub)
	attempts = s.attempts(ctx, a, id, tries)
	if w.Deliveries.DeadLetters > 0 {
		dead = s.deadLetters(ctx, a, id, letters)
	}
	return w, attempts, dead, nil
}

// forPage: no client has asked, so there is nobody to name.
func forPage() asker { return asker{request: newRequestID()} }
