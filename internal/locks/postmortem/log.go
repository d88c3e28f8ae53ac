package postmortem

import (
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"lockkeeper/internal/locks/recipe"
)

// MaxEnds is how many ends a Log keeps. Beyond it the Log forgets the oldest; that lease then has ended for an unknown
// reason.
const MaxEnds = 1 << 16

// chunkLen is how many entries are kept together.
const chunkLen = 1 << 9

// Log remembers ends. The zero Log is empty and ready. Entries have numbers, in the order of their ends.
type Log struct {
	index  index
	chunks []*[chunkLen]entry // the first one has the entry number base
	base   uint64             // a multiple of chunkLen
	first  uint64             // the oldest entry that is kept
	next   uint64             // the number of the next one
	texts  texts
	// awaiting has, by the hash of a lock, a chain of the leases that held and whose lock no contender has been granted since:
	// the number of the latest entry, plus 1. Two locks may share a hash.
	awaiting map[uint64]uint64
}

var placeSeed = maphash.MakeSeed()

func (at Place) hash() uint64 {
	return maphash.String(placeSeed, at.Lock)*31 + maphash.String(placeSeed, at.NS)
}

// placeHash is Place.hash of the entry's lock.
func (e *entry) placeHash(t *texts) uint64 {
	ns, lock := e.sizes[0], e.sizes[1]
	return maphash.Bytes(placeSeed, t.get(e.text+uint64(ns), lock))*31 + maphash.Bytes(placeSeed, t.get(e.text, ns))
}

// entry is the one of that number, which is kept.
func (h *Log) entry(number uint64) *entry {
	return &h.chunks[(number-h.base)/chunkLen][number%chunkLen]
}

// find is what is remembered of a lease; nil: nothing.
func (h *Log) find(id recipe.LeaseID) *entry {
	k := keyOf(id)
	e, _ := h.entryOf(&k, k.hash())
	return e
}

// entryOf is the entry of an id with that hash, and its number; nil: none.
func (h *Log) entryOf(k *key, hash uint64) (e *entry, number uint64) {
	x := &h.index
	if x.len == 0 {
		return nil, 0
	}
	for i := x.home(hash); x.places[i] != 0; i = x.behind(i) {
		if x.places[i]>>numberBits != hash {
			continue
		}
		number = x.places[i]&numberMask - 1
		if e = h.entry(number); e.id == *k {
			return e, number
		}
	}
	return nil, 0
}

// Get is what is remembered of a lease. It makes strings: Has, Reported and Terminated make none.
func (h *Log) Get(id recipe.LeaseID) (End, bool) {
	e := h.find(id)
	if e == nil {
		return End{}, false
	}
	return e.read(&h.texts), true
}

// Has reports whether a lease's end is remembered.
func (h *Log) Has(id recipe.LeaseID) bool { return h.find(id) != nil }

// Reported reports whether a remembered end is Reported.
func (h *Log) Reported(id recipe.LeaseID) bool {
	e := h.find(id)
	return e != nil && e.flags.has(reported)
}

// Terminated reports whether a remembered end is Terminated.
func (h *Log) Terminated(id recipe.LeaseID) bool {
	e := h.find(id)
	return e != nil && e.flags.has(terminated)
}

// Drop forgets a lease at once; pop passes over its entry later.
func (h *Log) Drop(id recipe.LeaseID) {
	k := keyOf(id)
	if e, number := h.entryOf(&k, k.hash()); e != nil {
		h.drop(e, number)
	}
}

func (h *Log) drop(e *entry, number uint64) {
	h.stopAwaiting(e)
	h.index.delete(e.id.hash(), number)
	e.flags.set(dropped, true)
}

// Add remembers an end. An earlier one of the same lease stays: its contender was back for a moment only.
func (h *Log) Add(id recipe.LeaseID, p End) {
	if h.awaiting == nil {
		h.awaiting = map[uint64]uint64{}
	}
	k := keyOf(id)
	hash := k.hash()
	if known, _ := h.entryOf(&k, hash); known != nil {
		return
	}
	if h.next-h.base == uint64(len(h.chunks))*chunkLen {
		h.chunks = append(h.chunks, &[chunkLen]entry{})
	}
	number := h.next
	h.next++
	h.index.put(hash, number)
	e := h.entry(number)
	*e = entry{id: k, oldest: h.texts.end}
	e.write(&h.texts, &p)
	if p.Held != 0 {
		h.await(e, number, Place{p.NS, p.Lock})
	}
	if h.next-h.first > MaxEnds {
		h.pop()
	}
}

