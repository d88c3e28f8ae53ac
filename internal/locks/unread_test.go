package locks

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/zk"
)

// A waiting lease has been taken over, and its record has not been read: the longest TTL is assumed. Whoever polls it is not
// told that its place is kept for so long: the record may say less, and the clock goes by that as soon as it is read.
func TestNoPlaceIsPromisedForLongerThanTheRecordOfAnAdoptedLeaseSays(t *testing.T) {
	const ttl = 4 * time.Second
	scene(t, func(t *testing.T, s *fakeStore) {
		one := s.gateway(t)
		one.mustHold(AcquireRequest{Lock: "deploy", TTL: time.Hour})
		l := one.mustAcquire(AcquireRequest{Lock: "deploy", TTL: ttl, Async: true})
		one.crash()
		h := s.hooked()
		h.hooks.Store(&hooks{get: func(path string) error {
			if path == l.Znode {
				return zk.ErrUnavailable
			}
			return nil
		}})
		two := h.gateway(t)
		time.Sleep(11 * time.Second) // taken over
		asked := time.Now()
		if v, err := two.m.Lease(t.Context(), LeaseRequest{ID: l.ID, Token: l.Token}); err == nil {
			t.Errorf("%v is promised of a lease whose TTL is %v and which nobody has read", v.ExpiresIn, ttl)
		} else {
			wantCode(t, err, CodeUnavailable)
		}
		if took := time.Since(asked); took > settleWithin+time.Second {
			t.Errorf("answered after %v", took)
		}
		time.AfterFunc(200*time.Millisecond, func() { h.hooks.Store(&hooks{}) })
		v, err := two.m.Lease(t.Context(), LeaseRequest{ID: l.ID, Token: l.Token}) // is answered when it has been read
		if err != nil || v.State != Waiting || v.TTL != ttl || v.ExpiresIn <= 0 || v.ExpiresIn > ttl {
			t.Fatalf("%+v, %v", v, err)
		}
		time.Sleep(v.ExpiresIn - 10*time.Millisecond)
		synctest.Wait()
		two.wantState(l, Waiting, "")
		checkAll(t, s, two)
	})
}
