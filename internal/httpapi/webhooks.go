package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/webhooks"
)

// Webhooks are the subscriptions as this package needs them: webhooks.Service.
type Webhooks interface {
	Known() error
	List() []*webhooks.Subscription
	Get(id string) (*webhooks.Subscription, error)
	Create(ctx context.Context, sub *webhooks.Subscription) (*webhooks.Subscription, error)
	Update(ctx context.Context, id string, version int32, change func(*webhooks.Subscription) error) (*webhooks.Subscription, error)
	// may says of which webhooks it is true that they are there.
	Delete(ctx context.Context, id string, version int32, may func(*webhooks.Subscription) bool) error
	Rotate(ctx context.Context, id string, overlap time.Duration, may func(*webhooks.Subscription) bool) (*webhooks.Subscription, webhooks.Secret, error)
	Test(ctx context.Context, id string) (webhooks.Attempt, error)
	// What this gateway knows; the others are asked by httpapi.
	Attempts(id string) []webhooks.Attempt
	DeadLetters(id string, limit int, show func(*webhooks.Event) bool) []webhooks.DeadLetter
	Replay(ctx context.Context, id, message string) (int, error)
	DeliverNow(id string) (int, error)
	Statuses() map[string]webhooks.Status
	Outbox() webhooks.Outbox
}

// hooks are the operations on webhooks. Without subscriptions they are 404 (Server.mount).
type hooks struct {
	subscriptions Webhooks
	fleet         *fleet.Fleet
	locks         Ownership
}

