package httpapi

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"lockkeeper/internal/locks"
)

// writeTable writes a queue for people: a line about the lock, one for each contender, one for each hazard.
func writeTable(w io.Writer, l *locks.Lock) {
	fmt.Fprintf(w, "%s (%s): %s, %d waiting", l.Name, l.NS, l.State, l.QueueLength)
	if l.Limit > 0 {
		fmt.Fprintf(w, ", limit %d", l.Limit)
		if l.LimitAgreed {
			fmt.Fprint(w, " (agreed)")
		}
	}
	if l.HolderCount > len(l.Holders) {
		fmt.Fprintf(w, ", %d holders", l.HolderCount)
	}
	fmt.Fprintln(w)
	if len(l.Holders)+len(l.Waiters) > 0 {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprint(t, "PLACE\tWHO\tOWNER\tMODE\tFENCING TOKEN\tAGE\tEXPIRES IN\t")
		all := slices.Concat(l.Holders, l.Waiters)
		noted := slices.ContainsFunc(all, func(c locks.Contender) bool { return notes(&c) != "-" })
		if noted {
			fmt.Fprint(t, "NOTES\t")
		}
		fmt.Fprintln(t, "METADATA")
		for i := range all {
			writeRow(t, &all[i], noted)
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

// writeLocks writes a list of locks for people: a line for each.
func writeLocks(w io.Writer, page *locks.LockPage) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "LOCK\tNS\tSTATE\tHOLDERS\tWAITING\tLIMIT\tHELD BY")
	for i := range page.Items {
		l := &page.Items[i]
		limit, holder := "-", "-"
		if l.Limit > 0 {
			limit = strconv.Itoa(l.Limit)
		}
		if len(l.Holders) > 0 {
			holder = cell(l.Holders[0].Owner)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", printable(l.Name), l.NS, l.State, l.HolderCount, l.QueueLength, limit, holder)
	}
	_ = t.Flush() // the writer is a buffer
	if page.NextCursor != "" {
		fmt.Fprintf(w, "more: cursor=%s\n", page.NextCursor)
	}
}

func writeRow(w io.Writer, c *locks.Contender, noted bool) {
	place := "holds"
	switch {
	case c.Position > 0:
		place = strconv.Itoa(c.Position)
	case c.Delayed:
		place = "delayed"
	case c.Unclaimed:
		place = "unclaimed"
	}
	who := c.LeaseID
	if c.Foreign != nil {
		who = c.Znode[strings.LastIndexByte(c.Znode, '/')+1:]
		if c.Foreign.Program != "" {
			who += " (" + strings.TrimSpace(c.Foreign.Program+" "+c.Foreign.Kind) + ")"
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
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t", place, printable(who), cell(c.Owner), mode(c), token, age, expires)
	if noted {
		fmt.Fprintf(w, "%s\t", notes(c))
	}
	fmt.Fprintln(w, cell(c.Metadata))
}

// mode has the permits, too.
func mode(c *locks.Contender) string {
	switch {
	case c.Permits > 0 && c.Limit > 0:
		return fmt.Sprintf("%s %d of %d", c.Mode, c.Permits, c.Limit)
	case c.Permits > 0:
		return fmt.Sprintf("%s %d", c.Mode, c.Permits)
	}
	return string(c.Mode)
}

// notes shows what few contenders have, and why a waiter waits.
func notes(c *locks.Contender) string {
	var list []string
	add := func(format string, args ...any) { list = append(list, cell(fmt.Sprintf(format, args...))) }
	if c.Delayed {
		add("lock delay, %s", c.Reason)
	}
	if c.Purpose != "" {
		add("for %s", c.Purpose)
	}
	if !c.EndsAt.IsZero() {
		add("until %s", c.EndsAt.Format("2006-01-02 15:04:05Z"))
	}
	if len(c.Group) > 0 {
		add("with %s", strings.Join(c.Group, " "))
	}
	if len(c.Holds) > 0 {
		add("holds %s", strings.Join(c.Holds, " "))
	}
	if c.Ephemeral {
		add("ephemeral")
	}
	if c.Foreign != nil && c.Foreign.Decoded != nil {
		add("%s", c.Foreign.Decoded)
	}
	if r := c.Revoke; r != nil {
		s := "asked to release"
		if r.Forced {
			s += " in " + r.ForceIn.Truncate(100*time.Millisecond).String()
		}
		if r.Reason != "" {
			s += ": " + r.Reason
		}
		add("%s", s)
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, "; ")
}

// maxCell is how much of what a client wrote a table shows.
const maxCell = 60

// cell is a client's text, short enough for a column.
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
// no characters that turn the direction of the text. Lines are shown with blanks between.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
}
