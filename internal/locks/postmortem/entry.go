package postmortem

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// entry is an End as a Log keeps it: without a pointer, so that the garbage collector passes over tens of thousands of
// them.
type entry struct {
	id    key
	why   Cause
	mode  recipe.Mode
	flags flags

	at, ttl, waited, held, beat time.Duration
	token                       int64

	text uint64 // where its texts are: NS, Lock, Owner, Words, By, Purpose
	// The contender that was granted the lock next, when hasNext is set: its texts are Lease, Name, Owner.
	nextText  uint64
	sizes     [6]uint32 // of the texts
	nextSizes [3]uint32
	nextToken int64
	nextAfter time.Duration

	oldest uint64 // the texts of this entry and of later ones are not before it
	// With awaits: the numbers of its neighbours in the chain, plus 1; 0: none.
	ahead, behind uint64
}

// key is a lease's id.
type key [recipe.LeaseIDLen]byte

func keyOf(id recipe.LeaseID) (k key) {
	copy(k[:], id)
	return k
}

// lease is the id that the key was made of.
func (k *key) lease() recipe.LeaseID {
	n := len(k)
	for n > 0 && k[n-1] == 0 {
		n--
	}
	return recipe.LeaseID(k[:n])
}

// flags are what is true of an entry.
type flags uint8

const (
	dropped flags = 1 << iota // the Log has forgotten it
	awaits                    // it is in a chain of Log.awaiting
	hasNext
	doubtful
	terminated
	stays
	reported
	several
)

func (f flags) has(one flags) bool { return f&one != 0 }

// set makes one of the flags as told.
func (f *flags) set(one flags, is bool) {
	if *f &^= one; is {
		*f |= one
	}
}

// write makes the entry say what the End says.
func (e *entry) write(t *texts, p *End) {
	e.why, e.mode = p.Why, p.Mode
	e.at, e.ttl, e.waited, e.held, e.beat, e.token = p.At, p.TTL, p.Waited, p.Held, p.Beat, p.FencingToken
	e.flags.set(doubtful, p.Doubtful)
	e.flags.set(terminated, p.Terminated)
	e.flags.set(stays, p.Stays)
	e.flags.set(reported, p.Reported)
	e.flags.set(several, p.Several)
	if !t.has(e.text, e.sizes[:], p.NS, p.Lock, p.Owner, p.Words, p.By, p.Purpose) { // a revised end often has the texts of before
		e.text = t.put(p.NS, p.Lock, p.Owner, p.Words, p.By, p.Purpose)
		e.sizes = [6]uint32{uint32(len(p.NS)), uint32(len(p.Lock)), uint32(len(p.Owner)), uint32(len(p.Words)), uint32(len(p.By)), uint32(len(p.Purpose))}
	}
	if p.Next != nil {
		e.writeNext(t, p.Next)
	}
}

// writeNext gives the entry its next holder.
func (e *entry) writeNext(t *texts, n *Next) {
	e.flags.set(hasNext, true)
	e.nextText, e.nextSizes = t.put(string(n.Lease), n.Name, n.Owner), [3]uint32{uint32(len(n.Lease)), uint32(len(n.Name)), uint32(len(n.Owner))}
	e.nextToken, e.nextAfter = n.Token, n.After
}

// read is the End that the entry was made of.
func (e *entry) read(t *texts) End {
	p := End{Why: e.why, Mode: e.mode, At: e.at, TTL: e.ttl, Waited: e.waited, Held: e.held, Beat: e.beat, FencingToken: e.token,
		Doubtful: e.flags.has(doubtful), Terminated: e.flags.has(terminated), Stays: e.flags.has(stays), Reported: e.flags.has(reported), Several: e.flags.has(several)}
	split(t, e.text, e.sizes[:], &p.NS, &p.Lock, &p.Owner, &p.Words, &p.By, &p.Purpose)
	if e.flags.has(hasNext) {
		p.Next = &Next{Token: e.nextToken, After: e.nextAfter}
		var lease string
		split(t, e.nextText, e.nextSizes[:], &lease, &p.Next.Name, &p.Next.Owner)
		p.Next.Lease = recipe.LeaseID(lease)
	}
	return p
}

// split reads texts that were put together.
func split(t *texts, at uint64, sizes []uint32, to ...*string) {
	for i, n := range sizes {
		*to[i] = string(t.get(at, n))
		at += uint64(n)
	}
}

// in reports whether the lease was on that lock.
func (e *entry) in(t *texts, at Place) bool {
	ns, lock := e.sizes[0], e.sizes[1]
	if int(ns) != len(at.NS) || int(lock) != len(at.Lock) {
		return false
	}
	b := t.get(e.text, ns+lock)
	return string(b[:ns]) == at.NS && string(b[ns:]) == at.Lock
}
