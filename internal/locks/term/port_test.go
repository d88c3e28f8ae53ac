package term

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// lock is a Monitor.
type lock struct {
	sync.Mutex
	effects []func()
}

func (l *lock) Do(f func()) {
	l.Lock()
	defer l.Unlock()
	f()
}

func (l *lock) Unlock() {
	effects := l.effects
	l.effects = nil
	l.Mutex.Unlock()
	for _, effect := range effects {
		effect()
	}
}

func (l *lock) Effect(f func()) { l.effects = append(l.effects, f) }

// world is a Store whose sessions and reads the test decides upon.
type world struct {
	Store
	mu      sync.Mutex
	open    []*fakeSession
	refused int      // so many openings are given up
	taken   []string // ids that they have registered
	get     func(path string) (zxid int64, err error)
}

type fakeSession struct {
	Session
	id      string
	done    chan struct{}
	trusted bool
	writes  []*zk.Write
}

func (s *fakeSession) ID() string                     { return s.id }
func (s *fakeSession) Done() <-chan struct{}          { return s.done }
func (s *fakeSession) Err() error                     { return zk.ErrSessionGone }
func (s *fakeSession) Trusted(zk.Instant) bool        { return s.trusted }
func (s *fakeSession) Submit(w *zk.Write) error       { s.writes = append(s.writes, w); return nil }
func (s *fakeSession) Close(context.Context) error    { close(s.done); return nil }
func (w *world) Current(zk.Instant) bool              { return true }
func (w *world) Run(context.Context) error            { return nil }
func (w *world) AddRoot(zk.WatchRoot) error           { return nil }
func (w *world) List(string)                          {}
func (w *world) Reached(context.Context, int64) error { return nil }
func (w *world) Committed(zk.Instant, int64)          {}
func (w *world) Lag(zk.Instant) time.Duration         { return 0 }

func (w *world) Open(_ context.Context, id string, _ []byte, _ func(zk.Instant, int64)) (Session, error) {
	s := &fakeSession{id: id, done: make(chan struct{}), trusted: true}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.taken, id) {
		return nil, zk.ErrNodeExists
	}
	if w.refused > 0 { // its registration is committed after it was given up
		w.refused--
		w.taken = append(w.taken, id)
		return nil, zk.ErrUnavailable
	}
	w.open = append(w.open, s)
	return s, nil
}

// nth is the nth session.
func (w *world) nth(n int) *fakeSession {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[n]
}

func (w *world) Watch([]zk.WatchRoot, zk.Sink, func() int64) Watcher { return w }

func (w *world) Get(path string, reply func([]byte, wire.Stat, int64, error)) {
	zxid, err := w.get(path)
	reply(nil, wire.Stat{}, zxid, err)
}

func portOn(w *world) (*Port, *lock) {
	l := &lock{}
	ids := 0
	p := New(Options{Store: w, Clock: zk.SystemClock{}, Log: slog.New(slog.DiscardHandler), Monitor: l,
		NewID: func() (string, error) { ids++; return strconv.Itoa(ids), nil }, Begun: func(Session) {}, Ended: func(Session) {}, Idle: func() {}})
	p.Watch(nil, nil)
	return p, l
}

// An opening may be given up, and its registration be committed all the same. The next one must not fail because of it: the gateway would end.
func TestAnOpeningThatWasGivenUpAndCommittedIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{refused: 8}
		p, _ := portOn(w)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- p.Run(ctx, nil, time.Minute) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.That(t, p.Trusted() && p.Term() == 1, "no session after a minute")
		cancel()
		assert.ErrorIs(t, <-stopped, context.Canceled)
	})
}

