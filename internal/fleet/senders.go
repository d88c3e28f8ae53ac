package fleet

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// numbers are given to the requests that a Fleet sends, to each its own. The name is random and is made anew with each
// Fleet, so the numbers begin at 1 with each process and need neither a disk nor a clock.
type numbers struct {
	name string
	last atomic.Uint64
}

// maxSenders bounds whose numbers are remembered, 16 KiB each.
const maxSenders = 512

// senderKey names one sender under one gateway id, which ends with its ZooKeeper session and never comes back.
type senderKey struct{ gateway, name string }

// received remembers what was received, from each sender.
type received struct {
	mu      sync.Mutex
	senders map[senderKey]*receivedFrom
	turn    uint64 // counts requests, for the order in which senders were heard
}

type receivedFrom struct {
	window *window
	last   uint64 // turn
}

var (
	// ErrRepeated is the error of Admit for a request that was received before, or so long ago that it cannot be told.
	ErrRepeated = errors.New("the request has been received before, or is older than what is remembered")
	// ErrUnknownSender is the error of Admit for a sender that was not heard before and is not a registered gateway.
	ErrUnknownSender = errors.New("the request is from a gateway that is not registered")
)

// take remembers a request; its error says that the request may not pass. A new sender must be a registered gateway.
// That makes it safe to forget a sender whose gateway id is gone: the id never comes back, so nothing of that sender
// passes any more. A known sender passes without a registration: a gateway that is cut off from ZooKeeper still forwards.
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
	r.turn++
	from.last = r.turn
	if !from.window.take(s.Number) {
		return ErrRepeated
	}
	return nil
}

// makeRoom forgets a sender when there are too many: among those whose gateway is not registered any more, the one that
// was heard least recently. Its error is that all of them are registered. mu is held.
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
		return fmt.Errorf("%w: %d registered gateways have sent requests, which is as many as are remembered", ErrUnknownSender, maxSenders)
	}
	delete(r.senders, oldest)
	return nil
}

// Admit lets a request that Keys.Open has accepted pass once. registered tells whether a gateway is registered now. Admit
// calls it for a sender that is new here, and when a sender must be forgotten.
func (f *Fleet) Admit(s *Seal, registered func(gateway string) bool) error {
	return f.received.take(s, registered)
}
