package history

import (
	"context"
	"time"

	"lockkeeper/internal/locks/access"
)

// How other gateways are asked.
const (
	fillAfter  = 2 * time.Second  // after the start: the holders are known by then
	fillEvery  = 15 * time.Second // while there are gaps that may be filled
	fillSoon   = 2 * time.Minute  // of a gap's end: later it is asked for in every fillSeldom-th round
	fillSeldom = 20
	fillWithin = time.Hour // of a gap's end: later no gateway is asked
	fillPage   = 500       // rows in an answer
	fillPages  = 400       // answers for one gap
)

// fill is a gap that another gateway has filled, as far as it could.
type fill struct {
	gap  Gap
	rest []Gap // what it does not know either
	last bool  // nothing of it follows
}

// fillGaps asks other gateways for what is missing, until ctx ends.
func (h *History) fillGaps(ctx context.Context, queue chan<- *batch) {
	if h.opt.Others == nil {
		return
	}
	for n, wait := 0, fillAfter; ; n, wait = n+1, fillEvery {
		pause(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		s := h.store.Load()
		if s == nil {
			continue
		}
		now := time.Now()
		list, err := gapsIn(ctx, s.read, now.Add(-h.opt.Keep), now)
		if err != nil {
			continue // the writer finds out what is wrong with the store
		}
		for _, g := range list {
			if age := now.Sub(g.To); age < fillSoon || age < fillWithin && n%fillSeldom == 0 {
				h.fillGap(ctx, g.Gap, queue)
			}
		}
	}
}

// fillGap asks one gateway after the other, until one knows something.
func (h *History) fillGap(ctx context.Context, g Gap, queue chan<- *batch) {
	for _, other := range h.opt.Others() {
		if ctx.Err() != nil {
			return
		}
		if h.fillFrom(ctx, g, other, queue) {
			return
		}
	}
}

// fillFrom asks one gateway for a gap, and reports whether it knew something of it.
func (h *History) fillFrom(ctx context.Context, g Gap, other Source, queue chan<- *batch) bool {
	q := Query{Rules: access.Everything(), From: g.From, To: g.To, Kinds: AllKinds, Limit: fillPage}
	f := &fill{gap: g}
	for n := 0; !f.last; n++ {
		a, err := other.Ask(ctx, q)
		if err != nil {
			h.opt.Log.Warn("a gap of the history is not filled yet: another gateway does not answer", "gateway", other.Gateway, "err", err)
			return n > 0
		}
		if n == 0 {
			if f.rest = unknownTo(&a.Coverage, g); len(f.rest) == 1 && f.rest[0].From.Equal(g.From) && f.rest[0].To.Equal(g.To) {
				return false
			}
		}
		q.Cursor, f.last = a.Next, a.Next == ""
		if n+1 == fillPages && !f.last && len(a.Items) > 0 {
			f.rest = append(f.rest, Gap{From: g.From, To: a.Items[len(a.Items)-1].Begin, Cause: g.Cause})
			f.last = true
		}
		o := op{do: doFill, gap: g, fill: &fill{g, f.rest, f.last}}
		for i := range a.Items {
			o.list = append(o.list, &a.Items[i])
		}
		select {
		case queue <- &batch{at: time.Now(), ops: []op{o}}:
		case <-ctx.Done():
			return true
		}
	}
	h.opt.Log.Info("a gap of the history was filled", "gateway", other.Gateway, "from", g.From.UTC().Format(time.RFC3339), "to", g.To.UTC().Format(time.RFC3339))
	return true
}

// unknownTo is what the other gateway does not know of a gap: before its store begins, and in its own gaps.
func unknownTo(c *Coverage, g Gap) (rest []Gap) {
	if c.Since.After(g.From) {
		rest = append(rest, Gap{From: g.From, To: earliest(c.Since, g.To), Cause: g.Cause})
	}
	for _, other := range c.Gaps {
		part := Gap{From: latest(other.From, g.From), To: earliest(other.To, g.To), Cause: g.Cause}
		if part.To.After(part.From) && part.To.After(c.Since) {
			rest = append(rest, part)
		}
	}
	return rest
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// fill takes over what another gateway has of a gap.
func (t *transaction) fill(o *op) {
	own, err := t.ownIn(o.gap)
	if err != nil {
		t.err = err
		return
	}
	for _, i := range o.list {
		old := own[fillKey(i)]
		switch {
		case i.Kind == Many && (old != nil || i.Begin.Before(o.gap.From) || i.End.After(o.gap.To)): // what is outside is counted here
		case old == nil:
			t.insert(i)
		case old.Early > 0 && i.Early < old.Early || old.Late > 0 && !i.End.IsZero() && i.Late < old.Late || old.End.IsZero() && !i.End.IsZero():
			t.replace(old.id, old.better(i))
		}
	}
	if !o.fill.last {
		return
	}
	t.exec("DELETE FROM gaps WHERE cause = ? AND first >= ? AND last <= ?", o.gap.Cause, o.gap.From.UnixMicro(), o.gap.To.UnixMicro())
	if o.gap.Cause == causeBefore { // the store reaches back as far as the other one
		since := o.gap.From
		for _, g := range o.fill.rest {
			if g.From.Equal(o.gap.From) {
				since = g.To
			} else {
				t.note(Gap{From: g.From, To: g.To, Cause: CauseStopped})
			}
		}
		if since.Before(t.w.since) {
			t.w.since = since
			t.exec("UPDATE meta SET value = ? WHERE name = 'since'", since.UnixMicro())
		}
		return
	}
	for _, g := range o.fill.rest {
		t.note(g)
	}
}

// fillKey is the key of a row, also of those that have no mark.
func fillKey(i *Item) key {
	k := i.key()
	if i.Kind == Many {
		k.mark = "many:" + i.Begin.UTC().Format(time.RFC3339Nano)
	}
	return k
}

// ownIn are the rows that the store has of a gap, and of what went on at its ends.
func (t *transaction) ownIn(g Gap) (map[key]*stored, error) {
	own := map[key]*stored{}
	q := Query{Rules: access.Everything(), From: g.From.Add(-flushes), To: g.To.Add(flushes), Kinds: AllKinds}
	f, err := filterOf(t.ctx, t.tx, &q)
	if err != nil {
		return nil, err
	}
	for _, part := range f.parts() {
		err = eachItem(t.ctx, t.tx, part.by, part.where+f.where, "", append(part.args, f.args...), func(i *stored) bool {
			one := *i
			own[fillKey(&one.Item)] = &one
			return true
		})
		if err != nil {
			break
		}
	}
	return own, err
}

// better is the row with what another gateway has seen.
func (s *stored) better(i *Item) *Item {
	n := s.Item
	n.amend(i)
	if s.Early > 0 && i.Early < s.Early {
		n.Begin, n.Early = i.Begin, i.Early
		if i.WaitedKnown {
			n.Waited, n.WaitedKnown = i.Waited, true
		}
	}
	if !i.End.IsZero() && (s.End.IsZero() || s.Late > 0 && i.Late < s.Late) {
		n.End, n.Late, n.Reason, n.By, n.Detail = i.End, i.Late, i.Reason, i.By, i.Detail
	}
	return &n
}
