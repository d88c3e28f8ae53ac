package dashboard

import (
	"context"
	"sync"
	"time"

	"lockkeeper/web/templates"
)

// Fleet is what pages ask of other gateways. One that does not answer is waited for, for some seconds, and named.
type Fleet interface {
	// Figures are what each gateway says of itself, by their ids.
	Figures(ctx context.Context) map[string]templates.GatewayFigures
	// Owned are the leases of an owner, or else of a host, that other gateways run. The viewer may not be allowed to read all of them.
	Owned(ctx context.Context, owner, host string) Owned
}

// Owned is what other gateways say of the leases of an owner.
type Owned struct {
	Leases    map[string]OwnedLease // by their ids
	More      bool                  // there are others
	Unreached []string              // gateways that have not answered
}

// OwnedLease is what the gateway that runs a lease knows of it, and others do not.
type OwnedLease struct {
	Owner, Metadata string
	ExpiresAt       time.Time
	TTL             time.Duration
	HeardAt         time.Time // its last heartbeat; zero when there was none
}

const (
	// figuresEvery is how often the gateways are asked for their figures at most, while a page shows them.
	figuresEvery = time.Second
	// ownedEvery is the same for the leases of one owner.
	ownedEvery = 3 * time.Second
	// fleetAtOnce bounds the questions that are asked at a time, fleetWaiting those that are asked or wait for that (further ones have no
	// answer), and fleetKept those that are remembered; beyond it the oldest goes.
	fleetAtOnce  = 4
	fleetWaiting = 16
	fleetKept    = 64
	// A page waits for fleetPatience for the first answer to a question, from when that was asked on. Later answers are on the page when
	// it is read again.
	fleetPatience = 300 * time.Millisecond
	// fleetWithin bounds a question, and fleetOld is for how long an answer is shown while there is no later one.
	fleetWithin = 5 * time.Second
	fleetOld    = 10 * time.Second
)

// fleet asks other gateways for pages. A gateway may answer late or never, so the questions are asked on goroutines of their own, each
// once for all pages that ask it.
type fleet struct {
	from  Fleet                            // nil: none is asked
	start func(func(context.Context)) bool // a goroutine that Run waits for; false: none now
	turns chan struct{}

	mu       sync.Mutex
	known    shelf[any, *inquiry]
	underWay int // questions
}

// inquiry is a question, and what was answered last.
type inquiry struct {
	answer   any
	at       time.Time     // of the answer; zero before the first
	began    time.Time     // when it was asked last
	until    time.Time     // for so long it is not asked again
	underWay chan struct{} // closed when an answer has come; nil while it is not asked
}

func newFleet(from Fleet, start func(func(context.Context)) bool) *fleet {
	return &fleet{from: from, start: start, turns: make(chan struct{}, fleetAtOnce), known: shelf[any, *inquiry]{fleetKept, (*inquiry).useful, map[any]*inquiry{}}}
}

// inquire is what was answered to a question, and asks it when that was longer than good ago. ok is false when there is no answer yet,
// or none now.
func inquire[T any](ctx context.Context, f *fleet, question any, good time.Duration, ask func(context.Context) T) (answer T, ok bool) {
	if !f.asks() {
		return answer, false
	}
	if wait, left := f.begin(question, good, func(ctx context.Context) any { return ask(ctx) }); left > 0 {
		patience := time.NewTimer(left)
		defer patience.Stop()
		select {
		case <-wait:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.known.of[question]; q != nil && q.fresh(time.Now(), good) {
		answer, ok = q.answer.(T)
	}
	return answer, ok
}

// begin asks a question unless it was answered lately. It returns what is closed when an answer has come, and for how long to wait for
// that: not at all while there is an answer to show.
func (f *fleet) begin(question any, good time.Duration, ask func(context.Context) any) (answered <-chan struct{}, left time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	q := f.known.of[question]
	if q == nil {
		q = &inquiry{}
		f.known.put(question, q)
	}
	if q.underWay == nil && !now.Before(q.until) && f.underWay < fleetWaiting {
		done := make(chan struct{})
		if f.start(func(ctx context.Context) { f.ask(ctx, q, done, good, ask) }) {
			q.underWay = done
			f.underWay++
			if q.began.IsZero() || !q.at.IsZero() {
				q.began = now // else it has been waited for
			}
		}
	}
	if q.underWay == nil || q.fresh(now, good) {
		return nil, 0
	}
	return q.underWay, fleetPatience - now.Sub(q.began)
}

// fresh reports whether there is an answer that may be shown.
func (q *inquiry) fresh(now time.Time, good time.Duration) bool {
	return !q.at.IsZero() && now.Sub(q.at) < max(fleetOld, good)
}

func (f *fleet) ask(ctx context.Context, q *inquiry, done chan struct{}, good time.Duration, ask func(context.Context) any) {
	var answer any
	var err error
	defer func() { // also after a panic: a page is no reason to end the process
		survive(&err)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.underWay--
		q.underWay, q.until = nil, time.Now().Add(good)
		if answer != nil && ctx.Err() == nil {
			q.answer, q.at = answer, time.Now()
		}
		close(done)
	}()
	within, cancel := context.WithTimeout(ctx, fleetWithin)
	defer cancel()
	select {
	case f.turns <- struct{}{}:
		defer func() { <-f.turns }()
		answer = ask(within)
	case <-within.Done():
	}
}

// useful is until when an inquiry is of use. One that is under way stays: they are fewer than fleetKept.
func (q *inquiry) useful() time.Time {
	if q.underWay != nil {
		return time.Time{}
	}
	return q.until.Add(fleetOld)
}

// figuresQuestion is the question for the gateways' figures: all viewers get the same.
type figuresQuestion struct{}

// figures are what each gateway says of itself, by their ids.
func (f *fleet) figures(ctx context.Context) map[string]templates.GatewayFigures {
	said, _ := inquire(ctx, f, figuresQuestion{}, figuresEvery, f.askFigures)
	return said
}

func (f *fleet) askFigures(ctx context.Context) map[string]templates.GatewayFigures {
	said := f.from.Figures(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	before, _ := f.known.of[figuresQuestion{}].answer.(map[string]templates.GatewayFigures)
	for id, s := range said {
		if last, there := before[id]; there && s.Opened.Sub(last.Opened).Abs() < 2*time.Second {
			s.Opened = last.Opened // an age in milliseconds comes with the time of the way: the page stands still
			said[id] = s
		}
	}
	return said
}

// ownedQuestion is the question for the leases of an owner, or of a host. All viewers get the same; their pages leave out what they may
// not read.
type ownedQuestion struct{ owner, host string }

// owned is what other gateways say of the leases of an owner, or of a host; ok is false while they have not answered.
func (f *fleet) owned(ctx context.Context, owner, host string) (o Owned, ok bool) {
	return inquire(ctx, f, ownedQuestion{owner, host}, ownedEvery, func(ctx context.Context) Owned { return f.from.Owned(ctx, owner, host) })
}

// asks reports whether other gateways are asked at all.
func (f *fleet) asks() bool { return f != nil && f.from != nil }
