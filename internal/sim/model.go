package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// action is what a client did with a lock, as far as it knows.
type action int

const (
	takes action = iota // it was told for the first time that it holds
	keeps               // it was told so again
	ends                // it stopped counting on it: it let go, or the time was over
)

// step is one operation of a client's history. Programs that have no fencing token have 0.
type step struct {
	action action
	lock   string
	holder string
	token  int64
}

func (s step) String() string {
	return fmt.Sprint(s.holder, [...]string{" takes ", " keeps ", " ends "}[s.action], s.lock, " with ", s.token)
}

// holding is the model's state of one lock.
type holding struct {
	holder  string // "" is nobody
	token   int64  // the holder's
	highest int64  // of all tokens so far
}

// fencedLock is a lock with leases and fencing tokens: one holder at a time, whose token never changes and is greater than all
// before it. A history of it has for each lease the moment from which on it may have ended, and no moment by which it must
// have: whether a lease ends by a release, whose answer may be lost, or by time, its client only knows when it stopped
// counting on it. An acquire whose outcome nobody knows is not in the history: the model has nothing that only it could
// explain. Its end would be open, too.
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
		switch s.action {
		case takes:
			legal := have.holder == "" && (s.token == 0 || s.token > have.highest)
			return legal, holding{holder: s.holder, token: s.token, highest: max(have.highest, s.token)}
		case keeps:
			return have.holder == s.holder && have.token == s.token, have
		default:
			return have.holder == s.holder, holding{highest: have.highest}
		}
	},
	DescribeOperation: func(input, _ any) string { return input.(step).String() },
}

// operations are the clients' histories, from what they believed. checkBeliefs has shortened the beliefs that somebody else
// has ended. The world's lock is held.
func (w *world) operations() []porcupine.Operation {
	var history []porcupine.Operation
	last := map[string]int{} // by lease: where its end stands in the history
	at := func(t time.Time) int64 { return t.Sub(w.begun).Nanoseconds() }
	for _, b := range w.beliefs {
		if !b.held || !b.from.Before(b.until) {
			continue
		}
		s := step{action: keeps, lock: b.lock, holder: b.lease, token: b.token}
		end, again := last[b.lease]
		if !again {
			s.action = takes
			last[b.lease] = len(history)
			end = len(history)
			history = append(history, porcupine.Operation{Input: step{action: ends, lock: b.lock, holder: b.lease, token: b.token}, Return: math.MaxInt64})
		}
		history[end].Call = max(history[end].Call, at(b.until))
		history = append(history, porcupine.Operation{Input: s, Call: at(b.sent), Return: at(b.from)})
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
