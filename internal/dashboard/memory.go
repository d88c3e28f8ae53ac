package dashboard

import (
	"context"
	"sync"
	"time"

	"lockkeeper/internal/history"
)

const (
	// maxRemembered is how many answers of the history are kept; beyond it those that are old go, then all.
	maxRemembered = 256
	// maxAsking is how many questions to the history pages have at a time: each may look at many rows.
	maxAsking = 2
)

// History is what pages ask of the gateway's memory.
type History interface {
	Query(context.Context, history.Query) (history.Answer, error)
	Stats(context.Context, history.StatsQuery) (*history.Stats, error)
	Status() history.Status
}

// memory asks the history for pages, and gives what it has answered again for a while: a page is read many times a second, and its past
// does not change that often.
type memory struct {
	history History // nil: there is none
	asking  chan struct{}

	mu    sync.Mutex
	known map[memoryKey]rememberedAnswer
}

// memoryKey is a question.
type memoryKey struct {
	what, rules, ns, lock, hold string
	from, to, span              int64
}

type rememberedAnswer struct {
	answer any
	err    error
	until  time.Time
}

func newMemory(h History) *memory {
	return &memory{history: h, asking: make(chan struct{}, maxAsking), known: map[memoryKey]rememberedAnswer{}}
}

// recall is the answer to a question, as it was given at most for so long ago.
func recall[T any](ctx context.Context, m *memory, key memoryKey, good time.Duration, ask func(context.Context) (T, error)) (T, error) {
	var none T
	if m == nil || m.history == nil {
		return none, history.ErrOff
	}
	if r, ok := m.lookUp(key); ok {
		return answerOf[T](r)
	}
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if r, ok := m.lookUp(key); ok { // another page has asked the same meanwhile
		return answerOf[T](r)
	}
	answer, err := ask(ctx)
	if ctx.Err() == nil {
		m.keep(key, rememberedAnswer{answer, err, time.Now().Add(good)})
	}
	return answer, err
}

func answerOf[T any](r rememberedAnswer) (T, error) {
	answer, _ := r.answer.(T)
	return answer, r.err
}

func (m *memory) lookUp(key memoryKey) (rememberedAnswer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.known[key]
	return r, ok && time.Now().Before(r.until)
}

func (m *memory) keep(key memoryKey, r rememberedAnswer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxRemembered {
		now := time.Now()
		for k, old := range m.known {
			if now.After(old.until) {
				delete(m.known, k)
			}
		}
	}
	if len(m.known) >= maxRemembered {
		clear(m.known)
	}
	m.known[key] = r
}
