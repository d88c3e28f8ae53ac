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

// Bounds of a bulk heartbeat whose leases run elsewhere: gateways that are asked at the same time, and leases that are
// renewed in their owners' place at the same time.
const (
	maxAsked   = 32
	maxStandIn = 16
)

// standIn renews a lease whose owner did not answer. Its error is why it has not been renewed.
func (f *forwarder) standIn(x *exchange, failed error, token string, ttl time.Duration) (locks.Heartbeat, error) {
	failed = unanswered(x, failed)
	if ttl != 0 || problemOf(failed).code != codeOwnerUnreachable {
		return locks.Heartbeat{}, failed
	}
	renewed, err := f.locks.HeartbeatFor(x.r.Context(), x.principal(), token)
	if e, ok := errors.AsType[*locks.Error](err); ok && e.Code == locks.CodeNotOwner {
		err = failed
	}
	return renewed, err
}

// releaseFor releases a lease whose owner did not answer. What the owner may have done already is not done again.
func (f *forwarder) releaseFor(x *exchange, ctx context.Context, failed error, token string) error {
	failed = unanswered(x, failed)
	if c := problemOf(failed).code; c != codeOwnerUnreachable && c != code(locks.CodeOutcomeUnknown) {
		return failed // the client or this gateway is leaving
	}
	err := f.locks.ReleaseFor(ctx, x.principal(), token)
	if e, ok := errors.AsType[*locks.Error](err); ok && e.Code == locks.CodeNotOwner {
		return failed
	}
	return err
}

// errand is what one gateway is asked of a bulk heartbeat.
type errand struct {
	to    locks.Route
	which []int // of the request's tokens
}

// elsewhere are the leases of a bulk heartbeat that other gateways run, by where those are.
func (f *forwarder) elsewhere(x *exchange, results []locks.HeartbeatResult) map[string]*errand {
	var errands map[string]*errand
	for i := range results {
		if results[i].Err == nil || !f.may(x, results[i].Err.Owner) {
			continue
		}
		to := results[i].Err.Owner
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

// renewElsewhere asks the owners, all at the same time, and puts their answers into items. It returns the terms under which
// this gateway renewed leases in the place of owners that did not answer.
func (f *forwarder) renewElsewhere(x *exchange, errands map[string]*errand, tokens []string, items []api.HeartbeatItem) ([]locks.Term, error) {
	ctx, end, err := f.attend(x)
	if err != nil {
		return nil, err
	}
	defer end()
	var (
		mu    sync.Mutex
		terms []locks.Term
	)
	together(maxAsked, slices.Sorted(maps.Keys(errands)), func(_ int, gateway string) {
		e := errands[gateway]
		answer, err := f.send(ctx, x, e, tokens)
		f.metrics.Forwarded(forwardResult(answer, err))
		if err == nil {
			err = e.take(answer, items)
		}
		if err != nil {
			more := f.standInFor(ctx, err, e, tokens, items)
			mu.Lock()
			terms = append(terms, more...)
			mu.Unlock()
		}
	})
	switch {
	case context.Cause(ctx) == errDraining:
		return nil, draining()
	case ctx.Err() != nil:
		return nil, clientGone()
	}
	return terms, nil
}

// together calls do for each of a list, for at most so many at the same time, and returns when all calls have.
func together[T any](most int, list []T, do func(i int, item T)) {
	room := make(chan struct{}, most)
	var all sync.WaitGroup
	for i, item := range list {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			do(i, item)
		})
	}
	all.Wait()
}

func (f *forwarder) send(ctx context.Context, x *exchange, e *errand, tokens []string) (*fleet.Answer, error) {
	mine := make([]string, len(e.which))
	for k, i := range e.which {
		mine[k] = tokens[i]
	}
	body, err := json.Marshal(map[string][]string{"tokens": mine})
	if err != nil {
		panic("encoding tokens: " + err.Error()) // strings only
	}
	by := askedBy(x)
	q := &fleet.Request{Address: e.to.Address, Seals: e.to.Seals, Method: http.MethodPost, URI: "/v1/heartbeats", Header: http.Header{"Content-Type": typeJSON}, Trace: by.trace, Body: body, Timeout: heartbeatTimeout, Seal: by.sealFor(e.to.Gateway), TokenAlone: true}
	q.Seal.Zxid = e.to.Zxid
	return f.fleet.Send(ctx, q)
}

// take puts an owner's answer into that of the whole request. Its error is an answer that says nothing of the leases.
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
func (f *forwarder) standInFor(ctx context.Context, failed error, e *errand, tokens []string, items []api.HeartbeatItem) []locks.Term {
	terms := make([]locks.Term, len(e.which))
	together(maxStandIn, e.which, func(k, i int) {
		result := locks.HeartbeatResult{LeaseID: items[i].LeaseID, Err: &locks.Error{Code: locks.Code(codeOwnerUnreachable), Err: failed,
			Detail: "the gateway that runs this lease cannot be reached; repeat the request", RetryAfter: time.Second}}
		renewed, err := f.locks.HeartbeatFor(ctx, locks.Principal{}, tokens[i]) // the token decides
		if e, ok := errors.AsType[*locks.Error](err); ok && e.Code != locks.CodeNotOwner {
			result.Err = e
		} else if err == nil {
			result.Heartbeat, result.Err, terms[k] = renewed, nil, renewed.Term
		}
		items[i] = heartbeatItem(&result)
	})
	return slices.DeleteFunc(terms, func(b locks.Term) bool { return b == 0 })
}
