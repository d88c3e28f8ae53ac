package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

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
	Delete(ctx context.Context, id string, version int32) error
	Rotate(ctx context.Context, id string, overlap time.Duration) (*webhooks.Subscription, webhooks.Secret, error)
	Test(ctx context.Context, id string) (webhooks.Attempt, error)
	// What this gateway knows; the others are asked by httpapi.
	Attempts(id string) []webhooks.Attempt
	DeadLetters(id string, limit int) []webhooks.DeadLetter
	Replay(ctx context.Context, id, message string) (int, error)
	Statuses() map[string]webhooks.Status
	Outbox() webhooks.Outbox
}

// hooks reports whether there are webhooks here; else it has answered.
func (x *exchange) hooks() (Webhooks, bool) {
	if x.s.webhooks == nil {
		x.notFound()
		return nil, false
	}
	return x.s.webhooks, true
}

// webhookProblem is what an error of the webhooks means.
func webhookProblem(err error) *problem {
	var field *webhooks.FieldError
	var own *refusal
	switch {
	case errors.As(err, &own):
		return own.p
	case errors.As(err, &field):
		return invalid(field.Field, field.Detail)
	case errors.Is(err, webhooks.ErrNotFound):
		return noWebhook()
	case errors.Is(err, webhooks.ErrConflict):
		return &problem{code: codeWebhookChanged, field: "If-Match", detail: "look at it again, and repeat the change if it still makes sense"}
	case errors.Is(err, webhooks.ErrTooMany):
		return &problem{code: codeTooManyWebhooks, detail: "a fleet has at most " + strconv.Itoa(webhooks.MaxSubscriptions) + ": remove one, or have one tell more"}
	case errors.Is(err, webhooks.ErrUnknown):
		return &problem{code: code(locks.CodeOutcomeUnknown), detail: "it may have been done or not: look at the webhooks, then repeat what is missing", cause: err}
	case errors.Is(err, webhooks.ErrUnavailable):
		return &problem{code: code(locks.CodeUnavailable), detail: "nothing was done; repeat the request", cause: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{code: code(locks.CodeOutcomeUnknown), detail: "the request ended before it was known whether it was done", cause: err}
	}
	return &problem{code: codeInternal, detail: "the log tells more under this request's id", cause: err}
}

func noWebhook() *problem {
	return &problem{code: codeNoWebhook, detail: "there is no webhook of this id"}
}

// webhookID is that of the path.
func (x *exchange) webhookID() (string, *problem) {
	id, p := x.pathSegment("id")
	if p == nil && !webhooks.IsID(id) {
		p = noWebhook()
	}
	return id, p
}

// changeForm is the fields of a webhook, as far as they were given.
type changeForm struct {
	url, ns, locks, description, ca *string
	events                          *[]string
	enabled                         *bool
	headers                         map[string]*string // nil: to be removed
	patch                           bool
}

func (*changeForm) names() []string {
	return []string{"url", "events", "ns", "locks", "description", "enabled", "headers", "ca"}
}

func (f *changeForm) take(name string, v value) (known bool, p *problem) {
	label := func(into **string, most int) {
		var s string
		s, p = text(name, v, most)
		*into = &s
	}
	switch name {
	case "url":
		label(&f.url, webhooks.MaxURL)
	case "ns":
		label(&f.ns, webhooks.MaxGlob)
	case "locks":
		label(&f.locks, webhooks.MaxGlob)
	case "description":
		label(&f.description, webhooks.MaxDescription)
	case "ca":
		if v.kind != isText || len(v.text) > webhooks.MaxCA {
			return true, invalid(name, "it is a string of at most "+strconv.Itoa(webhooks.MaxCA)+" bytes: certificates in PEM")
		}
		f.ca = &v.text // lines end in control characters, so text is not for it
	case "enabled":
		var enabled bool
		enabled, p = boolean(name, v)
		f.enabled = &enabled
	case "events":
		f.events, p = eventTypes(name, v)
	case "headers":
		if v.source == fromQuery {
			return false, nil // what they say is secret, and queries are not
		}
		p = f.takeHeaders(v)
	default:
		return false, nil
	}
	return true, p
}

// eventTypes are a list, in the query with commas between; an empty one is all types.
func eventTypes(name string, v value) (*[]string, *problem) {
	list := []string{}
	switch {
	case v.kind == isList:
		list = append(list, v.list...)
	case v.kind == isText && v.source == fromQuery && v.text != "":
		list = strings.Split(v.text, ",")
	case v.kind == isText && v.source == fromQuery:
	default:
		return nil, invalid(name, "it is a list of event types")
	}
	if len(list) > 2*len(webhooks.Types) {
		return nil, invalid(name, "there are not so many event types")
	}
	for i := range list {
		list[i] = echo(list[i]) // a wrong one is told back
	}
	return &list, nil
}

func (f *changeForm) takeHeaders(v value) *problem {
	if v.kind != isOther || len(v.raw) == 0 || v.raw[0] != '{' {
		return invalid("headers", `it is an object: {"Authorization": "Bearer ..."}`)
	}
	f.headers = map[string]*string{}
	p := decodeObject(v.raw, func(name string, v value) *problem {
		key := textproto.CanonicalMIMEHeaderKey(name)
		if _, twice := f.headers[key]; twice {
			return invalid("headers", echo(name)+" is there twice")
		}
		switch {
		case v.kind == isNull && f.patch:
			f.headers[key] = nil
		case v.kind == isText:
			f.headers[key] = &v.text
		case f.patch:
			return invalid("headers", "the value of "+echo(name)+" is a string, or null to remove it")
		default:
			return invalid("headers", "the value of "+echo(name)+" is a string")
		}
		return nil
	})
	if p != nil {
		p.field = "headers"
	}
	return p
}

// apply changes a subscription as the form says. What Normalize checks is not checked here.
func (f *changeForm) apply(s *webhooks.Subscription) error {
	if f.url != nil {
		if !webhooks.SameTarget(s.URL, *f.url) {
			for name := range s.Headers {
				if _, given := f.headers[name]; !given {
					return &webhooks.FieldError{Field: "headers", Detail: name + " would go to another receiver, and what it says is not to be had again: set it anew, or remove it"}
				}
			}
		}
		s.URL = *f.url
	}
	set := func(to *string, from *string) {
		if from != nil {
			*to = *from
		}
	}
	set(&s.NS, f.ns)
	set(&s.Locks, f.locks)
	set(&s.Description, f.description)
	set(&s.CA, f.ca)
	if f.events != nil {
		s.Events = append([]string(nil), *f.events...)
	}
	if f.enabled != nil {
		s.Enabled = *f.enabled
		s.Disabled = ""
	}
	if len(f.headers) > 0 {
		headers := make(map[string]string, len(s.Headers)+len(f.headers))
		for name, v := range s.Headers {
			headers[name] = v
		}
		for name, v := range f.headers {
			if v == nil {
				delete(headers, name)
			} else {
				headers[name] = *v
			}
		}
		s.Headers = headers
	}
	return nil
}

func (x *exchange) listWebhooks() {
	hooks, ok := x.hooks()
	if !ok || !x.bare() {
		return
	}
	if err := hooks.Known(); err != nil {
		x.problem(webhookProblem(err))
		return
	}
	list := x.s.webhookList(x.r.Context(), x.peers())
	x.answer(http.StatusOK, &list)
}

func (x *exchange) createWebhook() {
	hooks, ok := x.hooks()
	if !ok {
		return
	}
	var form changeForm
	if p := x.fields(&form, maxBody); p != nil {
		x.problem(p)
		return
	}
	sub := &webhooks.Subscription{Enabled: true}
	_ = form.apply(sub) // there is nothing yet that could go elsewhere
	sub, err := hooks.Create(x.r.Context(), sub)
	if err != nil {
		x.problem(webhookProblem(err))
		return
	}
	x.Header()["Location"] = []string{"/v1/webhooks/" + sub.ID}
	shape := webhookShape(sub)
	shape.URL, shape.Secret = sub.URL, sub.Secrets[0].Value // both of this request, and shown by no other answer
	x.tag(sub)
	x.answer(http.StatusCreated, &shape)
}

func (x *exchange) tag(sub *webhooks.Subscription) {
	x.Header()["Etag"] = []string{`"` + strconv.Itoa(int(sub.Version)) + `"`}
}

func (x *exchange) getWebhook() {
	hooks, ok := x.hooks()
	if !ok {
		return
	}
	id, p := x.webhookID()
	if p != nil {
		x.problem(p)
		return
	}
	if !x.bare() {
		return
	}
	sub, err := hooks.Get(id)
	if err != nil {
		x.problem(webhookProblem(err))
		return
	}
	shape := x.s.webhookWithDeliveries(x.r.Context(), x.peers(), sub)
	x.tag(sub)
	x.answer(http.StatusOK, &shape)
}

func (x *exchange) updateWebhook() {
	hooks, ok := x.hooks()
	if !ok {
		return
	}
	form := changeForm{patch: true}
	id, p := x.webhookID()
	var version int32
	if p == nil {
		version, p = ifMatch(x.r.Header)
	}
	if p == nil {
		p = x.fields(&form, maxBody)
	}
	if p != nil {
		x.problem(p)
		return
	}
	sub, err := hooks.Update(x.r.Context(), id, version, form.apply)
	if err != nil {
		x.problem(webhookProblem(err))
		return
	}
	shape := webhookShape(sub)
	if form.url != nil {
		shape.URL = sub.URL // the client knows it
	}
	x.tag(sub)
	x.answer(http.StatusOK, &shape)
}

// ifMatch is the version that was looked at; -1: whatever it is.
func ifMatch(h http.Header) (int32, *problem) {
	const name = "If-Match"
	s, given, p := single(h, name)
	if p != nil || !given || s == "*" {
		return -1, p
	}
	if len(s) > 2 && s[0] == '"' && s[len(s)-1] == '"' {
		if n, err := strconv.ParseUint(s[1:len(s)-1], 10, 31); err == nil {
			return int32(n), nil
		}
	}
	return 0, invalid(name, `it is the ETag of the webhook as it was looked at, such as "3"`)
}

func (x *exchange) deleteWebhook() {
	hooks, ok := x.hooks()
	if !ok {
		return
	}
	id, p := x.webhookID()
	var version int32
	if p == nil {
		version, p = ifMatch(x.r.Header)
	}
	if p == nil {
		p = x.fields(nothing{}, 0)
	}
	if p != nil {
		x.problem(p)
		return
	}
	if err := hooks.Delete(x.r.Context(), id, version); err != nil {
		x.problem(webhookProblem(err))
		return
	}
	x.WriteHeader(http.StatusNoContent)
}

// rotateForm is the field of a new secret.
type rotateForm struct{ overlap time.Duration }

func (*rotateForm) names() []string { return []string{"overlap"} }

func (f *rotateForm) take(name string, v value) (known bool, p *problem) {
	if name != "overlap" {
		return false, nil
	}
	f.overlap, p = duration(name, v, 0, webhooks.MaxOverlap)
	return true, p
}

func (x *exchange) rotateWebhook() {
	hooks, ok := x.hooks()
	if !ok {
		return
	}
	form := rotateForm{overlap: webhooks.DefaultOverlap}
	id, p := x.webhookID()
	if p == nil {
		p = x.fields(&form, maxBody)
	}
	if p != nil {
		x.problem(p)
		return
	}
	sub, fresh, err := hooks.Rotate(x.r.Context(), id, form.overlap)
	if err != nil {
		x.problem(webhookProblem(err))
		return
	}
	shape := webhookShape(sub)
	shape.Secret = fresh.Value
	x.tag(sub)
	x.answer(http.StatusOK, &shape)
}

func (x *exchange) testWebhook() {
	hooks, ok := x.hooks()
	if !ok {
		return
	}
	id, p := x.webhookID()
	if p == nil {
		p = x.fields(nothing{}, 0)
	}
	if p != nil {
		x.problem(p)
		return
	}
	attempt, err := hooks.Test(x.r.Context(), id)
	if err != nil {
		x.problem(webhookProblem(err))
		return
	}
	shape := attemptShape(&attempt, x.s.locks.GatewayID())
	x.answer(http.StatusOK, &shape)
}
