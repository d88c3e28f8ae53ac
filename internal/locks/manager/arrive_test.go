package manager

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// Attack 46: a request is sent on to a gateway that has taken its owner over and
// has not seen it yet. It waits until its replica has come there, and then knows the lease.
func TestASuccessorThatHasNotSeenItsTakeoverIsWaitedFor(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(keyed())
		two, third := s.gateway(t), s.gateway(t)
		third.m.Leave()
		third.m.mu.Lock()
		third.m.life.draining = true // it takes over no gateway
		third.m.mu.Unlock()
		dead := string(recipe.LeaseID(l.ID).Gateway())
		s.mu.Lock()
		s.deleted = func(string) {
			if s.nodes["/lockkeeper/succession/"+dead] != nil {
				two.w.held = true // its stream stands still right before the takeover
			}
		}
		s.mu.Unlock()
		one.crash()
		time.Sleep(11 * time.Second)
		route, ok := third.m.RouteOf(l.ID)
		assert.Must(t, ok && route.Gateway == two.id(), "the third knows %+v %v", route, ok)
		_, err := two.heartbeat(l)
		wantCode(t, err, locks.CodeUnavailable)
		for range 2 {
			begun := time.Now()
			wantCode(t, two.m.Arrive(within(t, time.Second), l.ID, route.Zxid), locks.CodeNotOwner)
			assert.Equal(t, time.Since(begun), time.Second, "it was waited for")
		}
		arrived := make(chan error, 1)
		go func() { arrived <- two.m.Arrive(within(t, time.Second), l.ID, route.Zxid) }()
		time.Sleep(500 * time.Millisecond)
		two.w.release()
		assert.NoError(t, <-arrived, "it did not arrive")
		synctest.Wait()
		_, err = two.heartbeat(l)
		assert.Nil(t, err, "heartbeat")
		// Whoever does not run it never comes to.
		begun := time.Now()
		wantCode(t, third.m.Arrive(within(t, time.Second), l.ID, route.Zxid), locks.CodeNotOwner)
		assert.Equal(t, time.Since(begun), time.Second, "another one was waited for")
	})
}

// Arriving needs no more than a look where the lease is at home, and an id that was
// made up arrives nowhere but at the gateway that it names.
func TestArriving(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(keyed())
		invented := l.ID[:len(l.ID)-1] + "q"
		if l.ID == invented {
			invented = l.ID[:len(l.ID)-1] + "a"
		}
		for _, id := range []string{l.ID, invented} {
			assert.Nil(t, one.m.Arrive(t.Context(), id, s.zxidNow()), "%s at its owner", id)
			wantCode(t, two.m.Arrive(within(t, time.Second), id, s.zxidNow()), locks.CodeNotOwner)
		}
		late := one.m.Arrive(within(t, time.Second), l.ID, s.zxidNow()+1000)
		wantCode(t, late, locks.CodeNotOwner)
		var e *locks.Error
		assert.That(t, !errors.As(late, &e) || e.RetryAfter == 0, "after the wait there is a Retry-After: %v", late)
		// Where it cannot even be waited, nobody is to come back at once.
		begins := &Manager{fleet: fleet{ready: make(chan struct{})}}
		err := begins.Arrive(within(t, time.Second), l.ID, 1)
		assert.That(t, errors.As(err, &e) && e.Code == locks.CodeNotOwner && e.RetryAfter != 0, "at one that begins: %+v", err)
		wantCode(t, one.m.Arrive(t.Context(), "x", 0), locks.CodeNotFound)
		one.mustRelease(l)
		assert.Nil(t, one.m.Arrive(t.Context(), l.ID, s.zxidNow()), "after its end")
		assert.Equal(t, s.children("/lockkeeper/succession"), 0, "succession entries")
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
