package e2e

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// expect ends the test unless the answer is the expected one; code is "" for successes.
func expect(t testing.TB, a *apitest.Answer, err error, status int, code string) {
	t.Helper()
	assert.NoError(t, err, "no answer")
	assert.Must(t, a.Status == status && a.Code() == code, "answered %d %s, want %d %s\n%s", a.Status, a.Code(), status, code, a.Body)
}

// hold acquires a lock that must be free.
func (g *gateway) hold(lock, query string, options ...apitest.Option) api.Lease {
	g.t.Helper()
	lease, a, err := g.Acquire(g.t.Context(), lock, append(options, apitest.Query(query))...)
	expect(g.t, a, err, http.StatusCreated, "")
	assert.Must(g.t, lease.State == api.StateHeld && lease.Token != "" && lease.FencingToken != 0, "201 with %s", a.Body)
	return lease
}

// queue takes a place in line behind a holder, as a ticket.
func (g *gateway) queue(lock, query string, options ...apitest.Option) api.Lease {
	g.t.Helper()
	lease, a, err := g.Acquire(g.t.Context(), lock, append(options, apitest.Query(query), apitest.Query("async=true"))...)
	expect(g.t, a, err, http.StatusAccepted, "")
	assert.Must(g.t, lease.State == api.StateWaiting && lease.Token != "", "202 with %s", a.Body)
	return lease
}

// beat heartbeats a lease that must be in the given state, and returns the answer.
func (g *gateway) beat(token string, state api.State) api.Heartbeat {
	g.t.Helper()
	beat, a, err := g.Heartbeat(g.t.Context(), token)
	expect(g.t, a, err, http.StatusOK, "")
	assert.Must(g.t, beat.State == state, "the lease is %s, want %s", beat.State, state)
	return beat
}

// awaitOwned waits until a gateway runs the lease again. Heartbeats are answered before that, in the owner's place.
func (g *gateway) awaitOwned(id string) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		_, a, err := g.Lease(g.t.Context(), id)
		return answeredWith(a, err, http.StatusOK)
	}, "a gateway runs the lease")
}

func (g *gateway) letGo(token string) {
	g.t.Helper()
	a, err := g.Release(g.t.Context(), token)
	expect(g.t, a, err, http.StatusNoContent, "")
}

// awaitLock waits until the queue of a lock has that many holders and waiters, and returns it.
func (g *gateway) awaitLock(within time.Duration, lock string, holders, waiters int) (q api.Lock) {
	g.t.Helper()
	eventually(g.t, within, func() error {
		var a *apitest.Answer
		var err error
		q, a, err = g.Lock(g.t.Context(), lock)
		if err == nil && (a.Status != http.StatusOK || len(q.Holders) != holders || q.QueueLength != waiters) {
			err = unexpected(a)
		}
		return err
	}, "%d hold %s and %d wait", holders, lock, waiters)
	return q
}

// answeredWith is err, or the answer when its status is none of those.
func answeredWith(a *apitest.Answer, err error, statuses ...int) error {
	if err == nil && !slices.Contains(statuses, a.Status) {
		return unexpected(a)
	}
	return err
}

func unexpected(a *apitest.Answer) error { return &unexpectedAnswer{a} }

type unexpectedAnswer struct{ *apitest.Answer }

func (u *unexpectedAnswer) Error() string { return http.StatusText(u.Status) + ": " + string(u.Body) }

// pending is an acquire that waits for its answer.
type pending struct {
	t    testing.TB
	done chan struct{}

	lease api.Lease // once done is closed, as the two below
	a     *apitest.Answer
	err   error
}

// acquiring starts an acquire and returns at once.
func (g *gateway) acquiring(ctx context.Context, lock, query string, options ...apitest.Option) *pending {
	p := &pending{t: g.t, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.lease, p.a, p.err = g.Acquire(ctx, lock, append(options, apitest.Query(query))...)
	}()
	g.t.Cleanup(func() { <-p.done }) // the test's context, thus ctx, has ended by then
	return p
}

// granted waits for the answer, which must be a grant.
func (p *pending) granted(within time.Duration) api.Lease {
	p.t.Helper()
	p.answered(within)
	expect(p.t, p.a, p.err, http.StatusCreated, "")
	return p.lease
}

func (p *pending) answered(within time.Duration) {
	p.t.Helper()
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case <-p.done:
	case <-patience.C:
		p.t.Fatalf("no answer within %v", within)
	}
}

// waits fails the test if the answer has come.
func (p *pending) waits() {
	p.t.Helper()
	testkit.Nothing(p.t, p.done, "answered already")
}

// pulse is a client that keeps its lease alive, as clients do: it heartbeats and, when that fails, tries again.
type pulse struct {
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	beats []attempt
}

// attempt is one request as its client saw it.
type attempt struct {
	sent, answered time.Time
	status         int // 0: there was no answer
	code           string
	beat           api.Heartbeat
}

// pulseEvery is how often a client heartbeats: TTLs here are 2 s and more.
const pulseEvery = 250 * time.Millisecond

// keepAlive heartbeats token until the test ends or halt is called.
func (g *gateway) keepAlive(token string) *pulse {
	ctx, stop := context.WithCancel(g.t.Context())
	p := &pulse{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(pulseEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			p.attempt(ctx, g.Client, token)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	g.t.Cleanup(p.halt)
	return p
}

func (p *pulse) attempt(ctx context.Context, client *apitest.Client, token string) {
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	at := attempt{sent: time.Now()}
	beat, a, err := client.Heartbeat(bounded, token)
	if ctx.Err() != nil {
		return
	}
	at.answered = time.Now()
	if err == nil {
		at.status, at.code, at.beat = a.Status, a.Code(), beat
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats = append(p.beats, at)
}

func (p *pulse) halt() {
	p.stop()
	<-p.done
}

// attempts is what there was so far.
func (p *pulse) attempts() []attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]attempt(nil), p.beats...)
}

// awaitBeat waits for a heartbeat that was sent after now and answered 200.
func (p *pulse) awaitBeat(t testing.TB, within time.Duration) attempt {
	t.Helper()
	after := time.Now()
	var found attempt
	eventually(t, within, func() error {
		for _, at := range p.attempts() {
			if at.sent.After(after) && at.status == http.StatusOK {
				found = at
				return nil
			}
		}
		return errNoBeat
	}, "a heartbeat is answered 200")
	return found
}

var errNoBeat = errors.New("no heartbeat was answered so")

// mustNotHaveLost fails the test if the client was ever told that its lease is over or not its own.
func (p *pulse) mustNotHaveLost(t testing.TB) {
	t.Helper()
	for _, at := range p.attempts() {
		switch at.status {
		case 0, http.StatusOK, http.StatusServiceUnavailable:
		default:
			t.Errorf("a heartbeat was answered %d %s", at.status, at.code)
		}
	}
}
