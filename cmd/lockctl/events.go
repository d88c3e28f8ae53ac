package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// eventsCommand is lockctl events.
type eventsCommand struct {
	Lock  string        `name:"lock" placeholder:"PATTERN" completion:"lockctl complete-locks --timeout 1s" help:"Only events of these locks, with * for any characters."`
	NS    string        `name:"ns" placeholder:"NAMESPACE" help:"Only events of this namespace."`
	Type  []string      `name:"type" placeholder:"TYPE,..." help:"Only these types, such as lease.granted or lease.*. node.* comes only when it is named."`
	Owner string        `name:"owner" placeholder:"OWNER" help:"Only events of leases of this owner."`
	Since string        `name:"since" placeholder:"ID" help:"Begin behind the event with this id."`
	Count int           `name:"count" short:"n" placeholder:"N" help:"End after N events."`
	For   time.Duration `name:"for" placeholder:"TIME" help:"End after this time."`
}

// Help is what --help adds.
func (*eventsCommand) Help() string {
	return `Lines for people on a terminal, a JSON object in each line elsewhere. A connection that ends is opened again, and the stream goes
on behind the last event. What was missed is a line of the type resync.

  lockctl events --lock 'team:*' --type lease.granted,lease.expired
  lockctl events --since 5f0c2a91-42 --count 10 -o json`
}

func (e *eventsCommand) Run(ctx context.Context, a *app) error {
	if e.Count < 0 || e.For < 0 {
		return usagef("leave it out for a stream without an end", "--count and --for must not be negative")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	q := url.Values{}
	for name, value := range map[string]string{"lock": e.Lock, "ns": e.NS, "type": strings.Join(e.Type, ","), "owner": e.Owner} {
		if value != "" {
			q.Set(name, value)
		}
	}
	ctx, read := a.untilUnread(ctx)
	defer read()
	ctx, stop := endAfter(ctx, e.For)
	defer stop()
	n := 0
	err = a.follow(ctx, c, q, e.Since, func() error { return nil }, func(ev *event) error {
		if err := a.printEvent(ev); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
		if n++; n == e.Count {
			return errEnough
		}
		return nil
	})
	return timeUp(err)
}

func (a *app) printEvent(e *event) error {
	if !a.tables() {
		_, err := fmt.Fprintf(a.stdout, "%s\n", e.raw)
		return err
	}
	_, err := fmt.Fprintln(a.stdout, e.line())
	return err
}

// line is an event for people.
func (e *event) line() string {
	at := e.Time
	if t, err := time.Parse(time.RFC3339Nano, e.Time); err == nil {
		at = t.Local().Format("15:04:05.000")
	}
	parts := []string{at, fmt.Sprintf("%-23s", e.Type)}
	name := e.Lock
	if e.NS != "" && e.NS != "default" {
		name = e.NS + "/" + name
	}
	who := e.Owner
	if e.Foreign != nil {
		who = strings.TrimSpace(e.Foreign.Program + " (foreign) " + e.Owner)
	}
	for _, part := range []string{name, e.Path, who} {
		if part != "" {
			parts = append(parts, visible(part))
		}
	}
	if e.Fence != 0 {
		parts = append(parts, fmt.Sprintf("fence %d", e.Fence))
	}
	if e.Lock == "" && e.Gateway != "" {
		parts = append(parts, "gateway "+visible(e.Gateway))
	}
	why := e.Reason
	if e.Code != "" {
		why = e.Code
	}
	if e.By != "" {
		why = strings.TrimSpace(why + " by " + e.By)
	}
	if e.Detail != "" {
		why = strings.TrimPrefix(why+": "+e.Detail, ": ")
	}
	if why != "" {
		parts = append(parts, visible(why))
	}
	return strings.Join(parts, "  ")
}

// errTimeUp is the cause of a context whose time, as --for has it, is over.
var errTimeUp = exitCode(0)

// endAfter ends the context after a time, if there is one.
func endAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, errTimeUp)
}

// timeUp makes the end of the time a good one.
func timeUp(err error) error {
	if err == error(errTimeUp) {
		return nil
	}
	return err
}
