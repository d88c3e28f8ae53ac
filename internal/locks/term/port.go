package term

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/zk"
)

// reopenDelay bounds how fast sessions are opened one after another.
const reopenDelay = 100 * time.Millisecond

// Monitor is the lock of the port's owner.
type Monitor interface {
	sync.Locker
	// Do calls f under the lock.
	Do(f func())
	// Effect has f called when the lock, which is held, is free.
	Effect(f func())
}

// Options of a Port. The functions but NewID are called with the lock held.
type Options struct {
	Store   Store
	Clock   zk.Clock
	Log     *slog.Logger
	Monitor Monitor
	NewID   func() (string, error) // of the gateway, for each attempt to open a session another one
	Random  rand.Source            // jitter of the delays between these attempts; nil is the runtime's source
	Begun   func(Session)          // a session is open
	Ended   func(Session)
	// Idle is called when few reads are under way and none waits: what is read for later may be put into the line.
	Idle func()
}

// Ref is a session and its term.
type Ref struct {
	Session Session
	Term    locks.Term
	opened  zk.Instant
}

// Port is a gateway's way to ZooKeeper; see the package's doc. New makes one, Watch gives it its roots, Run runs it.
type Port struct {
	opt Options
	// Watcher is the reading side. Watch sets it; it is immutable afterwards.
	Watcher Watcher

	present  atomic.Pointer[Ref] // nil while there is no session; written under the lock
	inflight atomic.Int32        // writes handed over and not answered
	outgoing outgoing            // has a lock of its own
	handOver func()              // submitOutgoing
	barriers barriers            // has a lock of its own

	// Under the lock.
	term      locks.Term
	window    *trustSpan // of the present session
	connected bool       // the session's connection, as ConnectionChanged last told it
	last      bool       // no further session is opened
	stopping  bool       // Run's ctx has ended
	reads     reads
}

// New prepares a port.
func New(opt Options) *Port {
	p := &Port{opt: opt}
	p.handOver = p.submitOutgoing
	return p
}

// Watch prepares the observer of the roots.
func (p *Port) Watch(roots []zk.WatchRoot, sink zk.Sink) {
	p.Watcher = p.opt.Store.Watch(roots, sink, p.LastZxid)
}

// Run opens a session, waits for its end and opens the next one, until ctx ends or an error is fatal.
//
// Each attempt to open one has an id of its own: the registration of an attempt that was given up may be committed later. It belongs to
// that attempt's session, and goes with it.
func (p *Port) Run(ctx context.Context, registration []byte, promiseWindow time.Duration) error {
	delays := reachDelays(p.opt.Random)
	for {
		err := p.run(ctx, registration, promiseWindow)
		delay := reopenDelay
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, zk.ErrUnavailable):
			p.opt.Log.Warn("no zookeeper session yet", "err", err)
			delay = delays.NextBackOff()
		case err != nil:
			return err
		default:
			delays.Reset()
		}
		last := false
		if p.opt.Monitor.Do(func() { last = p.last }); err == nil && last {
			<-ctx.Done()
			return ctx.Err()
		}
		if backoff.Sleep(ctx, delay) != nil {
			return ctx.Err()
		}
	}
}

// run is one session, from its opening to its end.
func (p *Port) run(ctx context.Context, registration []byte, promiseWindow time.Duration) error {
	id, err := p.opt.NewID()
	if err != nil {
		return fmt.Errorf("making a gateway id: %w", err)
	}
	window := &trustSpan{clock: p.opt.Clock, window: promiseWindow}
	session, err := p.opt.Store.Open(ctx, id, registration, func(sent zk.Instant, zxid int64) {
		window.committed(sent)
		p.Watcher.Committed(sent, zxid)
	})
	if err != nil {
		return fmt.Errorf("opening a ZooKeeper session: %w", err)
	}
	p.opt.Monitor.Do(func() {
		p.term++
		p.window, p.connected = window, true
		p.present.Store(&Ref{session, p.term, p.opt.Clock.Now()})
		p.opt.Log.Info("zookeeper session opened", "gateway", id)
		p.opt.Begun(session)
	})
	select {
	case <-session.Done():
	case <-ctx.Done():
		p.opt.Monitor.Do(func() { p.stopping = true })
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenDelay)
		_ = session.Close(closing) // a handover if there is still time; else the session expires
		cancel()
		<-session.Done()
	}
	p.opt.Monitor.Do(func() {
		p.present.Store(nil)
		level := slog.LevelWarn
		if p.last {
			level = slog.LevelInfo // a handover ends this way
		}
		p.opt.Log.Log(context.Background(), level, "zookeeper session ended", "gateway", id, "err", session.Err())
		p.opt.Ended(session)
	})
	return nil
}

// Last makes the present session the last one. The lock is held.
func (p *Port) Last() { p.last = true }

