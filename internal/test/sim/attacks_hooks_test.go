package sim

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk/embedded/state"
)

// Interleavings of ends, subscriptions and deliveries.

// subscribeAt makes a webhook for all ends and gives its id.
func (s *scene) subscribeAt(g *gateway) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	sub := assert.Value(g.hooks.Create(ctx, &webhooks.Subscription{URL: "http://receiver.example/a", Enabled: true}))(s)
	return sub.ID
}

func (s *scene) toldOf(hook string, l *lease) bool {
	s.receivers.mu.Lock()
	defer s.receivers.mu.Unlock()
	return !s.receivers.told[hook+" "+l.id].IsZero()
}

// setDown has receivers take nothing, or everything again.
func (s *scene) setDown(down bool) {
	s.receivers.mu.Lock()
	defer s.receivers.mu.Unlock()
	s.receivers.down = down
}

func TestAttack19AReleaseAtAGatewayThatHasNotHeardOfTheSubscriptionIsTold(t *testing.T) {
	playIn(t, Plan{Seed: sessionOutlivesWindow, Gateways: 2, Servers: 1, Hooks: 1}, func(s *scene) {
		stalled, other := s.start(0), s.start(1)
		c := s.client(stalled)
		l := s.take(c, "a", "held", "ttl", "1h")
		watch := s.observer(stalled)
		watch.StallReplies() // it gets no replies, and may write
		hook := s.subscribeAt(other)
		released := make(chan struct{})
		go func() { c.release(l); close(released) }()
		time.Sleep(time.Second)
		watch.Resume()
		<-released
		s.within(10*time.Second, "the end is told", func() bool { return s.toldOf(hook, l) })
	})
}

// Whose administrator breaks a lease notes the end; the gateway that ran it has heard so, and has nothing to add.
func TestHooksABreakAtAnotherGatewayIsToldOnce(t *testing.T) {
	playIn(t, Plan{Seed: sessionOutlivesWindow, Gateways: 2, Servers: 1, Hooks: 1}, func(s *scene) {
		runs, breaks := s.start(0), s.start(1)
		hook := s.subscribeAt(runs)
		time.Sleep(time.Second)
		admin, watch, broken := s.client(breaks), s.observer(runs), 0
		for _, lock := range lockNames {
			l := s.take(s.client(runs), lock, "held", "ttl", "1h")
			watch.StallReplies() // the word is quicker than its watch
			admin.terminate(intervention{lease: l.id}, "/v1/leases/"+l.id+"/break", url.Values{})
			time.Sleep(300 * time.Millisecond)
			watch.Resume()
			s.within(10*time.Second, "the end is told", func() bool { return s.toldOf(hook, l) })
			if s.audit.at(l.id, lock).endedBy == breaks.name {
				broken++
			}
		}
		assert.That(s, broken != 0, "the gateway that runs the leases has ended them all by itself: nothing is shown")
		time.Sleep(time.Minute)
		s.receivers.mu.Lock()
		defer s.receivers.mu.Unlock()
		assert.That(s, len(s.receivers.took) == len(lockNames), "%d messages", len(s.receivers.took))
		for id, n := range s.receivers.took {
			assert.That(s, n == 1, "%s is told %d times", id, n)
		}
	})
}

// When a gateway is gone what it has left falls to any of the others, until one of them is its successor. One that has not heard yet that there
// is one leaves it to the other, which has, and leaves it to the successor.
func TestHooksASuccessorDeliversWhatWasLeftToAnotherGatewayBefore(t *testing.T) {
	playIn(t, Plan{Seed: sessionOutlivesWindow, Gateways: 3, Servers: 1, Hooks: 1}, func(s *scene) {
		dead, next, other := s.start(0), s.start(1), s.start(2)
		hook := s.subscribeAt(next)
		time.Sleep(time.Second)
		s.take(s.client(dead), "a", "held", "ttl", "1h") // or there would be nothing to succeed to
		s.setDown(true)
		var ended []*lease
		for i := range 12 {
			c := s.client(dead)
			ended = append(ended, s.take(c, fmt.Sprint("left-", i), "held", "ttl", "1h"))
			c.release(ended[i])
		}
		registration := s.audit.registration(dead.name)
		nextWatch, otherWatch := s.observer(next), s.observer(other)
		gone, succeeded := make(chan struct{}), make(chan struct{})
		s.zk.OnCommit(func(txn *state.Txn) {
			for _, op := range txn.Ops {
				switch {
				case op.Path == registration && gone != nil:
					otherWatch.StallReplies() // until there is a successor
					close(gone)
					gone = nil
				case strings.HasPrefix(op.Path, "/lockkeeper/succession/") && succeeded != nil:
					nextWatch.StallReplies() // it does not hear that it is
					close(succeeded)
					succeeded = nil
				}
			}
		})
		over := succeeded
		s.die(dead)
		<-over
		otherWatch.Resume()
		s.setDown(false)
		time.Sleep(500 * time.Millisecond)
		nextWatch.Resume()
		untold := func() (n int) {
			for _, l := range ended {
				if !s.toldOf(hook, l) {
					n++
				}
			}
			return n
		}
		s.within(5*time.Minute, "all that it left is told", func() bool { return untold() == 0 })
	})
}
