package auth

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"time"

	"lockkeeper/internal/ratelimit"
)

const (
	// wrongRate is how many JWTs whose signature check fails an address may show in a second. Beyond that a JWT from there is
	// refused unless it is remembered: its check costs what hundreds of other requests cost.
	wrongRate = 2
	// toldRate is how many refusals of an address in a second are told one by one.
	toldRate = 1
)

// guesses bounds what wrong credentials cost. API tokens need no bound: one that is wrong costs a hash and a look-up.
type guesses struct {
	wrong *ratelimit.Callers // addresses, by JWTs whose check has failed
	told  *ratelimit.Callers // addresses, by refusals of all kinds
	// checking are the places of signature checks: they leave processors to requests that need none.
	checking chan struct{}
}

func newGuesses() guesses {
	return guesses{wrong: ratelimit.New(ratelimit.AtOnce{}), told: ratelimit.New(ratelimit.AtOnce{}), checking: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1))}
}

// addressOf is what the sender's guesses count for.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return ratelimit.NetworkOf(host)
}

// mayGuess refuses a JWT that is not remembered, from an address that has shown too many wrong ones.
func (g *guesses) mayGuess(from string) error {
	if b := g.wrong.Ask(from, wrongRate, time.Now()); b.Remaining == 0 {
		return &Error{TooMany: true, RetryAfter: b.Retry,
			Detail: "this address has sent too many JWTs that are wrong, at most 2 in a second: repeat after Retry-After with one that is right, or with an API token"}
	}
	return nil
}

// failed counts a JWT whose check has failed.
func (g *guesses) failed(from string) { count(g.wrong, from, wrongRate) }

// tells reports whether a refusal is worth a line of its own: an address that shows wrong credentials all the time gets one in
// a while.
func (g *guesses) tells(from string) bool {
	refused := count(g.told, from, toldRate)
	return refused == nil || refused.First
}

func count(at *ratelimit.Callers, from string, perSecond float64) *ratelimit.Refusal {
	place, _, refused := at.Begin(from, perSecond, time.Now())
	place.Leave()
	return refused
}

// guess is a JWT that an address shows.
type guess struct {
	*guesses
	from    string
	counted bool // as wrong
}

// isWrong counts it once.
func (g *guess) isWrong() {
	if !g.counted {
		g.counted = true
		g.failed(g.from)
	}
}

// check does a signature check when there is a place for it: at once for nil. What others of its address have shown wrong meanwhile counts:
// they may all have come at once.
func (g *guess) check(ctx context.Context, do func() error) error {
	if g == nil {
		return do()
	}
	select {
	case g.checking <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.checking }()
	if err := g.mayGuess(g.from); err != nil {
		return err
	}
	err := do()
	if err != nil {
		g.isWrong() // before the place is free
	}
	return err
}
