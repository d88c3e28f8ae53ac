package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"lockkeeper/client"
)

// leaderCommand is lockctl leader.
type leaderCommand struct {
	lockArg
	Wait     time.Duration `name:"wait" short:"w" placeholder:"TIME" help:"Wait so long for a leader, such as 1m."`
	Follow   bool          `name:"follow" short:"f" help:"Print the leader, and each change, until a signal comes."`
	For      time.Duration `name:"for" placeholder:"TIME" help:"With --follow: end after this time."`
	Metadata bool          `name:"metadata" short:"m" help:"Print the leader's metadata alone."`
}

// Help is what --help adds.
func (*leaderCommand) Help() string {
	return `The leader is the lock's one holder in mode exclusive. Without one the exit code is 75. --follow prints null where there is none, and an
empty line with --metadata.

  lockctl leader billing
  ADDRESS=$(lockctl leader billing --wait 1m --metadata) || exit
  lockctl leader billing --follow`
}

func (l *leaderCommand) Run(ctx context.Context, a *app) error {
	switch {
	case l.Wait < 0 || l.For < 0:
		return usagef("", "--wait and --for must not be negative")
	case l.Follow && l.Wait > 0:
		return usagef("--follow waits for each change", "--follow and --wait exclude each other")
	case l.For > 0 && !l.Follow:
		return usagef("lockctl leader NAME --follow --for 1m", "--for must stand beside --follow")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if !l.Follow {
		return l.once(ctx, a, c)
	}
	ctx, read := a.untilUnread(ctx)
	defer read()
	ctx, stop := endAfter(ctx, l.For)
	defer stop()
	return timeUp(l.follow(ctx, a, c))
}

// leaderView is what lockctl reads of a leader.
type leaderView struct {
	Owner    string    `json:"owner"`
	Fence    uint64    `json:"fencing_token"`
	Metadata string    `json:"metadata"`
	Since    time.Time `json:"since"`
	Rev      string    `json:"rev"`

	raw json.RawMessage
}

// look asks who leads; nil: there is no leader. With hold the gateway answers when there is one, or, with rev, another one than that.
func (l *leaderCommand) look(ctx context.Context, a *app, c *client.Client, rev string, hold time.Duration) (*leaderView, error) {
	r, until := client.Request{Hold: max(hold, 0)}, ""
	wait := ""
	if hold > 0 {
		wait, until = hold.String(), "elected"
	}
	if rev != "" {
		until = "changed"
	}
	r.Path = l.path("/leader", "wait", wait, "until", until, "since", rev)
	view := &leaderView{}
	err := a.callWith(ctx, c, r, &view.raw)
	if p := (*client.Problem)(nil); errors.As(err, &p) && p.Code == "no_leader" {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(view.raw, view)
	}
	return view, err
}

func (l *leaderCommand) once(ctx context.Context, a *app, c *client.Client) error {
	for until := time.Now().Add(l.Wait); ; {
		hold := min(pollFor, time.Until(until).Truncate(time.Millisecond))
		view, err := l.look(ctx, a, c, "", hold)
		switch {
		case err != nil:
			return err
		case view != nil && !l.Metadata && a.tables():
			since := ""
			if !view.Since.IsZero() {
				since = view.Since.Local().Format(time.DateTime)
			}
			return a.table([]string{"LEADER", "FENCE", "SINCE", "METADATA"}, [][]string{{view.Owner, strconv.FormatUint(view.Fence, 10), since, view.Metadata}})
		case view != nil && !l.Metadata:
			return a.printJSON(view.raw)
		case view != nil:
			_, err = fmt.Fprintln(a.stdout, l.line(a, view))
			return err
		case hold <= 0:
			return &failure{code: exitNotAcquired, err: fmt.Errorf("%s has no leader", l.Name), hint: "--wait 1m waits for one"}
		}
	}
}

// follow prints who leads, and looks again when that has changed.
func (l *leaderCommand) follow(ctx context.Context, a *app, c *client.Client) error {
	const unknown, none = "unknown", ""
	hold, shown := time.Duration(0), "\n"
	for rev, pause, lost := unknown, pauseLeast, false; ; hold = pollFor {
		since := rev
		if rev == unknown {
			since = ""
		}
		view, err := l.look(ctx, a, c, since, hold)
		var p *client.Problem
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (rev == unknown || errors.As(err, &p) && p.Status < 500 && p.Status != 408 && p.Status != 429):
			return err
		case err != nil:
			if !lost {
				fmt.Fprintf(a.stderr, "no gateway answers (%s); trying again\n", plain(err))
			}
			lost = true
			_ = sleep(ctx, pause)
			pause = min(2*pause, pauseMost)
			continue
		}
		now := none
		if view != nil {
			now = view.Rev
		}
		if now != rev {
			line := l.line(a, view)
			if line != shown {
				if _, err := fmt.Fprintln(a.stdout, line); err != nil {
					return err
				}
			}
			shown = line
		}
		rev, pause, lost = now, pauseLeast, false
	}
}

// line says who leads, or that none does.
func (l *leaderCommand) line(a *app, view *leaderView) string {
	switch {
	case l.Metadata && view == nil:
		return ""
	case l.Metadata:
		return visible(view.Metadata)
	case !a.tables() && view == nil:
		return "null"
	case !a.tables():
		return string(view.raw)
	case view == nil:
		return l.Name + " has no leader"
	}
	text := visible(view.Owner) + " leads " + l.Name
	if view.Fence > 0 { // the gateway sees it a moment later
		text += fmt.Sprintf(", fencing token %d", view.Fence)
	}
	if view.Metadata != "" {
		text += ": " + visible(view.Metadata)
	}
	return text
}
