package templates

import (
	"strconv"
	"time"
)

// Activity is what has happened in a time, and how semaphores are used now. Its fragment: "activity".
type Activity struct {
	Page
	Windows []Window
	Since   time.Time // how far back the figures reach
	At      time.Time // when they were made
	Span    time.Duration
	// Partial says in a sentence what is missing; "": nothing is.
	Partial  string
	Problem  string // why there are no figures; "": there are
	Off      bool   // the gateway keeps no history
	Figures  []Figure
	Charts   []Chart
	Ends     []EndRow
	Spans    []SpanRow
	Lists    []TopList
	WithNS   bool // names of locks have their namespaces before them
	Permits  []SemaphoreRow
	MoreSems bool // there are semaphores that are not among them
}

// Window is a choice of a time.
type Window struct {
	Name, URL string
	Here      bool
}

// Figure is a number with its name.
type Figure struct{ Name, Text, Title string }

// EndRow is how many holds ended for a reason.
type EndRow struct {
	Reason string
	Count  int
	Of     int // ends in all
}

// SpanRow are the percentiles of a span of time.
type SpanRow struct {
	Name               string
	Count              int
	P50, P95, P99, Max time.Duration
}

// TopList are the first locks by some figure.
type TopList struct {
	ID, Title, Column, None string
	Rows                    []TopRow
}

// TopRow is one of them.
type TopRow struct {
	NS, Name, URL string
	Text          string
	Part          float64 // of the first one's figure
}

// SemaphoreRow is a semaphore's permits.
type SemaphoreRow struct {
	NS, Name, URL            string
	Limit, Used, Next, Queue int
}

func (r SemaphoreRow) free() int { return max(r.Limit-r.Used, 0) }

// percent is a part of a row's permits, as SVG has it.
func (r SemaphoreRow) percent(n int) string { return percentOf(n, r.Limit) }

// text says what the bar shows.
func (r SemaphoreRow) text() string {
	text := count(r.Used) + " of " + count(r.Limit) + " used, " + count(r.free()) + " free"
	if r.Next > 0 {
		text += ", the next one needs " + count(r.Next)
	}
	return text
}

// nextAt and nextWidth are where the need of the first in line is drawn: in what is free, and at the right edge where it needs more.
func (r SemaphoreRow) nextAt() string    { return r.percent(min(r.Used, max(r.Limit-r.Next, 0))) }
func (r SemaphoreRow) nextWidth() string { return r.percent(min(r.Next, r.Limit)) }

func (r EndRow) percent() string { return percentOf(r.Count, r.Of) }

// tone is loud for what was not meant.
func (r EndRow) tone() string {
	switch r.Reason {
	case "released", "done", "cancelled":
		return "quiet"
	}
	return "loud"
}

func percentOf(n, of int) string {
	if of <= 0 {
		return "0%"
	}
	return coordinate(100*float64(min(n, of))/float64(of)) + "%"
}

func (r TopRow) percent() string { return coordinate(100*min(max(r.Part, 0), 1)) + "%" }

// reasonWords are the reasons of ends as people read them.
var reasonWords = map[string]string{
	"released": "released", "expired": "expired: no heartbeat", "unclaimed": "granted, never claimed", "revoked": "revoked", "removed": "znode removed by another program",
	"destroyed": "lock destroyed", "gateway_left": "its gateway ended", "unknown": "reason unknown", "done": "reservation was over", "cancelled": "cancelled",
}

func (r EndRow) label() string {
	if words := reasonWords[r.Reason]; words != "" {
		return words
	}
	return r.Reason
}

// shareText is a part in per cent, without nought point something.
func shareText(n, of int) string {
	switch {
	case of <= 0 || n <= 0:
		return "0 %"
	case n*100 < of:
		return "< 1 %"
	}
	return strconv.Itoa((n*100+of/2)/of) + " %"
}
