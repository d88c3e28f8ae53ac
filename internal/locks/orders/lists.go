package orders

import (
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
)

// Kind is what an index finds locks by.
type Kind uint8

// The kinds of an index.
const (
	ByOwner Kind = iota
	ByHost
	ByMode
)

// Source tells what lists compare of a lock.
type Source interface {
	// Number is what a sorted list compares, the greatest first; has is false for a lock without one.
	Number(q *queues.Queue, by locks.LockSort) (number int64, has bool)
	// Words are the words by which an index finds the lock.
	Words(q *queues.Queue, kind Kind) []string
}

// Lists are the orders that are kept, by namespace.
type Lists map[*queues.Namespace]*kept

// kept are the orders of a namespace.
type kept struct {
	numbers map[locks.LockSort]*Numbers
	words   map[Kind]*Words
}

// settleChunk bounds the queues that are put in order in one call.
const settleChunk = 1024

// of are the orders of a namespace, whose queues mark their changes from now on.
func (l Lists) of(s *queues.Namespace) *kept {
	k := l[s]
	if k == nil {
		k = &kept{numbers: map[locks.LockSort]*Numbers{}, words: map[Kind]*Words{}}
		l[s] = k
		s.KeepChanges()
	}
	return k
}

// Numbers is the order of a namespace for a sorted list, as far as it is made.
func (l Lists) Numbers(s *queues.Namespace, by locks.LockSort) *Numbers {
	k := l.of(s)
	order := k.numbers[by]
	if order == nil {
		order = NewNumbers()
		k.numbers[by] = order
	}
	return order
}

// Words is the index of a namespace for a list by words, as far as it is made.
func (l Lists) Words(s *queues.Namespace, kind Kind) *Words {
	k := l.of(s)
	index := k.words[kind]
	if index == nil {
		index = NewWords()
		k.words[kind] = index
	}
	return index
}

// Make puts the next queues of a namespace into an order that is being made, and reports whether there are others.
func (b *Building) Make(s *queues.Namespace, put func(*queues.Queue)) (more bool) {
	looked := 0
	s.Queues.Ascend(queues.At(b.From), func(q *queues.Queue) bool {
		if looked++; looked > settleChunk {
			b.From, more = q.Dir(), true
			return false
		}
		put(q)
		return true
	})
	b.Complete = b.Complete || !more
	return more
}

// Settle puts changed queues of a namespace in order, at most so many as it reports.
func (l Lists) Settle(src Source, s *queues.Namespace) (most int) {
	l.of(s).settle(src, s)
	return settleChunk
}

func (k *kept) settle(src Source, s *queues.Namespace) {
	for _, changed := range s.TakeChanged(settleChunk) {
		dir := changed.Dir()
		q, found := s.Queues.Get(changed) // another one may have taken its place
		for by, order := range k.numbers {
			if found {
				order.Take(src, by, q)
			} else {
				order.Remove(dir)
			}
		}
		for kind, index := range k.words {
			if found {
				index.Put(dir, src.Words(q, kind))
			} else {
				index.Put(dir, nil)
			}
		}
	}
}

// Take gives a lock the number that it has now.
func (n *Numbers) Take(src Source, by locks.LockSort, q *queues.Queue) {
	if number, has := src.Number(q, by); has {
		n.Put(q.Dir(), number)
	} else {
		n.Remove(q.Dir())
	}
}

// SettleAll puts some of the changed queues of each namespace in order, and reports whether there are others.
func (l Lists) SettleAll(src Source) (more bool) {
	for s, k := range l {
		k.settle(src, s)
		more = more || s.Changed() > 0
	}
	return more
}

// Drop drops the orders for which no list has asked for Life. now is of the boot clock.
func (l Lists) Drop(now time.Duration) {
	for s, k := range l {
		for by, order := range k.numbers {
			if now-order.Asked >= Life {
				delete(k.numbers, by)
			}
		}
		for kind, index := range k.words {
			if now-index.Asked >= Life {
				delete(k.words, kind)
			}
		}
		if len(k.numbers)+len(k.words) == 0 {
			delete(l, s)
			s.DropChanges()
		}
	}
}
