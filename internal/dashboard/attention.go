package dashboard

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

const (
	// attentionEvery is how often is looked at what needs attention, for each set of rules whose pages ask; a look that took long is
	// good for costFactor times as long. attentionWithin bounds a look, and attentionKept how long one is of use.
	attentionEvery  = 5 * time.Second
	attentionWithin = 5 * time.Second
	attentionKept   = time.Minute
	// longestWaits is how many locks of a namespace are looked at, those with the longest waits, and mostSpaces how many namespaces.
	longestWaits = 10
	mostSpaces   = 16
	// A wait is too long at unusual times the median of those that ended with a grant, of enough of them, and from shortWait on.
	unusual   = 10
	shortWait = 10 * time.Second
)

// lookout finds what needs attention. The history and other gateways may answer late, so no page waits for it: it looks on a goroutine
// of its own, one at a time, and pages show what was found last.
type lookout struct {
	from   *Options
	memory *memory
	start  func(func(context.Context)) bool // a goroutine that Run waits for; false: none now
	turn   chan struct{}

	mu    sync.Mutex
	found map[string]*found // by the rules' key; at most from.MaxSets
}

// found is what one look found.
type found struct {
	templates.Attention
	asked, at time.Time
	until     time.Time
	looking   bool
}

func newLookout(from *Options, m *memory, start func(func(context.Context)) bool) *lookout {
	return &lookout{from: from, memory: m, start: start, turn: make(chan struct{}, 1), found: map[string]*found{}}
}

// background runs do on a goroutine that Run waits for, and reports whether it does.
func (d *Dashboard) background(do func(context.Context)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining || d.running == nil || d.running.Err() != nil {
		return false
	}
	ctx := d.running
	d.wg.Go(func() { do(ctx) })
	return true
}

// attention is what the last look found for a set of rules. It begins another one when that is too old.
func (o *lookout) attention(who locks.Principal, spaces []string) templates.Attention {
	now, key := time.Now(), who.Rules.Key()
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.found[key]
	if f == nil {
		o.makeRoom(now)
		f = &found{}
		o.found[key] = f
	}
	f.asked = now
	if !f.looking && !now.Before(f.until) {
		f.looking = o.start(func(ctx context.Context) { o.look(ctx, f, locks.Principal{Rules: who.Rules}, spaces) })
	}
	if now.Sub(f.at) > attentionKept {
		return templates.Attention{}
	}
	return f.Attention
}

// makeRoom forgets the set that was not asked for longest. mu is held.
func (o *lookout) makeRoom(now time.Time) {
	if len(o.found) < o.from.MaxSets {
		return
	}
	oldest := ""
	for key, f := range o.found {
		if oldest == "" || f.asked.Before(o.found[oldest].asked) {
			oldest = key
		}
	}
	delete(o.found, oldest)
}

func (o *lookout) look(ctx context.Context, f *found, who locks.Principal, spaces []string) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, attentionWithin)
	defer cancel()
	var a templates.Attention
	var err error
	defer func() { // also after a panic: a page is no reason to end the process
		survive(&err)
		now := time.Now()
		o.mu.Lock()
		defer o.mu.Unlock()
		f.Attention, f.at, f.until, f.looking = a, now, now.Add(max(attentionEvery, costFactor*now.Sub(began))), false
	}()
	a.Waits = o.longWaits(within, who, spaces)
	a.Hooks = o.failingHooks(within, who)
}

// longWaits are locks whose first in line waits for much longer than is usual there, the longest waits first.
func (o *lookout) longWaits(ctx context.Context, who locks.Principal, spaces []string) (waits []templates.LongWait) {
	if o.from.History == nil {
		return nil // nothing says what is usual
	}
	for _, ns := range spaces[:min(len(spaces), mostSpaces)] {
		list, err := o.from.Locks.Locks(ctx, locks.LockFilter{Principal: who, NS: ns, Sort: locks.SortWait, Limit: longestWaits})
		if err != nil {
			continue
		}
		for i := range list.Items {
			if list.Items[i].QueueLength == 0 {
				break // none behind it has waiters
			}
			if w, long := longWait(ctx, o.from.Locks, o.memory, who, ns, list.Items[i].Name); long {
				waits = append(waits, w)
			}
		}
	}
	slices.SortStableFunc(waits, func(a, b templates.LongWait) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	return waits[:min(len(waits), longestWaits)]
}

// longWait reports whether the first in line of a lock waits for much longer than is usual there.
func longWait(ctx context.Context, from Locks, m *memory, who locks.Principal, ns, lock string) (templates.LongWait, bool) {
	l, err := from.Lock(ctx, locks.LockRequest{Principal: who, NS: ns, Lock: lock, Limit: 1})
	if err != nil || len(l.Waiters) == 0 || !l.Waiters[0].AgeKnown || l.Waiters[0].Age < shortWait {
		return templates.LongWait{}, false
	}
	first := &l.Waiters[0]
	usually, known := usualWait(ctx, m, who, ns, lock)
	if !known || first.Age < unusual*usually {
		return templates.LongWait{}, false
	}
	return templates.LongWait{NS: visible(ns), Name: visible(lock), URL: urlOf(lockPage{ns: ns, lock: lock, tab: tabQueue}), Who: whoOf(first),
		Since: first.At.Add(-first.Age), Usually: usually, Waiting: l.QueueLength}, true
}

// usualWait is the median of the waits for a lock that ended with a grant; false when too few are known to say so.
func usualWait(ctx context.Context, m *memory, who locks.Principal, ns, lock string) (time.Duration, bool) {
	key := memoryKey{what: "usual wait", rules: who.Rules.Key(), ns: ns, lock: lock}
	spans, err := recall(ctx, m, key, usualFor, func(ctx context.Context) (history.Spans, error) {
		for _, w := range usualWindows {
			st, err := m.history.Stats(ctx, history.StatsQuery{Rules: who.Rules, NS: ns, Lock: lock, Window: w.span})
			if err != nil {
				return history.Spans{}, err
			}
			if st.Wait.Count >= enough {
				return st.Wait, nil
			}
		}
		return history.Spans{}, nil
	})
	return spans.P50, err == nil && spans.Count >= enough
}

// failingHooks are webhooks to which nothing gets through, for those who may see them all.
func (o *lookout) failingHooks(ctx context.Context, who locks.Principal) (hooks []templates.WebhookRow) {
	if o.from.Webhooks == nil || !who.Rules.MayAll(access.Admin) {
		return nil
	}
	list, err := o.from.Webhooks.List(ctx, who)
	if err != nil {
		return nil
	}
	for i := range list.Rows {
		if r := &list.Rows[i]; r.Disabled != "" || r.Enabled && !r.Failing.IsZero() {
			showWebhook(r)
			hooks = append(hooks, *r)
		}
	}
	return hooks[:min(len(hooks), longestWaits)]
}
