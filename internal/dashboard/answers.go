package dashboard

import (
	"context"
	"maps"
	"sync"
	"time"
)

// shelf keeps values by their keys, at most so many. It is not safe for concurrent use.
type shelf[K comparable, V any] struct {
	most  int
	until func(V) time.Time // from then on a value is of no use; zero: it is in use
	of    map[K]V
}

// prune forgets what is of no use any more.
func (s *shelf[K, V]) prune() {
	now := time.Now()
	maps.DeleteFunc(s.of, func(_ K, v V) bool { until := s.until(v); return !until.IsZero() && !now.Before(until) })
}

// room reports whether there is place for another value.
func (s *shelf[K, V]) room() bool {
	if len(s.of) >= s.most {
		s.prune()
	}
	return len(s.of) < s.most
}

// put keeps a value. Without room the one that is of use for the shortest time goes; those in use stay.
func (s *shelf[K, V]) put(key K, v V) {
	if _, there := s.of[key]; !there && !s.room() {
		s.drop()
	}
	s.of[key] = v
}

// drop forgets the value that is of use for the shortest time, and reports whether there was one that is not in use.
func (s *shelf[K, V]) drop() bool {
	var first K
	var goes time.Time
	for k, other := range s.of {
		if until := s.until(other); !until.IsZero() && (goes.IsZero() || until.Before(goes)) {
			first, goes = k, until
		}
	}
	if !goes.IsZero() {
		delete(s.of, first)
	}
	return !goes.IsZero()
}

// answersKept is for how long an answer stays that is not good any more, and that no page has asked for again.
const answersKept = 10 * time.Second

// answers gives the answer to a question again for a while: pages are read many times a second. A question is asked once for all that have it at
// the same time, and only so many questions at a time.
type answers[K comparable, V any] struct {
	turns chan struct{}
	// size says how large a value is; nil: it does not count. Together those that are kept are no larger than room.
	size func(V) int
	room int

	mu     sync.Mutex
	known  shelf[K, answer[V]]
	forget *time.Timer // of those that no page asks for; nil when there are none
}

type answer[V any] struct {
	value V
	err   error
	until time.Time // it is good
}

func newAnswers[K comparable, V any](most, atOnce int) *answers[K, V] {
	until := func(a answer[V]) time.Time { return a.until.Add(answersKept) }
	return &answers[K, V]{turns: make(chan struct{}, atOnce), known: shelf[K, answer[V]]{most, until, map[K]answer[V]{}}}
}

// recall is the answer to a question, an error too, as it was given while it is good. ask is told the answer before, if that is still known, and says
// until when its own is good; a zero time: it is not kept.
func (a *answers[K, V]) recall(ctx context.Context, key K, ask func(ctx context.Context, before V) (v V, until time.Time, err error)) (V, error) {
	known, good := a.lookUp(key)
	if good {
		return known.value, known.err
	}
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
	if known, good = a.lookUp(key); good { // another page has asked the same meanwhile
		return known.value, known.err
	}
	value, until, err := ask(ctx, known.value)
	if ctx.Err() == nil && !until.IsZero() {
		a.keep(key, answer[V]{value, err, until})
	}
	return value, err
}

func (a *answers[K, V]) lookUp(key K) (known answer[V], good bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known = a.known.of[key]
	return known, time.Now().Before(known.until)
}

func (a *answers[K, V]) keep(key K, known answer[V]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known.of, key)
	if a.size != nil {
		for size := a.size(known.value); size+a.sizes() > a.room && a.known.drop(); {
		}
	}
	a.known.put(key, known)
	if a.forget == nil {
		a.forget = time.AfterFunc(answersKept, a.prune)
	}
}

// sizes is how large all values are together. mu is held.
func (a *answers[K, V]) sizes() (sum int) {
	for _, known := range a.known.of {
		sum += a.size(known.value)
	}
	return sum
}

// prune forgets the answers that no page has asked for again.
func (a *answers[K, V]) prune() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.prune()
	if a.forget = nil; len(a.known.of) > 0 {
		a.forget = time.AfterFunc(answersKept, a.prune)
	}
}