func TestAnAnswerOfAFormerSessionIsNotValidUnderTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		p, l := portOn(w)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- p.Run(ctx, nil, time.Minute) }()
		synctest.Wait()
		assert.That(t, p.StillValid(1) && !p.StillValid(2) && !p.StillValid(0), "the first session has term 1")
		w.nth(0).trusted = false
		assert.That(t, !p.StillValid(1) && !p.Trusted(), "valid outside the trust window")
		outcomes := 0
		submit := func() { p.Submit(&zk.Write{}, func(res zk.Result) { outcomes++ }) }
		l.Do(submit)
		assert.That(t, p.InFlight() == 1 && len(w.nth(0).writes) == 1, "the write is not in flight")
		close(w.nth(0).done)
		synctest.Wait()
		assert.That(t, p.Present() == nil && p.Term() == locks.Term(1) && !p.StillValid(1), "a session that has ended is present")
		w.nth(0).writes[0].Answer(zk.Result{Outcome: zk.Unknown})
		l.Do(submit) // without a session it is not done
		assert.That(t, outcomes == 2 && p.InFlight() == 0, "%d outcomes, %d in flight", outcomes, p.InFlight())
		time.Sleep(reopenDelay)
		synctest.Wait()
		assert.That(t, !p.StillValid(1) && p.StillValid(2), "the second session has term 2")
		l.Do(p.Last)
		close(w.nth(1).done)
		time.Sleep(time.Minute)
		cancel()
		assert.ErrorIs(t, <-stopped, context.Canceled)
		assert.That(t, len(w.open) == 2, "a session was opened after the last one")
	})
}

func TestAReadThatIsNotAnsweredWaitsForTheNextPump(t *testing.T) {
	w := &world{}
	p, l := portOn(w)
	asked := 0
	w.get = func(string) (int64, error) {
		switch asked++; asked {
		case 1:
			return 0, zk.ErrUnavailable
		case 2:
			return 6, nil // from a server that is behind
		}
		return 7, zk.ErrNoNode
	}
	var replies []error
	l.Do(func() {
		p.Read("/a", 7, func(_ []byte, _ wire.Stat, err error) { replies = append(replies, err) })
	})
	for want := 1; want < 3; want++ {
		assert.Must(t, len(replies) == 0 && asked == want && p.Reads() == 1,
			"asked %d times, replies %v, %d reads", asked, replies, p.Reads())
		l.Do(p.PumpReads)
	}
	assert.That(t, len(replies) == 1 && errors.Is(replies[0], zk.ErrNoNode) && p.Reads() == 0, "replies %v, %d reads", replies, p.Reads())
}

func TestAReadThatIsHastenedGoesBeforeTheOthers(t *testing.T) {
	p, l := portOn(&world{})
	later := &unansweredReads{}
	p.Watcher = later
	path := func(i int) string { return fmt.Sprintf("/%d", i) }
	places := make([]uint32, 2*readWindow)
	l.Do(func() {
		for i := range places {
			places[i] = p.Read(path(i), 0, func([]byte, wire.Stat, error) {})
		}
	})
	last := len(places) - 1
	l.Do(func() {
		p.Hasten(places[last], path(last))
		p.Hasten(places[last], path(last))       // it is on its way
		p.Hasten(places[last-1], path(last))     // not its place
		p.Hasten(places[0], path(0))             // it was sent
		p.Hasten(places[last]+1, path(last))     // there is none
		p.Hasten(places[last-10], path(last-10)) // the next one
	})
	assert.Equal(t, p.Reads(), len(places))
	want := []string{path(last), path(last - 10)}
	for i := range last + 1 {
		if i < last && i != last-10 {
			want = append(want, path(i))
		}
	}
	want = slices.Concat(want[2:2+readWindow], want[:2], want[2+readWindow:])
	for range places {
		later.answer()
	}
	assert.Slices(t, later.asked, want)
	assert.Equal(t, p.Reads(), 0)
	l.Do(func() { p.Hasten(p.Read("/again", 0, func([]byte, wire.Stat, error) {}), "/again") })
	later.answer()
	assert.Equal(t, p.Reads(), 0)
}

// unansweredReads is a Watcher whose reads the test answers.
type unansweredReads struct {
	Watcher
	asked   []string
	replies []func([]byte, wire.Stat, int64, error)
}

func (u *unansweredReads) Get(path string, reply func([]byte, wire.Stat, int64, error)) {
	u.asked, u.replies = append(u.asked, path), append(u.replies, reply)
}

// answer answers the read that has waited longest.
func (u *unansweredReads) answer() {
	reply := u.replies[0]
	u.replies = u.replies[1:]
	reply(nil, wire.Stat{}, 1, zk.ErrNoNode)
}
