package chaos

import (
	"testing"
	"time"

	"lockkeeper/internal/test/chaos/check"
)

func TestFiguresTellWhatAFaultCost(t *testing.T) {
	const s = time.Second
	op := func(attempt, lock string, kind check.Kind, sent, done time.Duration, status int, state, reason string) check.Op {
		return check.Op{Attempt: attempt, Lock: lock, Kind: kind, Sent: sent, Done: done, Status: status, State: state, Reason: reason, TTL: 10 * s}
	}
	h := check.History{
		Ops: []check.Op{
			op("a", "lock", check.Acquire, 0, s, 201, "held", ""),
			op("a", "lock", check.Heartbeat, 10*s, 11*s, 503, "", ""),
			op("p1", probeLock+"1", check.Acquire, 12*s, 13*s, 0, "", ""), // given up
			op("a", "lock", check.Heartbeat, 14*s, 15*s, 200, "held", ""),
			op("p2", probeLock+"2", check.Acquire, 15*s, 16*s, 201, "held", ""),
			op("a", "lock", check.Release, 16*s, 17*s, 204, "", ""),
			op("b", "lock", check.Acquire, 2*s, 18*s, 201, "held", ""), // it waited, and that is no gap
			op("b", "lock", check.Heartbeat, 40*s, 41*s, 410, "", "expired"),
		},
		Spans: []check.Span{{Kind: "kill", From: 9 * s, To: 11 * s}, {Kind: "freeze", From: 12 * s, To: 13 * s}, {Kind: "reset", From: 30 * s, To: 31 * s}},
	}
	f := figuresOf(h, map[string]int{"kill": 1, "freeze": 1, "reset": 1})
	if f.Held != 3 || f.HandOvers != 1 || f.LeaseSeconds != 14 || f.LostWhileTrying != 1 || f.LostThatRide != 1 || f.Answered != 7 || f.Attempts != 4 {
		t.Errorf("%+v", f)
	}
	if f.Beats["kill"] != 5*s || f.Beats["freeze"] != 0 || f.Grants["freeze"] != 4*s || f.Beats[""] != 5*s || f.Grants["reset"] != 0 {
		t.Errorf("beats %v, grants %v", f.Beats, f.Grants)
	}
}
