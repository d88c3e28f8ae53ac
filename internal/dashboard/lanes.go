package dashboard

import (
	"cmp"
	"slices"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
)

// Bounds of a timeline.
const (
	// finest is into how many parts a timeline is cut: what is shorter than one is drawn as long as one, and merged with its neighbours.
	finest = 500
	// maxLanes is how many holds are drawn above one another; those beyond share the last lane, which says how many there are.
	maxLanes = 6
	// maxBars is how many bars a timeline has. With more of them the parts are made larger.
	maxBars = 160
)

// window is the time that a timeline shows.
type window struct {
	from, to time.Time
	now      time.Time
	live     bool // to is the present
}

// percent is where an instant is, from 0 to 100, within the window.
func (w window) percent(t time.Time) float64 {
	return 100 * float64(min(max(t.Sub(w.from), 0), w.to.Sub(w.from))) / float64(max(w.to.Sub(w.from), 1))
}

// bar is a hold in a timeline, or several that are too short to be drawn each.
type bar struct {
	lane       int
	begin, end time.Time // within the window
	// early and late are the bounds of a beginning and an end that were not seen: it began by then, and ended not before that.
	early, late time.Time
	ongoing     bool // the end is the present
	count       int  // of holds
	holds       int  // rows of the history: 1 for a hold of its own, or one that counts several
	item        *history.Item
	tone        tone
}

// tone is how loud an end is.
type tone int

// The tones, the loudest last.
const (
	quietEnd tone = iota // as its client wanted, or none yet
	doubtfulEnd
	loudEnd // it was ended by something else than its client
)

func toneOf(i *history.Item) tone {
	switch {
	case i.End.IsZero():
		return quietEnd
	case i.Kind == history.Many:
		return quietEnd
	}
	switch i.Reason {
	case locks.ReasonReleased, locks.ReasonCancelled, locks.ReasonDone:
		return quietEnd
	case locks.ReasonUnknown, "":
		return doubtfulEnd
	}
	return loudEnd
}

// lay draws holds into lanes: those at the same time above one another, those of an exclusive lock in one lane. Quick holds that were
// counted have a lane of their own, the last.
func lay(items []history.Item, w window) (bars []bar, lanes int) {
	least := max(w.to.Sub(w.from)/finest, time.Millisecond)
	for part := least; ; part *= 2 {
		bars, lanes = layBy(items, w, part, least)
		if len(bars) <= maxBars {
			return bars, lanes
		}
	}
}

func layBy(items []history.Item, w window, part, least time.Duration) (bars []bar, lanes int) {
	singles, counted := []bar{}, []bar{}
	for n := range items {
		b, inside := barOf(&items[n], w)
		switch {
		case !inside:
		case items[n].Kind == history.Many:
			counted = append(counted, b)
		default:
			singles = append(singles, b)
		}
	}
	byBegin := func(a, b bar) int { return cmp.Or(a.begin.Compare(b.begin), a.end.Compare(b.end)) }
	slices.SortFunc(singles, byBegin)
	slices.SortFunc(counted, byBegin)
	last := []int{} // of each lane, its last bar
	for _, b := range singles {
		b.lane = freeLane(bars, last, &b, least)
		bars, last = add(bars, last, b, part, b.lane == maxLanes-1)
	}
	lanes = len(last)
	if len(counted) > 0 {
		row := make([]int, lanes, lanes+1)
		for _, b := range counted {
			b.lane = lanes
			bars, row = add(bars, row, b, part, true)
		}
		lanes++
	}
	return bars, lanes
}

// barOf is a hold as a bar, if some of it is in the window.
func barOf(i *history.Item, w window) (b bar, inside bool) {
	end := i.End
	if end.IsZero() {
		end = w.now
	}
	first := i.Begin.Add(-i.Early)
	if first.After(w.to) || end.Before(w.from) {
		return b, false
	}
	clip := func(t time.Time) time.Time {
		switch {
		case t.Before(w.from):
			return w.from
		case t.After(w.to):
			return w.to
		}
		return t
	}
	b = bar{begin: clip(i.Begin), end: clip(end), early: clip(first), late: clip(end.Add(-i.Late)), ongoing: i.End.IsZero() && !end.After(w.to), count: max(i.Count, 1), holds: 1, item: i, tone: toneOf(i)}
	b.begin, b.late = earlier(b.begin, b.end), later(b.late, b.begin)
	return b, true
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// freeLane is the first one in which nothing is as late as b begins. What overlaps by less than the least part follows the other: two gateways'
// clocks, or an end and the next grant.
func freeLane(bars []bar, last []int, b *bar, least time.Duration) int {
	for lane, at := range last {
		if b.begin.After(bars[at].end.Add(-least)) {
			return lane
		}
	}
	return min(len(last), maxLanes-1)
}

// add puts a bar into its lane: into the bar before it when both are too short to be told apart, or when the lane is shared.
func add(bars []bar, last []int, b bar, part time.Duration, shared bool) (_ []bar, _ []int) {
	if b.lane < len(last) {
		before := &bars[last[b.lane]]
		short := b.end.Sub(b.begin) < part && (before.holds > 1 || before.end.Sub(before.begin) < part)
		if before.lane == b.lane && b.begin.Sub(before.end) < part && (short || shared) {
			before.end, before.late = later(before.end, b.end), later(before.late, b.late)
			before.count, before.holds = before.count+b.count, before.holds+1
			before.ongoing, before.tone = before.ongoing || b.ongoing, max(before.tone, b.tone)
			return bars, last
		}
		last[b.lane] = len(bars)
		return append(bars, b), last
	}
	return append(bars, b), append(last, len(bars))
}

// stretch is a time of which the history lacks something.
type stretch struct {
	from, to time.Time
	cause    string // of a gap; beforeHistory or tooMany
}

// The causes that are no gaps.
const (
	beforeHistory = "before"
	tooMany       = "many"
)

// stretches are those in the window: before the history, gaps, and what is older than the rows that were read. Gaps that touch are one.
func stretches(c *history.Coverage, cut time.Time, w window) (list []stretch) {
	put := func(s stretch) {
		s.from, s.to = later(s.from, w.from), earlier(s.to, w.to)
		if s.to.After(s.from) {
			list = append(list, s)
		}
	}
	if !c.Since.IsZero() {
		put(stretch{w.from, c.Since, beforeHistory})
	}
	if !cut.IsZero() {
		put(stretch{w.from, cut, tooMany})
	}
	for _, g := range c.Gaps {
		put(stretch{g.From, g.To, g.Cause})
	}
	slices.SortFunc(list, func(a, b stretch) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	merged := list[:0]
	for _, s := range list {
		if n := len(merged); n > 0 && merged[n-1].cause == s.cause && !s.from.After(merged[n-1].to) {
			merged[n-1].to = later(merged[n-1].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// tick steps, of which the first is taken that gives few enough.
var steps = []time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// ticks are the instants that the axis names, and the next one beyond its end: in another zone than UTC the page moves them by less than a step
// to round times of that.
func ticks(w window) (list []time.Time, step time.Duration) {
	step = steps[len(steps)-1]
	for _, s := range steps {
		if w.to.Sub(w.from)/s <= 7 {
			step = s
			break
		}
	}
	for t := w.from.Truncate(step); t.Before(w.to.Add(step)); t = t.Add(step) {
		if !t.Before(w.from) {
			list = append(list, t)
		}
	}
	return list, step
}
