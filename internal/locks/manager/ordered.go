package manager

import (
	"context"
	"slices"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/orders"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// Lists that are sorted, or limited to an owner, a host or a mode: package orders keeps what they need, once a list has asked (orders.Lists).

// numbersBy is the order of a namespace that a sorted list needs, up to date.
func (l *lockList) numbersBy(ctx context.Context, s *queues.Namespace) (*orders.Numbers, error) {
	by := l.filter.Sort
	order := l.m.lists.Numbers(s, by)
	return order, l.settled(ctx, s, &order.Building, func(q *queues.Queue) { order.Take(&l.m.answers, by, q) })
}

// wordsBy is the index of a namespace that a list by words needs, up to date.
func (l *lockList) wordsBy(ctx context.Context, s *queues.Namespace, kind orders.Kind) (*orders.Words, error) {
	index := l.m.lists.Words(s, kind)
	return index, l.settled(ctx, s, &index.Building, func(q *queues.Queue) { index.Put(q.Dir(), l.m.answers.Words(q, kind)) })
}

// settled makes what is missing of an order, and puts the queues in order that have changed. The monitor is held, and released
// between chunks.
func (l *lockList) settled(ctx context.Context, s *queues.Namespace, b *orders.Building, put func(*queues.Queue)) error {
	m := l.m
	b.Asked = m.clock.Now().Boot()
	for !b.Complete {
		if b.Make(s, put) {
			if err := l.pause(ctx); err != nil {
				return err
			}
		}
	}
	for left := s.Changed(); left > 0; { // those that are marked meanwhile are for the next list
		if left -= m.lists.Settle(&m.answers, s); left > 0 {
			if err := l.pause(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepOrders puts the queues in order that have changed, and drops orders for which no list has asked for long. The sweeper does that
// once a second, so that a list never finds more than a second's changes.
func (w *sweeper) keepOrders() {
	m := w.m
	for more := true; more; {
		m.do(func() {
			m.lists.Drop(m.clock.Now().Boot())
			more = m.lists.SettleAll(&m.answers)
		})
	}
}

// Number is what a sorted list compares of a lock, the greatest first. Spans are compared by when they began, in milliseconds of
// the wall clock, so that nothing moves while they grow. A lock without waiters, or holders, has none.
func (a *answers) Number(q *queues.Queue, by locks.LockSort) (number int64, has bool) {
	now := a.clock.Now()
	switch by {
	case locks.SortWaiters:
		n := q.Contenders.Waiting()
		return int64(n), n > 0
	case locks.SortHeld:
		looked := 0
		for c := range q.Contenders.Holders() {
			if looked++; looked > maxHolders {
				break
			}
			o := a.observedOf(q, c)
			if !o.Holds {
				continue
			}
			began := now.Wall() - (now.Boot() - o.Since)
			if o.SinceBefore {
				if _, granted, known := a.momentsOf(q, c); known {
					began = min(began, granted)
				}
			}
			if n := -began.Milliseconds(); !has || n > number {
				number, has = n, true
			}
		}
	case locks.SortWait:
		if q.Contenders.Waiting() == 0 {
			return 0, false
		}
		c := q.Contenders.At(q.Contenders.Len() - q.Contenders.Waiting())
		queued, _, _ := a.momentsOf(q, c) // the first in line has waited for the longest time
		if queued == 0 {
			queued = a.parties.Get(c).Queued
		}
		return -queued.Milliseconds(), queued != 0
	}
	return number, has
}

// Words are the words by which an index finds a lock.
func (a *answers) Words(q *queues.Queue, kind orders.Kind) (words []string) {
	if limit, agreed := q.Limit(); kind == orders.ByMode && limit > 0 && !agreed {
		words = append(words, string(locks.Semaphore))
	}
	last := ""
	for _, c := range q.Contenders.All() {
		word := ""
		switch kind {
		case orders.ByMode:
			word = string(locks.ModeOf(c.Mode))
		case orders.ByOwner:
			word, _ = a.ownerOf(q, c)
		case orders.ByHost:
			owner, _ := a.ownerOf(q, c)
			word = locks.HostOf(owner)
		}
		if word != "" && word != last {
			words = append(words, word)
		}
		last = word
	}
	return words
}

// ownerOf is whose a contender of this fleet is, and what for, as far as this gateway knows: of its own leases, and of others whose
// records it has read.
func (a *answers) ownerOf(q *queues.Queue, c *recipe.Contender) (owner, purpose string) {
	if !c.Ours || a.leases.copied(q, c) {
		return "", ""
	}
	if l := a.leases.lease(c.LeaseID); l != nil {
		return l.owner, l.purpose()
	}
	if i := q.Node(c.Name); i != nil {
		return i.Record.Owner, i.Record.Purpose
	}
	return a.parties.Get(c).Party.Owner, ""
}

// wanted reports whether a lock has a lease as the filter asks for.
func (l *lockList) wanted(q *queues.Queue) bool {
	f := l.filter
	if f.Owner == "" && f.Host == "" && f.Purpose == "" {
		return true
	}
	for _, c := range q.Contenders.All() {
		owner, purpose := l.m.answers.ownerOf(q, c)
		if (f.Owner == "" || owner == f.Owner) && (f.Host == "" || locks.HostOf(owner) == f.Host) && hasPart(purpose, f.Purpose) && c.Ours {
			return true
		}
	}
	return l.also[q.Dir()]
}

// hasMode reports whether a lock is held or waited for in a mode, or is a semaphore whose limit was set.
func hasMode(q *queues.Queue, mode locks.Mode) bool {
	if limit, agreed := q.Limit(); mode == locks.Semaphore && limit > 0 && !agreed {
		return true
	}
	for _, c := range q.Contenders.All() {
		if locks.ModeOf(c.Mode) == mode {
			return true
		}
	}
	return false
}

// placeIn reads the cursor of a list: the directory of the last lock, or, of a sorted list, the place of it.
func placeIn(f *locks.LockFilter) (last string, behind *paging.SortedPlace, err error) {
	if f.Sort != "" {
		behind, err = paging.SortedPlaceAt(f.Sort, f.Cursor)
		return "", behind, err
	}
	last, err = paging.Locks.At(f.Cursor)
	return last, nil, err
}

// make makes the page. The monitor is held, and released between chunks.
func (l *lockList) make(ctx context.Context, s *queues.Namespace, behind *paging.SortedPlace) error {
	if e := l.filter.Elsewhere; e != nil {
		l.also = make(map[string]bool, len(e.Names))
		for _, name := range e.Names {
			dir, _ := recipe.LockDir(name)
			l.also[dir] = true
		}
	}
	kind, word := orders.ByMode, string(l.filter.Mode)
	if l.filter.Host != "" {
		kind, word = orders.ByHost, l.filter.Host
	}
	if l.filter.Owner != "" {
		kind, word = orders.ByOwner, l.filter.Owner
	}
	switch {
	case l.filter.Sort != "" && (word == "" || kind == orders.ByMode):
		return l.sorted(ctx, s, behind)
	case l.filter.Sort != "":
		return l.sortedOf(ctx, s, kind, word, behind)
	case word != "":
		return l.named(ctx, s, kind, word)
	}
	for !l.scan(s) {
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pause releases the monitor for a moment.
func (l *lockList) pause(ctx context.Context) (err error) {
	if l.m.outside(func() { err = ctx.Err() }); err != nil {
		return cancelled(ctx)
	}
	return nil
}

// fits reports whether a lock belongs to the list.
func (l *lockList) fits(q *queues.Queue) bool {
	return strings.HasPrefix(q.Dir(), l.prefix.Dir()) && l.prefix.Fits(q.Dir()) && l.matches(q)
}

// named makes the page of the locks that a word finds, in the order of their names.
func (l *lockList) named(ctx context.Context, s *queues.Namespace, kind orders.Kind, word string) error {
	index, err := l.wordsBy(ctx, s, kind)
	if err != nil {
		return err
	}
	for from := l.last; ; {
		list, more := l.candidates(index, word, from, scanChunk)
		for _, dir := range list {
			if to := l.filter.Elsewhere; to != nil && to.To != "" && queues.From(to.To).Dir() < dir {
				l.page.NextCursor = paging.Locks.Cursor(queues.From(to.To).Dir())
				return nil
			}
			if q, found := s.Queues.Get(queues.At(dir)); found && l.fits(q) && !l.show(q) {
				return nil
			}
			from = dir
		}
		if !more {
			break
		}
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
	if to := l.filter.Elsewhere; to != nil && to.To != "" {
		l.page.NextCursor = paging.Locks.Cursor(queues.From(to.To).Dir())
	}
	return nil
}

// candidates are the directories behind one that a word finds, here or at other gateways, at most so many of those that are found
// here, in order. more: there are others.
func (l *lockList) candidates(index *orders.Words, word, from string, most int) (list []string, more bool) {
	index.Behind(word, from, func(dir string) bool {
		if more = len(list) == most; more {
			return false
		}
		list = append(list, dir)
		return true
	})
	last := ""
	if more {
		last = list[len(list)-1]
	}
	for dir := range l.also {
		if dir > from && (!more || dir < last) {
			list = append(list, dir)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), more
}

// sorted makes a page of all locks of the list: those that have a number in the order of it, then the others by name.
func (l *lockList) sorted(ctx context.Context, s *queues.Namespace, behind *paging.SortedPlace) error {
	order, err := l.numbersBy(ctx, s)
	if err != nil {
		return err
	}
	at := paging.SortedPlace{Sort: l.filter.Sort}
	if behind != nil {
		at = *behind
	}
	var from *orders.Place // where the walk is; a cursor names shown locks alone, for others may be hidden from the caller
	if at.Dir != "" {
		from = &orders.Place{Number: at.Number, Dir: at.Dir}
	}
	for done := at.Rest; !done; {
		looked := 0
		done = true
		full := false
		order.Behind(from, func(p orders.Place) bool {
			if looked++; looked > scanChunk {
				done = false
				return false
			}
			if q, found := s.Queues.Get(queues.At(p.Dir)); found && l.fits(q) {
				if full = !l.add(q); full {
					return false
				}
				at.Number, at.Dir = p.Number, p.Dir
			}
			from = &p
			return true
		})
		if full {
			l.page.NextCursor = at.Cursor()
			return nil
		}
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
	return l.rest(ctx, s, order, at)
}

// rest goes on with the locks that have no number. at is the place behind which it does.
func (l *lockList) rest(ctx context.Context, s *queues.Namespace, order *orders.Numbers, at paging.SortedPlace) error {
	last := ""
	if at.Rest {
		last = at.Dir
	}
	for done := false; !done; {
		looked, from := 0, last
		done = true
		s.Queues.Ascend(queues.At(from), func(q *queues.Queue) bool {
			if looked++; looked > scanChunk {
				done = false
				return false
			}
			last = q.Dir()
			if last == from || order.Has(last) || !l.fits(q) {
				return true
			}
			if !l.add(q) {
				l.page.NextCursor = at.Cursor()
				return false
			}
			at = paging.SortedPlace{Sort: at.Sort, Rest: true, Dir: last}
			return true
		})
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sortedOf makes a page of the locks that a word finds, sorted.
func (l *lockList) sortedOf(ctx context.Context, s *queues.Namespace, kind orders.Kind, word string, behind *paging.SortedPlace) error {
	index, err := l.wordsBy(ctx, s, kind)
	if err != nil {
		return err
	}
	var all []paging.SortedPlace
	for from, more := "", true; more; {
		var list []string
		list, more = l.candidates(index, word, from, scanChunk)
		for _, dir := range list {
			if q, found := s.Queues.Get(queues.At(dir)); found && l.fits(q) {
				number, has := l.m.answers.Number(q, l.filter.Sort)
				all = append(all, paging.SortedPlace{Sort: l.filter.Sort, Number: number, Rest: !has, Dir: dir})
			}
			from = dir
		}
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
	slices.SortFunc(all, paging.ComparePlaces)
	at := paging.SortedPlace{}
	for i := range all {
		p := all[i]
		if behind != nil && paging.ComparePlaces(p, *behind) <= 0 {
			continue
		}
		if q, found := s.Queues.Get(queues.At(p.Dir)); found && l.fits(q) && !l.add(q) {
			l.page.NextCursor = at.Cursor()
			return nil
		}
		at = p
	}
	return nil
}
