package session

import (
	"sync"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
)

// TrustWindow says for how long a gateway may still answer for its leases without asking ZooKeeper again: until W (the
// promise window) after it sent the last guarded transaction that committed. A successor waits W longer than the TTL,
// because every transaction that committed was sent before the guard was removed, hence before the takeover.
//
// Nothing but a committed guarded transaction moves it: a follower that is cut off from its leader answers pings and
// reads for seconds after the leader has expired the session.
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
func (t *TrustWindow) Open(now zk.Instant) bool { return t.Margin(now) > 0 || fault.On("trust-window") }

// Margin is how long the window stays open if nothing commits; 0 or less when it is closed.
func (t *TrustWindow) Margin(now zk.Instant) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.sent.IsZero() {
		return 0
	}
	return t.window - now.Since(t.sent)
}

// TrustedUntil is the first Instant at which the window is closed unless
// something commits before; the zero Instant once it is closed for good.
func (t *TrustWindow) TrustedUntil() zk.Instant {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.sent.IsZero() {
		return zk.Instant{}
	}
	return t.sent.Add(t.window)
}

// Window is W.
func (t *TrustWindow) Window() time.Duration { return t.window }

// Close closes the window for good. Later commits do not open it.
func (t *TrustWindow) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// OnCommit registers a function that is called for every guarded transaction that commits, in the order in which the
// commits become known, and at once for the last one before the call. It is called with the session's lock held: it must
// not block, nor call the Session's methods but LastZxid.
func (t *TrustWindow) OnCommit(hook func(sent zk.Instant, zxid int64)) {
	t.mu.Lock()
	t.hooks = append(t.hooks, hook)
	sent, zxid := t.sent, t.zxid
	t.mu.Unlock()
	if zxid != 0 {
		hook(sent, zxid)
	}
}

// committed tells the window that the number-th guarded transaction, sent at that time, committed. Answers may come out
// of order: an older transaction never moves the window back. The order is the sender's count and not the clocks',
// because a clock may have been set back in between.
func (t *TrustWindow) committed(number int64, sent zk.Instant, zxid int64) {
	t.mu.Lock()
	if number > t.number || t.sent.IsZero() {
		t.number, t.sent = number, sent
	}
	t.zxid = max(t.zxid, zxid)
	hooks := t.hooks
	t.mu.Unlock()
	for _, hook := range hooks {
		hook(sent, zxid)
	}
}
