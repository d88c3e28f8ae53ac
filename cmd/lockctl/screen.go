package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen is where watch shows the present state: drawn over on a terminal, a line for each change elsewhere.
type screen struct {
	a     *app
	live  bool // a terminal that is drawn over
	lines int  // of the last drawing
}

func newScreen(a *app) *screen {
	s := &screen{a: a, live: isTerminal(a.stdout) && a.Output != "json" && os.Getenv("TERM") != "dumb"}
	if s.live {
		_, _ = io.WriteString(a.stdout, "\x1b[?7l") // long lines are cut, not wrapped: the count of lines stays true
	}
	return s
}

// close leaves the last drawing, and a terminal that wraps its lines.
func (s *screen) close() {
	if s.live {
		_, _ = io.WriteString(s.a.stdout, "\x1b[?7h")
	}
}

// rows is how many lines fit.
func (s *screen) rows() int {
	if f, ok := s.a.stdout.(*os.File); ok {
		if _, rows, err := term.GetSize(int(f.Fd())); err == nil && rows > 4 {
			return rows - 2
		}
	}
	return 22
}

// lock shows a lock that has changed.
func (s *screen) lock(l *lockView, raw json.RawMessage) error {
	switch {
	case s.live:
		return s.draw(s.a.draw(l, mostInTable))
	case s.a.Output == "table":
		return s.line(l)
	}
	_, err := fmt.Fprintf(s.a.stdout, "%s\n", raw)
	return err
}

func (s *screen) line(l *lockView) error {
	text := time.Now().Format("15:04:05") + "  " + visible(l.Lock) + "  " + l.summary()
	for i := range l.Holders {
		if i == 3 {
			text += ", ..."
			break
		}
		text += "  " + visible(l.Holders[i].name())
		if f := l.Holders[i].fence(); f != "" {
			text += " (fence " + f + ")"
		}
	}
	_, err := fmt.Fprintln(s.a.stdout, text)
	return err
}

// draw puts lines in the place of those that were drawn before.
func (s *screen) draw(lines []string) error {
	if most := s.rows(); len(lines) > most {
		lines = append(lines[:most-1:most-1], fmt.Sprintf("and %d lines more", len(lines)-most+1))
	}
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	b.WriteString("\r\x1b[J")
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	s.lines = len(lines)
	_, err := io.WriteString(s.a.stdout, b.String())
	return err
}

// note says something besides: below the drawing, or on standard error.
func (s *screen) note(text string) {
	if s.live {
		fmt.Fprintf(s.a.stdout, "%s\r\n", text)
		s.lines++
		return
	}
	fmt.Fprintln(s.a.stderr, text)
}
