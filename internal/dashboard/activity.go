package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"lockkeeper/internal/events"
	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

const pageActivity = "activity"

// maxSemaphores is how many semaphores are compared: each with a waiter costs a look at its lock.
const maxSemaphores = 12

// activityWindows are the times to choose from.
var activityWindows = []struct {
	name string
	span time.Duration
}{{"1h", time.Hour}, {defaultWindow, 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}}

const defaultWindow = "24h"

// activityPage is how busy the locks are, and were.
type activityPage struct {
	plain
	window string
}

func parseActivity(_ string, values url.Values) (page, *refusal) {
	p := activityPage{window: cmp.Or(values.Get("window"), defaultWindow)}
	if p.span() == 0 {
		return nil, wrongParameter(http.StatusUnprocessableEntity, "window is 1h, 24h or 7d, not %s.", quoted(p.window))
	}
	return p, nil
}

func (activityPage) name() string  { return pageActivity }
func (activityPage) title() string { return "Activity" }

func (p activityPage) own() (subject string, parameters url.Values) {
	return "", differing([3]string{"window", p.window, defaultWindow})
}

func (p activityPage) span() time.Duration {
	for _, w := range activityWindows {
		if w.name == p.window {
			return w.span
		}
	}
	return 0
}

// waits: the figures are asked of the disk. They are asked for at each tick, and no event hurries that.
func (activityPage) waits() bool { return true }

// searches: the first time the figures cost a look at all that was in the time.
func (activityPage) searches() bool { return true }

func (activityPage) follows(rules *access.Rules) events.Filter {
	return events.Filter{Rules: rules, Types: events.Types(events.GatewayJoined, events.GatewayLeft)}
}

func (p activityPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	shown := &activityContent{templates.Activity{Page: as.frame, Off: from.History == nil, WithNS: len(as.info.Namespaces) > 1}}
	shown.Sheet = "activity.css"
	for _, w := range activityWindows {
		shown.Windows = append(shown.Windows, templates.Window{Name: w.name, URL: urlOf(activityPage{window: w.name}), Here: w.name == p.window})
	}
	if from.History != nil {
		st, err := from.History.Stats(ctx, history.StatsQuery{Rules: as.who.Rules, Window: p.span()})
		if err != nil {
			shown.Problem = historyProblem(err, from.History.Status())
		} else {
			showStats(&shown.Activity, st)
		}
	}
	var err error
	shown.Permits, shown.MoreSems, err = semaphoresOf(ctx, from.Locks, as)
	if err != nil && from.History == nil {
		shown.Problem = problemOf(err)
	}
	return shown, err
}

type activityContent struct{ templates.Activity }

func (c *activityContent) document() templ.Component { return templates.ActivityPage(c.Activity) }
func (c *activityContent) parts() []part {
	return []part{{"activity", templates.ActivityFragment(c.Activity)}}
}

// historyProblem says why the history has not answered.
func historyProblem(err error, status history.Status) string {
	if errors.Is(err, history.ErrOff) {
		return sentence("There are no figures: " + visible(cmp.Or(status.Problem, "the history is not open")))
	}
	return "The history did not answer in time. This page tries again."
}

// showStats fills in figures.
func showStats(v *templates.Activity, st *history.Stats) {
	v.At, v.Since, v.Span = st.To, st.Since, st.To.Sub(st.From)
	v.Partial = partialOf(st)
	within := reach(st)
	rate := 0.0
	if within > 0 {
		rate = float64(st.Grants) / within.Seconds()
	}
	ends := 0
	for _, n := range st.Ends {
		ends += n
	}
	v.Figures = []templates.Figure{
		{Name: "Grants", Text: templates.Count(st.Grants), Title: "holds that began in this time"},
		{Name: "Grants a second", Text: templates.NumberText(rate), Title: "in the mean"},
		{Name: "Left unserved", Text: templates.Count(st.Waits), Title: "left the queue without a grant"},
		{Name: "Wait, median", Text: spanOrNone(st.Wait, st.Wait.P50), Title: "until the grant"},
		{Name: "Hold, median", Text: spanOrNone(st.Hold, st.Hold.P50), Title: "from the grant to the end"},
	}
	v.Charts = []templates.Chart{rateChart(st), waitChart(st)}
	for _, reason := range slices.SortedFunc(maps.Keys(st.Ends), func(a, b locks.Reason) int {
		return cmp.Or(cmp.Compare(st.Ends[b], st.Ends[a]), cmp.Compare(a, b))
	}) {
		v.Ends = append(v.Ends, templates.EndRow{Reason: string(reason), Count: st.Ends[reason], Of: ends})
	}
	v.Spans = []templates.SpanRow{spanRow("Waited", st.Wait), spanRow("Held", st.Hold)}
	v.Lists = []templates.TopList{
		topList("contended", "Most contended", "Nothing waited for a second or longer.", st.Contended, func(t *history.Top) (string, float64) {
			return "waited " + templates.SpanText(t.Span) + " in all", t.Span.Seconds()
		}),
		topList("longest", "Longest held", "Nothing was held in this time.", st.Longest, func(t *history.Top) (string, float64) {
			return templates.SpanText(t.Span), t.Span.Seconds()
		}),
		topList("expired", "Most expired", "No lease expired in this time.", st.Expired, func(t *history.Top) (string, float64) {
			return templates.Count(t.Count), float64(t.Count)
		}),
	}
}

