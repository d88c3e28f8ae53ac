package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
)

// Deadlines of what is sent to another gateway, besides the time that the request wants to wait.
const (
	forwardTimeout = 10 * time.Second
	// A heartbeat is answered from memory; while its owner hangs, its lease is not renewed anywhere.
	heartbeatTimeout = 3 * time.Second
	// lookAgain is how often the owner of a lease is looked up while a request waits there.
	lookAgain = 2 * time.Second
)

// forwarder sends a request about a lease that another gateway runs to that one, and gives the client its answer as it is.
// One hop: what came with a seal (admit.go) is never sent on. The owner confirmed a success under its own trust window; this
// gateway adds nothing to it and promises nothing by it.
type forwarder struct {
	fleet     *fleet.Fleet
	locks     Ownership
	metrics   *metrics.Metrics
	lookAgain time.Duration // lookAgain, except in tests
}

// may reports whether a request may be sent on to that gateway.
func (f *forwarder) may(x *exchange, to *locks.Route) bool {
	return to != nil && to.Address != "" && f.fleet != nil && x.peer == nil
}

// forward sends the request to the lease's owner and answers with what that one says. Its error is why there is no answer.
func (f *forwarder) forward(x *exchange, to *locks.Route) error {
	answer, err := f.ask(x, to)
	if err != nil {
		return unanswered(x, err)
	}
	return f.pass(x, answer)
}

// ask sends the request to the lease's owner. When that one does not know itself as the owner, the owner is looked up once
// more. The request ends with the client: else the owner would count on a client that is gone.
func (f *forwarder) ask(x *exchange, to *locks.Route) (*fleet.Answer, error) {
	ctx, end, err := f.attend(x)
	if err != nil {
		return nil, err
	}
	defer end()
	answer, moved, err := f.try(ctx, x, to)
	if moved {
		if again := f.elseOwner(to); again != nil {
			answer, _, err = f.try(ctx, x, again)
		}
	}
	return answer, err
}

// try sends the request once. moved: that gateway does not run the lease.
func (f *forwarder) try(ctx context.Context, x *exchange, to *locks.Route) (answer *fleet.Answer, moved bool, err error) {
	asking, answered := f.whileOwner(ctx, x, to)
	answer, err = f.fleet.Send(asking, x.forwarded(to))
	moved = context.Cause(asking) == errMoved && err != nil
	answered()
	x.line.to = to.Gateway
	switch {
	case moved:
		err = errMoved
	case err != nil && context.Cause(ctx) == errDraining:
		err = draining()
	case err != nil && ctx.Err() != nil:
		err = clientGone()
	}
	f.metrics.Forwarded(forwardResult(answer, err))
	moved = moved || err == nil && answer.Status == http.StatusServiceUnavailable && problemIn(answer) == code(locks.CodeNotOwner)
	return answer, moved, err
}

// attend prepares for what another gateway does while the client waits. Only a request that wants to wait takes one of the
// places for those: a heartbeat must not be refused because others wait.
func (f *forwarder) attend(x *exchange) (ctx context.Context, end func(), err error) {
	if x.wait != 0 {
		return x.park()
	}
	ctx, end = x.heed()
	if x.s.drained.Err() != nil {
		end()
		return nil, nil, draining()
	}
	return ctx, end, nil
}

// elseOwner is another gateway than the one that was asked, if it runs the lease by now; nil when none does, or this one.
func (f *forwarder) elseOwner(asked *locks.Route) *locks.Route {
	again, ok := f.locks.RouteOf(asked.Lease)
	if !ok || again.Gateway == asked.Gateway || again.Gateway == f.locks.GatewayID() || again.Address == "" {
		return nil
	}
	return &again
}

// errMoved is why a request that waits at its lease's owner was ended.
var errMoved = &problem{code: code(locks.CodeNotOwner), detail: "another gateway has taken the lease over meanwhile; repeat the request"}

// whileOwner ends a request that waits once another gateway runs the lease: the one that was asked may stand still for ever,
// and would not say so. end must be called.
func (f *forwarder) whileOwner(ctx context.Context, x *exchange, to *locks.Route) (asking context.Context, end func()) {
	if x.wait == 0 {
		return ctx, func() {}
	}
	asking, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { // until end
		defer close(ended)
		look := time.NewTicker(f.lookAgain)
		defer look.Stop()
		for {
			select {
			case <-asking.Done():
				return
			case <-look.C:
			}
			if now, ok := f.locks.RouteOf(to.Lease); ok && now.Gateway != to.Gateway {
				cancel(errMoved)
				return
			}
		}
	}()
	return asking, func() {
		cancel(nil)
		<-ended
	}
}

