package templates

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// A chart is drawn here, as SVG, and says the same in a sentence: no script, and the same for all viewers. So its times are told from
// now on, in no time zone.

// Chart is a quantity over time, as bars of equal width.
type Chart struct {
	ID       string // of its element
	Title    string
	Summary  string // the same in words
	Unit     string // behind a value, "/s"; "": values are spans, in seconds
	From, To time.Time
	Values   []float64 // of equal parts of the time; below 0: not known, or nothing to tell
	Gaps     []Gap     // times of which nothing is known
}

// Gap is a time of which the history has nothing.
type Gap struct {
	From, To time.Time
	Why      string
}

// The drawing's own measures: bars are drawn in it and stretched to the width that there is.
const (
	chartWidth  = 1000
	chartHeight = 120
)

// tick is a line of the grid with its value.
type tick struct {
	Y    float64
	Text string
}

// plotted is a chart as it is drawn.
type plotted struct {
	Bars  string // path
	Gaps  []box
	Ticks []tick    // from the bottom on
	Times [3]string // at the left, in the middle, at the right
	Empty bool      // there is no value above 0
}

type box struct{ X, Width float64 }

// plot lays a chart out.
func plot(c Chart) plotted {
	p := plotted{Times: timesOf(c.To.Sub(c.From)), Gaps: gapsIn(c)}
	most := 0.0
	for _, v := range c.Values {
		most = max(most, v)
	}
	p.Empty = most <= 0
	top, text := niceSpan(most), spanText
	if c.Unit != "" {
		top, text = niceNumber(most), func(v float64) string { return numberText(v) + c.Unit }
	}
	p.Ticks, p.Bars = ticksOf(top, text), barsOf(c.Values, top)
	return p
}

// barsOf is the path of all bars. What is above 0 is seen, however little it is.
func barsOf(values []float64, top float64) string {
	var b strings.Builder
	if len(values) == 0 {
		return ""
	}
	step := chartWidth / float64(len(values))
	gap := min(2, step/5)
	for i, v := range values {
		if v <= 0 {
			continue
		}
		height := max(v/top*chartHeight, 1.5)
		b.WriteString("M" + coordinate(float64(i)*step+gap/2) + " " + coordinate(chartHeight) + "v-" + coordinate(height) + "h" + coordinate(step-gap) + "v" + coordinate(height) + "z")
	}
	return b.String()
}

// gapsIn are a chart's gaps as boxes, those that overlap as one; a short one is wide enough to be seen.
func gapsIn(c Chart) (list []box) {
	all := float64(c.To.Sub(c.From))
	if all <= 0 {
		return nil
	}
	for _, g := range c.Gaps {
		from, to := max(float64(g.From.Sub(c.From))/all, 0), min(float64(g.To.Sub(c.From))/all, 1)
		if to <= 0 || from >= 1 || to < from {
			continue
		}
		list = append(list, box{X: min(from*chartWidth, chartWidth-3), Width: max((to-from)*chartWidth, 3)})
	}
	return list
}

// ticksOf are the lines at no, half and the whole of the height.
func ticksOf(top float64, text func(float64) string) []tick {
	if top <= 0 {
		return []tick{{chartHeight, text(0)}}
	}
	return []tick{{chartHeight, text(0)}, {chartHeight / 2, text(top / 2)}, {0, text(top)}}
}

// niceNumber is the least of 1, 2, 4, 6, 8 times a power of ten that is not below v.
func niceNumber(v float64) float64 {
	if v <= 0 {
		return 0
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 4, 6, 8, 10} {
		if n*power >= v*(1-1e-9) {
			return n * power
		}
	}
	return 10 * power
}

// niceSpan is the least span that people say which is not below so many seconds, and of which the half is one, too.
func niceSpan(seconds float64) float64 {
	if seconds <= 1 {
		return niceNumber(seconds)
	}
	for _, s := range []float64{2, 4, 10, 20, 30, 60, 120, 240, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400} {
		if s >= seconds {
			return s
		}
	}
	return niceNumber(seconds/86400) * 86400
}

// timesOf names the ends and the middle of a time that ends now.
func timesOf(span time.Duration) [3]string {
	return [3]string{spanText(span.Seconds()) + " ago", spanText(span.Seconds()/2) + " ago", "now"}
}

// spanText is a span in one unit, or in two where it is not a whole number of them: "30 min", "1 h 30 min".
func spanText(seconds float64) string {
	switch {
	case seconds <= 0:
		return "0"
	case seconds < 1:
		return numberText(seconds*1000) + " ms"
	case seconds < 60:
		return numberText(seconds) + " s"
	}
	whole := int(seconds + 0.5)
	for _, u := range []struct {
		from, of, by int
		large, less  string
	}{{2 * 86400, 86400, 3600, "d", "h"}, {3600, 3600, 60, "h", "min"}, {60, 60, 1, "min", "s"}} {
		if whole >= u.from {
			text := strconv.Itoa(whole/u.of) + " " + u.large
			if rest := whole % u.of / u.by; rest > 0 {
				text += " " + strconv.Itoa(rest) + " " + u.less
			}
			return text
		}
	}
	return ""
}

// SpanText is how long something took: "340 ms", "2 min 5 s".
func SpanText(d time.Duration) string { return spanText(d.Seconds()) }

// numberText has three figures at most behind the first one.
func numberText(v float64) string {
	switch {
	case v >= 1000:
		return count(int(v + 0.5))
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return trimmed(strconv.FormatFloat(v, 'f', 1, 64))
	case v > 0 && v < 0.01:
		return strconv.FormatFloat(v, 'g', 1, 64)
	}
	return trimmed(strconv.FormatFloat(v, 'f', 2, 64))
}

func trimmed(s string) string { return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") }

// coordinate is a number of a path.
func coordinate(v float64) string { return trimmed(strconv.FormatFloat(v, 'f', 1, 64)) }

// NumberText is a number with up to two figures behind the point.
func NumberText(v float64) string { return numberText(v) }
