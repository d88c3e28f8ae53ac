package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"lockkeeper/client"
)

// historyCommand is lockctl history.
type historyCommand struct {
	Lock   string `arg:"" optional:"" completion:"lockctl complete-locks --timeout 1s" help:"Only this lock."`
	NS     string `name:"ns" placeholder:"NAMESPACE" help:"Only this namespace; of a lock default unless given."`
	Owner  string `name:"owner" placeholder:"OWNER" help:"Only of this owner."`
	Host   string `name:"host" placeholder:"HOST" help:"Only of owners whose name ends with @ and this."`
	At     string `name:"at" placeholder:"TIME" help:"Who held then: 2026-11-22T03:00:00Z, or so long ago: 2h."`
	Since  string `name:"since" placeholder:"TIME" help:"Only what had not ended before that time."`
	Until  string `name:"until" placeholder:"TIME" help:"Only what had begun by that time."`
	Reason string `name:"reason" placeholder:"REASON" help:"Only what ended so: expired, revoked and so on."`
	Kind   string `name:"kind" placeholder:"KIND,..." help:"hold, many, wait, hazard, deadlock, or all; hold,many unless given."`
	Limit  int    `name:"limit" default:"100" placeholder:"N" help:"Show N at most; up to 1000."`
}

// Help is what --help adds.
func (*historyCommand) Help() string {
	return `Who held a lock and how that ended, the latest begin first, as GET /v1/history has it.

  lockctl history deploy
  lockctl history deploy --at 2026-11-22T03:00:00Z
  lockctl history --host build-7 --since 24h --reason expired`
}

// historyView is what lockctl shows of the history.
type historyView struct {
	Items []struct {
		Kind       string  `json:"kind"`
		NS         string  `json:"ns"`
		Lock       string  `json:"lock"`
		LeaseID    string  `json:"lease_id"`
		Contender  string  `json:"contender"`
		Owner      string  `json:"owner"`
		BeganAt    string  `json:"began_at"`
		BeganAfter string  `json:"began_after"`
		EndedAt    string  `json:"ended_at"`
		EndedAfter string  `json:"ended_after"`
		LastedMS   float64 `json:"lasted_ms"`
		WaitedMS   *int64  `json:"waited_ms"`
		Reason     string  `json:"reason"`
		By         string  `json:"by"`
		Count      int     `json:"count"`
		Code       string  `json:"code"`
	} `json:"items"`
	NextCursor string `json:"next_cursor"`
	Since      string `json:"since"`
	Gaps       []struct {
		From  string `json:"from"`
		To    string `json:"to"`
		Cause string `json:"cause"`
	} `json:"gaps"`
}

func (h *historyCommand) Run(ctx context.Context, a *app) error {
	q, err := h.query()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := a.callWith(ctx, c, client.Request{Path: "/v1/history?" + q.Encode()}, &answer); err != nil {
		return err
	}
	if !a.tables() {
		return a.printJSON(answer)
	}
	var v historyView
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if len(v.Items) > 0 {
		if err := a.table([]string{"BEGAN", "LASTED", "WAITED", "LOCK", "WHO", "END", "BY"}, v.rows()); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(a.stderr, "nothing is remembered")
	}
	for _, g := range v.Gaps {
		fmt.Fprintf(a.stderr, "from %s to %s something may be missing: %s\n", g.From, g.To, g.Cause)
	}
	if v.NextCursor != "" {
		fmt.Fprintln(a.stderr, "there are more: give a greater --limit, or less time")
	} else {
		fmt.Fprintln(a.stderr, "the gateway remembers what was since", v.Since)
	}
	return nil
}

func (h *historyCommand) query() (url.Values, error) {
	if h.Limit < 1 {
		return nil, usagef("leave it out for 100", "--limit must be at least 1")
	}
	if h.At != "" && (h.Since != "" || h.Until != "") {
		return nil, usagef("--at is both of them", "--at does not go with --since and --until")
	}
	q := url.Values{"limit": {strconv.Itoa(h.Limit)}}
	for name, value := range map[string]string{"lock": h.Lock, "ns": h.NS, "owner": h.Owner, "host": h.Host, "reason": h.Reason, "kind": h.Kind} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, t := range []struct{ flag, text, name string }{{"--since", h.Since, "from"}, {"--until", h.Until, "to"}, {"--at", h.At, "from"}, {"--at", h.At, "to"}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			ago, wrong := time.ParseDuration(t.text)
			if wrong != nil || ago < 0 {
				return nil, usagef("for example 2026-11-22T03:00:00Z, or 2h for two hours ago", "%s %q must be a time or a duration", t.flag, t.text)
			}
			at = time.Now().Add(-ago)
		}
		q.Set(t.name, at.UTC().Format(time.RFC3339Nano))
	}
	return q, nil
}

// rows are the table. A ~ stands before what was not seen.
func (v *historyView) rows() (rows [][]string) {
	unseen := func(is string) string {
		if is != "" {
			return "~"
		}
		return ""
	}
	for _, i := range v.Items {
		lock, who, end, waited := i.Lock, i.Owner, unseen(i.EndedAfter)+i.Reason, ""
		if i.NS != "" && i.NS != "default" {
			lock = i.NS + "/" + lock
		}
		for _, other := range []string{i.Contender, i.LeaseID, i.Code} {
			if who == "" {
				who = other
			}
		}
		switch {
		case i.Count > 0:
			who, end = fmt.Sprintf("%d quick holds", i.Count), i.Reason
		case i.EndedAt == "":
			end = "goes on"
		case i.Kind == "wait":
			end += " (waited in vain)"
		}
		if i.WaitedMS != nil {
			waited = shortSpan(float64(*i.WaitedMS))
		}
		began := i.BeganAt
		if at, err := time.Parse(time.RFC3339Nano, began); err == nil {
			began = at.UTC().Format("2006-01-02 15:04:05Z")
		}
		rows = append(rows, []string{unseen(i.BeganAfter) + began, shortSpan(i.LastedMS), waited, lock, who, end, i.By})
	}
	return rows
}

// shortSpan is a span of milliseconds as a table has it.
func shortSpan(ms float64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= 10*time.Second {
		return d.Truncate(time.Second).String()
	}
	return d.String()
}
