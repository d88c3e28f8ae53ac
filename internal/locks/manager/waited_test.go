package manager

import (
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// A client holds its lease until it sent the request + Waited + TTL. So no answer may promise more than the gateway's own deadline.
func TestAGrantTellsWhenItsTTLBegan(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		promised := func(what string, sent time.Duration, l locks.Lease, waited time.Duration) {
			t.Helper()
			assert.Must(t, l.WaitedKnown, "%s: it is not told when the TTL began", what)
			if late := l.Waited - waited; late < 0 || late > 5*time.Millisecond { // a write takes one millisecond
				t.Errorf("%s: waited %v, want %v", what, l.Waited, waited)
			}
			g.m.mu.Lock()
			defer g.m.mu.Unlock()
			until, deadline := sent+l.Waited+l.TTL, g.m.leases.byID[g.m.mustID(l.ID)].deadline
			assert.That(t, until <= deadline, "%s: the client counts until %v, the gateway until %v", what, until, deadline)
		}
		now := func() time.Duration { return s.clock.Now().Boot() }
		sent := now()
		first := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		promised("at once", sent, first, 0)

		sent = now()
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: 5 * time.Second, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		time.Sleep(9 * time.Second)
		g.mustRelease(first)
		assert.Must(t, p.finished() && p.err == nil, "no grant: %v", p.err)
		promised("after a wait", sent, p.lease, 9*time.Second)

		time.Sleep(3 * time.Second)
		sent = now()
		again := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 5 * time.Second, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		promised("a repeat", sent, again, 0)

		time.Sleep(3 * time.Second)
		sent = now()
		held := g.mustHold(locks.AcquireRequest{Lock: "deploy", Token: again.Token, Hold: "more"})
		promised("a hold", sent, held, 0)

		time.Sleep(time.Second)
		look := assert.Value(g.m.Lease(t.Context(), locks.LeaseRequest{ID: again.ID, Token: again.Token}))(t, "look")
		assert.Must(t, !look.WaitedKnown, "a look renews nothing, and counts a TTL from now: %v", look.Waited)

		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Async: true})
		assert.Must(t, !ticket.WaitedKnown, "a ticket has no TTL that has begun")
		sent = now()
		done := make(chan locks.Lease, 1)
		go func() {
			l, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: ticket.ID, Token: ticket.Token, Wait: time.Minute, Since: ticket.Rev})
			assert.Nil(t, err)
			done <- l
		}()
		time.Sleep(2 * time.Second)
		g.mustRelease(again)
		promised("a poll", sent, <-done, 2*time.Second)
	})
}
