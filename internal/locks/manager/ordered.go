package manager

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/orders"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// Lists that are sorted, or limited to an owner, a host or a mode: package orders keeps what they need, once a list has asked.

// lists are the orders that are kept, by namespace. The monitor guards them.
type lists map[*queues.Namespace]*kept

// kept are the orders of a namespace.
type kept struct {
	numbers map[locks.LockSort]*orders.Numbers
	words   map[wordKind]*orders.Words
}

// wordKind is what an index finds locks by.
type wordKind uint8

const (
	byOwner wordKind = iota
	byHost
	byMode
)

// settleChunk bounds the queues that are put in order under one hold of the monitor.
const settleChunk = 1024

// of are the orders of a namespace, whose queues mark their changes from now on.
func (l lists) of(s *queues.Namespace) *kept {
	k := l[s]
	if k == nil {
		k = &kept{numbers: map[locks.LockSort]*orders.Numbers{}, words: map[wordKind]*orders.Words{}}
		l[s] = k
		s.KeepChanges()
	}
	return k
}

// numbersBy is the order of a namespace that a sorted list needs, up to date.
func (m *Manager) numbersBy(ctx context.Context, s *queues.Namespace, by locks.LockSort) (*orders.Numbers, error) {
	k := m.lists.of(s)
	order := k.numbers[by]
	if order == nil {
		order = orders.NewNumbers()
		k.numbers[by] = order
	}
	return order, m.settled(ctx, s, &order.Building, func(q *queues.Queue) { m.answers.putNumber(order, by, q) })
}

// wordsBy is the index of a namespace that a list by words needs, up to date.
func (m *Manager) wordsBy(ctx context.Context, s *queues.Namespace, kind wordKind) (*orders.Words, error) {
	k := m.lists.of(s)
	index := k.words[kind]
	if index == nil {
		index = orders.NewWords()
		k.words[kind] = index
	}
	return index, m.settled(ctx, s, &index.Building, func(q *queues.Queue) { index.Put(q.Dir(), m.answers.wordsOf(q, kind)) })
}

// settled makes what is missing of an order, and puts the queues in order that have changed. The monitor is held, and released
// between chunks.
func (m *Manager) settled(ctx context.Context, s *queues.Namespace, b *orders.Building, put func(*queues.Queue)) (err error) {
	b.Asked = m.clock.Now().Boot()
	for !b.Complete {
		looked, done := 0, true
		s.Queues.Ascend(queues.At(b.From), func(q *queues.Queue) bool {
			if looked++; looked > settleChunk {
				b.From, done = q.Dir(), false
				return false
			}
			put(q)
			return true
		})
		if b.Complete = b.Complete || done; !done {
			if m.outside(func() { err = ctx.Err() }); err != nil {
				return cancelled(ctx)
			}
		}
	}
	for left := s.Changed(); left > 0; left -= settleChunk { // those that are marked meanwhile are for the next list
		m.lists.of(s).settle(&m.answers, s)
		if left > settleChunk {
			if m.outside(func() { err = ctx.Err() }); err != nil {
				return cancelled(ctx)
			}
		}
	}
	return nil
}

// settle puts changed queues in order, at most settleChunk of them.
func (k *kept) settle(a *answers, s *queues.Namespace) {
	for _, changed := range s.TakeChanged(settleChunk) {
		dir := changed.Dir()
		q, found := s.Queues.Get(changed) // another one may have taken its place
		for by, order := range k.numbers {
			if found {
				a.putNumber(order, by, q)
			} else {
				order.Remove(dir)
			}
		}
		for kind, index := range k.words {
			if found {
				index.Put(dir, a.wordsOf(q, kind))
			} else {
				index.Put(dir, nil)
			}
		}
	}
}

// keepUp puts the queues in order that have changed, and drops orders for which no list has asked for long. The sweeper calls it
// once a second, so that a list never finds more than a second's changes.
func (l lists) keepUp(m *Manager) {
	for more := true; more; {
		more = false
		m.do(func() {
			l.drop(m.clock.Now().Boot())
			for s, k := range l {
				k.settle(&m.answers, s)
				more = more || s.Changed() > 0
			}
		})
	}
}

func (l lists) drop(now time.Duration) {
	for s, k := range l {
		for by, order := range k.numbers {
			if now-order.Asked >= orders.Life {
				delete(k.numbers, by)
			}
		}
		for kind, index := range k.words {
			if now-index.Asked >= orders.Life {
				delete(k.words, kind)
			}
		}
		if len(k.numbers)+len(k.words) == 0 {
			delete(l, s)
			s.DropChanges()
		}
	}
}

func (a *answers) putNumber(order *orders.Numbers, by locks.LockSort, q *queues.Queue) {
	if number, has := a.numberOf(q, by); has {
		order.Put(q.Dir(), number)
	} else {
		order.Remove(q.Dir())
	}
}

// numberOf is what a sorted list compares of a lock, the greatest first. Spans are compared by when they began, in milliseconds of
// the wall clock, so that nothing moves while they grow. A lock without waiters, or holders, has none.
func (a *answers) numberOf(q *queues.Queue, by locks.LockSort) (number int64, has bool) {
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

// wordsOf are the words by which an index finds a lock.
func (a *answers) wordsOf(q *queues.Queue, kind wordKind) (words []string) {
	if limit, agreed := q.Limit(); kind == byMode && limit > 0 && !agreed {
		words = append(words, string(locks.Semaphore))
	}
	last := ""
	for _, c := range q.Contenders.All() {
		word := ""
		switch kind {
		case byMode:
			word = string(locks.ModeOf(c.Mode))
		case byOwner:
			word, _ = a.ownerOf(q, c)
		case byHost:
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
	kind, word := byMode, string(l.filter.Mode)
	if l.filter.Host != "" {
		kind, word = byHost, l.filter.Host
	}
	if l.filter.Owner != "" {
		kind, word = byOwner, l.filter.Owner
	}
	switch {
	case l.filter.Sort != "" && (word == "" || kind == byMode):
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
func (l *lockList) named(ctx context.Context, s *queues.Namespace, kind wordKind, word string) error {
	index, err := l.m.wordsBy(ctx, s, kind)
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
	order, err := l.m.numbersBy(ctx, s, l.filter.Sort)
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
func (l *lockList) sortedOf(ctx context.Context, s *queues.Namespace, kind wordKind, word string, behind *paging.SortedPlace) error {
	index, err := l.m.wordsBy(ctx, s, kind)
	if err != nil {
		return err
	}
	var all []paging.SortedPlace
	for from, more := "", true; more; {
		var list []string
		list, more = l.candidates(index, word, from, scanChunk)
		for _, dir := range list {
			if q, found := s.Queues.Get(queues.At(dir)); found && l.fits(q) {
				number, has := l.m.answers.numberOf(q, l.filter.Sort)
				all = append(all, paging.SortedPlace{Sort: l.filter.Sort, Number: number, Rest: !has, Dir: dir})
			}
			from = dir
		}
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
	slices.SortFunc(all, comparePlaces)
	at := paging.SortedPlace{}
	for i := range all {
		p := all[i]
		if behind != nil && comparePlaces(p, *behind) <= 0 {
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

// comparePlaces orders places as sorted and rest show them.
func comparePlaces(a, b paging.SortedPlace) int {
	if a.Rest != b.Rest {
		if a.Rest {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Dir, b.Dir))
}
