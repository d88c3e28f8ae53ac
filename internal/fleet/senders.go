package fleet

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// numbers number the requests that a Fleet sends. Each Fleet has a new random name,
// so the numbers begin at 1 with each process and need neither a disk nor a clock.
type numbers struct {
	name string
	last atomic.Uint64
}

// maxSenders bounds the senders that are remembered, 16 KiB each.
const maxSenders = 512

// senderKey names one sender under one gateway id, which ends with its ZooKeeper session and never comes back.
type senderKey struct{ gateway, name string }

// received remembers what was received, from each sender.
type received struct {
	mu      sync.Mutex
	senders map[senderKey]*receivedFrom
	count   uint64 // of requests, for the order of senders
}

type receivedFrom struct {
	window *window
	last   uint64 // count at its last request
}

var (
	// ErrRepeated is the error of Admit for a request that was received before, or so long ago that this is not known.
	ErrRepeated = errors.New("the request was received before, or is older than the window")
	// ErrUnknownSender is the error of Admit for a new sender that is not a registered gateway.
	ErrUnknownSender = errors.New("the request is from a gateway that is not registered")
)

// take remembers a request; an error refuses it. A new sender must be a registered gateway.
// So a sender whose gateway id is gone can be forgotten: the id never comes back, and no request of that sender
// is accepted again. A known sender needs no registration: a gateway that is cut off from ZooKeeper still forwards.
func (r *received) take(s *Seal, registered func(gateway string) bool) error {
	key := senderKey{s.From, s.Sender}
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.senders[key]
	if from == nil {
		if !registered(s.From) {
			return ErrUnknownSender
		}
		if err := r.makeRoom(registered); err != nil {
			return err
		}
		from = &receivedFrom{window: newWindow(windowSize)}
		r.senders[key] = from
	}
	r.count++
	from.last = r.count
	if !from.window.take(s.Number) {
		return ErrRepeated
	}
	return nil
}

// makeRoom forgets a sender when there are too many: the least recent one whose gateway is not registered any more.
// It fails when all of them are registered. mu is held.
func (r *received) makeRoom(registered func(gateway string) bool) error {
	if len(r.senders) < maxSenders {
		return nil
	}
	var oldest senderKey
	found := false
	for key, from := range r.senders {
		if (!found || from.last < r.senders[oldest].last) && !registered(key.gateway) {
			oldest, found = key, true
		}
	}
	if !found {
		return fmt.Errorf("%w: %d registered gateways have sent requests, the most that are remembered", ErrUnknownSender, maxSenders)
	}
	delete(r.senders, oldest)
	return nil
}

// Admit accepts a request that Keys.Open has accepted once. registered reports whether a gateway is registered now; Admit
// calls it for a new sender, and when a sender must be forgotten.
func (f *Fleet) Admit(s *Seal, registered func(gateway string) bool) error {
	return f.received.take(s, registered)
}
