package manager

import (
	"context"
	"sync"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/zk/layout"
)

// monitor is the one lock of the manager's state. do, locked and locked2 take it, and outside and sleep release it in
// between; no other code does. A function queues what it may not do under the lock, such as I/O, as an effect. Effects
// begin in order once the monitor is free.
type monitor struct {
	mu      sync.Mutex
	effects []func()
	wakes   []chan struct{} // closed when the monitor is free, because their waiters lock it
	beat    chan struct{}   // closed at the next beat; nil while no request waits for it
}

// fewEffects is for how many effects, and wakes, unlock needs no memory.
const fewEffects = 8

// do runs f under the lock, then the effects that f queued.
func (m *monitor) do(f func()) {
	m.mu.Lock()
	defer m.unlock()
	f()
}

// unlock releases the lock and runs the effects.
func (m *monitor) unlock() {
	if len(m.effects) == 0 && len(m.wakes) == 0 {
		m.mu.Unlock()
		return
	}
	var someEffects [fewEffects]func()
	var someWakes [fewEffects]chan struct{}
	effects, wakes := append(someEffects[:0], m.effects...), append(someWakes[:0], m.wakes...)
	clear(m.effects)
	clear(m.wakes)
	m.effects, m.wakes = m.effects[:0], m.wakes[:0]
	m.mu.Unlock()
	for _, wake := range wakes {
		close(wake)
	}
	for _, act := range effects {
		act()
	}
}

// outside runs f without the lock: the effects first, then f. What the caller has read under the lock before may have
// changed afterwards.
func (m *monitor) outside(f func()) {
	m.unlock()
	defer m.mu.Lock()
	f()
}

// sleep releases the lock until wake is closed, for at most atMost; its error is CodeCancelled, when ctx has ended.
func (m *monitor) sleep(ctx context.Context, wake <-chan struct{}, atMost time.Duration) *locks.Error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	return sleepUntil(ctx, m, wake, timer.C)
}

// sleepABeat is sleep for at most beatPause. It takes no timer of its own.
func (m *monitor) sleepABeat(ctx context.Context, wake <-chan struct{}) *locks.Error {
	return sleepUntil(ctx, m, wake, m.beats())
}

func sleepUntil[T any](ctx context.Context, m *monitor, wake <-chan struct{}, elapsed <-chan T) *locks.Error {
	m.unlock()
	defer m.mu.Lock()
	select {
	case <-wake:
	case <-elapsed:
	case <-ctx.Done():
		return cancelled(ctx)
	}
	return nil
}

// beatPause is how long a request waits for ZooKeeper at most before it looks whether it has waited too long.
const beatPause = answerWithin / 4

// beats returns a channel that is closed within beatPause. All requests share one timer, so a request that is answered at
// once costs none.
func (m *monitor) beats() <-chan struct{} {
	if m.beat == nil {
		m.beat = make(chan struct{})
		time.AfterFunc(beatPause, func() {
			m.do(func() {
				m.wake(m.beat)
				m.beat = nil
			})
		})
	}
	return m.beat
}

// effect queues act until the monitor is free.
func (m *monitor) effect(act func()) { m.effects = append(m.effects, act) }

// wake closes the channel when the monitor is free.
func (m *monitor) wake(ch chan struct{}) { m.wakes = append(m.wakes, ch) }

// outcomes is the monitor as the port to ZooKeeper uses it.
type outcomes struct{ *monitor }

func (o outcomes) Lock() { o.mu.Lock() }

func (o outcomes) Unlock() { o.unlock() }

func (o outcomes) Do(f func()) { o.do(f) }

func (o outcomes) Effect(f func()) { o.effect(f) }

func cancelled(ctx context.Context) *locks.Error {
	return &locks.Error{Code: locks.CodeCancelled, Detail: "the caller went away", Err: context.Cause(ctx)}
}

// fleet is what all gateways of a layout share. Only what keyring has changes once ready is closed.
type fleet struct {
	root     string // of the layout in ZooKeeper
	settings settings.Tree
	ready    chan struct{} // closed once the layout has been read
	layout   *layout.Layout
	id       recipe.FleetID
	keyring  *layout.Keyring
	ring     *record.Ring // of keyring
	trusted  func() bool
	// createdAfter reports whether a lease of this gateway was created after a zxid.
	createdAfter func(recipe.LeaseID, int64) bool
}

// keep prepares what tells genuine tokens from others. keyring is nil where the layout alone says it.
func (f *fleet) keep(m *Manager, keyring *layout.Keyring) {
	if keyring == nil {
		keyring = new(layout.Keyring)
	}
	f.keyring, f.ring, f.trusted = keyring, record.NewRing(keyring.Load), m.Trusted
	f.createdAfter = func(id recipe.LeaseID, zxid int64) bool {
		return locked(m, func() bool { l := m.leases.byID.Get(string(id)); return l != nil && l.createdAfter(zxid) })
	}
}

// fencingToken converts a czxid to the number that clients see.
func (f *fleet) fencingToken(czxid int64) int64 {
	if czxid == 0 {
		return 0
	}
	return f.layout.FenceBase + czxid
}

// bearer returns the lease of a token; a non-empty id must match it. It needs no lock; the check costs one hash.
func (f *fleet) bearer(_ locks.Principal, id, token string) (recipe.LeaseID, *locks.Error) {
	select {
	case <-f.ready:
	default:
		return "", unavailable()
	}
	if token == "" {
		return "", &locks.Error{Code: locks.CodeTokenMissing, Detail: "give the lease's token: in the Lease-Token header, or as an entry of tokens"}
	}
	named, is := f.ring.Tokens().Check(token)
	switch {
	case is == record.UnknownKey && !f.trusted() && !fault.On("rotate-unknown"):
		return named, unavailable() // the fleet may have a key that this gateway has not read yet
	case is == record.ByOldKey:
		if r := f.keyring.Load().Rotation; r != nil && r.Cut != 0 && f.createdAfter(named, r.Cut) {
			is = record.Forged // each gateway had the new key by then
		}
	}
	if is < record.Genuine || (id != "" && id != string(named)) {
		return named, &locks.Error{Code: locks.CodeTokenWrong, Detail: "the Lease-Token is not the one of this lease"}
	}
	return named, nil
}

// life is the course of the process, from Run to the end of Drain.
type life struct {
	ctx          context.Context // ends when Run returns; no errand begins afterwards
	end          context.CancelFunc
	errands      sync.WaitGroup // goroutines for which Run waits
	destructions int            // reports of destroyed locks that wait; see receiveDestroyed
	served       bool           // this gateway has been able to serve requests
	leaving      bool           // Ready fails, nothing else
	draining     bool
	drain        chan struct{} // closed when draining begins: open polls end
}

// requests are the requests that wait here.
type requests struct {
	acquiring  int           // acquires that wait for their answer
	obstructed int           // acquires that wait for plain nodes to go
	written    chan struct{} // a place for each heartbeat that is being written for another gateway
}

// stream is how far the observer's changes have brought the replica.
type stream struct {
	synced         bool            // the replica holds the whole tree
	loadedOnce     bool            // it did once
	suppressEvents bool            // a namespace is being read for the first time: its state is not news
	heard          time.Time       // when the changes being applied arrived; else zero
	again          []*lease        // to read again when no other read is due; see recheck
	unlooked       []*queues.Queue // new directories; see lookSoon
}
