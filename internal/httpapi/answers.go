package httpapi

import (
	"sync/atomic"

	"lockkeeper/internal/metrics"
)

// A client that reads slowly, or not at all, leaves its answer in memory until the write deadline. So the bytes of large
// answers are bounded all together. Small answers, those to heartbeats and acquires above all, are not counted: each
// costs one comparison.

const (
	// DefaultMaxAnswers is the bound on the bytes of large answers under way.
	DefaultMaxAnswers = 64 << 20
	// smallAnswer is the size up to which an answer is not counted.
	smallAnswer = 64 << 10
	// reservedAnswer is what an answer counts that is not known yet, and cannot be refused when it is: a thousand contenders.
	reservedAnswer = 1 << 20
)

// answers counts the bytes of large answers under way.
type answers struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Uint64
}

// take counts so many bytes if there is room for them. give takes them back.
func (a *answers) take(n int64) bool {
	if a.used.Add(n) > a.limit {
		a.used.Add(-n)
		a.refused.Add(1)
		return false
	}
	return true
}

func (a *answers) give(n int64) { a.used.Add(-n) }

// AnswersBound is the bound on answers under way as a scrape shows it.
func (s *Server) AnswersBound() metrics.Bound {
	return metrics.Bound{Name: "answer_bytes", Used: s.answers.used.Load(), Limit: s.answers.limit, Refused: s.answers.refused.Load()}
}

// reserved answers with what do says, when there is room for an answer that is not known yet: afterwards it cannot be refused.
func reserved[A, S any](x *exchange, shape func(*A) S, do func() (A, error)) error {
	if !x.s.answers.take(reservedAnswer) {
		return tooManyAnswers()
	}
	defer x.s.answers.give(reservedAnswer)
	answer, err := do()
	return answerWith(x, shape, answer, err)
}

// answerWith answers with the shape of what the manager says, unless that is an error.
func answerWith[A, S any](x *exchange, shape func(*A) S, answer A, err error) error {
	if err != nil {
		return err
	}
	return x.answer(shape(&answer))
}

func tooManyAnswers() error {
	return &problem{code: codeTooManyAnswers, detail: "nothing was done: other clients are still reading too many large answers; ask again later, or for a smaller page with limit"}
}
