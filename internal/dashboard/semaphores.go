package dashboard

import (
	"cmp"
	"context"
	"slices"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

// semaphoresOf are the semaphores of all namespaces, those with the longest queues first.
func semaphoresOf(ctx context.Context, from Locks, as reading) (rows []templates.SemaphoreRow, more bool, err error) {
	var found []locks.Lock
	for _, ns := range as.info.Namespaces {
		list, failed := from.Locks(ctx, locks.LockFilter{Principal: as.who, NS: ns, Mode: locks.Semaphore, Sort: locks.SortWaiters, Limit: maxSemaphores})
		if failed != nil {
			err = failed // another namespace may be there
			continue
		}
		more = more || list.NextCursor != ""
		found = append(found, list.Items...)
	}
	slices.SortStableFunc(found, func(a, b locks.Lock) int { return cmp.Compare(b.QueueLength, a.QueueLength) })
	if len(found) > maxSemaphores {
		found, more = found[:maxSemaphores], true
	}
	for i := range found {
		if row, is := semaphoreRowOf(ctx, from, as.who, &found[i]); is {
			rows = append(rows, row)
		}
	}
	return rows, more, err
}

// semaphoreRowOf is a semaphore's row. What the first in line needs is asked of its lock.
func semaphoreRowOf(ctx context.Context, from Locks, who locks.Principal, l *locks.Lock) (templates.SemaphoreRow, bool) {
	if l.QueueLength > 0 {
		if whole, err := from.Lock(ctx, locks.LockRequest{Principal: who, NS: l.NS, Lock: l.Name, Limit: 1}); err == nil {
			l = &whole
		}
	}
	p := permitsOf(l, true)
	if p == nil {
		return templates.SemaphoreRow{}, false
	}
	return templates.SemaphoreRow{NS: visible(l.NS), Name: visible(l.Name), URL: urlOf(lockPage{ns: l.NS, lock: l.Name, tab: tabQueue}),
		Limit: p.Limit, Used: p.Taken, Next: p.Next, Queue: l.QueueLength}, true
}
