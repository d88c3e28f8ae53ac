package history

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

// Bounds of the follower.
const (
	// youngest is how long a hold stays in memory, in case it ends at once: then it is written in one go.
	youngest = time.Second
	// maxYoung bounds these.
	maxYoung = 8192
	// maxSpare is how many of them are used again.
	maxSpare = 1024
	// maxEnded bounds the ends that are noted while the present holders are read. Beyond it they are read again.
	maxEnded = 1 << 16
	// maxBlank bounds the holds of other gateways whose records are read in one round.
	maxBlank = 32
	// Waits that were given up at once have rows of their own at this rate; further ones have none.
	waitBurst, waitRate = 100, 10.0
)

// followed is what the follower wants to know.
var followed = events.Types(events.LeaseGranted, events.LeaseReleased, events.LeaseExpired, events.LeaseCancelled, events.LeaseUnclaimed, events.LeaseRemoved,
	events.LeaseUpdated, events.LeaseRevoked, events.LockHazard, events.LockHazardCleared, events.DeadlockDetected, events.DeadlockCleared,
	events.ZooKeeperConnected, events.ZooKeeperSuspended, events.ZooKeeperExpired)

var following = events.Filter{Rules: access.Everything(), Types: followed}

// endReasons are the reasons of ends whose events name none.
var endReasons = map[events.Type]locks.Reason{events.LeaseReleased: locks.ReasonReleased, events.LeaseExpired: locks.ReasonExpired,
	events.LeaseCancelled: locks.ReasonCancelled, events.LeaseUnclaimed: locks.ReasonUnclaimed, events.LeaseRemoved: locks.ReasonRemoved, events.LeaseRevoked: locks.ReasonRevoked}

// follower makes batches of what the hub tells. It belongs to one goroutine.
type follower struct {
	h     *History
	queue chan<- *batch
	now   func() time.Time

	young map[key]*Item // holds that the store does not know yet, and that have not ended
	spare []*Item       // for the next ones
	quick quick
	waits bucket
	out   []op
	first *events.Subscriber // from before the store was opened; nil: there is none

	// The present holders are read when something was missed: at the start, after a lag, after a loss.
	missed  *Gap           // what was missed; nil: nothing
	present chan *presence // where they come from
	came    *presence      // what has come; nil: nothing
	ended   map[key]bool   // while they are read: what has ended meanwhile; nil: they are not read
	blank   map[place]bool // locks with holders of other gateways of which nothing is known
	suspend time.Time      // when the session was suspended; zero: it is not
	dropped time.Time      // when the queue was full; zero: it is not
	seen    time.Time      // the last event
	read    time.Time      // until then it has read all events: what a stop leaves unread comes later
	end     Item           // of the event at hand

	describing sync.WaitGroup // what reads records
}

func newFollower(h *History, queue chan<- *batch, missed *Gap) *follower {
	return &follower{h: h, queue: queue, now: time.Now, young: map[key]*Item{}, missed: missed, present: make(chan *presence, 1), blank: map[place]bool{}}
}

// run follows the hub until ctx ends, and gives what it has.
func (f *follower) run(ctx context.Context) {
	defer func() {
		f.describing.Wait()
		f.flush(f.now(), true)
	}()
	for ctx.Err() == nil {
		began, s := f.now(), f.first
		if f.first = nil; s == nil {
			var err error
			if s, err = f.h.opt.Hub.Subscribe(following, ""); err != nil { // all places are taken
				f.miss(Gap{From: began, To: f.now().Add(time.Second), Cause: CauseLagged})
				_ = backoff.Sleep(ctx, time.Second)
				continue
			}
			f.miss(Gap{From: began, To: f.now(), Cause: CauseLagged})
		}
		err := f.follow(ctx, s)
		s.Close()
		if errors.Is(err, events.ErrClosed) { // the process ends
			<-ctx.Done()
		}
	}
}

