package history

import (
	"context"
	"strings"
	"time"

	"lockkeeper/internal/locks"
)

// Locks is the lock manager, as far as the history asks it.
type Locks interface {
	Ready() error
	Info(ctx context.Context) locks.Info
	Locks(ctx context.Context, f locks.LockFilter) (locks.LockPage, error)
	Lock(ctx context.Context, r locks.LockRequest) (locks.Lock, error)
}

// Now is what holds now.
type Now interface {
	// Present lists who holds locks, and the locks' hazards. It fails while that is not known.
	Present(ctx context.Context) ([]*Item, error)
	// Holders lists who holds a lock, with what their records say.
	Holders(ctx context.Context, ns, lock string) ([]*Item, error)
}

// LocksNow is what holds now, by the lock manager.
type LocksNow struct{ Locks Locks }

// Present implements Now.
func (l LocksNow) Present(ctx context.Context) (list []*Item, err error) {
	if err := l.Locks.Ready(); err != nil {
		return nil, err
	}
	for _, ns := range l.Locks.Info(ctx).Namespaces {
		for _, hazardous := range []bool{false, true} {
			f := locks.LockFilter{Principal: locks.Anonymous, NS: ns, Hazardous: hazardous, Limit: locks.MaxPage}
			for more := true; more; more = f.Cursor != "" {
				page, err := l.Locks.Locks(ctx, f)
				if err != nil {
					return nil, err
				}
				f.Cursor = page.NextCursor
				for i := range page.Items {
					if list, err = l.add(ctx, list, &page.Items[i], hazardous); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return list, nil
}

// add adds the holders of a lock, or its hazards.
func (l LocksNow) add(ctx context.Context, list []*Item, q *locks.Lock, hazards bool) ([]*Item, error) {
	if hazards {
		for _, h := range q.Hazards {
			list = append(list, &Item{Kind: Hazard, NS: q.NS, Lock: q.Name, Begin: time.Now(), Early: DefaultKeep, Code: string(h.Code), Programs: h.Programs, Detail: h.Detail})
		}
		return list, nil
	}
	if q.HolderCount == len(q.Holders) {
		return append(list, heldBy(q)...), nil
	}
	more, err := l.Holders(ctx, q.NS, q.Name) // a list has the first ones alone
	return append(list, more...), err
}

// Holders implements Now.
func (l LocksNow) Holders(ctx context.Context, ns, lock string) (list []*Item, err error) {
	q := locks.LockRequest{Principal: locks.Anonymous, NS: ns, Lock: lock, Limit: locks.MaxPage}
	for more := true; more; more = q.Cursor != "" {
		page, err := l.Locks.Lock(ctx, q)
		if err != nil {
			return nil, err
		}
		list = append(list, heldBy(&page)...)
		if q.Cursor = page.NextCursor; len(page.Holders) == 0 {
			break // the rest waits
		}
	}
	return list, nil
}

// heldBy are the holders that a page shows.
func heldBy(l *locks.Lock) (list []*Item) {
	for i := range l.Holders {
		c := &l.Holders[i]
		if c.Delayed || c.Position > 0 {
			continue // it has ended, and its place stays for a while
		}
		item := &Item{Kind: Hold, NS: l.NS, Lock: l.Name, LeaseID: c.LeaseID, Owner: c.Owner, Principal: c.Principal, Purpose: c.Purpose, Mode: c.Mode, Permits: c.Permits,
			FencingToken: c.FencingToken, Begin: c.At.Add(-c.HeldFor)}
		if c.Foreign != nil {
			item.Foreign, item.Program, item.Name = true, c.Foreign.Program, c.Znode[strings.LastIndexByte(c.Znode, '/')+1:]
		}
		if c.AgeKnown {
			item.Queued = c.At.Add(-c.Age)
		}
		switch {
		case !c.HeldLonger && !item.Queued.IsZero():
			item.Waited, item.WaitedKnown = max(item.Begin.Sub(item.Queued), 0), true
		case c.HeldLonger && !item.Queued.IsZero():
			item.Early = max(item.Begin.Sub(item.Queued), time.Millisecond)
		case c.HeldLonger:
			item.Early = DefaultKeep
		}
		list = append(list, item)
	}
	return list
}
