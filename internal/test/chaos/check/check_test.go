package check

import (
	"go/build"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

const s = time.Second

var times = Times{Session: 4 * s, Window: 3 * s}

// history is made by hand, a line for each request. All leases have a TTL of ten seconds.
type history struct{ History }

func (h *history) op(attempt string, kind Kind, sent, done time.Duration, status int, change ...func(*Op)) {
	o := Op{Attempt: attempt, Kind: kind, Lock: "lock", Mode: Exclusive, TTL: 10 * s, Sent: sent, Done: done, Status: status}
	for _, c := range change {
		c(&o)
	}
	h.Ops = append(h.Ops, o)
}

func (h *history) list(sent time.Duration, contenders ...Contender) {
	h.Listings = append(h.Listings, Listing{Lock: "lock", Sent: sent, Done: sent + s/10, Contenders: contenders})
}

func held(lease string, token int64, number int) func(*Op) {
	return func(o *Op) { o.State, o.LeaseID, o.Token, o.Number = "held", lease, token, number+1 }
}

func waits(lease string, number int) func(*Op) {
	return func(o *Op) { o.State, o.LeaseID, o.Number, o.Left = "waiting", lease, number+1, 10*s }
}

func reason(r string) func(*Op) { return func(o *Op) { o.Code, o.Reason = "lease_ended", r } }

func mode(m Mode) func(*Op) { return func(o *Op) { o.Mode = m } }

func permits(n, limit int) func(*Op) {
	return func(o *Op) { o.Mode, o.Permits, o.Limit = Semaphore, n, limit }
}

type story struct {
	name, rule string
	make       func(h *history)
}

// broken are histories in each of which a promise is broken, by rule; and some in which none is.
var broken = []story{
	{"a hand-over", "", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("b", Acquire, s, 2*s, 202, waits("lb", 1))
		h.list(2*s, Contender{"la", "a", true}, Contender{"lb", "b", false})
		h.op("a", Heartbeat, 3*s, 4*s, 200, held("la", 1, 0))
		h.op("b", Heartbeat, 4*s, 5*s, 200, waits("lb", 1))
		h.op("a", Release, 6*s, 9*s, 204)
		h.op("b", Heartbeat, 7*s, 8*s, 200, held("lb", 2, 1))
		h.op("a", Heartbeat, 10*s, 11*s, 410, reason("released"))
		h.op("b", Release, 11*s, 12*s, 204)
	}},
	{"readers together, permits within the limit", "", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0), mode(Shared))
		h.op("b", Acquire, 0, s, 201, held("lb", 2, 1), mode(Shared))
	}},
	{"permits within the limit", "", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0), permits(2, 3))
		h.op("b", Acquire, 0, s, 201, held("lb", 2, 1), permits(1, 3))
	}},
	{"an expiry after the time that was promised", "", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("b", Acquire, 0, 11*s, 201, held("lb", 2, 1))
		h.op("a", Heartbeat, 11*s, 12*s, 410, reason("expired"))
	}},
	{"an acquire that was not answered and is in the queue", "", func(h *history) {
		h.op("a", Acquire, 0, 5*s, 0)
		h.list(16*s, Contender{"la", "a", true})
	}},
	{"two holders", "overlap", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("b", Acquire, 8*s, 9*s, 201, held("lb", 2, 1))
	}},
	{"two holders, the first by a heartbeat that came later", "overlap, fencing", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("a", Heartbeat, 20*s, 21*s, 200, held("la", 1, 0)) // so it was alive all the while
		h.op("b", Acquire, 14*s, 15*s, 201, held("lb", 2, 1))
		h.op("b", Release, 16*s, 17*s, 204)
	}},
	{"a reader beside a writer", "overlap", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("b", Acquire, 8*s, 9*s, 201, held("lb", 2, 1), mode(Shared))
	}},
	{"three permits of two", "overlap", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0), permits(1, 2))
		h.op("b", Acquire, 0, s, 201, held("lb", 2, 1), permits(1, 2))
		h.op("c", Acquire, 2*s, 3*s, 201, held("lc", 3, 2), permits(1, 2))
	}},
	{"an expiry too early", "shortened", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("a", Heartbeat, 5*s, 6*s, 200, held("la", 1, 0))
		h.op("a", Heartbeat, 13*s, 14*s, 410, reason("expired"))
	}},
	{"an expiry too early that a release is told of", "shortened", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("a", Release, 8*s, 9*s, 410, reason("expired"))
	}},
	{"a place that is lost too early", "shortened", func(h *history) {
		h.op("a", Acquire, 0, s, 202, waits("la", 0))
		h.op("a", Poll, 8*s, 9*s, 410, reason("cancelled"))
	}},
	{"a holder that is not in its queue", "shortened", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.list(5 * s)
	}},
	{"a holder that waits in its queue", "shortened", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.list(5*s, Contender{"la", "a", false})
	}},
	{"a heartbeat after a release", "revived", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("a", Release, 2*s, 3*s, 204)
		h.op("a", Heartbeat, 4*s, 5*s, 200, held("la", 1, 0))
	}},
	{"a heartbeat after an expiry", "revived, shortened", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.op("a", Heartbeat, 11*s, 12*s, 410, reason("expired"))
		h.op("a", Heartbeat, 13*s, 14*s, 200, held("la", 1, 0))
	}},
	{"a lower token", "fencing", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 2, 0))
		h.op("a", Release, 2*s, 3*s, 204)
		h.op("b", Acquire, 4*s, 5*s, 201, held("lb", 1, 1))
	}},
	{"the same token", "fencing", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 2, 0), mode(Shared))
		h.op("b", Acquire, 0, s, 201, held("lb", 2, 1), mode(Shared))
	}},
	{"a token that changes", "fencing", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 2, 0))
		h.op("a", Heartbeat, 2*s, 3*s, 200, held("la", 3, 0))
	}},
	{"no token", "fencing", func(h *history) { h.op("a", Acquire, 0, s, 201, held("la", 0, 0)) }},
	{"a key that queues twice", "accounted", func(h *history) {
		h.op("a", Acquire, 0, s, 202, waits("la", 0))
		h.op("a", Acquire, s, 2*s, 202, waits("lb", 1))
	}},
	{"a key that queues twice and tells of one", "accounted", func(h *history) {
		h.op("a", Acquire, 0, s, 202, waits("la", 0))
		h.list(2*s, Contender{"la", "a", false}, Contender{"lb", "a", false})
	}},
	{"a contender without an attempt", "accounted", func(h *history) {
		h.op("a", Acquire, 0, s, 202, waits("la", 0))
		h.list(2*s, Contender{"lx", "x", false})
	}},
	{"a contender whose label is not known", "", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.list(2*s, Contender{"la", "", true}, Contender{"lx", "", false})
	}},
	{"a lease that two attempts have", "accounted, fencing", func(h *history) {
		h.op("a", Acquire, 0, s, 202, waits("la", 0))
		h.op("b", Acquire, 0, s, 202, waits("la", 0))
		h.op("a", Heartbeat, 2*s, 3*s, 200, held("la", 1, 0))
		h.op("b", Heartbeat, 20*s, 21*s, 200, held("la", 1, 0))
	}},
	{"a later one first", "order", func(h *history) {
		h.op("a", Acquire, 0, s, 202, waits("la", 0))
		h.op("b", Acquire, s, 2*s, 202, waits("lb", 1))
		h.op("b", Heartbeat, 3*s, 4*s, 200, held("lb", 2, 1))
		h.op("a", Heartbeat, 5*s, 6*s, 200, waits("la", 0))
	}},
	{"a contender whose client is silent", "stuck", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.list(13*s+s/2, Contender{"la", "a", true})
	}},
	{"a contender whose client is silent, long after a fault", "stuck", func(h *history) {
		h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
		h.Spans = append(h.Spans, Span{"kill", 5 * s, 7 * s})
		h.list(28*s, Contender{"la", "a", true}) // fine
		h.list(30*s, Contender{"la", "a", true})
	}},
	{"an answer that is not documented", "unexpected", func(h *history) { h.op("a", Acquire, 0, s, 500) }},
}

