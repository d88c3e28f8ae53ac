package dashboard

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

const (
	// maxPages is how many pages of the history one timeline reads. What is older than those is not drawn, and the page says so.
	maxPages = 3
	// maxListed is how many holds the list below the timeline has.
	maxListed = 50
)

// then is what the history says of a lock and a time.
type then struct {
	window
	items []history.Item // the latest begins first
	cover history.Coverage
	cut   time.Time // what began before is not among them; zero: nothing is missing
	end   *locks.Postmortem
}

// readThen asks the history for a lock's holds.
func (p lockPage) readThen(ctx context.Context, from *Options, as reading) (*then, error) {
	live := p.past.window(time.Now()).live
	key := memoryKey{what: "then", rules: as.who.Rules.Key(), ns: p.ns, lock: p.lock, hold: p.past.hold, from: p.past.until, to: p.past.at, span: int64(p.past.length())}
	return recall(ctx, as.memory, key, p.past.fresh(live), func(ctx context.Context) (*then, error) {
		t := &then{window: p.past.window(time.Now())}
		q := history.Query{Rules: as.who.Rules, NS: p.ns, Lock: p.lock, From: t.from, To: t.to, Kinds: history.Holds, Limit: history.MaxLimit}
		for page := range maxPages {
			answer, err := as.memory.history.Query(ctx, q)
			if err != nil {
				return nil, err
			}
			if page == 0 {
				t.cover = answer.Coverage
			}
			t.items = append(t.items, answer.Items...)
			if q.Cursor = answer.Next; q.Cursor == "" {
				break
			}
			if page == maxPages-1 {
				t.cut = answer.Items[len(answer.Items)-1].Begin
			}
		}
		if i := t.find(p.past.hold); i != nil && i.LeaseID != "" && !i.End.IsZero() {
			if end, err := from.Locks.Postmortem(ctx, as.who, i.LeaseID); err == nil {
				t.end = &end
			}
		}
		return t, nil
	})
}

// keyLen is how much of a lease id names a hold in the addresses of its page: 50 bits of its random end. A page has the address of each of a
// hundred holds and more, and what is random in them is most of what they weigh.
const keyLen = 10

// keyOf names a hold in an address.
func keyOf(i *history.Item) string {
	switch {
	case i.LeaseID != "":
		return i.LeaseID[max(0, len(i.LeaseID)-keyLen):]
	case i.Name != "":
		return i.Name
	}
	return beginning(i.Begin)
}

// names reports whether an address with that name asks for the hold. A whole lease id does, too.
func names(hold string, i *history.Item) bool {
	return hold != "" && (hold == keyOf(i) || hold == i.LeaseID)
}

// find is the hold with a name, the latest one; nil when there is none.
func (t *then) find(hold string) *history.Item {
	for n := range t.items {
		if names(hold, &t.items[n]) {
			return &t.items[n]
		}
	}
	return nil
}

// showThen fills in the timeline.
func (p lockPage) showThen(ctx context.Context, from *Options, as reading, v *templates.Lock, l *locks.Lock) {
	line := &templates.Timeline{Page: urlOf(p.plainly()), Range: p.past.name()}
	v.Timeline = line
	t, err := p.readThen(ctx, from, as)
	if err != nil {
		line.Off = whyNoHistory(as.memory, err)
		return
	}
	p.showWindow(line, t)
	bars, lanes := lay(t.items, t.window)
	line.Lanes, line.Counted = lanes, hasCounted(bars)
	for n := range bars {
		line.Bars = append(line.Bars, p.barShown(&bars[n], t))
	}
	for _, s := range stretches(&t.cover, t.cut, t.window) {
		line.Missing = append(line.Missing, templates.Missing{X: t.percent(s.from), To: t.percent(s.to), From: s.from, Until: s.to, Cause: s.cause})
	}
	for n := range t.items {
		if len(line.Holds) == maxListed {
			break
		}
		line.Holds = append(line.Holds, p.holdShown(&t.items[n], t))
	}
	line.Number, line.More = len(t.items), !t.cut.IsZero()
	p.showInstant(line, t)
	p.showHold(line, t, l)
}

// hasCounted reports whether the last lane has holds that were counted.
func hasCounted(bars []bar) bool {
	return len(bars) > 0 && bars[len(bars)-1].item.Kind == history.Many
}

// whyNoHistory is a sentence.
func whyNoHistory(m *memory, err error) string {
	switch {
	case m == nil || m.history == nil:
		return "This gateway keeps no history (--history=off), so the page does not know who held this lock before."
	case errors.Is(err, history.ErrOff):
		if why := m.history.Status().Problem; why != "" {
			return "The history cannot be read now: " + visible(why) + "."
		}
		return "The history cannot be read now."
	case errors.Is(err, context.DeadlineExceeded):
		return "The history took too long to answer. Choose a shorter range."
	}
	return "The history cannot be read now. See the gateway's log."
}

// plainly is the page without anything of its past.
func (p lockPage) plainly() lockPage {
	p.past, p.cursor = past{}, ""
	return p
}

// showing is the page with another past.
func (p lockPage) showing(t past) string {
	p.past = t
	return urlOf(p)
}

