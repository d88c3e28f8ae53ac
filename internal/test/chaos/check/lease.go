package check

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const never = time.Duration(math.MaxInt64)

// window is the time of one request: what its answer says was true at some instant in it.
type window struct{ sent, done time.Duration }

// attempt is everything that is known of one client's wish for a lock.
type attempt struct {
	name    string
	lock    string
	mode    Mode
	permits int
	limit   int
	ttl     time.Duration

	ids    []string // of its leases: one, or it is a violation
	tokens []int64
	number int // plus one; 0: not known

	first time.Duration // its first request was sent
	last  time.Duration // its client did nothing any more

	held    []window      // answers that say that it holds
	waiting []window      // answers that say that it waits, and keep it in line
	holds   time.Duration // it holds until then, at least, if its client does not let go
	place   time.Duration // it keeps its place until then, at least
	letGo   time.Duration // its client first asked to let go
	ends    []*Op         // answers that tell of its end
	gone    time.Duration // when the first answer had come after which it must not be alive
	alive   []*Op         // successes
	waits   bool          // the last that was heard of it is that it waits, or nothing was
}

func (a *attempt) id() string {
	if len(a.ids) == 0 {
		return ""
	}
	return a.ids[0]
}

// known is the span in which it is known to hold; empty when it never was.
func (a *attempt) known() (from, to time.Duration) {
	if len(a.held) == 0 {
		return 0, 0
	}
	from = never
	for _, w := range a.held {
		from = min(from, w.done)
	}
	return from, min(a.holds, a.letGo)
}

// attempts sorts a history by attempts, and those by locks.
func attempts(h *History) (byName map[string]*attempt, byLock map[string][]*attempt) {
	byName, byLock = make(map[string]*attempt), make(map[string][]*attempt)
	for i := range h.Ops {
		o := &h.Ops[i]
		a := byName[o.Attempt]
		if a == nil {
			a = &attempt{
				name: o.Attempt, lock: o.Lock, mode: o.Mode, permits: max(o.Permits, 1), limit: o.Limit, ttl: o.TTL,
				first: o.Sent, letGo: never, gone: never, waits: true,
			}
			byName[o.Attempt] = a
			byLock[o.Lock] = append(byLock[o.Lock], a)
		}
		a.add(o)
	}
	for _, as := range byLock {
		slices.SortFunc(as, func(a, b *attempt) int { return cmp.Compare(a.first, b.first) })
	}
	return byName, byLock
}

func (a *attempt) add(o *Op) {
	a.first, a.last = min(a.first, o.Sent), max(a.last, o.Done)
	if o.LeaseID != "" && !slices.Contains(a.ids, o.LeaseID) {
		a.ids = append(a.ids, o.LeaseID)
	}
	if o.Token != 0 && !slices.Contains(a.tokens, o.Token) {
		a.tokens = append(a.tokens, o.Token)
	}
	if o.Number != 0 {
		a.number = o.Number
	}
	switch {
	case o.Kind == Release:
		a.letGo = min(a.letGo, o.Sent)
		if o.Status == 204 {
			a.gone = min(a.gone, o.Done)
		}
	case o.success():
		a.alive = append(a.alive, o)
		if a.waits = o.State == "waiting"; a.waits {
			a.inLine(o)
		} else {
			a.holding(o)
		}
	}
	if o.ended() {
		a.ends = append(a.ends, o)
		a.gone = min(a.gone, o.Done)
	}
}

func (a *attempt) inLine(o *Op) {
	if o.Kind == Poll {
		return // it is not said to keep the place for how long
	}
	a.waiting = append(a.waiting, window{o.Sent, o.Done})
	a.place = max(a.place, o.Sent+o.Left)
}

func (a *attempt) holding(o *Op) {
	a.held = append(a.held, window{o.Sent, o.Done})
	switch {
	case o.Kind == Poll: // a look renews nothing
	case o.Kind == Acquire && o.Status == 200: // the lease as it is
		a.holds = max(a.holds, o.Sent+min(o.TTL, o.Left))
	default:
		a.holds = max(a.holds, o.Sent+o.TTL)
	}
}

// conflict says that two can never hold at one time. Of permits only the sum may.
func conflict(a, b *attempt) bool {
	switch {
	case a.mode == Semaphore && b.mode == Semaphore:
		return a.permits+b.permits > min(a.limit, b.limit)
	case a.mode == Shared && b.mode == Shared:
		return false
	}
	return true
}
