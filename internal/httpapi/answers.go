package httpapi

import (
	"net/http"
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

// reserve makes room for an answer to what is about to be done. Without room it refuses the request, and ok is false;
// with it done must be called when the answer is written.
func (x *exchange) reserve() (done func(), ok bool) {
	if !x.s.answers.take(reservedAnswer) {
		x.problem(tooManyAnswers())
		return nil, false
	}
	return func() { x.s.answers.give(reservedAnswer) }, true
}

// reads reports whether the request has changed nothing, so that its answer may still be refused.
func (x *exchange) reads() bool {
	return (x.r.Method == http.MethodGet || x.r.Method == http.MethodHead) && x.status == 0
}

// tooLarge reports whether there is no room for the answer in the buffer, and then refuses the request instead. Otherwise
// counted is what give takes back when the answer is written.
func (x *exchange) tooLarge() (counted int64, refused bool) {
	n := int64(x.out.Len())
	if !x.reads() {
		return 0, false
	}
	if x.s.answers.take(n) {
		return n, false
	}
	delete(x.Header(), "Etag")
	x.out.Reset()
	x.problem(tooManyAnswers())
	return 0, true
}

func tooManyAnswers() *problem {
	return &problem{code: codeTooManyAnswers, detail: "nothing was done: other clients are still reading too many large answers; ask again later, or for a smaller page with limit"}
}
