package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"lockkeeper/client"
)

// revokeCommand is lockctl revoke.
type revokeCommand struct {
	lockArg
	Reason     string        `name:"reason" placeholder:"TEXT" help:"A text for the holders."`
	ForceAfter time.Duration `name:"force-after" placeholder:"TIME" help:"End the leases that have not been released by then: 1ms to 24h. Without it no lease is ended by force."`
	Lease      []string      `name:"lease" placeholder:"ID,..." help:"Ask only these leases, and none of them when one does not hold the lock any more."`
	Withdraw   bool          `name:"withdraw" help:"Withdraw the request, force included."`
}

// Help is what --help adds.
func (*revokeCommand) Help() string {
	return `Holders learn of it within milliseconds, and decide themselves, unless --force-after is given. lockctl run sends its command the
signal of --on-revoke.

  lockctl revoke deploy --reason 'release 42 goes out' --force-after 10m
  lockctl revoke deploy --withdraw`
}

// unreached is a contender to which it could not be done.
type unreached struct {
	Contender contenderView `json:"contender"`
	Detail    string        `json:"detail"`
}

func (r *revokeCommand) Run(ctx context.Context, a *app) error {
	if r.Withdraw && (r.Reason != "" || r.ForceAfter != 0) {
		return usagef("", "--withdraw must stand without --reason and --force-after")
	}
	request := client.Request{Method: "POST", Path: r.path("/revoke"), Body: without(map[string]any{
		"reason": r.Reason, "force_after": duration(r.ForceAfter), "lease_ids": r.Lease,
	})}
	if r.Withdraw {
		request = client.Request{Method: "DELETE", Path: r.path("/revoke", "lease_ids", strings.Join(r.Lease, ","))}
	}
	var raw json.RawMessage
	if err := a.call(ctx, request, &raw); err != nil {
		return err
	}
	var answer struct {
		Asked     []contenderView `json:"asked"`
		Withdrawn []contenderView `json:"withdrawn"`
		Unreached []unreached     `json:"unreached"`
		More      bool            `json:"more"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	done := "ASKED"
	if r.Withdraw {
		done = "WITHDRAWN"
	}
	if err := a.showDone(raw, done, append(answer.Asked, answer.Withdrawn...), answer.Unreached); err != nil {
		return err
	}
	if answer.More {
		fmt.Fprintln(a.stderr, "there are more holders: repeat the command")
	}
	return nil
}

// showDone prints what became of contenders.
func (a *app) showDone(raw json.RawMessage, done string, list []contenderView, failed []unreached) error {
	if !a.tables() {
		return a.printJSON(raw)
	}
	if len(list) > 0 {
		if err := a.contenders(done, list); err != nil {
			return err
		}
	}
	for _, u := range failed {
		fmt.Fprintf(a.stderr, "not reached: %s: %s\n", visible(u.Contender.name()), visible(u.Detail))
	}
	if len(list)+len(failed) == 0 {
		fmt.Fprintln(a.stderr, "there was none")
	}
	return nil
}

func (a *app) contenders(heading string, list []contenderView) error {
	rows := make([][]string, len(list))
	for i := range list {
		c := &list[i]
		state, since := "holds", c.held()
		if c.Position > 0 {
			state, since = fmt.Sprintf("waits, place %d", c.Position), span(c.Age)
		}
		rows[i] = []string{c.name(), state, since, c.mode(), c.fence(), c.what()}
	}
	return a.table([]string{heading, "STATE", "FOR", "MODE", "FENCE", "LEASE"}, rows)
}

// without leaves out the members of a body that are not given.
func without(body map[string]any) map[string]any {
	for name, value := range body {
		switch v := value.(type) {
		case string:
			if v == "" {
				delete(body, name)
			}
		case []string:
			if len(v) == 0 {
				delete(body, name)
			}
		}
	}
	return body
}

// duration writes a span of time as the API takes it; none is "".
func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// limitCommand is lockctl limit.
type limitCommand struct {
	lockArg
	Limit  int  `arg:"" optional:"" help:"How many permits the lock has; without it the limit in force is printed."`
	Remove bool `name:"remove" help:"Remove the limit of a lock that is not in use."`
}

// Help is what --help adds.
func (*limitCommand) Help() string {
	return `A limit that was set stays when the lock is free. It applies to later acquires.

  lockctl limit printers 3
  lockctl limit printers --remove`
}

func (l *limitCommand) Run(ctx context.Context, a *app) error {
	switch {
	case l.Remove && l.Limit != 0:
		return usagef("", "--remove must stand without a limit")
	case l.Limit < 0:
		return usagef("", "the limit must be more than 0")
	case l.Remove:
		return a.call(ctx, client.Request{Method: "DELETE", Path: l.path("")}, nil)
	}
	r := client.Request{Path: l.path("")}
	if l.Limit > 0 {
		body := without(map[string]any{"ns": l.NS})
		body["limit"] = l.Limit
		r = client.Request{Method: "PUT", Path: "/v1/locks/" + url.PathEscape(l.Name), Body: body}
	}
	var raw json.RawMessage
	if err := a.call(ctx, r, &raw); err != nil {
		return err
	}
	if !a.tables() {
		return a.printJSON(raw)
	}
	var lock lockView
	if err := json.Unmarshal(raw, &lock); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	limit := "none"
	if s := lock.Settings; s != nil {
		limit = fmt.Sprint(s.Limit)
		if s.Agreed {
			limit += " (agreed by its leases)"
		}
	}
	return a.table([]string{"LOCK", "LIMIT"}, [][]string{{lock.Lock, limit}})
}
