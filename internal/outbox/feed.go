package outbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/webhooks"
)

// feed gives the webhooks the events that are delivered as best effort. It reads the hub like any subscriber, so a
// publisher neither waits for it nor does more for it; and only while a webhook wants such events.
//
// Each gateway publishes all events. One gateway of a fleet tells each:
//
//   - what happens to a lease, the gateway that runs it;
//   - what happens to another program's contender, and a lock's hazards, the gateway that hashing names of those that are
//     registered. While gateways come and go, two may tell it, or none.
type feed struct {
	hub     *events.Hub
	manager *manager.Manager
	wake    chan struct{} // one place: wanted has changed

	mu         sync.Mutex
	wanted     bool
	subscriber *events.Subscriber // nil: there is none
}

// bestEffort are the types that are told.
var bestEffort = events.Types(events.LeaseQueued, events.LeaseGranted, events.LeaseUpdated, events.LeaseRevokeRequested,
	events.LeaseRevokeWithdrawn, events.LockHazard, events.LockHazardCleared)

// subscribeAgain is how long a refused subscription waits.
const subscribeAgain = time.Second

func newFeed(hub *events.Hub, m *manager.Manager) *feed {
	return &feed{hub: hub, manager: m, wake: make(chan struct{}, 1)}
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
		f.subscriber, _ = f.hub.Subscribe(events.Filter{Types: bestEffort}, after) // refused: Run tries again
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
		over := errors.Is(err, events.ErrClosed) && f.subscriber != nil
		f.mu.Unlock()
		if over {
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
	if e.Type == events.Resync { // the gateway was busy for so long that the hub has lost events
		s.Missed()
		return
	}
	kind := e.Type.String()
	to := s.Wanting(kind, e.NS, e.Lock)
	if len(to) == 0 || !f.tells(e) {
		return
	}
	told := &webhooks.Event{Type: kind, Time: e.Time.Truncate(time.Millisecond), NS: e.NS, Lock: e.Lock, LeaseID: e.LeaseID, Program: e.Program, Znode: e.Path(),
		Owner: e.Owner, Mode: e.Mode, FencingToken: e.FencingToken, Reason: e.Reason, Detail: e.Detail, Gateway: e.Gateway}
	if e.Hazard != nil {
		told.Code, told.Programs = e.Hazard.Code, e.Hazard.Programs
	}
	s.Tell(nameOf(e), told, to)
}

// tells reports whether this gateway, of a fleet, tells an event.
func (f *feed) tells(e *events.Event) bool {
	return e.Here || e.LeaseID == "" && e.Type != events.LeaseRevokeRequested && f.manager.DeliversFor("", e.Path())
}

// nameOf makes the ids of an event's messages. A lease is queued and granted once: a successor that tells it again tells
// it under the same id.
func nameOf(e *events.Event) string {
	if e.LeaseID != "" && (e.Type == events.LeaseQueued || e.Type == events.LeaseGranted) {
		return e.Type.String() + " " + e.LeaseID
	}
	return e.ID()
}
