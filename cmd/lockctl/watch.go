package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"lockkeeper/client"
)

// watchCommand is lockctl watch.
type watchCommand struct {
	Name   string        `arg:"" optional:"" completion:"lockctl complete-locks --timeout 1s" help:"The lock; without it the list of locks."`
	NS     string        `name:"ns" placeholder:"NAMESPACE" help:"The namespace; default unless given."`
	Prefix string        `name:"prefix" placeholder:"TEXT" help:"Only locks whose names begin with this."`
	Until  string        `name:"until" enum:",free,held" default:"" placeholder:"STATE" help:"End when the lock is in this state: free or held."`
	For    time.Duration `name:"for" placeholder:"TIME" help:"End after this time; with --until that is exit code 75."`
}

// Help is what --help adds.
func (*watchCommand) Help() string {
	return `On a terminal the queue is drawn again when it changes. Elsewhere each change is a line of JSON: the lock, or, without a name, an event
of a lock. A connection that ends is opened again. Ctrl-C ends it.

  lockctl watch report
  lockctl watch --prefix team:
  lockctl watch report --until free --for 10m -o table`
}

func (w *watchCommand) Run(ctx context.Context, a *app) error {
	switch {
	case w.Name != "" && w.Prefix != "":
		return usagef("", "--prefix must not stand beside the name of a lock")
	case w.Until != "" && w.Name == "":
		return usagef("lockctl watch NAME --until free", "--until must stand beside the name of a lock")
	case w.For < 0:
		return usagef("", "--for must not be negative")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, read := a.untilUnread(ctx)
	defer read()
	ctx, stop := endAfter(ctx, w.For)
	defer stop()
	if w.Name != "" {
		err = w.lock(ctx, a, c)
	} else {
		err = w.list(ctx, a, c)
	}
	if err == error(errTimeUp) && w.Until != "" {
		return &failure{code: exitNotAcquired, err: fmt.Errorf("%s is not %s after %v", w.Name, w.Until, w.For), hint: "lockctl show " + w.Name + " has the queue"}
	}
	return timeUp(err)
}

// pollFor is how long a gateway holds a look at a lock. Proxies tend to cut at 60 s.
const pollFor = 50 * time.Second

// lock shows one lock, and looks again when it has changed.
func (w *watchCommand) lock(ctx context.Context, a *app, c *client.Client) error {
	lock := lockArg{w.Name, w.NS}
	page := newScreen(a)
	defer page.close()
	rev := ""
	for pause, lost := pauseLeast, false; ; {
		r := client.Request{Path: lock.path("", "limit", strconv.Itoa(mostInTable))}
		if rev != "" {
			r.Path = lock.path("", "limit", strconv.Itoa(mostInTable), "wait", pollFor.String(), "since", rev)
			r.Hold = pollFor
		}
		var raw json.RawMessage
		err := a.callWith(ctx, c, r, &raw)
		var p *client.Problem
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (rev == "" || errors.As(err, &p) && p.Status < 500 && p.Status != 408 && p.Status != 429):
			return err
		case err != nil:
			if !lost {
				page.note("no gateway answers (" + plain(err) + "); trying again")
				lost = true
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, pauseMost)
			continue
		}
		var view lockView
		if err := json.Unmarshal(raw, &view); err != nil {
			return fmt.Errorf("the answer cannot be read: %w", err)
		}
		if view.Rev != rev || lost {
			if err := page.lock(&view, raw); err != nil {
				return err
			}
		}
		rev, pause, lost = view.Rev, pauseLeast, false
		if w.Until == view.State {
			return nil
		}
	}
}

// list shows the locks, and looks again when there was an event. Elsewhere than on a terminal it prints the events.
func (w *watchCommand) list(ctx context.Context, a *app, c *client.Client) error {
	q := url.Values{"type": {"lease.*,lock.*"}, "lock": {escapeGlob(w.Prefix) + "*"}}
	if w.NS != "" {
		q.Set("ns", w.NS)
	}
	page := newScreen(a)
	if !page.live {
		return a.follow(ctx, c, q, "", func() error { return nil }, func(e *event) error {
			if err := a.printEvent(e); err != nil {
				return fmt.Errorf("%w: %w", errOutput, err)
			}
			return nil
		})
	}
	defer page.close()
	changed := make(chan struct{}, 1)
	wake := func() error {
		select {
		case changed <- struct{}{}:
		default:
		}
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silent := *a
	silent.stderr = io.Discard // the terminal is drawn over; what fails is seen by the looks
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		stop(silent.follow(ctx, c, q, "", wake, func(*event) error { return wake() }))
	}()
	defer func() { stop(nil); <-followed }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
		if err := w.redrawList(ctx, a, c, page); err != nil && ctx.Err() == nil {
			page.note(plain(err))
		}
		select { // at most five times a second
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (w *watchCommand) redrawList(ctx context.Context, a *app, c *client.Client, page *screen) error {
	q := url.Values{"limit": {strconv.Itoa(page.rows())}}
	for name, value := range map[string]string{"ns": w.NS, "prefix": w.Prefix} {
		if value != "" {
			q.Set(name, value)
		}
	}
	var answer struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := a.callWith(ctx, c, client.Request{Path: "/v1/locks?" + q.Encode()}, &answer); err != nil {
		return err
	}
	var b strings.Builder
	if len(answer.Items) == 0 {
		b.WriteString("no locks")
	} else if err := (&app{globals: a.globals, stdout: &b, stderr: a.stderr}).listTable().page(answer.Items); err != nil {
		return err
	}
	return page.draw(strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"))
}

// escapeGlob makes a text that matches itself alone in a pattern of /v1/events. Names of locks have none of its characters; what
// another program's has stands there as %XX.
func escapeGlob(text string) string {
	return strings.NewReplacer("*", "%2A", "?", "%3F", "[", "%5B").Replace(text)
}
