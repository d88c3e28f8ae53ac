package session

import (
	"sync"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
)

// Fence says for how long a gateway may still answer for its leases without
// asking ZooKeeper again: until W (the promise window) after it sent the last
// guarded transaction that committed. A successor waits W longer than the TTL,
// because every transaction that committed was sent before the guard was
// removed, hence before the takeover.
//
// Nothing but a committed guarded transaction moves it: a follower that is cut
// off from its leader answers pings and reads for seconds after the leader has
// expired the session.
//
// All methods are safe for concurrent use.
type TrustWindow struct {
	window time.Duration

	mu     sync.Mutex
	sent   zk.Instant // send time of the last committed guarded transaction
	number int64      // of that transaction, in the order of sending
	zxid   int64
	closed bool
	hooks  []func(sent zk.Instant, zxid int64)
}

func newTrustWindow(window time.Duration) *TrustWindow { return &TrustWindow{window: window} }

// Open reports whether now lies inside the promise window by both clocks.
func (f *TrustWindow) Open(now zk.Instant) bool { return f.Margin(now) > 0 || fault.On("trust-window") }

// Margin is how long the fence stays open if nothing commits; 0 or less when
// it is closed.
func (f *TrustWindow) Margin(now zk.Instant) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.sent.IsZero() {
		return 0
	}
	return f.window - now.Since(f.sent)
}

// TrustedUntil is the first Instant at which the fence is closed unless
// something commits before; the zero Instant once it is closed for good.
func (f *TrustWindow) TrustedUntil() zk.Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.sent.IsZero() {
		return zk.Instant{}
	}
	return f.sent.Add(f.window)
}

// Window is W.
func (f *TrustWindow) Window() time.Duration { return f.window }

// Close closes the fence for good. Later commits do not open it.
func (f *TrustWindow) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// OnCommit registers a function that is called for every guarded transaction
// that commits, in the order in which the commits become known, and at once
// for the last one before the call. It is called from the session's goroutine
// and must not block.
func (f *TrustWindow) OnCommit(hook func(sent zk.Instant, zxid int64)) {
	f.mu.Lock()
	f.hooks = append(f.hooks, hook)
	sent, zxid := f.sent, f.zxid
	f.mu.Unlock()
	if zxid != 0 {
		hook(sent, zxid)
	}
}

// committed tells the fence that the number-th guarded transaction, sent at
// that time, committed. Answers may come out of order: an older transaction
// never moves the fence back. The order is the sender's count and not the
// clocks', because a clock may have been set back in between.
func (f *TrustWindow) committed(number int64, sent zk.Instant, zxid int64) {
	f.mu.Lock()
	if number > f.number || f.sent.IsZero() {
		f.number, f.sent = number, sent
	}
	f.zxid = max(f.zxid, zxid)
	hooks := f.hooks
	f.mu.Unlock()
	for _, hook := range hooks {
		hook(sent, zxid)
	}
}