// follow takes batches of one subscription until it is over.
func (f *follower) follow(ctx context.Context, s *events.Subscriber) error {
	from := f.now()
	f.ask(ctx, from)
	next := from.Add(flushes)
	for {
		turn, cancel := context.WithDeadline(ctx, next)
		batch, err := s.Next(turn)
		cancel()
		for _, e := range batch {
			if e.Type == events.Resync {
				f.miss(Gap{From: f.seenBefore(from), To: f.now(), Cause: CauseLagged})
				return events.ErrLagged
			}
			f.take(e)
			f.read = latest(f.read, e.Time) // the hub gives events in their order
		}
		if now := f.now(); !now.Before(next) {
			// The hub gives an event long before a whole turn is over. One of its last moments may still be on its way.
			f.read = latest(f.read, next.Add(-flushes))
			f.flush(now, false)
			f.reconcile(ctx, now)
			next = now.Add(flushes)
		}
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
	}
}

// seenBefore is when the follower was last up to date.
func (f *follower) seenBefore(otherwise time.Time) time.Time {
	if f.seen.IsZero() {
		return otherwise
	}
	return f.seen
}

// miss notes that something was missed: at once, so that answers say so.
func (f *follower) miss(g Gap) {
	f.out = append(f.out, op{do: doGap, gap: g})
	if f.missed == nil {
		f.missed = &g
		return
	}
	if g.From.Before(f.missed.From) {
		f.missed.From = g.From
	}
	f.missed.To = g.To
}

// take makes operations of an event.
func (f *follower) take(e *events.Event) {
	if e.Time.After(f.seen) {
		f.seen = e.Time
	}
	switch e.Type {
	case events.LeaseGranted:
		f.granted(e)
	case events.LeaseUpdated:
		f.updated(e)
	case events.LockHazard, events.DeadlockDetected:
		f.out = append(f.out, op{do: doInsert, item: conditionOf(e)})
	case events.LockHazardCleared, events.DeadlockCleared:
		i := conditionOf(e)
		i.End = e.Time
		f.out = append(f.out, op{do: doEnd, item: i})
	case events.ZooKeeperSuspended, events.ZooKeeperExpired:
		if f.suspend.IsZero() {
			f.suspend = e.Time
		}
	case events.ZooKeeperConnected:
		if !f.suspend.IsZero() {
			f.miss(Gap{From: f.suspend, To: f.now().Add(flushes), Cause: CauseZooKeeper})
			f.suspend = time.Time{}
		}
	default:
		f.over(e)
	}
	if len(f.out) >= maxBatch || len(f.young) >= maxYoung {
		f.flush(f.now(), len(f.young) >= maxYoung)
	}
}

func (f *follower) granted(e *events.Event) {
	k := keyOf(e)
	if f.young[k] != nil {
		return // told twice, after a lost connection
	}
	var i *Item
	if last := len(f.spare) - 1; last >= 0 {
		i, f.spare = f.spare[last], f.spare[:last]
	} else {
		i = &Item{}
	}
	i.set(e)
	i.Begin = e.Time
	if !i.Queued.IsZero() {
		i.Waited, i.WaitedKnown = max(i.Begin.Sub(i.Queued), 0), true
	}
	f.young[k] = i
}

func (f *follower) updated(e *events.Event) {
	i := itemOf(e)
	if old := f.young[keyOf(e)]; old != nil {
		old.amend(i)
	} else if e.FencingToken != 0 {
		f.out = append(f.out, op{do: doAmend, item: i})
	}
}

// over is the end of a contender.
func (f *follower) over(e *events.Event) {
	k := keyOf(e)
	if f.ended != nil {
		f.ended[k] = true
	}
	if i := f.young[k]; i != nil {
		delete(f.young, k)
		f.end.set(e)
		f.end.ended(e)
		i.end(&f.end)
		if !isQuick(i) || f.quick.keeps(i) {
			f.out = append(f.out, op{do: doInsert, item: i})
		} else if len(f.spare) < maxSpare {
			f.spare = append(f.spare, i)
		}
		return
	}
	i := itemOf(e)
	i.ended(e)
	if e.Type == events.LeaseCancelled && !i.Queued.IsZero() && i.End.Sub(i.Queued) < quickSpan && !f.waits.take(i.End, waitBurst, waitRate) {
		return
	}
	f.out = append(f.out, op{do: doEnd, item: i})
}

// ended takes over how an event says that it ended.
func (i *Item) ended(e *events.Event) {
	i.End, i.By, i.Detail = e.Time, e.By, e.Detail
	if i.Reason = locks.Reason(e.Reason); i.Reason == "" {
		i.Reason = endReasons[e.Type]
	}
	i.held = e.FencingToken != 0 || e.Type == events.LeaseReleased || e.Type == events.LeaseUnclaimed
}

