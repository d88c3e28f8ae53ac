package httpapi

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"lockkeeper/internal/locks"
)

// refusalsEvery is the least time between two lines of the log about refusals by the guard.
const refusalsEvery = time.Minute

// guardCodes are the refusals that a page in a browser, or a client with a wrong credential or at its limits, can cause in a loop.
// So each is counted, and its own line is logged at debug. A captured request that is sent to the wrong gateway is among them: its
// code is codeNotOwner, its cause errNotForThis. A gateway that sent one in good faith logs the answer that its own client gets.
var guardCodes = [...]code{codeCrossOrigin, codeHostNotAllowed, codeSealRefused, code(locks.CodeNotOwner), codeUnauthenticated, codeRateLimited, codePrincipalLimit}

func byGuard(c code, cause error) bool {
	switch c {
	case codeCrossOrigin, codeHostNotAllowed, codeSealRefused, codeUnauthenticated, codeRateLimited, codePrincipalLimit:
		return true
	}
	return errors.Is(cause, errNotForThis)
}

// refusals sums up for the log what the guard refuses. The first refusal is logged at once. Later ones are logged with the
// first refusal that comes a minute or more after the last line; until then the metric alone has them. No goroutine owns it.
type refusals struct {
	mu     sync.Mutex
	logged time.Time
	counts map[code]int // since then; at most one for each of guardCodes
}

// add counts a refusal. It returns what is to be logged now, or nil.
func (r *refusals) add(c code, now time.Time) map[code]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[code]int, len(guardCodes))
	}
	r.counts[c]++
	if !r.logged.IsZero() && now.Sub(r.logged) < refusalsEvery {
		return nil
	}
	counts := r.counts
	r.logged, r.counts = now, nil
	return counts
}

// refused counts a refusal by the guard.
func (s *Server) refused(c code) {
	s.metrics.Refused(c)
	counts := s.guard.refusals.add(c, time.Now())
	if counts == nil {
		return
	}
	attrs := make([]any, 0, len(guardCodes))
	for _, c := range guardCodes {
		if n := counts[c]; n > 0 {
			attrs = append(attrs, slog.Int(c, n))
		}
	}
	s.log.Info("requests refused since the last such line; --log-level debug shows each", attrs...)
}
