package history

import (
	"context"
	"time"

	"lockkeeper/internal/backoff"
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
	// A short gap is filled at once. Of a long one, as that of a gateway that is new in a fleet, a page is asked for twice a second:
	// locks need the processors of both gateways more.
	fillAtOnce = 10
	fillPause  = 500 * time.Millisecond
)

// fill is a page of what another gateway has of a gap.
type fill struct {
	gap  Gap
	rest []Gap // what it does not know either
	last bool  // nothing of it follows
	own  *own  // of all pages of the gap
}

// own are the rows that the store had of a gap, and of what went on at its ends, before the first page. The writer reads it, and adds
// what it makes of a page and a later page may have again: what has not ended, or has a begin that is not known exactly.
type own struct{ ids map[key]int64 }

// fillGaps asks other gateways for what is missing, until ctx ends.
func (h *History) fillGaps(ctx context.Context, queue chan<- *batch) {
	if h.opt.Others == nil {
		return
	}
	for n, wait := 0, fillAfter; ; n, wait = n+1, fillEvery {
		if backoff.Sleep(ctx, wait) != nil {
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
	f := &fill{gap: g, own: &own{}}
	for n := 0; !f.last; n++ {
		if n >= fillAtOnce && backoff.Sleep(ctx, fillPause) != nil {
			return true
		}
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
		o := op{do: doFill, gap: g, fill: &fill{g, f.rest, f.last, f.own}}
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

// fill takes over a page of what another gateway has of a gap.
func (t *transaction) fill(o *op) {
	own := o.fill.own
	if own.ids == nil {
		t.readOwn(o.gap, own)
	}
	for _, i := range o.list {
		old := t.ownOf(i, own)
		switch {
		case t.err != nil:
			return
		case i.Kind == Many && (old != nil || i.Begin.Before(o.gap.From) || i.End.After(o.gap.To)): // what is outside is counted here
		case old == nil:
			if t.insert(i); i.End.IsZero() || i.Early > 0 {
				own.ids[fillKey(i)] = t.w.taken
			}
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

// readOwn reads what the store has of a gap.
func (t *transaction) readOwn(g Gap, own *own) {
	own.ids = map[key]int64{}
	q := Query{Rules: access.Everything(), From: g.From.Add(-flushes), To: g.To.Add(flushes), Kinds: AllKinds}
	f, err := filterOf(t.ctx, t.tx, &q)
	if err != nil {
		t.err = err
		return
	}
	for _, part := range f.parts() {
		t.err = eachItem(t.ctx, t.tx, part.by, part.where+f.where, "", append(part.args, f.args...), func(i *stored) bool {
			own.ids[fillKey(&i.Item)] = i.id
			return true
		})
		if t.err != nil {
			own.ids = nil
			return
		}
	}
}

// ownOf is the store's row of an item, nil without one. The row may have changed since it was read, or be gone.
func (t *transaction) ownOf(i *Item, own *own) *stored {
	id, there := own.ids[fillKey(i)]
	if !there || t.err != nil {
		return nil
	}
	list, err := selectItems(t.ctx, t.tx, "r.id = ?", "", id)
	if err != nil {
		t.err = err
		return nil
	}
	if len(list) == 0 || fillKey(&list[0].Item) != fillKey(i) {
		return nil
	}
	return &list[0]
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
