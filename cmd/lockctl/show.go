package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"lockkeeper/client"
)

// showCommand is lockctl show.
type showCommand struct {
	lockArg
	Limit int `name:"limit" placeholder:"N" help:"Show N holders and N waiters at most; 50 in a table, all in JSON unless given."`
}

// lockArg names one lock.
type lockArg struct {
	Name string `arg:"" completion:"lockctl complete-locks --timeout 1s" help:"The lock."`
	NS   string `name:"ns" placeholder:"NAMESPACE" help:"The namespace; default unless given."`
}

// path is that of the lock in the API, with what follows it. query may have "".
func (l *lockArg) path(after string, query ...string) string {
	q := url.Values{}
	if l.NS != "" {
		q.Set("ns", l.NS)
	}
	for i := 0; i < len(query); i += 2 {
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	path := "/v1/locks/" + url.PathEscape(l.Name) + after
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

// Help is what --help adds.
func (*showCommand) Help() string {
	return `The holders, and the waiters in the order in which they will get the lock. A lock that is free is no error.

HELD with a > is at least so long: the gateway that answers has seen the lock held since it was started. JSON is what
GET /v1/locks/NAME answers.`
}

const mostInTable = 50

func (s *showCommand) Run(ctx context.Context, a *app) error {
	if s.Limit < 0 {
		return usagef("leave it out for all of them", "--limit must not be negative")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	most := s.Limit
	if most == 0 && a.tables() {
		most = mostInTable
	}
	lock, raw, err := a.lock(ctx, c, &s.lockArg, most)
	if err != nil {
		return err
	}
	if !a.tables() {
		return a.printJSON(raw)
	}
	_, err = fmt.Fprint(a.stdout, strings.Join(a.draw(lock, most), "\n")+"\n")
	return err
}

// lock looks at a lock: most holders and waiters, or all of them when most is 0. raw is the answer, with the pages put together.
func (a *app) lock(ctx context.Context, c *client.Client, l *lockArg, most int) (*lockView, map[string]json.RawMessage, error) {
	var holders, waiters []json.RawMessage
	var raw map[string]json.RawMessage
	seen := map[string]bool{}
	cursor := ""
	for {
		page := mostOnPage
		if most > 0 {
			page = min(page, most)
		}
		raw = nil
		if err := a.callWith(ctx, c, client.Request{Path: l.path("", "limit", strconv.Itoa(page), "cursor", cursor)}, &raw); err != nil {
			return nil, nil, err
		}
		// Holders that fit on one page are on each.
		if err := addNew(&holders, raw["holders"], seen); err != nil {
			return nil, nil, err
		}
		if err := addNew(&waiters, raw["waiters"], seen); err != nil {
			return nil, nil, err
		}
		cursor = ""
		_ = json.Unmarshal(raw["next_cursor"], &cursor)
		if cursor == "" || most > 0 && len(holders) >= most || most > 0 && len(waiters) >= most {
			break
		}
	}
	delete(raw, "next_cursor")
	raw["holders"], _ = json.Marshal(append([]json.RawMessage{}, holders...))
	if len(waiters) > 0 {
		raw["waiters"], _ = json.Marshal(waiters)
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	var lock lockView
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return &lock, raw, nil
}

func addNew(list *[]json.RawMessage, page json.RawMessage, seen map[string]bool) error {
	if page == nil {
		return nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(page, &items); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	for _, item := range items {
		var c contenderView
		if err := json.Unmarshal(item, &c); err != nil {
			return fmt.Errorf("the answer cannot be read: %w", err)
		}
		if !seen[c.Znode] {
			seen[c.Znode] = true
			*list = append(*list, item)
		}
	}
	return nil
}

// draw writes the queue, in lines for a terminal.
func (a *app) draw(l *lockView, most int) (lines []string) {
	bold, warn, off := "", "", ""
	if colour(a.stdout) {
		bold, warn, off = "\x1b[1m", "\x1b[33m", "\x1b[0m"
	}
	title := bold + visible(l.Lock) + off
	if l.NS != "default" {
		title = visible(l.NS) + "/" + title
	}
	lines = append(lines, title+"  "+l.summary())
	for _, h := range l.Hazards {
		lines = append(lines, fmt.Sprintf("%shazard %s%s: %s", warn, visible(h.Code), off, visible(h.Detail)))
	}
	if len(l.Holders)+len(l.Waiters) == 0 {
		return lines
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tWHO\tMODE\tFENCE\tFOR\tEXPIRES\tHEARTBEAT\tLEASE")
	var notes [][]string
	row := func(place string, c *contenderView, since string) {
		cells := []string{place, c.name(), c.mode(), c.fence(), since, c.expires(), c.heartbeat(), c.what()}
		for i := range cells {
			if cells[i] = visible(cells[i]); cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
		notes = append(notes, c.notes())
	}
	for i := range l.Holders {
		row("holds", &l.Holders[i], l.Holders[i].held())
	}
	for i := range l.Waiters {
		row(strconv.Itoa(l.Waiters[i].Position), &l.Waiters[i], span(l.Waiters[i].Age))
	}
	_ = w.Flush()
	lines = append(lines, "")
	for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if 1 <= i && i <= len(l.Holders) {
			line = bold + line + off
		}
		lines = append(lines, line)
		if i > 0 {
			for _, note := range notes[i-1] {
				lines = append(lines, "         "+warn+visible(note)+off)
			}
		}
	}
	if more := max(l.HolderCount, len(l.Holders)) - len(l.Holders); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more hold it: --limit %d", more, most+more))
	}
	if more := l.QueueLength - len(l.Waiters); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more wait: --limit %d", more, most+more))
	}
	return lines
}

// summary says in a line how the lock is.
func (l *lockView) summary() string {
	text := l.State
	if n := max(l.HolderCount, len(l.Holders)); n > 1 {
		text += fmt.Sprintf(" by %d", n)
	}
	if l.QueueLength > 0 {
		text += fmt.Sprintf(", %d waiting", l.QueueLength)
	}
	if l.Settings != nil {
		text += fmt.Sprintf(", limit %d", l.Settings.Limit)
	}
	return text
}
