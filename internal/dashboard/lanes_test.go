package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// eight is the beginning of the hour that these tests look at, until nine.
var (
	eight   = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	theHour = window{from: eight, to: eight.Add(time.Hour), now: eight.Add(time.Hour), live: true}
)

// held is a hold from one minute after eight to another; to < 0: it goes on.
func held(owner string, from, to float64, reason locks.Reason) history.Item {
	at := func(m float64) time.Time { return eight.Add(time.Duration(m * float64(time.Minute))) }
	i := history.Item{Kind: history.Hold, LeaseID: "lk-" + owner, Owner: owner, Mode: locks.Exclusive, Begin: at(from), Reason: reason}
	if to != -1 {
		i.End = at(to)
	}
	return i
}

// drawn writes bars as "lane from-to xcount tone", in minutes after eight.
func drawn(bars []bar) string {
	var list []string
	for _, b := range bars {
		text := fmt.Sprintf("%d %.1f-%.1f", b.lane, b.begin.Sub(eight).Minutes(), b.end.Sub(eight).Minutes())
		if b.holds > 1 || b.count > 1 {
			text += fmt.Sprintf(" x%d", b.count)
		}
		if b.tone > quietEnd {
			text += []string{"", " doubtful", " loud"}[b.tone]
		}
		if b.ongoing {
			text += " on"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

func TestHoldsAreLaidIntoLanes(t *testing.T) {
	const released = locks.ReasonReleased
	uncertain := held("a", 10, 20, locks.ReasonUnknown)
	uncertain.Early, uncertain.Late = 5*time.Minute, 4*time.Minute
	many := func(from, to float64, n int) history.Item {
		i := held("", from, to, released)
		i.Kind, i.Count, i.LeaseID = history.Many, n, ""
		return i
	}
	for what, c := range map[string]struct {
		holds []history.Item
		want  string
		lanes int
	}{
		"nothing":                                   {nil, "", 0},
		"one after the other in one lane":           {[]history.Item{held("b", 20, 30, released), held("a", 10, 20, released)}, "0 10.0-20.0, 0 20.0-30.0", 1},
		"cut at the edges":                          {[]history.Item{held("a", -10, 5, released), held("b", 50, 70, released)}, "0 0.0-5.0, 0 50.0-60.0", 1},
		"what is outside is not there":              {[]history.Item{held("a", -10, -5, released), held("b", 61, 70, released)}, "", 0},
		"one that goes on reaches the present":      {[]history.Item{held("a", 10, -1, "")}, "0 10.0-60.0 on", 1},
		"together, above one another":               {[]history.Item{held("a", 10, 40, released), held("b", 20, 50, released), held("c", 41, 45, released)}, "0 10.0-40.0, 1 20.0-50.0, 0 41.0-45.0", 2},
		"an overlap too short to see is none":       {[]history.Item{held("a", 10, 20.05, released), held("b", 20, 30, released)}, "0 10.0-20.1, 0 20.0-30.0", 1},
		"ends that were not the client's are loud":  {[]history.Item{held("a", 0, 10, locks.ReasonExpired), held("b", 10, 20, locks.ReasonRevoked), held("c", 20, 30, locks.ReasonRemoved), held("d", 30, 40, locks.ReasonUnknown)}, "0 0.0-10.0 loud, 0 10.0-20.0 loud, 0 20.0-30.0 loud, 0 30.0-40.0 doubtful", 1},
		"too short to tell apart: merged":           {[]history.Item{held("a", 10, 10.02, released), held("b", 10.03, 10.05, locks.ReasonExpired), held("c", 10.06, 10.08, released), held("d", 12, 12.02, released)}, "0 10.0-10.1 x3 loud, 0 12.0-12.0", 1},
		"a long one takes in no short one":          {[]history.Item{held("a", 10, 20, released), held("b", 20.01, 20.03, released)}, "0 10.0-20.0, 0 20.0-20.0", 1},
		"quick ones that were counted, in the last": {[]history.Item{held("a", 10, 20, released), many(11, 11.2, 400), many(11.2, 11.3, 50)}, "0 10.0-20.0, 1 11.0-11.3 x450", 2},
		"bounds of what was not seen":               {[]history.Item{uncertain}, "0 10.0-20.0 doubtful", 1},
	} {
		t.Run(what, func(t *testing.T) {
			bars, lanes := lay(c.holds, theHour)
			assert.Equal(t, drawn(bars), c.want)
			assert.Equal(t, lanes, c.lanes, "lanes")
		})
	}
	bars, _ := lay([]history.Item{uncertain}, theHour)
	assert.That(t, bars[0].early.Equal(eight.Add(5*time.Minute)) && bars[0].late.Equal(eight.Add(16*time.Minute)), "from %v, ended after %v", bars[0].early, bars[0].late)
}

func TestATimelineHasBoundedBarsAndLanes(t *testing.T) {
	var crowd []history.Item
	for n := range 3000 { // 30 at a time, of unlike lengths
		from := float64(n) * 60 / 3000
		crowd = append(crowd, held(fmt.Sprint(n), from, from+0.3+float64(n%7)/10, locks.ReasonReleased))
	}
	bars, lanes := lay(crowd, theHour)
	sum := 0
	for _, b := range bars {
		sum += b.count
	}
	assert.That(t, len(bars) <= maxBars && lanes == maxLanes, "%d bars in %d lanes", len(bars), lanes)
	assert.Equal(t, sum, len(crowd), "holds in the bars")
	var line []history.Item
	for n := range 3000 {
		line = append(line, held(fmt.Sprint(n), float64(n)/50, float64(n)/50+0.01, locks.ReasonReleased))
	}
	bars, lanes = lay(line, theHour)
	assert.That(t, len(bars) <= maxBars && lanes == 1, "%d bars in %d lanes", len(bars), lanes)
}

func TestWhatTheHistoryLacksIsInTheTimeline(t *testing.T) {
	at := func(m int) time.Time { return eight.Add(time.Duration(m) * time.Minute) }
	c := history.Coverage{Since: at(10), Gaps: []history.Gap{
		{From: at(50), To: at(70), Cause: history.CauseStopped}, {From: at(40), To: at(42), Cause: history.CauseDisk}, {From: at(30), To: at(41), Cause: history.CauseDisk}, {From: at(-9), To: at(-5), Cause: history.CauseStopped}}}
	var got []string
	for _, s := range stretches(&c, at(15), theHour) {
		got = append(got, fmt.Sprintf("%s %v-%v", s.cause, s.from.Sub(eight).Minutes(), s.to.Sub(eight).Minutes()))
	}
	assert.Equal(t, strings.Join(got, ", "), "before 0-10, many 0-15, disk 30-42, stopped 50-60")
	assert.Equal(t, len(stretches(&history.Coverage{Since: at(-10)}, time.Time{}, theHour)), 0, "a history that was there all the time")
}

func TestTheAxisHasRoundTimesAndNotTooMany(t *testing.T) {
	for _, s := range spans {
		w := past{span: s.name}.window(eight.Add(13*time.Minute + 7*time.Second))
		list, step := ticks(w)
		next := list[len(list)-1]
		assert.That(t, next.After(w.to) && !next.Add(-step).After(w.to), "%s: the next tick beyond %v is %v", s.name, w.to, next)
		list = list[:len(list)-1]
		assert.That(t, len(list) >= 5 && len(list) <= 8, "%s: %d ticks", s.name, len(list))
		for n, at := range list {
			assert.That(t, at.Second() == 0 && w.percent(at) >= 0 && w.percent(at) <= 100 && (n == 0 || at.After(list[n-1])), "%s: %v", s.name, at)
		}
	}
}

func TestATimeLeadsToTheTimesBesideIt(t *testing.T) {
	now := eight.Add(30 * 24 * time.Hour)
	ms := func(t time.Time) int64 { return t.UnixMilli() }
	show := func(p past) string {
		w := p.window(now)
		return fmt.Sprintf("%s to %s live %t", w.from.Format("02 15:04"), w.to.Format("02 15:04"), w.live)
	}
	live := past{}
	assert.Equal(t, show(live), "22 07:00 to 22 08:00 live true")
	before := live.moved(live.window(now), -1, now)
	assert.Equal(t, show(before), "22 06:00 to 22 07:00 live false")
	assert.Equal(t, before.moved(before.window(now), 1, now), live, "later again")
	marked := past{at: ms(now.Add(-5 * time.Hour))}
	assert.Equal(t, show(marked), "22 02:30 to 22 03:30 live false")
	assert.Equal(t, show(marked.spanning("6h")), "22 00:00 to 22 06:00 live false")
	assert.Equal(t, show(marked.moved(marked.window(now), -1, now)), "22 01:30 to 22 02:30 live false", "the instant stays, the window moves")
	assert.Equal(t, marked.moved(marked.window(now), 10, now), live, "up to the present")
	assert.Equal(t, show(past{at: ms(now.Add(time.Hour))}), "22 07:00 to 22 08:00 live true", "an instant that has not come")
	chosen := live.about("lk1", true, live.window(now))
	assert.That(t, chosen.until == ms(now) && chosen.hold == "lk1", "a hold that has ended stays in sight: %+v", chosen)
	assert.That(t, live.about("lk1", false, live.window(now)).until == 0, "one that goes on is live")
	closer := past{span: "7d"}.closer(now.Add(-50*time.Hour), 10*time.Minute)
	assert.That(t, closer.name() == "1h" && closer.at == ms(now.Add(-50*time.Hour)), "closer is %+v", closer)
}
