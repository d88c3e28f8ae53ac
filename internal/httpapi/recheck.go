package httpapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/auth"
)

// recheckEvery is how often the callers of what lives long are looked at again: a revoked token's stream ends within it.
const recheckEvery = 15 * time.Second

// rechecks look again at the callers of streams, sockets and requests that wait, all at the same time, by one timer that runs
// while there are any. A request is ended when its caller is not let in any more, or has other rules than at its beginning:
// it was decided, and what it shows was chosen, by those.
type rechecks struct {
	auth     Authenticator // nil: nothing is looked at
	every    time.Duration
	queueing *queueing // acquires that wait, which are not in living

	mu     sync.Mutex
	living map[*recheck]struct{}
	armed  atomic.Bool // the timer runs
}

// recheck is one request that lives long.
type recheck struct {
	caller auth.Caller
	end    func(why *problem)
}

// add lets the caller be looked at until remove is called. end is called at most once for each look.
func (r *rechecks) add(one *recheck) (remove func()) {
	if r.auth == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.living == nil {
		r.living = map[*recheck]struct{}{}
	}
	r.living[one] = struct{}{}
	r.arm()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.living, one)
	}
}

// begin is add for a request in queueing.
func (r *rechecks) begin() {
	if r.auth == nil || r.armed.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arm()
}

// arm starts the timer if it does not run. r.mu is held.
func (r *rechecks) arm() {
	if !r.armed.Swap(true) {
		time.AfterFunc(r.every, r.look)
	}
}

// look looks at all.
func (r *rechecks) look() {
	r.armed.Store(false) // first: what begins from now on arms it anew
	r.mu.Lock()
	all := make([]*recheck, 0, len(r.living))
	for one := range r.living {
		all = append(all, one)
	}
	r.mu.Unlock()
	for _, one := range all {
		if why := r.check(one.caller); why != nil {
			one.end(why)
		}
	}
	waits := r.queueing.recheck(r.check)
	r.mu.Lock()
	defer r.mu.Unlock()
	if waits > 0 || len(r.living) > 0 {
		r.arm()
	}
}

// check says why a request of the caller must end; nil when it goes on.
func (r *rechecks) check(caller auth.Caller) *problem {
	now, err := r.auth.Again(caller)
	if err != nil {
		wrong, ok := errors.AsType[*auth.Error](err)
		if !ok || wrong.Unavailable {
			return nil
		}
		return &problem{code: codeUnauthenticated, detail: wrong.Detail, cause: wrong.Err}
	}
	if now.Principal.Rules.Key() != caller.Principal.Rules.Key() {
		return &problem{code: codeAuthUnavailable, detail: "the rules for this caller have changed meanwhile: repeat the request"}
	}
	return nil
}

// cutBy is the problem with which a context was ended, if it was by a look at the caller.
func cutBy(ctx context.Context) *problem {
	if p, ok := errors.AsType[*problem](context.Cause(ctx)); ok && (p.code == codeUnauthenticated || p.code == codeAuthUnavailable) {
		return p
	}
	return nil
}
