package events

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds.
const (
	// DefaultRing is how many events are kept: for resuming, for subscribers that read
	// slowly, and for what a page shows of the recent past. An event takes some
	// 300 bytes, and as much again once it was sent.
	DefaultRing = 1 << 14
	// DefaultMaxSubscribers bounds the subscribers at a time.
	DefaultMaxSubscribers = 4096
	// WakePause is the least time between two wake-ups of a subscriber: the longest an event waits for the sake of
	// reading a burst in one go. One that comes after a pause without any waits at most for findPause.
	WakePause = 50 * time.Millisecond
	// findPause is the least time between two looks of Run at what is new.
	findPause = 5 * time.Millisecond
)

// Errors of Subscribe and Next.
var (
	ErrTooManySubscribers = errors.New("too many subscribers")
	ErrLagged             = errors.New("the subscriber fell behind by more events than are kept")
	ErrClosed             = errors.New("the event hub is closed")
)

// Metrics receives what happens to subscribers. Implementations must be quick
// and safe for concurrent use.
type Metrics interface {
	// EventsDropped: so many events could not be given to a subscriber, which
	// lagged or resumed too late. Those that its filter would have held back are
	// counted too: they are gone, so the hub cannot know.
	EventsDropped(n uint64)
	// Subscribers moves the number of subscribers.
	Subscribers(delta int)
}

// Options of a Hub; zero values mean the defaults.
type Options struct {
	Ring           int
	MaxSubscribers int
	Metrics        Metrics // nil: none
}

// Hub keeps events in order and hands them to subscribers; see the package's
// doc. Make one with New, run it with Run. All methods are safe for concurrent use.
type Hub struct {
	nonce   string // makes IDs of different processes differ
	metrics Metrics
	max     int
	nudge   chan struct{} // capacity 1: there is something new
	done    chan struct{} // closed when Run returns

	// Written by Publish alone, one call at a time; read without a lock.
	publishing sync.Mutex
	ring       []atomic.Pointer[Event] // the event of seq is at seq % len
	next       atomic.Uint64           // seq of the next event, from 1

	// Of all subscribers. Run and they themselves change it.
	mu     sync.Mutex
	groups map[filterKey]*group
	byLock map[string][]*group // of the groups, those that want one lock
	wide   []*group            // and the others
	found  map[*group]struct{} // those with something found, and not told
	seen   uint64              // find has looked at what is before it
	woken  []*Subscriber       // tell's buffer
	count  atomic.Int64        // of subscribers

	piecesMu sync.Mutex
	pieces   [maxPieces]*piece // the last that members of a group shared
	oldest   int               // of them
}

// New makes a hub.
func New(o Options) *Hub {
	if o.Ring <= 0 {
		o.Ring = DefaultRing
	}
	if o.MaxSubscribers <= 0 {
		o.MaxSubscribers = DefaultMaxSubscribers
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	h := &Hub{metrics: o.Metrics, max: o.MaxSubscribers, ring: make([]atomic.Pointer[Event], o.Ring),
		nudge: make(chan struct{}, 1), done: make(chan struct{}), seen: 1,
		groups: map[filterKey]*group{}, byLock: map[string][]*group{}, found: map[*group]struct{}{}}
	var nonce [4]byte
	_, _ = rand.Read(nonce[:]) // never fails (crypto/rand, Go 1.24)
	h.nonce = fmt.Sprintf("%x", nonce)
	h.next.Store(1)
	return h
}

// Run finds what is new for subscribers and wakes them until ctx ends; then every subscription ends. It is
// called once.
func (h *Hub) Run(ctx context.Context) error {
	defer close(h.done)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for waiting := false; ; {
		if !waiting { // for the end of their pause: no group has something
			select {
			case <-ctx.Done():
				return nil
			case <-h.nudge:
			}
		}
		waiting = h.turn()
		pause.Reset(findPause)
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
	}
}

// turn finds what is new and wakes the subscribers that it concerns. It reports whether some have to wait for it.
func (h *Hub) turn() (waiting bool) {
	h.mu.Lock()
	h.find()
	woken := h.tell(time.Now())
	waiting = len(h.found) > 0
	h.mu.Unlock()
	for _, s := range woken { // without mu, which they want next
		s.rouse()
	}
	clear(woken)
	return waiting
}

// Publish gives e the next place in the order. It waits for no subscriber.
// The caller must not use e afterwards; publishing it once more panics.
func (h *Hub) Publish(e *Event) {
	if e.hub != nil {
		panic("events: an event was published twice")
	}
	h.publishing.Lock()
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	e.hub, e.seq = h, h.next.Load()
	h.ring[e.seq%uint64(len(h.ring))].Store(e)
	h.next.Store(e.seq + 1)
	h.publishing.Unlock()
	if h.count.Load() == 0 {
		return // a subscriber that comes from here on reads before it waits, and finds e
	}
	select {
	case h.nudge <- struct{}{}:
	default: // a wake-up is under way already
	}
}

// Recent lists the last n events that the filter lets through, the oldest
// first, as far as the ring goes back.
func (h *Hub) Recent(f Filter, n int) []*Event {
	var list []*Event
	for seq := h.next.Load() - 1; seq > 0 && len(list) < n; seq-- {
		e := h.at(seq)
		if e == nil {
			break // so is everything older
		}
		if f.Match(e) {
			list = append(list, e)
		}
	}
	slices.Reverse(list)
	return list
}

// at is the event of that place, nil when the ring has lost it.
func (h *Hub) at(seq uint64) *Event {
	e := h.ring[seq%uint64(len(h.ring))].Load()
	if e == nil || e.seq != seq {
		return nil
	}
	return e
}

func (h *Hub) id(seq uint64) string { return h.nonce + "-" + strconv.FormatUint(seq, 10) }

// place reads an ID of this process.
func (h *Hub) place(id string) (seq uint64, ok bool) {
	nonce, number, found := strings.Cut(id, "-")
	if !found || nonce != h.nonce {
		return 0, false
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	return seq, err == nil && seq < h.next.Load()
}

type noMetrics struct{}

func (noMetrics) EventsDropped(uint64) {}
func (noMetrics) Subscribers(int)      {}
