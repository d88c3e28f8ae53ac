package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

// The pace of a topic.
const (
	// settle is how long the first change waits for what belongs to it: a lease
	// is queued, then granted some milliseconds later, and a page that showed the
	// one at once would show the other only after its pause.
	settle = 20 * time.Millisecond
	// lockPause and listPause are the least time between two renderings.
	lockPause = 100 * time.Millisecond
	listPause = 200 * time.Millisecond
	// burst is how many renderings in a row, each for a change, have only these pauses. What goes on changing after them is rendered every
	// streamPause: more often than that people read nothing, and browsers are busy.
	burst       = 5
	streamPause = 300 * time.Millisecond
	// pushRate is how many bytes a second a page that goes on changing pushes, before they are compressed to some eighth: a page of which all changes
	// is rendered less often.
	pushRate = 100_000
	// slowest is the pause that pushRate leads to at most.
	slowest = time.Second
	// costFactor stretches the pause of a page that is expensive to render to so
	// many times what the rendering took, up to maxPause: many pages, or a
	// filter that finds little among many locks, must not starve the locks.
	costFactor = 10
	maxPause   = 5 * time.Second
	// tick is how often a topic reads without an event: a heartbeat moves a
	// deadline without an event.
	tick = time.Second
	// clockEvery is how often the status is sent though it did not change, at
	// the next tick: within the 5 s that web/static/README.md promises. Pages
	// take a socket for dead that is silent for 12 s.
	clockEvery = 3500 * time.Millisecond
	// linger is how long a topic goes on without viewers: they come back when a
	// page is loaded again or a tab is shown again.
	linger = 3 * time.Second
)

// topic renders one page for all who look at it by the same rules.
type topic struct {
	d      *Dashboard
	at     sight
	page   page
	who    locks.Principal
	cancel context.CancelFunc       // ends run
	latest atomic.Pointer[snapshot] // never nil

	// Of Dashboard.mu.
	viewers int
	emptied time.Time // when the last viewer left

	// Of the topic's goroutine.
	feed     feed
	clock    time.Time // the gateway's clock in the status that was rendered last
	pushed   int       // bytes of the last push
	troubled bool      // reading fails, and the log says so
}

func newTopic(d *Dashboard, p page, who locks.Principal, cancel context.CancelFunc) *topic {
	t := &topic{d: d, at: sightOf(p, who), page: p, who: shared(p, who), cancel: cancel,
		feed: feed{hub: d.opt.Events, filter: p.follows(who.Rules), keeper: p.keeps(who.Rules)}}
	t.latest.Store(&snapshot{next: make(chan struct{})})
	return t
}

// run reads and renders until the topic has had no viewer for a while, or
// ctx ends.
func (t *topic) run(ctx context.Context) {
	defer t.cancel()
	defer t.feed.close()
	t.feed.open()
	for stream := 0; ; {
		cost := t.update(ctx)
		if ctx.Err() != nil || t.d.retire(t) {
			return
		}
		pause := t.pause(cost, stream)
		changed := t.feed.pause(ctx, pause)
		first := stream == 0 || !changed
		if !changed && pause < tick {
			changed = t.feed.wait(ctx, tick-pause)
		}
		if changed && first {
			t.feed.pause(ctx, settle)
		}
		if stream++; !changed {
			stream = 0
		}
	}
}

// pause is how long to leave the page alone after it was rendered. When no
// change was the reason (the first look, a tick), the next change need not wait.
// stream is how many renderings in a row had a change as their reason.
func (t *topic) pause(cost time.Duration, stream int) time.Duration {
	least := time.Duration(0)
	if stream > 0 {
		least = t.page.pause()
	}
	if stream > burst {
		least = max(least, streamPause, min(time.Duration(t.pushed)*time.Second/pushRate, slowest))
	}
	return min(max(least, costFactor*cost), maxPause)
}

// update reads and renders the page, and publishes a snapshot if it differs
// from the last one. It returns how long that kept the gateway busy.
func (t *topic) update(ctx context.Context) (cost time.Duration) {
	began := time.Now()  // waiting for its turn counts: the more pages, the slower each
	if !t.page.waits() { // topics that list locks must not wait for one that does
		select {
		case t.d.listing <- struct{}{}:
		case <-ctx.Done():
			return 0
		}
		defer func() { <-t.d.listing }()
	}
	var kept []*events.Event
	if k := t.feed.keeper; k != nil {
		kept = k.events
	}
	c, err := t.read(ctx, kept)
	if ctx.Err() != nil {
		return 0 // the topic ends
	}
	if t.page.waits() {
		began = time.Now() // that costs nothing
	}
	if c != nil {
		if failed := t.publish(ctx, c); failed != nil {
			err = failed
		}
	}
	t.trouble(err)
	return time.Since(began)
}

func (t *topic) read(ctx context.Context, kept []*events.Event) (_ content, err error) {
	defer survive(&err)
	return t.d.read(ctx, t.page, t.who, kept)
}

// survive makes an error of a panic: on a topic's goroutine it would end the
// process, and with it the locks, for the sake of a page.
func survive(err *error) {
	if bug := recover(); bug != nil {
		*err = fmt.Errorf("panic: %v\n%s", bug, debug.Stack())
	}
}

// trouble logs once that the topic cannot be shown, except for a viewer's mistake and for
// ZooKeeper's absence.
func (t *topic) trouble(err error) {
	var e *locks.Error
	var known *refusal // of what was removed while the page was open
	bad := err != nil && !errors.As(err, &e) && !errors.As(err, &known)
	if bad && !t.troubled {
		subject, _ := t.page.own()
		t.d.opt.Logger.Error("a live page cannot be shown", "page", t.page.name(), "subject", subject, "error", err)
	}
	t.troubled = bad
}

// publish renders the content and makes it the latest, if anything in it
// differs.
func (t *topic) publish(ctx context.Context, c content) (err error) {
	defer survive(&err)
	last := t.latest.Load()
	next := &snapshot{seq: last.seq + 1, status: c.Frame().Status, next: make(chan struct{})}
	html, err := t.renderStatus(ctx, next.status, last.statusHTML())
	if err != nil {
		return err
	}
	next.fragments = append(next.fragments, fragmentAfter(last.fragment(statusID), statusID, templates.Parted{Around: [][]byte{html}}, next.seq))
	for _, p := range c.parts() {
		if t.d.onRender != nil {
			t.d.onRender(p.id)
		}
		parted, err := templates.RenderParted(ctx, p.component)
		if err != nil {
			return err
		}
		next.fragments = append(next.fragments, fragmentAfter(last.fragment(p.id), p.id, parted, next.seq))
	}
	html = next.changedSince(last.seq)
	if t.pushed = len(html); len(html) == 0 {
		return nil
	}
	if err := next.prepareUpdate(html); err != nil {
		return err
	}
	t.latest.Store(next)
	close(last.next)
	return nil
}

// renderStatus renders the status. Its clock stands still as long as nothing
// else in it changes, for a while: otherwise it would differ each time.
func (t *topic) renderStatus(ctx context.Context, s templates.Status, last []byte) ([]byte, error) {
	now := time.Now()
	if last != nil && now.Sub(t.clock) < clockEvery {
		html, err := renderStatus(ctx, s, t.clock)
		if err != nil || bytes.Equal(html, last) {
			return html, err
		}
	}
	t.clock = now
	return renderStatus(ctx, s, now)
}
