package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"lockkeeper/client"
)

// breakCommand is lockctl break.
type breakCommand struct {
	lockArg
	Lease     []string      `name:"lease" placeholder:"ID,..." help:"Only these leases."`
	Waiters   bool          `name:"waiters" help:"The waiters, too. Without it only holders."`
	OlderThan time.Duration `name:"older-than" placeholder:"TIME" help:"Only those that are older."`
	Owner     string        `name:"owner" placeholder:"OWNER" help:"Only those of this owner."`
	Reason    string        `name:"reason" placeholder:"TEXT" help:"A text for those that are ended, and for the log."`
	DryRun    bool          `name:"dry-run" help:"End none, and print which would be ended."`
	Yes       bool          `name:"yes" short:"y" help:"Do not ask first. Needed where no terminal is."`
}

// Help is what --help adds.
func (*breakCommand) Help() string {
	return `The command shows which holders it would end, asks on a terminal, and ends exactly those. If one of them has changed meanwhile, none is
ended (exit code 75).

A holder that is ended may go on working until it learns of its end. Only fencing keeps safe what the lock protects. Ask first:
lockctl revoke.

  lockctl break deploy --reason 'its machine is gone'
  lockctl break deploy --lease lk2s4u7q... --yes
  lockctl break batch --waiters --older-than 1h --dry-run`
}

type reapAnswer struct {
	Reaped    []contenderView `json:"reaped"`
	Unreached []unreached     `json:"unreached"`
	More      bool            `json:"more"`
}

func (b *breakCommand) Run(ctx context.Context, a *app) error {
	if b.OlderThan < 0 {
		return usagef("", "--older-than must not be negative")
	}
	if !b.Yes && !b.DryRun && !a.canConfirm() {
		return usagef("--yes says that those that --dry-run names may be ended", "--yes must be given where no terminal is")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	body := without(map[string]any{"ns": b.NS, "owner": b.Owner, "reason": b.Reason, "lease_ids": b.Lease})
	body["older_than"] = b.OlderThan.String()
	if !b.Waiters && len(b.Lease) == 0 {
		body["state"] = "held"
	}
	body["dry_run"] = true
	raw, found, err := b.reap(ctx, a, c, body)
	if err != nil {
		return err
	}
	if len(found.Reaped) == 0 {
		return &failure{code: exitNotAcquired, err: fmt.Errorf("%s has no holder that may be ended", b.Name), hint: "lockctl show " + b.Name + " has the queue; --waiters ends waiters, too"}
	}
	if b.DryRun {
		return a.showDone(raw, "WOULD END", found.Reaped, found.Unreached)
	}
	if !b.Yes {
		shown := *a
		shown.stdout = a.stderr
		if err := shown.contenders("WILL END", found.Reaped); err != nil {
			return err
		}
		if err := a.confirm(ctx, "End these?"); err != nil {
			return err
		}
	}
	// Those that were shown, and no others.
	var leases, znodes []string
	for i := range found.Reaped {
		if c := &found.Reaped[i]; c.LeaseID != "" {
			leases = append(leases, c.LeaseID)
		} else {
			znodes = append(znodes, c.Znode)
		}
	}
	body["dry_run"] = false
	body["lease_ids"], body["znodes"] = leases, znodes
	raw, ended, err := b.reap(ctx, a, c, without(body))
	if err != nil {
		return err
	}
	if err := a.showDone(raw, "ENDED", ended.Reaped, ended.Unreached); err != nil {
		return err
	}
	if found.More {
		fmt.Fprintln(a.stderr, "there are more: repeat the command")
	}
	if len(ended.Unreached) > 0 {
		return &failure{code: exitFailure, err: fmt.Errorf("%d of %d were not ended", len(ended.Unreached), len(ended.Unreached)+len(ended.Reaped))}
	}
	return nil
}

func (b *breakCommand) reap(ctx context.Context, a *app, c *client.Client, body map[string]any) (json.RawMessage, *reapAnswer, error) {
	var raw json.RawMessage
	// The namespace is in the body.
	path := (&lockArg{Name: b.Name}).path("/reap")
	if err := a.callWith(ctx, c, client.Request{Method: "POST", Path: path, Body: body}, &raw); err != nil {
		var p *client.Problem
		if errors.As(err, &p) && p.Code == "holder_changed" {
			return nil, nil, &failure{code: exitNotAcquired, err: errors.New(p.Detail), hint: "none was ended; lockctl show " + b.Name + " has the queue as it is now"}
		}
		return nil, nil, err
	}
	answer := &reapAnswer{}
	if err := json.Unmarshal(raw, answer); err != nil {
		return nil, nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return raw, answer, nil
}
