package httpapi

import (
	"strings"
	"time"

	"lockkeeper/internal/locks"
)

// poll is what a look waits for.
type poll struct{ until string }

// The words of until.
const (
	untilGranted = "granted" // an ended lease answers, too: it never will be
	untilEnded   = "ended"
	untilFree    = "free"
	untilElected = "elected"
	untilChanged = "changed"
)

// pollFields are the fields of a look that may wait; words are those that until may have.
func pollFields[T any](wait func(*T) *time.Duration, since func(*T) *string, at func(*T) *poll, words ...string) []field[T] {
	return []field[T]{
		{name: "wait", in: inQuery, zero: true, to: func(t *T) any { return wait(t) }},
		{name: "since", in: inQuery, to: func(t *T) any { return (*revision)(since(t)) }},
		{name: "until", in: inQuery, to: func(t *T) any { return oneOf{&at(t).until, words} }},
	}
}

// check refuses a wait that is out of bounds, and one for nothing, which would be answered at once: its client would ask again and again.
func (p *poll) check(wait time.Duration, since string, words ...string) error {
	if err := locks.CheckPollWait(wait); err != nil {
		return err // also where the answer does not have to wait
	}
	switch {
	case wait != 0 && since == "" && p.until == "":
		return invalid("wait", "wait needs to know for what: give since, the rev that is known, or until="+strings.Join(words, "|"))
	case wait == 0 && p.until != "":
		return invalid("until", "until says what wait waits for: give wait, too, such as wait=50s")
	case since != "" && p.until != "" && p.until != untilChanged:
		return invalid("since", "since goes with until=changed; leave one of them out")
	}
	return nil
}

// await looks until what the request waits for is so, or the wait is over. look waits for a change from since, at most wait.
func await[T any](p *poll, wait time.Duration, since string, look func(wait time.Duration, since string) (T, error), is func(*T) (rev string, reached bool)) (T, error) {
	if p.until == "" || since != "" {
		return look(wait, since)
	}
	over := time.Now().Add(wait)
	seen, err := look(0, "")
	for first := ""; err == nil; {
		rev, reached := is(&seen)
		if p.until == untilChanged {
			if first == "" {
				first = rev
			}
			reached = rev != first
		}
		rest := time.Until(over)
		if reached || rest <= 0 {
			break
		}
		seen, err = look(rest, rev)
	}
	return seen, err
}

// reached reports whether a lease is as a request waits for it to be.
func (p *poll) reached(l *locks.Lease) (rev string, reached bool) {
	return l.Rev, l.State == locks.Ended || p.until == untilGranted && l.State == locks.Held
}

// free reports whether a lock is free.
func (p *poll) free(l *locks.Lock) (rev string, free bool) { return l.Rev, l.State == locks.LockFree }