// Ending reports whether the present session is the last one, because of Last or because Run's ctx has ended. The lock
// is held.
func (p *Port) Ending() bool { return p.last || p.stopping }

// Present is the present session with its term, nil while there is none.
func (p *Port) Present() *Ref { return p.present.Load() }

// Session is the present session, nil while there is none.
func (p *Port) Session() Session {
	if ref := p.present.Load(); ref != nil {
		return ref.Session
	}
	return nil
}

// SessionAge is how long the present session has lasted; 0 without one.
func (p *Port) SessionAge(now zk.Instant) time.Duration {
	if ref := p.present.Load(); ref != nil {
		return max(now.Since(ref.opened), 0)
	}
	return 0
}

// Term counts the sessions. It is that of the last one while there is none. The lock is held.
func (p *Port) Term() locks.Term { return p.term }

// StillValid reports whether a decision made under the term may be sent now: the term's session is the present one, its
// trust window is open and the replica is current.
func (p *Port) StillValid(term locks.Term) bool {
	ref := p.present.Load()
	return ref != nil && ref.Term == term && p.trusts(ref)
}

// Trusted reports whether any decision may be sent now.
func (p *Port) Trusted() bool {
	ref := p.present.Load()
	return ref != nil && p.trusts(ref)
}

func (p *Port) trusts(ref *Ref) bool {
	now := p.opt.Clock.Now()
	return ref.Session.Trusted(now) && p.Watcher.Current(now)
}

// TrustedSince returns since when the trust window of the present session has been open without a gap; ok is false when
// it is closed. The lock is held, and there is a session.
func (p *Port) TrustedSince(now zk.Instant) (since time.Duration, ok bool) {
	return p.window.since(now)
}

// ConnectionChanged reports whether the session's connection was lost or restored since the last call. The lock is
// held, and there is a session.
func (p *Port) ConnectionChanged() (connected, changed bool) {
	connected = p.Session().Connected()
	changed = connected != p.connected
	p.connected = connected
	return connected, changed
}

// LastZxid is the last zxid of the present session, 0 while there is none.
func (p *Port) LastZxid() int64 {
	if session := p.Session(); session != nil {
		return session.LastZxid()
	}
	return 0
}

// Submit hands a write to the present session once the lock, which is held, is free. done is called exactly once.
func (p *Port) Submit(w *zk.Write, done func(zk.Result)) {
	p.inflight.Add(1)
	w.Done, w.To = done, p
	if p.outgoing.add(p.Session(), w) {
		p.opt.Monitor.Effect(p.handOver)
	}
}

// Receive implements zk.Receiver for the writes of Submit. A write is in flight until the writes that follow from its
// outcome are.
func (p *Port) Receive(list []zk.Answered) {
	p.opt.Monitor.Lock()
	defer p.opt.Monitor.Unlock()
	for i := range list {
		p.land(list[i].Result, list[i].Write.Done)
	}
}

func (p *Port) land(res zk.Result, done func(zk.Result)) {
	done(res)
	p.inflight.Add(-1)
}

// outgoing are writes that wait until the lock is free. It has a lock of its own.
type outgoing struct {
	mu   sync.Mutex
	line []outgoingWrite
}

type outgoingWrite struct {
	session Session
	write   *zk.Write
}

// add reports whether the write is the first in the line.
func (o *outgoing) add(session Session, w *zk.Write) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = append(o.line, outgoingWrite{session, w})
	return len(o.line) == 1
}

// take empties the line into room.
func (o *outgoing) take(room []outgoingWrite) []outgoingWrite {
	o.mu.Lock()
	defer o.mu.Unlock()
	room = append(room, o.line...)
	clear(o.line)
	o.line = o.line[:0]
	return room
}

// submitOutgoing hands the line to the sessions. The lock is free.
func (p *Port) submitOutgoing() {
	var room [4]outgoingWrite
	for _, out := range p.outgoing.take(room[:0]) {
		err := zk.ErrSessionGone
		if out.session != nil {
			err = out.session.Submit(out.write)
		}
		if err != nil {
			out.write.Answer(zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1})
		}
	}
}

// Takeover has the present session succeed a dead gateway once the lock, which is held, is free; see Session. It gives
// up after takeoverWithin. done is called exactly once.
func (p *Port) Takeover(dead string, polled *zk.Guard, done func(zk.Result)) {
	session := p.Session()
	p.inflight.Add(1)
	p.opt.Monitor.Effect(func() {
		ctx, cancel := context.WithTimeout(context.Background(), takeoverWithin)
		session.Takeover(ctx, dead, polled, func(res zk.Result) {
			cancel()
			p.opt.Monitor.Do(func() { p.land(res, done) })
		})
	})
}

// takeoverWithin bounds one attempt at a takeover.
const takeoverWithin = 5 * time.Second

// InFlight is how many writes have been handed over and not been answered.
func (p *Port) InFlight() int { return int(p.inflight.Load()) }
