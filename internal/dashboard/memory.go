package dashboard

import (
	"context"
	"time"

	"lockkeeper/internal/history"
)

const (
	// maxRemembered is how many answers of the history are kept; beyond it those that are old go.
	maxRemembered = 256
	// maxRows is how many rows these have together, of 408 bytes and their texts each: one timeline may have thousands.
	maxRows = 50_000
	// maxAsking is how many questions to the history pages have at a time: each may look at many rows.
	maxAsking = 2
)

// History is what pages ask of the gateway's memory.
type History interface {
	Query(context.Context, history.Query) (history.Answer, error)
	Stats(context.Context, history.StatsQuery) (*history.Stats, error)
	Status() history.Status
}

// memory asks the history for pages, and keeps what it has answered: a page's past does not change that often.
type memory struct {
	history History // nil: there is none
	*answers[memoryKey, any]
}

// memoryKey is a question.
type memoryKey struct {
	what, rules, ns, lock, hold string
	from, to, span              int64
}

func newMemory(h History) *memory {
	m := &memory{h, newAnswers[memoryKey, any](maxRemembered, maxAsking)}
	m.size, m.room = rowsIn, maxRows
	return m
}

// rowsIn is how many rows of the history an answer keeps.
func rowsIn(answer any) int {
	switch answer := answer.(type) {
	case *then:
		if answer != nil {
			return len(answer.items)
		}
	case []history.Item:
		return len(answer)
	}
	return 0
}

// recall is the answer to a question, as it was given at most for so long ago.
func recall[T any](ctx context.Context, m *memory, key memoryKey, good time.Duration, ask func(context.Context) (T, error)) (T, error) {
	var none T
	if m == nil || m.history == nil {
		return none, history.ErrOff
	}
	known, err := m.answers.recall(ctx, key, func(ctx context.Context, _ any) (any, time.Time, error) {
		value, err := ask(ctx)
		return value, time.Now().Add(good), err
	})
	value, _ := known.(T)
	return value, err
}
