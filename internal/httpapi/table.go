package httpapi

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"lockkeeper/internal/locks"
)

// writeTable writes a queue for people: a line about the lock, one for each
// contender, one for each hazard.
func writeTable(w io.Writer, l *locks.Lock) {
	fmt.Fprintf(w, "%s (%s): %s, %d waiting\n", l.Name, l.NS, l.State, l.QueueLength)
	if len(l.Holders)+len(l.Waiters) > 0 {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "PLACE\tWHO\tOWNER\tMODE\tFENCING TOKEN\tAGE\tEXPIRES IN\tMETADATA")
		for _, c := range l.Holders {
			writeRow(t, &c)
		}
		for _, c := range l.Waiters {
			writeRow(t, &c)
		}
		_ = t.Flush() // the writer is a buffer
	}
	if l.NextCursor != "" {
		fmt.Fprintf(w, "more: cursor=%s\n", l.NextCursor)
	}
	for _, h := range l.Hazards {
		fmt.Fprintf(w, "hazard %s: %s\n", h.Code, printable(h.Detail))
	}
}

func writeRow(w io.Writer, c *locks.Contender) {
	place := "holds"
	switch {
	case c.Position > 0:
		place = strconv.Itoa(c.Position)
	case c.Unclaimed:
		place = "unclaimed"
	}
	who := c.LeaseID
	if c.Foreign != nil {
		who = c.Znode[strings.LastIndexByte(c.Znode, '/')+1:]
		if c.Foreign.Program != "" {
			who += " (" + c.Foreign.Program + ")"
		}
	}
	token, age, expires := "-", "-", "-"
	if c.FencingToken != 0 {
		token = strconv.FormatInt(c.FencingToken, 10)
	}
	if c.AgeKnown {
		age = c.Age.Truncate(time.Second).String()
	}
	if c.ExpiresIn > 0 {
		expires = c.ExpiresIn.Truncate(100 * time.Millisecond).String()
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", place, printable(who), cell(c.Owner), c.Mode, token, age, expires, cell(c.Metadata))
}

// maxCell is how much of what a client wrote a table shows.
const maxCell = 60

// cell is a client's words, short enough for a column.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	s = printable(s)
	if runes := []rune(s); len(runes) > maxCell {
		s = string(runes[:maxCell-1]) + "…"
	}
	return s
}

// printable makes what others wrote fit for a terminal: one line, no controls,
// no characters that turn the direction of the text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
