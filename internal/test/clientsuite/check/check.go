package check

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What a line says.
const (
	Start = "start"
	Step  = "step"
	End   = "end"
)

// Line is one line of a work. At is in nanoseconds.
type Line struct {
	At    int64
	PID   int
	ID    int
	Fence uint64
	What  string
}

// Freeze says that a process stood still: From is taken before SIGSTOP was sent, To before SIGCONT was.
type Freeze struct {
	PID      int
	From, To int64
}

// Violation is a broken rule.
type Violation struct {
	Rule   string
	Detail string
}

func (v Violation) String() string { return v.Rule + ": " + v.Detail }

// Parse reads lines as drivers write them.
func Parse(text []byte) ([]Line, error) {
	var lines []Line
	for raw := range bytes.Lines(text) {
		var l Line
		n, err := fmt.Sscanf(string(raw), "%d %d %d %d %s\n", &l.At, &l.PID, &l.ID, &l.Fence, &l.What)
		if err != nil || n != 5 || !slices.Contains([]string{Start, Step, End}, l.What) {
			return nil, fmt.Errorf("%q is no line of a work", raw)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// Works is how many works the lines are of.
func Works(lines []Line) int { return len(worksOf(lines)) }

// work is one work: its lines in the order in which they were written.
type work struct {
	lines []Line
}

func (w *work) from() int64   { return w.lines[0].At }
func (w *work) to() int64     { return w.lines[len(w.lines)-1].At }
func (w *work) fence() uint64 { return w.lines[0].Fence }

func (w *work) String() string {
	return fmt.Sprintf("the work of process %d, call %d, fencing token %d", w.lines[0].PID, w.lines[0].ID, w.fence())
}

func worksOf(lines []Line) []*work {
	type key struct{ pid, id int }
	byKey := make(map[key]*work)
	var works []*work
	for _, l := range lines {
		w := byKey[key{l.PID, l.ID}]
		if w == nil {
			w = &work{}
			byKey[key{l.PID, l.ID}] = w
			works = append(works, w)
		}
		w.lines = append(w.lines, l)
	}
	return works
}

// Check returns every violation. The lines are in the order of their file.
func Check(lines []Line, freezes []Freeze) []Violation {
	works := worksOf(lines)
	var found []Violation
	report := func(rule, format string, args ...any) {
		found = append(found, Violation{rule, fmt.Sprintf(format, args...)})
	}
	for _, w := range works {
		if wrong := w.form(); wrong != "" {
			report("form", "%v: %s", w, wrong)
		}
		w.exempt(freezes)
	}
	works = slices.DeleteFunc(works, func(w *work) bool { return len(w.lines) == 0 })
	slices.SortStableFunc(works, func(a, b *work) int { return cmp.Compare(a.from(), b.from()) })
	for i, b := range works {
		for _, a := range works[:i] {
			if b.from() < a.to() {
				report("overlap", "%v began %v before %v stopped", b, time.Duration(a.to()-b.from()), a)
			}
			if b.fence() <= a.fence() {
				report("fencing", "%v began after %v", b, a)
			}
		}
	}
	return found
}

func (w *work) form() string {
	if w.lines[0].What != Start {
		return "its first line is " + w.lines[0].What
	}
	for i, l := range w.lines[1:] {
		switch last := w.lines[i]; {
		case l.What == Start:
			return "it starts twice"
		case last.What == End:
			return "it writes after its end"
		case l.At < last.At:
			return "its times go back"
		case l.Fence != last.Fence:
			return "its fencing token changes"
		}
	}
	return ""
}

// exempt takes away what a work wrote after its process had stood still, where that is no more than what it was about to do.
func (w *work) exempt(freezes []Freeze) {
	freezes = slices.Clone(freezes)
	slices.SortFunc(freezes, func(a, b Freeze) int { return cmp.Compare(b.To, a.To) }) // the latest first
	for _, f := range freezes {
		first := slices.IndexFunc(w.lines, func(l Line) bool { return l.At > f.To })
		if first < 0 || w.lines[0].PID != f.PID {
			continue
		}
		var after []string
		for _, l := range w.lines[first:] {
			after = append(after, l.What)
		}
		switch strings.Join(after, " ") {
		case "start", "start end", "step", "step end", "end":
			w.lines = w.lines[:first]
		case "step step", "step step end": // one under way and one due, before the scheduler lets another process stop it
			if w.lines[first+1].At-w.lines[first].At < 10_000_000 {
				w.lines = w.lines[:first]
			}
		}
		if len(w.lines) == 0 {
			return
		}
	}
}
