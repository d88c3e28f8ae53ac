package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// action is what a client did with a lock, as far as it knows.
type action int

const (
	takes  action = iota // it was told for the first time that it holds
	keeps                // it was told so again
	lowers               // it has asked for a downgrade: it counts on a shared lease from here on
	ends                 // it stopped counting on it: it let go, or the time was over
)

// step is one operation of a client's history. Programs that have no fencing token have 0.
type step struct {
	claim
	action action
	lock   string
	holder string
	token  int64
}

func (s step) String() string {
	return fmt.Sprint(s.holder, [...]string{" takes ", " keeps ", " lowers ", " ends "}[s.action], s.lock, " ", s.mode, " with ", s.token)
}

// holding is the model's state of one lock: who holds it, in the order of their tokens, and the highest tokens so far.
type holding struct {
	holders                    []holder
	exclusive, shared, permits int64
}

type holder struct {
	claim
	name  string
	token int64
}

// of is where a holder stands, -1 when it does not hold.
func (h holding) of(name string) int {
	return slices.IndexFunc(h.holders, func(o holder) bool { return o.name == name })
}

// above is the highest token that a new holder has to be above: that of each earlier holder that it conflicts with.
func (h holding) above(c claim) int64 {
	switch c.mode {
	case shared:
		return max(h.exclusive, h.permits)
	case semaphore:
		return max(h.exclusive, h.shared)
	}
	return max(h.exclusive, h.shared, h.permits)
}

// with is the state with one holder more, when there is such a one.
func (h holding) with(n holder) (holding, bool) {
	if n.token != 0 && n.token <= h.above(n.claim) {
		return h, false
	}
	for _, o := range h.holders {
		if o.name == n.name || n.meets(o.claim) {
			return h, false
		}
	}
	h.holders = append(slices.Clone(h.holders), n)
	slices.SortStableFunc(h.holders, func(a, b holder) int { return cmp.Compare(a.token, b.token) })
	permits := 0
	for _, o := range h.holders {
		// Those before it and its own fit into the limit that was in force when it came.
		if permits += o.permits; o.mode == semaphore && permits > o.limit {
			return h, false
		}
	}
	h.note(n)
	return h, true
}

func (h *holding) note(n holder) {
	switch n.mode {
	case shared:
		h.shared = max(h.shared, n.token)
	case semaphore:
		h.permits = max(h.permits, n.token)
	default:
		h.exclusive = max(h.exclusive, n.token)
	}
}

// fencedLock is a lock with leases, modes and fencing tokens: holders at one time do not conflict, a token never changes and is
// greater than those of all conflicting holders before. A history of it has for each lease the moment from which on it may have
// ended, and no moment by which it must have: whether a lease ends by a release, whose answer may be lost, or by time, its
// client only knows when it stopped counting on it. An acquire whose outcome is unknown is not in the history: the model has
// nothing that only it could explain. Its end would be open, too. A lease of several locks has its operations in the history of
// each.
var fencedLock = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var parts [][]porcupine.Operation
		at := map[string]int{}
		for _, op := range history {
			lock := op.Input.(step).lock
			i, ok := at[lock]
			if !ok {
				i = len(parts)
				at[lock], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	},
	Init: func() any { return holding{} },
	Step: func(state, input, _ any) (bool, any) {
		have, s := state.(holding), input.(step)
		at := have.of(s.holder)
		if s.action == takes {
			next, legal := have.with(holder{s.claim, s.holder, s.token})
			return legal, next
		}
		if at < 0 || have.holders[at].token != s.token {
			return false, have
		}
		switch s.action {
		case keeps:
			return have.holders[at].mode == s.mode, have
		case lowers:
			have.holders = slices.Clone(have.holders)
			have.holders[at].claim = s.claim
			have.note(have.holders[at])
		default:
			have.holders = slices.Delete(slices.Clone(have.holders), at, at+1)
		}
		return true, have
	},
	Equal: func(one, other any) bool {
		a, b := one.(holding), other.(holding)
		return slices.Equal(a.holders, b.holders) && a.exclusive == b.exclusive && a.shared == b.shared && a.permits == b.permits
	},
	DescribeOperation: func(input, _ any) string { return input.(step).String() },
}

// operations are the clients' histories, from what they believed. checkBeliefs has shortened the beliefs that another program
// has ended. The world's lock is held.
func operations(beliefs []*belief, begun time.Time) []porcupine.Operation {
	var history []porcupine.Operation
	last := map[place]int{} // where its end stands in the history
	lowered := map[place]bool{}
	alone := map[place]time.Time{} // until when it has counted on an exclusive lease
	at := func(t time.Time) int64 { return t.Sub(begun).Nanoseconds() }
	for _, b := range beliefs {
		if !b.counts() {
			continue
		}
		s := step{claim: b.claim, action: keeps, lock: b.lock, holder: b.lease, token: b.token}
		p := place{b.lease, b.lock}
		end, again := last[p]
		if !again {
			s.action = takes
			last[p], lowered[p] = len(history), b.lowered
			end = len(history)
			over := s
			over.action = ends
			history = append(history, porcupine.Operation{Input: over, Return: math.MaxInt64})
		}
		history[end].Call = max(history[end].Call, at(b.until))
		if since, counted := alone[p]; counted && b.mode == shared && !b.lowered && !lowered[p] {
			// It has asked for a downgrade when it did not count on the lease any more, so nothing was left of that.
			lowered[p] = true
			low := s
			low.action = lowers
			history = append(history, porcupine.Operation{Input: low, Call: at(since), Return: math.MaxInt64})
		}
		if b.mode == exclusive && b.until.After(alone[p]) {
			alone[p] = b.until
		}
		op := porcupine.Operation{Input: s, Call: at(b.sent), Return: at(b.from)}
		if again && b.lowered {
			if lowered[p] {
				continue
			}
			// No other client is granted before it has asked, and when it was done only its gateway knows.
			lowered[p] = true
			s.action = lowers
			op = porcupine.Operation{Input: s, Call: at(b.from), Return: math.MaxInt64}
		}
		history = append(history, op)
	}
	return history
}

// modelTime is how long the model may look for an explanation of a run's history. It takes milliseconds.
const modelTime = 20 * time.Second

// checkModel looks for an order of the operations that the model allows. It works outside of the bubble: its time is real.
func checkModel(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(fencedLock, history, modelTime)
}

// judge lets the model have its word.
func (o *Outcome) judge() {
	switch checkModel(o.operations) {
	case porcupine.Illegal:
		const what = "model: what clients were told cannot have been in any order"
		o.Violations = append(o.Violations, what)
		o.History = append(o.History, "VIOLATION: "+what)
	case porcupine.Unknown:
		o.Undecided = true
	}
}