// Revise replaces what is remembered of a lease. Its next holder stays.
func (h *Log) Revise(id recipe.LeaseID, p End) {
	k := keyOf(id)
	e, number := h.entryOf(&k, k.hash())
	if e == nil {
		return
	}
	if e.flags.has(hasNext) {
		p.Next = nil
	}
	waits, at := e.flags.has(awaits), Place{p.NS, p.Lock}
	if stays := p.Held != 0 && p.Next == nil; !stays || !e.in(&h.texts, at) {
		h.stopAwaiting(e)
		waits = waits && stays
	}
	e.write(&h.texts, &p)
	if waits && !e.flags.has(awaits) {
		h.await(e, number, at)
	}
}

// From lists leases in the order of their ends, at most so many, from the at-th that there ever was on; next is where it goes
// on. It is at when there is nothing more.
func (h *Log) From(at uint64, most int) (list []recipe.LeaseID, next uint64) {
	for at = max(at, h.first); at < h.next && len(list) < most; at++ {
		if e := h.entry(at); !e.flags.has(dropped) {
			list = append(list, e.id.lease())
		}
	}
	return list, at
}

// await puts an entry at the head of its lock's chain.
func (h *Log) await(e *entry, number uint64, at Place) {
	hash := at.hash()
	e.flags.set(awaits, true)
	e.ahead, e.behind = 0, h.awaiting[hash]
	if e.behind != 0 {
		h.entry(e.behind - 1).ahead = number + 1
	}
	h.awaiting[hash] = number + 1
}

// stopAwaiting takes an entry out of its chain.
func (h *Log) stopAwaiting(e *entry) {
	if !e.flags.has(awaits) {
		return
	}
	e.flags.set(awaits, false)
	if e.behind != 0 {
		h.entry(e.behind - 1).ahead = e.ahead
	}
	if e.ahead != 0 {
		h.entry(e.ahead - 1).behind = e.behind
		return
	}
	if hash := e.placeHash(&h.texts); e.behind != 0 {
		h.awaiting[hash] = e.behind
	} else {
		delete(h.awaiting, hash)
	}
}

// Sweep forgets what ended before the given time.
func (h *Log) Sweep(before time.Duration) {
	for h.first < h.next {
		if e := h.entry(h.first); !e.flags.has(dropped) && e.at >= before {
			return
		}
		h.pop()
	}
}

func (h *Log) pop() {
	if e := h.entry(h.first); !e.flags.has(dropped) {
		h.drop(e, h.first)
	}
	h.first++
	oldest := h.texts.end
	if h.first < h.next {
		oldest = h.entry(h.first).oldest
	}
	h.texts.forget(oldest)
	if h.first-h.base == chunkLen {
		h.chunks = slices.Delete(h.chunks, 0, 1)
		h.base += chunkLen
	}
}

// Granted notes that the lock has been granted again, for the leases that wait to learn of it. next is called only when one does.
func (h *Log) Granted(at Place, now time.Duration, next func() Next) {
	hash := at.hash()
	if h.awaiting[hash] == 0 {
		return
	}
	to := next()
	for number := h.awaiting[hash]; number != 0; {
		e := h.entry(number - 1)
		number = e.behind
		if !e.in(&h.texts, at) {
			continue
		}
		h.stopAwaiting(e)
		if e.id != keyOf(to.Lease) {
			to.After = now - e.at
			e.writeNext(&h.texts, &to)
		}
	}
}

// AddOrRevise adds an end, or revises the one that is remembered when may allows it.
func (h *Log) AddOrRevise(id recipe.LeaseID, p End, may func(old Cause) bool) {
	switch e := h.find(id); {
	case e == nil:
		h.Add(id, p)
	case may(e.why):
		h.Revise(id, p)
	}
}

// Tokens are the fencing tokens of those of the latest ends that were on a lock, the last one first. It looks at so many ends.
func (h *Log) Tokens(at Place, look uint64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for number := h.next; number > h.first && number+look > h.next; number-- {
			e := h.entry(number - 1)
			if !e.flags.has(dropped) && e.token != 0 && e.in(&h.texts, at) && !yield(e.token) {
				return
			}
		}
	}
}

// Sizes are how much a log keeps.
type Sizes struct{ Ends, Order, Awaiting int }

// Size is how many ends are remembered, how long their order is, and how many locks wait for their next holder.
func (h *Log) Size() Sizes {
	return Sizes{h.index.len, int(h.next - h.first), len(h.awaiting)}
}
