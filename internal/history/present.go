package history

import (
	"context"
	"time"
)

// presence is who holds now, or why that is not known.
type presence struct {
	from  time.Time // the follower had begun to read by then
	at    time.Time // when it came
	items []*Item
	err   error
}

// settled is how long an end may be told later than the present holders know of it: the manager holds some back for a second.
const settled = 2 * time.Second

// ask reads the present holders, beside the follower.
func (f *follower) ask(ctx context.Context, from time.Time) {
	if f.ended != nil {
		return // they are being read
	}
	f.ended = map[key]bool{}
	f.describing.Go(func() {
		items, err := f.h.opt.Now.Present(ctx)
		f.present <- &presence{from, time.Now(), items, err} // its buffer has room for the only one under way
	})
}

// reconcile tells the writer which contenders hold, once that is known. One that is in the store and holds no more has ended meanwhile.
func (f *follower) reconcile(ctx context.Context, now time.Time) {
	if f.missed != nil && f.ended == nil {
		f.ask(ctx, now)
	}
	f.describe(ctx)
	if f.came == nil {
		select {
		case f.came = <-f.present:
		default:
			return
		}
	}
	p := f.came
	if p.err == nil && now.Sub(p.at) < settled {
		return
	}
	f.came = nil
	ended := f.ended
	f.ended = nil
	if p.err != nil || len(ended) > maxEnded || f.missed == nil {
		return // it is asked again in the next round
	}
	missed := *f.missed
	f.missed = nil
	o := op{do: doReconcile, gap: missed, since: p.from}
	for _, i := range p.items {
		if k := i.key(); !ended[k] && f.young[k] == nil {
			o.list = append(o.list, i)
		}
	}
	f.out = append(f.out, o)
	f.send(now)
}

// describe reads the records of holders that other gateways run: their grants name no owner.
func (f *follower) describe(ctx context.Context) {
	if len(f.blank) == 0 {
		return
	}
	places := f.blank
	f.blank = map[place]bool{}
	queue := f.queue
	f.describing.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, flushes)
		defer cancel()
		var ops []op
		for at := range places {
			items, err := f.h.opt.Now.Holders(ctx, at.ns, at.lock)
			if err != nil {
				continue // the end of the hold may tell
			}
			for _, i := range items {
				ops = append(ops, op{do: doAmend, item: i})
			}
		}
		if len(ops) == 0 {
			return
		}
		select {
		case queue <- &batch{at: time.Now(), ops: ops}:
		default: // the end of the hold may tell
		}
	})
}
