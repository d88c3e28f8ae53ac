package history

import (
	"time"

	"lockkeeper/internal/locks"
)

// What a quick hold is, and how many of them have a row of their own. A lock that cycles a thousand times a second would
// otherwise push everything else out of the store within minutes, and writing that much would cost locks.
const (
	quickSpan = time.Second // shorter holds, after shorter waits, are quick
	// A lock has quickBurst rows of quick holds at once, and quickRate a second after that; all locks together have
	// totalBurst and totalRate.
	quickBurst = 30
	quickRate  = 2.0
	totalBurst = 1000
	totalRate  = 200.0
	// manyAfter is how long quick holds are counted for one row.
	manyAfter = 10 * time.Second
	// maxQuick bounds the locks that are told apart. What is quick in further ones is counted together, without a lock.
	maxQuick = 1000
)

// bucket is a token bucket; it is full when it is new.
type bucket struct {
	left float64
	at   time.Time
}

func (b *bucket) take(now time.Time, burst, rate float64) bool {
	if b.at.IsZero() {
		b.left = burst
	} else if since := now.Sub(b.at); since > 0 {
		b.left = min(burst, b.left+since.Seconds()*rate)
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// place names a lock.
type place struct{ ns, lock string }

// many counts the quick holds of a lock that have no rows of their own.
type many struct {
	bucket       bucket
	count        int
	first, last  time.Time
	waited, held time.Duration // sums
}

// quick decides which quick holds have rows of their own, and counts the others. It is passive and given the time.
type quick struct {
	total  bucket
	locks  map[place]*many
	others many // of locks beyond maxQuick
	began  time.Time
}

// isQuick reports whether a hold is of the kind that may be counted.
func isQuick(i *Item) bool {
	return i.Kind == Hold && i.Reason == locks.ReasonReleased && !i.Foreign && i.Early == 0 && i.By == "" && i.WaitedKnown && i.Waited < quickSpan && i.End.Sub(i.Begin) < quickSpan
}

// keeps reports whether a quick hold has a row of its own. If it does not, it is counted.
func (q *quick) keeps(i *Item) bool {
	at := place{i.NS, i.Lock}
	m := q.locks[at]
	if m == nil {
		if q.locks == nil {
			q.locks = map[place]*many{}
		}
		if len(q.locks) < maxQuick {
			m = &many{}
			q.locks[at] = m
		} else {
			m = &q.others
		}
	}
	own := m == &q.others || m.bucket.take(i.End, quickBurst, quickRate)
	if own && q.total.take(i.End, totalBurst, totalRate) {
		return true
	}
	m.add(i)
	if q.began.IsZero() {
		q.began = i.End
	}
	return false
}

func (m *many) add(i *Item) {
	if m.count == 0 || i.Begin.Before(m.first) {
		m.first = i.Begin
	}
	if i.End.After(m.last) {
		m.last = i.End
	}
	m.count++
	m.waited += i.Waited
	m.held += i.End.Sub(i.Begin)
}

// flush gives the rows of what was counted, when it is time for them or in any case.
func (q *quick) flush(now time.Time, always bool, give func(*Item)) {
	if !always && (len(q.locks) == 0 || !q.began.IsZero() && now.Sub(q.began) < manyAfter) {
		return
	}
	for at, m := range q.locks {
		m.flush(at, give)
		if idle := now.Sub(m.bucket.at); idle > time.Duration(quickBurst/quickRate*float64(time.Second)) {
			delete(q.locks, at) // its bucket is full again
		}
	}
	q.others.flush(place{}, give)
	q.began = time.Time{}
}

func (m *many) flush(at place, give func(*Item)) {
	if m.count == 0 {
		return
	}
	n := time.Duration(m.count)
	give(&Item{Kind: Many, NS: at.ns, Lock: at.lock, Begin: m.first, End: m.last, Count: m.count, Waited: m.waited / n, WaitedKnown: true, Mean: m.held / n,
		Reason: locks.ReasonReleased})
	m.count, m.waited, m.held = 0, 0, 0
}