// reach is the part of the time of which there is something to know.
func reach(st *history.Stats) time.Duration {
	from := st.From
	if st.Since.After(from) {
		from = st.Since
	}
	return max(st.To.Sub(from), 0)
}

// partialOf says what the figures lack.
func partialOf(st *history.Stats) string {
	var lacks []string
	if st.Since.After(st.From) {
		lacks = append(lacks, "it has only the last "+templates.SpanText(reach(st).Round(time.Second)))
	}
	if n := len(st.Gaps); n == 1 {
		lacks = append(lacks, "it has a gap")
	} else if n > 1 {
		lacks = append(lacks, fmt.Sprintf("it has %d gaps", n))
	}
	if len(lacks) == 0 && !st.Complete {
		lacks = append(lacks, "it is not complete")
	}
	if len(lacks) == 0 {
		return ""
	}
	return sentence("Of this time " + strings.Join(lacks, ", and "))
}

func spanOrNone(s history.Spans, of time.Duration) string {
	if s.Count == 0 {
		return "–"
	}
	return templates.SpanText(of)
}

func spanRow(name string, s history.Spans) templates.SpanRow {
	return templates.SpanRow{Name: name, Count: s.Count, P50: s.P50, P95: s.P95, P99: s.P99, Max: s.Max}
}

// chartOf is a chart of the steps of a time, with what is not known hatched.
func chartOf(st *history.Stats, id, title string, value func(*history.Step, time.Duration) float64) templates.Chart {
	c := templates.Chart{ID: id, Title: title, From: st.From, To: st.To}
	if st.Since.After(st.From) {
		c.Gaps = append(c.Gaps, templates.Gap{From: st.From, To: st.Since})
	}
	for _, g := range st.Gaps {
		c.Gaps = append(c.Gaps, templates.Gap{From: g.From, To: g.To, Why: g.Cause})
	}
	if len(st.Series) == 0 {
		return c
	}
	step := st.To.Sub(st.From) / time.Duration(len(st.Series))
	for i := range st.Series {
		c.Values = append(c.Values, value(&st.Series[i], step))
	}
	return c
}

func rateChart(st *history.Stats) templates.Chart {
	c := chartOf(st, "grants", "Grants a second", func(s *history.Step, step time.Duration) float64 { return float64(s.Grants) / step.Seconds() })
	c.Unit = "/s"
	c.Summary = "None in this time."
	if st.Grants > 0 {
		top, at := mostOf(c)
		c.Summary = fmt.Sprintf("At most %s a second, %s.", templates.NumberText(top), ago(st, at))
	}
	return c
}

func waitChart(st *history.Stats) templates.Chart {
	c := chartOf(st, "waits", "Wait until the grant, p95", func(s *history.Step, _ time.Duration) float64 {
		if s.Wait.Count == 0 {
			return -1
		}
		return s.Wait.P95.Seconds()
	})
	c.Summary = "Nothing was granted in this time."
	if st.Wait.Count > 0 {
		top, at := mostOf(c)
		c.Summary = fmt.Sprintf("95 in 100 waited for %s at most. It was worst %s: %s.", templates.SpanText(st.Wait.P95), ago(st, at), templates.SpanText(time.Duration(top*float64(time.Second))))
	}
	return c
}

// mostOf is the greatest value, and in which step.
func mostOf(c templates.Chart) (most float64, at int) {
	for i, v := range c.Values {
		if v > most {
			most, at = v, i
		}
	}
	return most, at
}

// ago is when a step was.
func ago(st *history.Stats, at int) string {
	span := st.To.Sub(st.Series[at].From).Round(time.Minute)
	if span < time.Minute {
		return "just now"
	}
	return templates.SpanText(span) + " ago"
}

func topList(id, title, none string, list []history.Top, figure func(*history.Top) (string, float64)) templates.TopList {
	l := templates.TopList{ID: id, Title: title, None: none}
	first := 0.0
	for i := range list {
		text, v := figure(&list[i])
		if i == 0 {
			first = max(v, 1e-9)
		}
		l.Rows = append(l.Rows, templates.TopRow{NS: visible(list[i].NS), Name: visible(list[i].Lock), URL: urlOf(lockPage{ns: list[i].NS, lock: list[i].Lock, tab: tabQueue}), Text: text, Part: v / first})
	}
	return l
}
