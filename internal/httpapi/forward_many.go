package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// Bounds of a bulk heartbeat whose leases run elsewhere: gateways that are asked at the same
// time, and leases that are renewed in their owners' place at the same time.
const (
	maxAsked   = 32
	maxStandIn = 16
)

// standIn renews a lease whose owner did not answer. Its error is why it has not been renewed.
func (x *exchange) standIn(failed error, token string, ttl time.Duration) (locks.Heartbeat, error) {
	var own *refusal
	if ttl != 0 || errors.As(failed, &own) {
		return locks.Heartbeat{}, failed
	}
	renewed, err := x.s.locks.HeartbeatFor(x.r.Context(), locks.Anonymous, token)
	if err != nil {
		p := problemOf(err)
		if p.code == code(locks.CodeNotOwner) {
			p = x.unreachable(failed)
		}
		return locks.Heartbeat{}, &refusal{p}
	}
	return renewed, nil
}

// elsewhere are the leases of a bulk heartbeat that other gateways run, by where those are.
func (x *exchange) elsewhere(results []locks.HeartbeatResult) map[string]*errand {
	var errands map[string]*errand
	for i := range results {
		if results[i].Err == nil {
			continue
		}
		to := results[i].Err.Owner
		if !x.mayForward(to) {
			continue
		}
		if errands == nil {
			errands = map[string]*errand{}
		}
		e := errands[to.Gateway]
		if e == nil {
			e = &errand{to: *to}
			errands[to.Gateway] = e
		}
		e.to.Zxid = max(e.to.Zxid, to.Zxid)
		e.which = append(e.which, i)
	}
	return errands
}

// errand is what one gateway is asked of a bulk heartbeat.
type errand struct {
	to    locks.Route
	which []int // of the request's tokens
}

// renewElsewhere asks the owners, all at the same time, and puts what they say into the
// answer. It returns on what terms stands what this gateway did in the place of
// those that did not answer.
func (x *exchange) renewElsewhere(errands map[string]*errand, tokens []string, items []api.HeartbeatItem) ([]locks.Term, *problem) {
	ctx, end, p := x.attend()
	if p != nil {
		return nil, p
	}
	defer end()
	var (
		mu    sync.Mutex
		terms []locks.Term
		asked = make(chan struct{}, maxAsked)
		all   sync.WaitGroup
	)
	for _, gateway := range slices.Sorted(maps.Keys(errands)) {
		e := errands[gateway]
		asked <- struct{}{}
		all.Go(func() {
			defer func() { <-asked }()
			answer, err := x.sendErrand(ctx, e, tokens)
			x.s.metrics.Forwarded(forwardResult(answer, err))
			if err == nil {
				if err = e.take(answer, items); err == nil {
					return
				}
			}
			bases := x.standInFor(ctx, err, e, tokens, items)
			mu.Lock()
			terms = append(terms, bases...)
			mu.Unlock()
		})
	}
	all.Wait()
	switch {
	case context.Cause(ctx) == errDraining:
		return nil, draining()
	case ctx.Err() != nil:
		return nil, &problem{code: code(locks.CodeCancelled), detail: "the client went away"}
	}
	return terms, nil
}

func (x *exchange) sendErrand(ctx context.Context, e *errand, tokens []string) (*fleet.Answer, error) {
	mine := make([]string, len(e.which))
	for k, i := range e.which {
		mine[k] = tokens[i]
	}
	body, err := json.Marshal(map[string][]string{"tokens": mine})
	if err != nil {
		panic("encoding tokens: " + err.Error()) // strings only
	}
	header := http.Header{"Content-Type": typeJSON}
	if trace := x.r.Header["Traceparent"]; trace != nil {
		header["Traceparent"] = trace
	}
	return x.s.fleet.Send(ctx, &fleet.Request{
		Address: e.to.Address, Method: http.MethodPost, URI: "/v1/heartbeats", Header: header, Body: body, Timeout: heartbeatTimeout,
		Seal: fleet.Seal{To: e.to.Gateway, Zxid: e.to.Zxid, Request: x.requestID, Client: x.client()},
	})
}

// take puts an owner's answer into that of the whole request. Its error is an
// answer that says nothing of the leases.
func (e *errand) take(answer *fleet.Answer, items []api.HeartbeatItem) error {
	var list api.HeartbeatList
	if answer.Status != http.StatusOK {
		return fmt.Errorf("the owner answers %d %s", answer.Status, cmp.Or(problemIn(answer), "and no problem"))
	}
	if err := json.Unmarshal(answer.Body, &list); err != nil {
		return fmt.Errorf("the owner's answer: %w", err)
	}
	if len(list.Items) != len(e.which) {
		return fmt.Errorf("the owner answers for %d leases of %d", len(list.Items), len(e.which))
	}
	for k, i := range e.which {
		items[i] = list.Items[k]
	}
	return nil
}

// standInFor renews the leases of an errand that came to nothing.
func (x *exchange) standInFor(ctx context.Context, failed error, e *errand, tokens []string, items []api.HeartbeatItem) []locks.Term {
	bases := make([]locks.Term, len(e.which))
	at := make(chan struct{}, maxStandIn)
	var all sync.WaitGroup
	for k, i := range e.which {
		result := locks.HeartbeatResult{LeaseID: items[i].LeaseID, Err: &locks.Error{Code: locks.Code(codeOwnerUnreachable), Err: failed,
			Detail: "the gateway that runs this lease cannot be reached; repeat the request", RetryAfter: time.Second}}
		at <- struct{}{}
		all.Go(func() {
			defer func() { <-at }()
			renewed, err := x.s.locks.HeartbeatFor(ctx, locks.Anonymous, tokens[i])
			var e *locks.Error
			switch {
			case err == nil:
				result.Heartbeat, result.Err, bases[k] = renewed, nil, renewed.Term
			case errors.As(err, &e) && e.Code != locks.CodeNotOwner:
				result.Err = e
			}
			items[i] = heartbeatItem(&result)
		})
	}
	all.Wait()
	return slices.DeleteFunc(bases, func(b locks.Term) bool { return b == 0 })
}
