package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/webhooks"
)

// Each gateway delivers the ends of its own leases, so each knows a part of what
// became of a webhook's messages. Whoever is asked asks the others, all at the same
// time, and puts the answers together; what another gateway asks is answered from
// here alone. Who cannot be reached is named, and what it knows is missing.

// askTimeout is how long the others have. A gateway that hangs is in the list of the
// registered ones until its session is over.
const askTimeout = 3 * time.Second

// asker is in whose name other gateways are asked.
type asker struct {
	request, client string
	header          http.Header
	nobody          bool // only this gateway answers
}

// peers is the asker for this request. Another gateway's is not passed on.
func (x *exchange) peers() asker {
	return asker{request: x.requestID, client: x.client(), header: x.r.Header, nobody: x.peer != nil}
}

// heard is what one gateway answers.
type heard struct {
	gateway string
	body    []byte
}

// askOthers asks every other gateway of the fleet the same.
func (s *Server) askOthers(ctx context.Context, a asker, method, uri string, body []byte) (answers []heard, unreached []api.UnreachedGateway) {
	if a.nobody || s.fleet == nil {
		return nil, nil
	}
	var (
		mu   sync.Mutex
		all  sync.WaitGroup
		room = make(chan struct{}, maxAsked)
	)
	header := http.Header{}
	for _, name := range []string{"Content-Type", "Traceparent"} {
		if values := a.header[name]; values != nil {
			header[name] = values
		}
	}
	for _, peer := range s.locks.Peers() {
		if !peer.Registered || peer.Self {
			continue
		}
		if peer.Address == "" {
			mu.Lock() // those before it may be answering already
			unreached = append(unreached, api.UnreachedGateway{GatewayID: peer.Gateway, Detail: "it has not said where it can be reached"})
			mu.Unlock()
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			answer, err := s.fleet.Send(ctx, &fleet.Request{Address: peer.Address, Method: method, URI: uri, Header: header, Body: body, Timeout: askTimeout,
				Seal: fleet.Seal{To: peer.Gateway, Request: a.request, Client: a.client}})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				unreached = append(unreached, api.UnreachedGateway{GatewayID: peer.Gateway, Detail: "it does not answer"})
			case answer.Status != http.StatusOK:
				unreached = append(unreached, api.UnreachedGateway{GatewayID: peer.Gateway, Detail: fmt.Sprintf("it answers %d %s", answer.Status, problemIn(answer))})
			default:
				answers = append(answers, heard{peer.Gateway, answer.Body})
			}
		})
	}
	all.Wait()
	slices.SortFunc(answers, func(a, b heard) int { return cmp.Compare(a.gateway, b.gateway) })
	slices.SortFunc(unreached, func(a, b api.UnreachedGateway) int { return cmp.Compare(a.GatewayID, b.GatewayID) })
	return answers, unreached
}

// ask decodes what others say into T. One that cannot be read counts as unreached.
func ask[T any](ctx context.Context, s *Server, a asker, method, uri string, body []byte, take func(gateway string, answer *T)) []api.UnreachedGateway {
	answers, unreached := s.askOthers(ctx, a, method, uri, body)
	for _, h := range answers {
		var v T
		if err := json.Unmarshal(h.body, &v); err != nil {
			unreached = append(unreached, api.UnreachedGateway{GatewayID: h.gateway, Detail: "its answer cannot be read"})
			continue
		}
		take(h.gateway, &v)
	}
	return unreached
}

// deliveries are what is known of the webhooks' deliveries, and of what found no room in the outbox, at all gateways.
func (s *Server) deliveries(ctx context.Context, a asker) (map[string]*api.WebhookDeliveries, api.WebhookOutbox, []api.UnreachedGateway) {
	known := map[string]*api.WebhookDeliveries{}
	at := func(id string) *api.WebhookDeliveries {
		if known[id] == nil {
			known[id] = &api.WebhookDeliveries{}
		}
		return known[id]
	}
	dropped := func(d *api.WebhookDeliveries, n int, last *time.Time) {
		d.Dropped += n
		if last != nil && (d.LastDropped == nil || last.After(*d.LastDropped)) {
			d.LastDropped = last
		}
	}
	failing := func(d *api.WebhookDeliveries, since *time.Time) {
		if since != nil && (d.FailingSince == nil || since.Before(*d.FailingSince)) {
			d.FailingSince = since
		}
	}
	for id, status := range s.webhooks.Statuses() {
		d := at(id)
		d.Waiting, d.DeadLetters = status.Waiting, status.Dead
		if status.Dropped > 0 {
			dropped(d, status.Dropped, new(status.LastDropped.Truncate(time.Millisecond)))
		}
		if !status.Failing.IsZero() {
			failing(d, new(status.Failing.UTC().Truncate(time.Millisecond)))
		}
	}
	own := s.webhooks.Outbox()
	outbox := api.WebhookOutbox{Entries: own.Entries, Limit: own.Limit, Dropped: own.Dropped}
	if !own.LastDropped.IsZero() {
		outbox.LastDropped = new(own.LastDropped.Truncate(time.Millisecond))
	}
	unreached := ask(ctx, s, a, http.MethodGet, "/v1/webhooks", nil, func(_ string, list *api.WebhookList) {
		outbox.Dropped += list.Outbox.Dropped
		if last := list.Outbox.LastDropped; last != nil && (outbox.LastDropped == nil || last.After(*outbox.LastDropped)) {
			outbox.LastDropped = last
		}
		for _, w := range list.Items {
			if w.Deliveries != nil {
				d := at(w.ID)
				d.Waiting += w.Deliveries.Waiting
				d.DeadLetters += w.Deliveries.DeadLetters
				dropped(d, w.Deliveries.Dropped, w.Deliveries.LastDropped)
				failing(d, w.Deliveries.FailingSince)
			}
		}
	})
	return known, outbox, unreached
}

