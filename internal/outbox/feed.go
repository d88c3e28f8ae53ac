package outbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/webhooks"
)

// feed gives the webhooks the events that are delivered as best effort. It reads the hub like any subscriber, so a
// publisher neither waits for it nor does more for it; and only while a webhook wants such events.
//
// Each gateway publishes all events. One gateway of a fleet tells each:
//
//   - what happens to a lease, the gateway that runs it. What happens to it while that one is gone, the gateway that
//     delivers its outbox entries (manager.Delivers): the successor, or one of those that are registered;
//   - what happens to another program's contender, and a lock's hazards, the gateway that hashing names of those that are
//     registered. While gateways come and go, two may tell it, or none.
type feed struct {
	hub     *events.Hub
	manager *manager.Manager
	wake    chan struct{} // one place: wanted has changed

	left map[string]bool // gateways that are gone; of Run's goroutine

	mu         sync.Mutex
	wanted     bool
	subscriber *events.Subscriber // nil: there is none
}

// bestEffort are the types that are told.
var bestEffort = events.Types(events.LeaseQueued, events.LeaseGranted, events.LeaseUpdated, events.LeaseRevokeRequested,
	events.LeaseRevokeWithdrawn, events.LeaseEnding, events.LockHazard, events.LockHazardCleared)

// once are those of which a lease has one in each lock; over are those after which it has no more.
var (
	once = events.Types(events.LeaseQueued, events.LeaseGranted)
	over = events.Types(events.LeaseReleased, events.LeaseExpired, events.LeaseCancelled, events.LeaseUnclaimed, events.LeaseRemoved, events.LeaseRevoked)
)

const (
	subscribeAgain = time.Second      // a refused subscription waits for so long
	goneUnnoticed  = 30 * time.Second // a gateway may be gone for so long before the others see it: three session timeouts, as they are unless set
	maxLeft        = 1000
)

func newFeed(hub *events.Hub, m *manager.Manager) *feed {
	return &feed{hub: hub, manager: m, wake: make(chan struct{}, 1), left: map[string]bool{}}
}

// Want implements webhooks.Feed. What is published after it is told.
func (f *feed) Want(wanted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if wanted == f.wanted {
		return
	}
	f.wanted = wanted
	f.renew("")
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// renew ends the subscription, and begins another behind that place ("": now) where one is wanted; mu is held.
func (f *feed) renew(after string) {
	if f.subscriber != nil {
		f.subscriber.Close()
		f.subscriber = nil
	}
	if f.wanted {
		f.subscriber, _ = f.hub.Subscribe(events.Filter{Rules: access.Everything(), Types: bestEffort | events.Types(events.GatewayLeft)}, after) // refused: Run tries again
	}
}

func (f *feed) current() (subscriber *events.Subscriber, wanted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.subscriber, f.wanted
}

// Run implements webhooks.Feed.
func (f *feed) Run(ctx context.Context, s *webhooks.Service) {
	defer f.Want(false)
	for ctx.Err() == nil {
		subscriber, wanted := f.current()
		if subscriber == nil {
			f.await(ctx, wanted)
			continue
		}
		batch, err := subscriber.Next(ctx)
		if err == nil {
			for _, e := range batch {
				f.tell(s, e)
			}
			continue
		}
		f.mu.Lock()
		if f.subscriber == subscriber { // it lagged, or the hub has ended
			f.renew(subscriber.Position())
		}
		ending := errors.Is(err, events.ErrClosed) && f.subscriber != nil
		f.mu.Unlock()
		if ending {
			f.await(ctx, true) // the gateway is ending
		}
	}
}

// await waits until the feed is wanted, or again may subscribe.
func (f *feed) await(ctx context.Context, wanted bool) {
	var again <-chan time.Time
	if wanted {
		again = time.After(subscribeAgain)
	}
	select {
	case <-ctx.Done():
	case <-f.wake:
	case <-again:
		f.mu.Lock()
		if f.subscriber == nil {
			f.renew("")
		}
		f.mu.Unlock()
	}
}

func (f *feed) tell(s *webhooks.Service, e *events.Event) {
	switch e.Type {
	case events.Resync: // the gateway was busy for so long that the hub has lost events
		s.Missed()
		return
	case events.GatewayLeft:
		f.succeed(s, e.Gateway)
		return
	}
	told := &webhooks.Event{Type: e.Type.String(), Time: e.Time.Truncate(time.Millisecond), NS: e.NS, Lock: e.Lock, LeaseID: e.LeaseID, Program: e.Program, Znode: e.Path(),
		Owner: e.Owner, Principal: e.Principal, Purpose: e.Purpose, Mode: e.Mode, FencingToken: e.FencingToken, Reason: e.Reason, Detail: e.Detail, By: e.By, Gateway: e.Gateway}
	if e.Hazard != nil {
		told.Code, told.Programs = e.Hazard.Code, e.Hazard.Programs
	}
	to := s.Wanting(told)
	if len(to) == 0 || !f.tells(e) {
		return
	}
	s.Tell(nameOf(e), told, to)
}

// tells reports whether this gateway, of a fleet, tells an event.
func (f *feed) tells(e *events.Event) bool {
	switch {
	case e.Here:
		return true
	case e.LeaseID != "":
		return f.left[e.Gateway] && f.manager.Delivers(e.LeaseID)
	case e.Type == events.LeaseRevokeRequested:
		return false // the gateway that asked tells
	}
	return f.manager.DeliversFor("", e.Path())
}

// succeed tells which leases of a gateway that has left were granted before the others noticed: a release at another
// gateway lets the next waiter hold. The gateway may have told it, under the same ids.
func (f *feed) succeed(s *webhooks.Service, gateway string) {
	if len(f.left) >= maxLeft {
		clear(f.left)
	}
	f.left[gateway] = true
	ended := map[string]bool{}
	var granted []*events.Event
	for _, e := range slices.Backward(f.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseGranted) | over}, events.DefaultRing)) {
		switch {
		case e.LeaseID == "" || ended[e.LeaseID] || time.Since(e.Time) > goneUnnoticed:
		case over.Has(e.Type):
			ended[e.LeaseID] = true
		case e.Gateway == gateway && !e.Here:
			granted = append(granted, e)
		}
	}
	for _, e := range slices.Backward(granted) {
		f.tell(s, e)
	}
}

// nameOf makes the ids of an event's messages. A lease is queued and granted once: a successor that tells it again tells
// it under the same id.
func nameOf(e *events.Event) string {
	if e.LeaseID != "" && once.Has(e.Type) {
		return e.Type.String() + " " + e.LeaseID
	}
	return e.ID()
}