func TestEachBrokenPromiseIsFoundAndNothingElse(t *testing.T) {
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			h := &history{}
			b.make(h)
			found := Check(&h.History, times)
			assert.Must(t, b.rule != "" || len(found) <= 0, "found %+v", found)
			var rules []string
			for _, v := range found {
				if !slices.Contains(rules, v.Rule) {
					rules = append(rules, v.Rule)
				}
			}
			want := strings.Split(b.rule, ", ")
			slices.Sort(rules)
			slices.Sort(want)
			assert.That(t, b.rule == "" || slices.Equal(rules, want), "found %+v, want %s", found, b.rule)
			assert.That(t, b.name != "a contender whose client is silent, long after a fault" || len(found) == 1,
				"found %+v, want one", found)
		})
	}
}

func TestEveryRuleOfTheDocumentationHasAHistoryThatBreaksIt(t *testing.T) {
	for _, rule := range []string{"overlap", "shortened", "revived", "fencing", "accounted", "order", "stuck", "unexpected"} {
		assert.That(t, slices.ContainsFunc(broken, func(b story) bool { return strings.HasPrefix(b.rule, rule) }),
			"no history for %s", rule)
	}
}

// What is broken at the time of a look, or a while before, excuses.
func TestWhileSomethingIsBrokenNothingIsStuck(t *testing.T) {
	h := &history{}
	h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
	h.Spans = append(h.Spans, Span{"down", 2 * s, 200 * s})
	h.list(100*s, Contender{"la", "a", true})
	h.list(220*s, Contender{"la", "a", true})
	found := Check(&h.History, times)
	assert.That(t, len(found) <= 0, "found %+v", found)
}

func TestAViolationNamesTheLeases(t *testing.T) {
	h := &history{}
	h.op("a", Acquire, 0, s, 201, held("la", 1, 0))
	h.op("b", Acquire, 8*s, 9*s, 201, held("lb", 2, 1))
	found := Check(&h.History, times)
	if len(found) != 1 || found[0].Lock != "lock" || found[0].At != 9*s || !strings.Contains(found[0].Detail, "la") || !strings.Contains(found[0].Detail, "lb") {
		t.Errorf("found %+v", found)
	}
}

func TestTheCheckerKnowsNothingOfTheGateway(t *testing.T) {
	pkg := assert.Value(build.ImportDir(".", 0))(t)
	for _, path := range pkg.Imports {
		std, err := build.Import(path, ".", build.FindOnly)
		assert.That(t, err == nil && std.Goroot, "it imports %s", path)
	}
}
