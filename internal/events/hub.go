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
	// WakePause is the least time between two wake-ups of subscribers: the
	// longest an event waits for the sake of reading a burst in one go.
	WakePause = 5 * time.Millisecond
	// maxBatch is how many events one Next reads.
	maxBatch = 256
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

	mu          sync.Mutex
	subscribers map[*Subscriber]struct{}
	count       atomic.Int64 // of them
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
		nudge: make(chan struct{}, 1), done: make(chan struct{}), subscribers: map[*Subscriber]struct{}{}}
	var nonce [4]byte
	_, _ = rand.Read(nonce[:]) // never fails (crypto/rand, Go 1.24)
	h.nonce = fmt.Sprintf("%x", nonce)
	h.next.Store(1)
	return h
}

// Run wakes subscribers until ctx ends; then every subscription ends. It is
// called once.
func (h *Hub) Run(ctx context.Context) error {
	defer close(h.done)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.nudge:
		}
		h.mu.Lock()
		for s := range h.subscribers {
			select {
			case s.wake <- struct{}{}:
			default: // it will look anyway
			}
		}
		h.mu.Unlock()
		pause.Reset(WakePause)
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
	}
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