// flush gives the writer what there is; always: also the holds that are young.
func (f *follower) flush(now time.Time, always bool) {
	first := len(f.out)
	for k, i := range f.young {
		if !always && now.Sub(i.Begin) < youngest {
			continue
		}
		f.out = append(f.out, op{do: doInsert, item: i})
		delete(f.young, k)
		if i.Owner == "" && !i.Foreign && len(f.blank) < maxBlank {
			f.blank[place{i.NS, i.Lock}] = true
		}
	}
	slices.SortFunc(f.out[first:], func(a, b op) int {
		return cmp.Or(a.item.Begin.Compare(b.item.Begin), cmp.Compare(a.item.FencingToken, b.item.FencingToken), cmp.Compare(a.item.mark(), b.item.mark()))
	})
	f.quick.flush(now, always, func(i *Item) { f.out = append(f.out, op{do: doInsert, item: i}) })
	f.send(now)
}

// send hands the batch over. A queue that is full loses it, which is a gap.
func (f *follower) send(now time.Time) {
	if !f.dropped.IsZero() {
		f.out = slices.Insert(f.out, 0, op{do: doGap, gap: Gap{From: f.dropped, To: now, Cause: CauseDropped}})
	}
	select {
	case f.queue <- &batch{at: now, read: f.read, ops: f.out}:
		if !f.dropped.IsZero() {
			f.miss(Gap{From: f.dropped, To: now, Cause: CauseDropped})
			f.dropped = time.Time{}
		}
	default:
		f.h.lost(len(f.out))
		if f.dropped.IsZero() {
			f.dropped = now.Add(-flushes)
		}
	}
	f.out = nil
}

// itemOf is what an event says of a contender.
func itemOf(e *events.Event) *Item {
	i := &Item{}
	i.set(e)
	return i
}

// set makes the item say what an event says of a contender.
func (i *Item) set(e *events.Event) {
	*i = Item{Kind: Hold, NS: e.NS, Lock: e.Lock, LeaseID: e.LeaseID, Foreign: e.Foreign, Program: e.Program, Owner: e.Owner, Principal: e.Principal, Gateway: e.Gateway,
		Purpose: e.Purpose, Mode: locks.Mode(e.Mode), Permits: int(e.Permits), FencingToken: e.FencingToken}
	if e.LeaseID == "" {
		i.Name = e.Name
	}
	if e.Queued > 0 {
		i.Queued = time.UnixMilli(e.Queued)
	}
}

// keyOf is the key of the item that an event about a contender makes.
func keyOf(e *events.Event) key {
	if e.LeaseID != "" {
		return key{e.NS, e.Lock, e.LeaseID}
	}
	return key{e.NS, e.Lock, e.Name}
}

// conditionOf is a hazard, or a wait of a deadlock.
func conditionOf(e *events.Event) *Item {
	i := &Item{Kind: Deadlock, NS: e.NS, Lock: e.Lock, LeaseID: e.LeaseID, Owner: e.Owner, Mode: locks.Mode(e.Mode), Begin: e.Time, Code: e.Cycle, Detail: e.Detail}
	if h := e.Hazard; h != nil {
		i.Kind, i.Code, i.Programs = Hazard, h.Code, h.Programs
	}
	return i
}

// amend takes over what is known better now.
func (i *Item) amend(n *Item) {
	take(&i.Owner, n.Owner)
	take(&i.Principal, n.Principal)
	take(&i.Gateway, n.Gateway)
	take(&i.Purpose, n.Purpose)
	take(&i.Mode, n.Mode)
	if n.FencingToken != 0 {
		i.FencingToken = n.FencingToken
	}
	if n.Permits != 0 {
		i.Permits = n.Permits
	}
	if !i.WaitedKnown && !n.Queued.IsZero() && !i.Begin.IsZero() {
		i.Waited, i.WaitedKnown = max(i.Begin.Sub(n.Queued), 0), true
	}
}

func take[T ~string](to *T, value T) {
	if value != "" {
		*to = value
	}
}

// end takes over how it ended.
func (i *Item) end(n *Item) {
	i.amend(n)
	i.End, i.Late, i.Reason, i.By, i.Detail = n.End, n.Late, n.Reason, n.By, n.Detail
}
