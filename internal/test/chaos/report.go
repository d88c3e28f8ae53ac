package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/test/chaos/check"
)

// Figures are what a run has to tell besides its violations.
type Figures struct {
	Requests, Answered int
	Attempts, Held     int
	LeaseSeconds       float64
	HandOvers          int
	LostWhileTrying    int                      // leases that ended though their client went on heartbeating, not against a promise: no gateway received them
	LostThatRide       int                      // those of them whose TTL rides over the crash of a gateway
	Faults             map[string]int           // survived, by kind
	Beats              map[string]time.Duration // by kind of fault: the longest time for which a lease was not answered for
	Grants             map[string]time.Duration // by kind: the longest time for which a free lock was not granted
}

// figuresOf counts. A time without answers belongs to the faults that lasted when it began, or else to the last one before.
func figuresOf(h check.History, faults map[string]int) Figures {
	f := Figures{Requests: len(h.Ops), Faults: faults, Beats: map[string]time.Duration{}, Grants: map[string]time.Duration{}}
	leases := map[string][]*check.Op{}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Status != 0 {
			f.Answered++
		}
		leases[o.Attempt] = append(leases[o.Attempt], o)
	}
	f.Attempts = len(leases)
	perLock := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(leases)) {
		ops := leases[name]
		first, last := time.Duration(-1), time.Duration(0)
		released, probes := false, strings.HasPrefix(ops[0].Lock, probeLock)
		beats := gap{h.Spans, f.Beats, -1}
		for _, o := range ops {
			released = released || o.Kind == check.Release
			if ok := o.Status >= 200 && o.Status < 300; ok && o.State == "held" {
				if first < 0 {
					first = o.Done
				}
				last = o.Done
			}
			if o.Kind != check.Acquire && !probes { // an acquire may wait for a holder
				beats.add(o)
			}
			if o.Status == 410 && o.Kind == check.Heartbeat && !released && (o.Reason == "expired" || o.Reason == "unclaimed") {
				f.LostWhileTrying++
				if o.TTL >= sessionTimeout+5*time.Second {
					f.LostThatRide++
				}
			}
		}
		if first >= 0 {
			f.Held++
			f.LeaseSeconds += (last - first).Seconds()
			perLock[ops[0].Lock]++
		}
	}
	asked := gap{h.Spans, f.Grants, -1}
	for i := range h.Ops {
		if strings.HasPrefix(h.Ops[i].Lock, probeLock) {
			asked.add(&h.Ops[i]) // one client's, thus in order; some are given up
		}
	}
	for _, n := range perLock {
		f.HandOvers += n - 1
	}
	return f
}

// gap follows requests that come one after the other, and keeps the longest times without a success.
type gap struct {
	spans   []check.Span
	longest map[string]time.Duration
	silent  time.Duration // since when they fail; -1: they do not
}

func (g *gap) add(o *check.Op) {
	switch {
	case o.Status == 0 || o.Status >= 500:
		if g.silent < 0 {
			g.silent = o.Sent
		}
	case g.silent >= 0:
		attribute(g.spans, g.longest, g.silent, o.Done)
		g.silent = -1
	}
}

func attribute(spans []check.Span, longest map[string]time.Duration, from, to time.Duration) {
	last := check.Span{From: -1}
	lasted := false
	for _, s := range spans {
		if s.From <= from && from <= s.To {
			longest[s.Kind] = max(longest[s.Kind], to-from)
			lasted = true
		}
		if s.From <= from && s.From > last.From {
			last = s
		}
	}
	if !lasted && last.From >= 0 {
		longest[last.Kind] = max(longest[last.Kind], to-from)
	}
	longest[""] = max(longest[""], to-from)
}

func (f Figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests, %d answered; %d attempts, %d leases held, for %.0f lease-seconds; %d hand-overs; %d expired although their clients tried, %d of them with a TTL that rides over a crash\n",
		f.Requests, f.Answered, f.Attempts, f.Held, f.LeaseSeconds, f.HandOvers, f.LostWhileTrying, f.LostThatRide)
	fmt.Fprintf(&b, "%-26s %8s %22s %22s\n", "fault", "survived", "longest without beats", "longest without grants")
	total := 0
	for _, k := range slices.SortedFunc(maps.Keys(f.Faults), func(a, b string) int { return cmp.Compare(a, b) }) {
		total += f.Faults[k]
		fmt.Fprintf(&b, "%-26s %8d %21.1fs %21.1fs\n", k, f.Faults[k], f.Beats[k].Seconds(), f.Grants[k].Seconds())
	}
	fmt.Fprintf(&b, "%-26s %8d %21.1fs %21.1fs", "all", total, f.Beats[""].Seconds(), f.Grants[""].Seconds())
	return b.String()
}