func (s *Server) webhookList(ctx context.Context, a asker) api.WebhookList {
	known, outbox, unreached := s.deliveries(ctx, a)
	subs := s.webhooks.List()
	list := api.WebhookList{Items: make([]api.Webhook, len(subs)), Outbox: outbox, Unreached: unreached}
	for i, sub := range subs {
		list.Items[i] = webhookShape(sub)
		list.Items[i].Deliveries = known[sub.ID]
		if known[sub.ID] == nil {
			list.Items[i].Deliveries = &api.WebhookDeliveries{}
		}
	}
	return list
}

func (s *Server) webhookWithDeliveries(ctx context.Context, a asker, sub *webhooks.Subscription) api.Webhook {
	known, _, unreached := s.deliveries(ctx, a)
	shape := webhookShape(sub)
	shape.Deliveries = known[sub.ID]
	if shape.Deliveries == nil {
		shape.Deliveries = &api.WebhookDeliveries{}
	}
	shape.Deliveries.Unreached = unreached
	return shape
}

// limitForm is the field of a list of bounded length.
type limitForm struct{ limit int }

func (*limitForm) names() []string { return []string{"limit"} }

func (f *limitForm) take(name string, v value) (known bool, p *problem) {
	if name != "limit" {
		return false, nil
	}
	f.limit, p = integer(name, v, 1, locks.MaxPage)
	return true, p
}

// ofWebhook decodes a question about one webhook that is there.
func (x *exchange) ofWebhook(f form, bodyLimit int64) (*webhooks.Subscription, bool) {
	hooks, ok := x.hooks()
	if !ok {
		return nil, false
	}
	id, p := x.webhookID()
	if p == nil {
		p = x.fields(f, bodyLimit)
	}
	if p != nil {
		x.problem(p)
		return nil, false
	}
	sub, err := hooks.Get(id)
	if err != nil {
		x.problem(webhookProblem(err))
		return nil, false
	}
	return sub, true
}

func (x *exchange) listWebhookAttempts() {
	form := limitForm{limit: locks.DefaultPage}
	if sub, ok := x.ofWebhook(&form, 0); ok {
		list := x.s.attempts(x.r.Context(), x.peers(), sub.ID, form.limit)
		x.answer(http.StatusOK, &list)
	}
}

func (s *Server) attempts(ctx context.Context, a asker, id string, limit int) (list api.WebhookAttemptList) {
	list.Items = []api.WebhookAttempt{}
	own := s.webhooks.Attempts(id)
	for i := range own[:min(len(own), limit)] {
		list.Items = append(list.Items, attemptShape(&own[i], s.locks.GatewayID()))
	}
	list.Unreached = ask(ctx, s, a, http.MethodGet, fmt.Sprintf("/v1/webhooks/%s/attempts?limit=%d", id, limit), nil, func(_ string, more *api.WebhookAttemptList) {
		list.Items = append(list.Items, more.Items...)
	})
	slices.SortStableFunc(list.Items, func(a, b api.WebhookAttempt) int { return b.Time.Compare(a.Time) })
	list.Items = list.Items[:min(len(list.Items), limit)]
	return list
}

func (x *exchange) listWebhookDeadLetters() {
	form := limitForm{limit: locks.DefaultPage}
	if sub, ok := x.ofWebhook(&form, 0); ok {
		list := x.s.deadLetters(x.r.Context(), x.peers(), sub.ID, form.limit)
		x.answer(http.StatusOK, &list)
	}
}

func (s *Server) deadLetters(ctx context.Context, a asker, id string, limit int) (list api.DeadLetterList) {
	list.Items = []api.DeadLetter{}
	own := s.webhooks.DeadLetters(id, limit)
	for i := range own {
		list.Items = append(list.Items, deadLetterShape(&own[i], s.locks.GatewayID()))
	}
	list.Unreached = ask(ctx, s, a, http.MethodGet, fmt.Sprintf("/v1/webhooks/%s/dead-letters?limit=%d", id, limit), nil, func(_ string, more *api.DeadLetterList) {
		list.Items = append(list.Items, more.Items...)
	})
	slices.SortStableFunc(list.Items, func(a, b api.DeadLetter) int { return a.Time.Compare(b.Time) })
	list.Items = list.Items[:min(len(list.Items), limit)]
	return list
}

// replayForm is the field of a replay.
type replayForm struct{ message string }

func (*replayForm) names() []string { return []string{"message_id"} }

func (f *replayForm) take(name string, v value) (known bool, p *problem) {
	if name != "message_id" {
		return false, nil
	}
	// An empty one would replay everything, which is not what a script with an unset variable asks for.
	f.message, p = someText(name, v, 64)
	return true, p
}

func (x *exchange) replayWebhook() {
	var form replayForm
	sub, ok := x.ofWebhook(&form, maxBody)
	if !ok {
		return
	}
	n, err := x.s.webhooks.Replay(x.r.Context(), sub.ID, form.message)
	if err != nil {
		x.problem(webhookProblem(err))
		return
	}
	answer := api.Replayed{Replayed: n}
	uri := "/v1/webhooks/" + sub.ID + "/replay"
	if form.message != "" {
		uri += "?message_id=" + url.QueryEscape(form.message)
	}
	a := x.peers()
	a.header = http.Header{"Traceparent": x.r.Header["Traceparent"]}
	answer.Unreached = ask(x.r.Context(), x.s, a, http.MethodPost, uri, nil, func(_ string, more *api.Replayed) { answer.Replayed += more.Replayed })
	x.answer(http.StatusOK, &answer)
}
