package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// A request about a lease that another gateway runs is sent to that one, and its
// answer given to the client as it is. One hop: what came with a seal (admit.go)
// is never sent on. A success was confirmed by the owner under its own fence; this
// gateway adds nothing to it and promises nothing by it.

// Deadlines of what is sent to another gateway, besides the time that the request wants to wait.
const (
	forwardTimeout = 10 * time.Second
	// A heartbeat is answered from memory; while its owner hangs, its lease is not renewed anywhere.
	heartbeatTimeout = 3 * time.Second
	// lookAgain is how often it is looked who runs a lease while a request waits at its owner.
	lookAgain = 2 * time.Second
)

// forward sends the request to the lease's owner and answers with what that one
// says. It reports whether it has answered: not, when there is nobody to send it to.
func (x *exchange) forward(to *locks.Route) bool {
	if !x.mayForward(to) {
		return false
	}
	answer, err := x.ask(to)
	if answer == nil {
		x.unanswered(err)
		return true
	}
	x.pass(answer)
	return true
}

// mayForward reports whether a request may be sent on to that gateway.
func (x *exchange) mayForward(to *locks.Route) bool {
	return to != nil && to.Address != "" && x.s.fleet != nil && x.peer == nil
}

// ask sends the request to the lease's owner. When that one does not know itself as the
// owner, who it is is looked up once more.
func (x *exchange) ask(to *locks.Route) (*fleet.Answer, error) {
	// Nothing of it may run on after the client has gone: the owner would
	// think that somebody listens.
	ctx, end, p := x.attend()
	if p != nil {
		return nil, &refusal{p}
	}
	defer end()
	for attempt := 0; ; attempt++ {
		asking, answered := x.whileOwner(ctx, to)
		answer, err := x.s.fleet.Send(asking, x.forwarded(to))
		moved := context.Cause(asking) == errMoved
		answered()
		x.to = to.Gateway
		switch {
		case err != nil && moved:
			if again := x.elseOwner(to); again != nil && attempt == 0 {
				to = again
				continue
			}
			err = &refusal{&problem{code: code(locks.CodeNotOwner), detail: "another gateway has taken the lease over meanwhile; repeat the request"}}
		case err != nil && context.Cause(ctx) == errDraining:
			err = &refusal{draining()}
		case err != nil && ctx.Err() != nil:
			err = &refusal{&problem{code: code(locks.CodeCancelled), detail: "the client went away"}}
		}
		x.s.metrics.Forwarded(forwardResult(answer, err))
		if err != nil {
			return nil, err
		}
		if answer.Status == http.StatusServiceUnavailable && attempt == 0 && problemIn(answer) == code(locks.CodeNotOwner) {
			if again := x.elseOwner(to); again != nil {
				to = again
				continue
			}
		}
		return answer, nil
	}
}

// attend prepares for what another gateway does while the client waits. Only a request that wants to wait takes one
// of the places for those: a heartbeat must not be refused because others wait.
func (x *exchange) attend() (ctx context.Context, end func(), p *problem) {
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
func (x *exchange) elseOwner(asked *locks.Route) *locks.Route {
	again, ok := x.s.locks.RouteOf(asked.Lease)
	if !ok || again.Gateway == asked.Gateway || again.Gateway == x.s.locks.GatewayID() || again.Address == "" {
		return nil
	}
	return &again
}

// errMoved is why a request that waits at its lease's owner was ended.
var errMoved = errors.New("another gateway runs the lease")

// whileOwner ends a request that waits once another gateway runs the lease: the one that was asked may
// stand still for ever, and would not say so. end must be called.
func (x *exchange) whileOwner(ctx context.Context, to *locks.Route) (asking context.Context, end func()) {
	if x.wait == 0 {
		return ctx, func() {}
	}
	asking, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { // until end
		defer close(ended)
		look := time.NewTicker(x.s.lookAgain)
		defer look.Stop()
		for {
			select {
			case <-asking.Done():
				return
			case <-look.C:
			}
			if now, ok := x.s.locks.RouteOf(to.Lease); ok && now.Gateway != to.Gateway {
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
	q := &fleet.Request{
		Address: to.Address, Method: method, URI: x.r.URL.RequestURI(), Header: x.r.Header, Waits: x.wait != 0, Timeout: forwardTimeout + x.wait,
		Seal: fleet.Seal{To: to.Gateway, Zxid: to.Zxid, Lease: to.Lease, Request: x.requestID, Client: x.client()},
	}
	switch {
	case x.wait == locks.WaitForever:
		q.Timeout = 0
	case isHeartbeat(x.operation):
		q.Timeout = heartbeatTimeout
	}
	if x.bodyRead {
		q.Body = x.body.Bytes()
	}
	return q
}

func isHeartbeat(operation string) bool {
	return operation == "Heartbeat" || operation == "HeartbeatMany"
}

// client is the address that the request came from, "" when there is none.
func (x *exchange) client() string {
	if x.peer != nil {
		return x.peer.Client
	}
	host, _, _ := net.SplitHostPort(x.r.RemoteAddr)
	return host
}

// refusal is a problem of this gateway's own, where an answer was asked for.
type refusal struct{ p *problem }

func (r *refusal) Error() string { return r.p.code }

// unanswered tells the client that there is no answer, and whether it may have been done.
func (x *exchange) unanswered(err error) {
	var own *refusal
	if errors.As(err, &own) {
		x.problem(own.p)
		return
	}
	x.problem(x.unreachable(err))
}

func (x *exchange) unreachable(err error) *problem {
	var failed *fleet.SendError
	if errors.As(err, &failed) && failed.Sent && x.changes() {
		return &problem{code: code(locks.CodeOutcomeUnknown), cause: err,
			detail: "the gateway that runs this lease was asked and did not answer: it may have been done; repeat the request (an acquire with the same Idempotency-Key)"}
	}
	return &problem{code: codeOwnerUnreachable, cause: err,
		detail: "the gateway that runs this lease cannot be reached; nothing was done, repeat the request"}
}

// changes reports whether the request may change anything but a clock.
func (x *exchange) changes() bool {
	return x.r.Method != http.MethodGet && x.r.Method != http.MethodHead && !isHeartbeat(x.operation)
}

// pass gives the owner's answer to the client, as inert as this gateway's own: the owner may be of an older release.
func (x *exchange) pass(a *fleet.Answer) {
	h := x.Header()
	for name, values := range a.Header {
		h[name] = values
	}
	if a.Status >= http.StatusBadRequest {
		x.code = problemIn(a)
	}
	if x.forShell(nil) {
		x.send(x.encodeShell(shellAnswer(a)), typeText)
		return
	}
	if len(a.Body) == 0 {
		x.WriteHeader(a.Status)
		return
	}
	x.out.Reset()
	x.out.Write(a.Body)
	if hasType(h, "application/json", "application/problem+json") {
		x.escape()
	}
	x.send(a.Status, h["Content-Type"])
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
	var own *refusal
	var failed *fleet.SendError
	switch {
	case errors.As(err, &own):
		return own.p.code
	case errors.As(err, &failed) && failed.Sent:
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

// ownerIn is where an error of the manager says that the request belongs; nil when
// it does not.
func ownerIn(err error) *locks.Route {
	if err == nil {
		return nil // the hot path allocates nothing here
	}
	var e *locks.Error
	if errors.As(err, &e) && e.Code == locks.CodeNotOwner {
		return e.Owner
	}
	return nil
}
