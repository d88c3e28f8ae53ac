package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// target is a ratio that must be reached, with what was measured.
type target struct {
	what   string
	bound  bound
	want   float64
	rounds []float64
}

type bound string

const (
	atLeast bound = "≥"
	atMost  bound = "≤"
)

// met judges the median.
func (t target) met() bool {
	if len(t.rounds) == 0 {
		return false
	}
	if t.bound == atLeast {
		return over(t.rounds).median >= t.want
	}
	return over(t.rounds).median <= t.want
}

func (b *bench) target(what string, bound bound, want float64, rounds []float64) {
	b.targets = append(b.targets, target{what, bound, want, rounds})
}

// section adds to the report.
func (b *bench) section(title, text string) {
	b.sections = append(b.sections, "### "+title+"\n\n"+text)
}

// report is everything that was measured.
func (b *bench) report() string {
	var text strings.Builder
	text.WriteString(b.describe())
	text.WriteString("\n### Targets\n\n| | target | measured | |\n|---|---|---|---|\n")
	for _, t := range b.targets {
		met := "met"
		if len(t.rounds) == 0 {
			met = "not measured"
		} else if !t.met() {
			met = "**not met**"
		}
		fmt.Fprintf(&text, "| %s | %s %g | %s | %s |\n", t.what, t.bound, t.want, times(t.rounds), met)
	}
	for _, s := range b.sections {
		text.WriteString("\n" + s)
	}
	return text.String()
}

// markdown is the table: a row for each side of each line.
func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString("| | side | cycles/s | gateway ÷ side | acquire p50 | p99 | µs: server | ZooKeeper | clients | sum | transactions | fsyncs |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i, l := range t.lines {
		for _, s := range l.sides {
			med := func(format string, f figure) string { return fmt.Sprintf(format, over(t.rounds(i, s.name, f)).median) }
			server, store, committed, synced := "–", "–", "–", "–"
			if len(s.servers) != 0 {
				server = med("%.0f", serverMicros)
			}
			if s.store != nil {
				store, committed, synced = med("%.0f", storeMicros), med("%.2f", transactions), med("%.2f", fsyncs)
			}
			ratio := "1"
			if s.name != gatewaySide {
				ratio = times(t.against(i, gatewaySide, s.name))
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", l.name, s.name, counts(t.rounds(i, s.name, rate)), ratio,
				med("%.2f ms", acquireMillis(func(q quantiles) time.Duration { return q.p50 })), med("%.2f ms", acquireMillis(func(q quantiles) time.Duration { return q.p99 })),
				server, store, med("%.0f", clientsMicros), med("%.0f", allMicros), committed, synced)
		}
	}
	return b.String()
}

func acquireMillis(of func(quantiles) time.Duration) figure {
	return func(s sample) float64 { return of(s.acquire).Seconds() * 1e3 }
}

// counts and times write a figure as its median with the least and the greatest round.

func counts(rounds []float64) string {
	if len(rounds) == 0 {
		return "–"
	}
	s := over(rounds)
	return fmt.Sprintf("%s (%s–%s)", thousands(s.median), thousands(s.least), thousands(s.greatest))
}

func times(rounds []float64) string {
	if len(rounds) == 0 {
		return "–"
	}
	s := over(rounds)
	return fmt.Sprintf("**%.2f** (%.2f–%.2f)", s.median, s.least, s.greatest)
}

// thousands writes 12345.6 as 12,346.
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// The lines of a file between which the result of a run stands. The text around them is written by hand.
const (
	beginMark = "<!-- bench -->"
	endMark   = "<!-- /bench -->"
)

// write puts the result into the files of the repository, from its root.
func (b *bench) write(report string) error {
	drawn, err := b.charts()
	if err != nil {
		return err
	}
	if err := writeCharts(drawn); err != nil {
		return err
	}
	var shown strings.Builder
	for _, c := range drawn {
		shown.WriteString(c.markdown() + "\n")
	}
	err = replaceIn("BENCHMARKS.md", shown.String()+report)
	if b.ownTable != nil && b.observed != nil && len(b.held) != 0 {
		err = errors.Join(err, replaceIn("docs/operate/capacity.md", b.capacity()))
	}
	return err
}

// replaceIn writes report between the marks of the file.
func replaceIn(path, report string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	before, rest, begins := strings.Cut(string(text), beginMark+"\n")
	_, after, ends := strings.Cut(rest, endMark)
	if !begins || !ends {
		return fmt.Errorf("%s must have lines %s and %s with a place for the result between them", path, beginMark, endMark)
	}
	return os.WriteFile(path, []byte(before+beginMark+"\n"+report+endMark+after), 0o644)
}