// showWindow fills in which time is shown, and where the links lead.
func (p lockPage) showWindow(line *templates.Timeline, t *then) {
	line.From, line.To, line.Live, line.Since = t.from, t.to, t.live, t.cover.Since
	for _, s := range spans {
		line.Ranges = append(line.Ranges, templates.Link{Name: s.name, URL: p.showing(p.past.spanning(s.name))})
	}
	line.Earlier = p.showing(p.past.moved(t.window, -1, t.now))
	if !t.live {
		line.Later = p.showing(p.past.moved(t.window, 1, t.now))
	}
	if !t.live || p.past.at != 0 || p.past.hold != "" {
		line.Now = p.showing(p.past.present())
	}
	instants, step := ticks(t.window)
	line.Step = step
	for _, at := range instants {
		line.Ticks = append(line.Ticks, templates.Tick{X: t.percent(at), At: at})
	}
}

// showInstant fills in who held at the instant that is marked.
func (p lockPage) showInstant(line *templates.Timeline, t *then) {
	if p.past.at == 0 {
		return
	}
	at := time.UnixMilli(p.past.at).UTC()
	line.At, line.AtX = at, t.percent(at)
	line.AtSeen = !at.Before(t.from) && !at.After(t.to)
	line.AtFuture = at.After(t.now)
	for _, s := range stretches(&t.cover, t.cut, t.window) {
		if !at.Before(s.from) && !at.After(s.to) {
			line.AtMissing = s.cause
		}
	}
	for n := range t.items {
		i := &t.items[n]
		end := i.End
		if end.IsZero() {
			end = t.now
		}
		if at.Before(i.Begin.Add(-i.Early)) || at.After(end) || line.AtFuture {
			continue
		}
		if len(line.AtHolds) == maxLanes {
			line.AtMore++
			continue
		}
		h := p.holdShown(i, t)
		h.Doubtful = at.Before(i.Begin) || at.After(end.Add(-i.Late))
		line.AtHolds = append(line.AtHolds, h)
	}
}

// barShown is a bar with the address of what it stands for.
func (p lockPage) barShown(b *bar, t *then) templates.Bar {
	v := templates.Bar{
		Lane: b.lane, X: t.percent(b.begin), To: t.percent(b.end), Early: t.percent(b.early), Late: t.percent(b.late),
		Begin: b.begin, End: b.end, Ongoing: b.ongoing, Count: b.count, Loud: b.tone == loudEnd, Doubtful: b.tone == doubtfulEnd,
	}
	if b.holds > 1 {
		// Several in one bar: the link leads closer, to the middle of them.
		v.URL = p.showing(p.past.closer(b.begin.Add(b.end.Sub(b.begin)/2), b.end.Sub(b.begin)))
		return v
	}
	i := b.item
	v.Hold = p.holdShown(i, t)
	v.Single = i.Kind != history.Many
	v.Chosen = names(p.past.hold, i)
	v.URL = v.Hold.URL
	return v
}

// closer is the shortest range that shows a length of time, around its middle. The shortest of all marks the middle.
func (p past) closer(middle time.Time, length time.Duration) past {
	before := p.name()
	p.until = 0
	for _, s := range spans {
		if p = p.spanning(s.name); s.span >= 4*length || s.name == before {
			break
		}
	}
	p.at = middle.Truncate(time.Second).UnixMilli()
	return p
}

// holdShown is a row of the history.
func (p lockPage) holdShown(i *history.Item, t *then) templates.Hold {
	v := templates.Hold{
		Who:  templates.Who{Owner: visible(i.Owner), LeaseID: visible(i.LeaseID), Foreign: i.Foreign, Program: visible(i.Program), Purpose: visible(i.Purpose)},
		Name: visible(i.Name), URL: p.showing(p.past.about(keyOf(i), !i.End.IsZero(), t.window)) + "#hold",
		Mode: string(i.Mode), Permits: i.Permits, Begin: i.Begin, Early: i.Early, End: i.End, Late: i.Late, Waited: i.Waited, WaitedKnown: i.WaitedKnown,
		Reason: string(i.Reason), By: visible(i.By), Detail: visible(i.Detail), FencingToken: i.FencingToken, Gateway: visible(i.Gateway), Principal: visible(i.Principal),
		Loud: toneOf(i) == loudEnd,
	}
	if i.Kind == history.Many {
		v.Count, v.Mean = i.Count, i.Mean
	}
	return v
}

// showHold fills in the card of the hold that was chosen.
func (p lockPage) showHold(line *templates.Timeline, t *then, l *locks.Lock) {
	if p.past.hold == "" {
		return
	}
	closed := p.past
	closed.hold = ""
	i := t.find(p.past.hold)
	line.Card = &templates.HoldCard{Close: p.showing(closed), Gone: i == nil}
	if i == nil {
		return
	}
	c := line.Card
	c.Hold = p.holdShown(i, t)
	c.Lock = line.Page
	if next := t.after(i); next != nil {
		h := p.holdShown(next, t)
		c.Next, c.NextAfter = &h, max(next.Begin.Sub(i.End), 0)
	}
	if t.end != nil {
		c.Postmortem = "/v1/leases/" + t.end.LeaseID + "/postmortem"
		c.Heartbeat = t.end.LastHeartbeat
		c.TTL = t.end.TTL
	}
	for n := range l.Holders {
		if h := &l.Holders[n]; i.End.IsZero() && h.LeaseID != "" && h.LeaseID == i.LeaseID {
			c.Metadata = templates.Linked(visible(h.Metadata))
			c.BeatAt = heardAt(h)
		}
	}
}

// after is the hold that came next: the first that began when i had ended. It may be beyond what was read.
func (t *then) after(i *history.Item) *history.Item {
	if i.End.IsZero() {
		return nil
	}
	var next *history.Item
	for n := range t.items { // the latest begins first
		j := &t.items[n]
		if j == i || j.Begin.Before(i.End.Add(-i.Late)) {
			break
		}
		if j.Kind != history.Many {
			next = j
		}
	}
	return next
}
