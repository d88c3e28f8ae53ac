package sim

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// KindOf is the kind of a violation: the word before the colon.
func KindOf(violation string) string {
	kind, _, _ := strings.Cut(violation, ":")
	return kind
}

// Shows returns a test for outcomes: they must break a promise in the same way as this one, if perhaps not for the same lease.
func Shows(broken Outcome) func(Outcome) bool {
	var kinds []string
	for _, v := range broken.Violations {
		kinds = append(kinds, KindOf(v))
	}
	return func(out Outcome) bool {
		return slices.ContainsFunc(out.Violations, func(v string) bool { return slices.Contains(kinds, KindOf(v)) })
	}
}

// minimizeRuns bounds how many plans Minimize tries. A plan is not the shortest one then, but a shorter one.
const minimizeRuns = 400

// Minimize makes a plan that fails shorter: fewer faults, fewer clients, less time, shorter faults, fewer gateways and servers, no
// local sessions, as long as the outcome still fails. The seed stays, and with it what each client and each connection does by
// chance; but another number of them makes another history, so what is left may break the same promise in another way.
func Minimize(t *testing.T, plan Plan, fails func(Outcome) bool) Plan {
	t.Helper()
	return shorten(plan, minimizeRuns, func(p Plan) bool { return fails(Run(t, p)) })
}

// shorten is Minimize with any test, for at most so many calls of it.
func shorten(plan Plan, runs int, fails func(Plan) bool) Plan {
	try := func(change func(*Plan)) bool {
		if runs == 0 {
			return false
		}
		shorter := plan
		shorter.Clients, shorter.Faults = slices.Clone(plan.Clients), slices.Clone(plan.Faults)
		change(&shorter)
		runs--
		if !fails(shorter) {
			return false
		}
		plan = shorter
		return true
	}
	// What one step leaves out may let another one go on: until nothing changes any more.
	for changed := true; changed && runs > 0; {
		changed = false
		note := func(shorter bool) { changed = changed || shorter }
		note(without(len(plan.Faults), func(from, to int) bool {
			return try(func(p *Plan) { p.Faults = slices.Delete(p.Faults, from, to) })
		}))
		note(without(len(plan.Clients), func(from, to int) bool {
			return try(func(p *Plan) { p.Clients = slices.Delete(p.Clients, from, to) })
		}))
		for part := plan.Length / 2; part >= time.Second; part /= 2 {
			for plan.Length > part && plan.lastFault() <= plan.Length-part && try(func(p *Plan) { p.Length -= part }) {
				note(true)
			}
		}
		for i := range plan.Faults {
			for plan.Faults[i].For >= 100*time.Millisecond && try(func(p *Plan) { p.Faults[i].For /= 2 }) {
				note(true)
			}
			if round := plan.Faults[i].For.Truncate(100 * time.Millisecond); round != plan.Faults[i].For && round > 0 {
				try(func(p *Plan) { p.Faults[i].For = round })
			}
		}
		for plan.Gateways > 1 && try(func(p *Plan) { p.Gateways-- }) {
			note(true)
		}
		if plan.LocalSessions && try(func(p *Plan) { p.LocalSessions = false }) {
			note(true)
		}
		for plan.Servers > 1 && try(func(p *Plan) { p.Servers-- }) {
			note(true)
		}
	}
	return plan
}

// lastFault is when the last one strikes.
func (p Plan) lastFault() time.Duration {
	var last time.Duration
	for _, f := range p.Faults {
		last = max(last, f.At)
	}
	return last
}

// without leaves out as much of a list of n as it can: halves first, single ones last (Zeller's delta debugging, with its
// complements alone). It reports whether anything is gone.
func without(n int, leaveOut func(from, to int) bool) (any bool) {
	for size := n; size > 0; size /= 2 {
		for from := 0; from < n; {
			to := min(n, from+size)
			if leaveOut(from, to) {
				n -= to - from
				any = true
			} else {
				from = to
			}
		}
	}
	return any
}