// forwarded is the request as it is sent on.
func (x *exchange) forwarded(to *locks.Route) *fleet.Request {
	method := x.r.Method
	if method == http.MethodHead {
		method = http.MethodGet // a seal covers the body, which net/http keeps from the client
	}
	by := askedBy(x)
	q := &fleet.Request{
		Address: to.Address, Seals: to.Seals, Method: method, URI: x.uri(), Header: x.r.Header, Trace: by.trace, Waits: x.wait != 0, Timeout: forwardTimeout + x.wait,
		Seal: by.sealFor(to.Gateway), TokenAlone: tokenAlone(x.operation),
	}
	q.Seal.Zxid, q.Seal.Lease = to.Zxid, to.Lease
	switch {
	case x.wait == locks.WaitForever:
		q.Timeout = 0
	case isHeartbeat(x.operation):
		q.Timeout = heartbeatTimeout + x.wait
	}
	if x.bodyRead {
		q.Body = x.buffer.Bytes()
	}
	return q
}

// uri is the request's as it is sent on: a heartbeat first without its wait, so that nothing delays it.
func (x *exchange) uri() string {
	query := x.query()
	if x.wait != 0 || !isHeartbeat(x.operation) || !query.Has("wait") {
		return x.r.URL.RequestURI()
	}
	query.Del("wait")
	return (&url.URL{Path: x.r.URL.Path, RawPath: x.r.URL.RawPath, RawQuery: query.Encode()}).RequestURI()
}

// tokenAlone reports whether the owner asks for the lease token alone, in every release.
func tokenAlone(operation string) bool {
	return isHeartbeat(operation) || operation == "Release" || operation == "Downgrade"
}

func isHeartbeat(operation string) bool {
	return operation == "Heartbeat" || operation == "HeartbeatMany"
}

func clientGone() *problem {
	return &problem{code: code(locks.CodeCancelled), detail: "the client went away"}
}

// unanswered is the answer to a client whose lease's owner did not answer. It says whether the request may have been done.
func unanswered(x *exchange, err error) error {
	if _, own := errors.AsType[*problem](err); own {
		return err
	}
	if failed, ok := errors.AsType[*fleet.SendError](err); ok && failed.Sent && !x.reads() && !isHeartbeat(x.operation) {
		return &problem{code: code(locks.CodeOutcomeUnknown), cause: err,
			detail: "the gateway that runs this lease was asked and did not answer: it may have been done; repeat the request (an acquire with the same Idempotency-Key)"}
	}
	if errors.Is(err, fleet.ErrCallers) {
		return &problem{code: codeOwnerUnreachable, cause: err,
			detail: "the gateway that runs this lease does not ask who may do what: it has no --auth-file, or is of an earlier release; nothing was done. Give it the same --auth-file, or use the lease token alone"}
	}
	return &problem{code: codeOwnerUnreachable, cause: err,
		detail: "the gateway that runs this lease cannot be reached; nothing was done, repeat the request"}
}

// pass gives the owner's answer to the client, as inert as this gateway's own: the owner may be of an older release.
func (f *forwarder) pass(x *exchange, a *fleet.Answer) error {
	h := x.Header()
	for name, values := range a.Header {
		h[name] = values
	}
	if a.Status >= http.StatusBadRequest {
		x.line.code = problemIn(a)
	}
	if x.forShell(nil) {
		return x.send(x.encodeShell(shellAnswer(a)), typeText)
	}
	if len(a.Body) == 0 {
		x.WriteHeader(a.Status)
		return nil
	}
	x.raw(a.Body)
	if hasType(h, "application/json", "application/problem+json") {
		x.escape()
	}
	return x.send(a.Status, h["Content-Type"])
}

// problemIn is the code of an answer that is a problem; "" when it is none.
func problemIn(a *fleet.Answer) code {
	if a.Status < http.StatusBadRequest {
		return ""
	}
	if lines := linesIn(a); lines != nil {
		return lines.code
	}
	var doc api.Problem
	if json.Unmarshal(a.Body, &doc) != nil {
		return ""
	}
	return string(doc.Code)
}

// forwardResult is the label in the metrics.
func forwardResult(a *fleet.Answer, err error) string {
	own, refused := errors.AsType[*problem](err)
	failed, sent := errors.AsType[*fleet.SendError](err)
	switch {
	case refused:
		return own.code
	case sent && failed.Sent:
		return "unanswered"
	case err != nil:
		return "unreachable"
	case a.Status < http.StatusBadRequest:
		return "done"
	case a.Status < http.StatusInternalServerError:
		return "refused"
	default:
		return "unavailable"
	}
}

// ownerIn is where an error of the manager says that the request belongs; nil when it does not.
func ownerIn(err error) *locks.Route {
	if err == nil {
		return nil // the hot path allocates nothing here
	}
	if e, ok := errors.AsType[*locks.Error](err); ok && e.Code == locks.CodeNotOwner {
		return e.Owner
	}
	return nil
}