// webhookProblem is what an error of the webhooks means.
func webhookProblem(err error) error {
	field, wrong := errors.AsType[*webhooks.FieldError](err)
	_, refused := errors.AsType[*locks.Error](err)
	switch {
	case refused:
		return err
	case err == nil:
		return nil
	case wrong:
		return invalid(field.Field, field.Detail)
	case errors.Is(err, webhooks.ErrNotFound):
		return noWebhook()
	case errors.Is(err, webhooks.ErrConflict):
		return locks.Changed()
	case errors.Is(err, webhooks.ErrTooManyOfMaker):
		return &problem{code: codeTooManyWebhooks, detail: "a caller has at most " + strconv.Itoa(webhooks.MaxOfMaker) + ": remove one, or give one more event types"}
	case errors.Is(err, webhooks.ErrTooMany):
		return &problem{code: codeTooManyWebhooks, detail: "a fleet has at most " + strconv.Itoa(webhooks.MaxSubscriptions) + ": remove one, or give one more event types"}
	case errors.Is(err, webhooks.ErrUnknown):
		return &problem{code: code(locks.CodeOutcomeUnknown), detail: "it may have been done or not: look at the webhooks, then repeat what is missing", cause: err}
	case errors.Is(err, webhooks.ErrUnavailable):
		return &problem{code: code(locks.CodeUnavailable), detail: "nothing was done; repeat the request", cause: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{code: code(locks.CodeOutcomeUnknown), detail: "the request ended before it was known whether it was done", cause: err}
	}
	return internal(err)
}

func noWebhook() error {
	return &problem{code: codeNoWebhook, detail: "there is no webhook of this id"}
}

// webhookID is a webhook's id in a path.
type webhookID string

func (w *webhookID) read(_ string, v value) error {
	if !webhooks.IsID(v.text) {
		return noWebhook()
	}
	*w = webhookID(v.text)
	return nil
}

// webhookInput is all that requests about webhooks say.
type webhookInput struct {
	id      string
	ifMatch ifMatch
	change

	overlap time.Duration
	limit   int
	message string
	waiting bool
}

// change is what is to be changed of a webhook.
type change struct {
	url, ns, locks, description, ca *string
	owner, reason, purpose, format  *string
	events                          *[]string
	enabled                         *bool
	headers                         map[string]*string // nil: to be removed
}

func ofWebhook(body int64, more ...field[webhookInput]) operation[webhookInput] {
	return operation[webhookInput]{body: body, fields: append([]field[webhookInput]{
		{name: "id", in: inPath, to: func(w *webhookInput) any { return (*webhookID)(&w.id) }},
	}, more...)}
}

var (
	changeFields = []field[webhookInput]{
		{name: "url", to: func(w *webhookInput) any { return &w.url }},
		{name: "events", to: func(w *webhookInput) any { return eventNames{&w.events} }},
		{name: "ns", to: func(w *webhookInput) any { return &w.ns }},
		{name: "locks", to: func(w *webhookInput) any { return &w.locks }},
		{name: "owner", to: func(w *webhookInput) any { return &w.owner }},
		{name: "reason", to: func(w *webhookInput) any { return &w.reason }},
		{name: "acquire_reason", to: func(w *webhookInput) any { return &w.purpose }},
		{name: "format", to: func(w *webhookInput) any { return &w.format }},
		{name: "description", to: func(w *webhookInput) any { return &w.description }},
		{name: "enabled", to: func(w *webhookInput) any { return &w.enabled }},
		{name: "headers", in: inBody, to: func(w *webhookInput) any { return (*headerChanges)(&w.headers) }}, // their values are secrets
		{name: "ca", to: func(w *webhookInput) any { return &w.ca }},
	}
	versionField = field[webhookInput]{name: "If-Match", in: inHeader, to: func(w *webhookInput) any { return &w.ifMatch }}
	limitField   = field[webhookInput]{name: "limit", in: inQuery, preset: strconv.Itoa(locks.DefaultPage), to: func(w *webhookInput) any { return &w.limit }}

	aWebhook      = ofWebhook(noBody)
	aPage         = ofWebhook(noBody, limitField)
	createWebhook = operation[webhookInput]{body: maxBody, fields: changeFields}
	updateWebhook = ofWebhook(maxBody, append(slices.Clone(changeFields), versionField)...)
	deleteWebhook = ofWebhook(noBody, versionField)
	rotateWebhook = ofWebhook(maxBody, field[webhookInput]{name: "overlap", zero: true, preset: webhooks.DefaultOverlap.String(), to: func(w *webhookInput) any { return &w.overlap }})
	replayWebhook = ofWebhook(maxBody,
		field[webhookInput]{name: "message_id", to: func(w *webhookInput) any { return &w.message }}, // an empty one would replay all
		field[webhookInput]{name: "waiting", to: func(w *webhookInput) any { return &w.waiting }})
)

// eventNames are a list, in the query with commas between; an empty one is all types.
type eventNames struct{ to **[]string }

func (e eventNames) read(name string, v value) error {
	names := []string{}
	switch {
	case v.kind == isList:
		names = append(names, v.list...)
	case v.plain() && v.text != "":
		names = strings.Split(v.text, ",")
	case !v.plain():
		return invalid(name, "events must be a list of event types")
	}
	for i := range names {
		names[i] = echo(names[i]) // the error names a wrong one
	}
	*e.to = &names
	return nil
}

// headerChanges are headers to set, and with null to remove.
type headerChanges map[string]*string

func (h *headerChanges) read(name string, v value) error {
	if v.kind != isOther || len(v.raw) == 0 || v.raw[0] != '{' {
		return invalid(name, `headers must be an object: {"Authorization": "Bearer ..."}`)
	}
	*h = headerChanges{}
	return decodeObject(v.raw, func(header string, v value) error {
		key := textproto.CanonicalMIMEHeaderKey(header)
		if _, twice := (*h)[key]; twice {
			return invalid(name, echo(header)+" must be there once")
		}
		switch v.kind {
		case isNull:
			(*h)[key] = nil
		case isText:
			(*h)[key] = &v.text
		default:
			return invalid(name, "the value of "+echo(header)+" must be a string, or null to remove it")
		}
		return nil
	})
}

// apply changes a subscription. What Normalize checks is not checked here.
func (c *change) apply(s *webhooks.Subscription) error {
	if c.url != nil {
		if !webhooks.SameTarget(s.URL, *c.url) {
			for name := range s.Headers {
				if _, given := c.headers[name]; !given {
					return &webhooks.FieldError{Field: "headers", Detail: name + " would go to another receiver, and its value cannot be read back: set it again, or remove it"}
				}
			}
		}
		s.URL = *c.url
	}
	for to, from := range map[*string]*string{&s.NS: c.ns, &s.Locks: c.locks, &s.Description: c.description, &s.CA: c.ca, &s.Owner: c.owner, &s.Reason: c.reason, &s.Purpose: c.purpose, &s.Format: c.format} {
		if from != nil {
			*to = *from
		}
	}
	if c.events != nil {
		s.Events = slices.Clone(*c.events)
	}
	if c.enabled != nil {
		s.Enabled = *c.enabled
		s.Disabled = ""
	}
	if len(c.headers) > 0 {
		s.Headers = maps.Clone(s.Headers)
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		for name, v := range c.headers {
			if v == nil {
				delete(s.Headers, name)
			} else {
				s.Headers[name] = *v
			}
		}
	}
	return nil
}

func (h *hooks) listWebhooks(x *exchange) error {
	if err := h.subscriptions.Known(); err != nil {
		return webhookProblem(err)
	}
	return x.answer(new(h.list(x.r.Context(), askedBy(x), x.principal())))
}

func (h *hooks) createWebhook(x *exchange) error {
	var in webhookInput
	if err := decode(x, &createWebhook, &in); err != nil {
		return err
	}
	for name, v := range in.headers {
		if v == nil {
			return invalid("headers", "the value of "+echo(name)+" must be a string")
		}
	}
	sub := &webhooks.Subscription{Enabled: true, Maker: x.maker()}
	_ = in.apply(sub) // there is nothing yet that could go elsewhere
	if err := mayGet(x.principal(), sub); err != nil {
		return err
	}
	sub, err := h.subscriptions.Create(x.r.Context(), sub)
	if err != nil {
		return webhookProblem(err)
	}
	x.Header()["Location"] = []string{"/v1/webhooks/" + sub.ID}
	shape := webhookShape(sub)
	shape.URL, shape.Secret = sub.URL, sub.Secrets[0].Value // both of this request, and shown by no other answer
	tagVersion(x, sub)
	x.encode(&shape)
	return x.send(http.StatusCreated, typeJSON)
}

// tagVersion tells which version of a webhook the answer shows.
// A look at it tells of its deliveries, too, so no client has the answer already.
func tagVersion(x *exchange, sub *webhooks.Subscription) {
	x.tag(strconv.Itoa(int(sub.Version)))
	x.shown = ""
}

// version is the version that a change may replace; -1 is any.
func (h *hooks) version(in *webhookInput) (int32, error) {
	if in.ifMatch == nil {
		return -1, nil
	}
	if len(in.ifMatch) > 1 {
		sub, err := h.subscriptions.Get(in.id)
		if err != nil {
			return 0, webhookProblem(err)
		}
		shown := strconv.Itoa(int(sub.Version))
		in.ifMatch = slices.DeleteFunc(in.ifMatch, func(tag string) bool { return tag != shown })
	}
	if len(in.ifMatch) == 1 {
		if n, err := strconv.ParseUint(in.ifMatch[0], 10, 31); err == nil {
			return int32(n), nil
		}
	}
	return 0, locks.Changed()
}

// find decodes a request about one webhook that is there, and that the caller may see.
func (h *hooks) find(x *exchange, op *operation[webhookInput], in *webhookInput) (*webhooks.Subscription, error) {
	if err := decode(x, op, in); err != nil {
		return nil, err
	}
	sub, err := h.subscriptions.Get(in.id)
	if err == nil && !maySee(x.principal(), sub) {
		err = webhooks.ErrNotFound
	}
	return sub, webhookProblem(err)
}

// page is find for a list of bounded length.
func (h *hooks) page(x *exchange, in *webhookInput) error {
	_, err := h.find(x, &aPage, in)
	if err == nil {
		err = between("limit", in.limit, 1, locks.MaxPage)
	}
	return err
}

func (h *hooks) getWebhook(x *exchange) error {
	var in webhookInput
	sub, err := h.find(x, &aWebhook, &in)
	if err != nil {
		return err
	}
	tagVersion(x, sub)
	return x.answer(new(h.withDeliveries(x.r.Context(), askedBy(x), sub)))
}

func (h *hooks) updateWebhook(x *exchange) error {
	var in webhookInput
	if err := decode(x, &updateWebhook, &in); err != nil {
		return err
	}
	version, err := h.version(&in)
	if err != nil {
		return err
	}
	sub, err := h.subscriptions.Update(x.r.Context(), in.id, version, func(sub *webhooks.Subscription) error { return in.change.by(x, sub) })
	if err != nil {
		return webhookProblem(err)
	}
	shape := webhookShape(sub)
	if in.url != nil {
		shape.URL = sub.URL // the client knows it
	}
	tagVersion(x, sub)
	return x.answer(&shape)
}

func (h *hooks) deleteWebhook(x *exchange) error {
	var in webhookInput
	if err := decode(x, &deleteWebhook, &in); err != nil {
		return err
	}
	version, err := h.version(&in)
	if err != nil {
		return err
	}
	return x.done(webhookProblem(h.subscriptions.Delete(x.r.Context(), in.id, version, x.seesWebhook)))
}

func (h *hooks) rotateWebhook(x *exchange) error {
	var in webhookInput
	err := decode(x, &rotateWebhook, &in)
	if err == nil {
		err = between("overlap", in.overlap, 0, webhooks.MaxOverlap)
	}
	if err != nil {
		return err
	}
	sub, fresh, err := h.subscriptions.Rotate(x.r.Context(), in.id, in.overlap, x.seesWebhook)
	if err != nil {
		return webhookProblem(err)
	}
	shape := webhookShape(sub)
	shape.Secret = fresh.Value
	tagVersion(x, sub)
	return x.answer(&shape)
}

func (h *hooks) testWebhook(x *exchange) error {
	var in webhookInput
	if _, err := h.find(x, &aWebhook, &in); err != nil {
		return err
	}
	attempt, err := h.subscriptions.Test(x.r.Context(), in.id)
	if err != nil {
		return webhookProblem(err)
	}
	return x.answer(new(attemptShape(&attempt, h.locks.GatewayID())))
}
