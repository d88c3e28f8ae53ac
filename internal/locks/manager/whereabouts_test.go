package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// The index of all contenders is there only while somebody asks.
func TestWhereLeasesAreIsForgottenWhenNobodyAsks(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two := s.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		indexed := func() bool {
			two.m.mu.Lock()
			defer two.m.mu.Unlock()
			return two.m.whereabouts.at != nil
		}
		synctest.Wait()
		if indexed() {
			t.Error("an index that nobody asked for")
		}
		two.mustBeatFor(l, locks.Held)
		later := one.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		gone := one.mustHold(locks.AcquireRequest{Lock: "third", TTL: time.Hour})
		one.mustRelease(gone)
		synctest.Wait()
		two.mustBeatFor(later, locks.Held)
		if _, err := two.beatFor(gone); err == nil {
			t.Error("a lease that was released is heartbeaten")
		}
		checkAll(t, s, one, two)
		time.Sleep(2 * whereaboutsLife)
		if indexed() {
			t.Error("it is kept for ever")
		}
		two.mustBeatFor(l, locks.Held)
	})
}

// Also of a lease that was downgraded, and of one of several contenders.
func TestWhereLeasesAreIsKnownWhateverTheirContenders(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two := s.gateway(t), s.gateway(t)
		plain := one.mustHold(locks.AcquireRequest{Lock: "plain", TTL: time.Hour})
		synctest.Wait()
		two.mustBeatFor(plain, locks.Held)
		lowered := one.mustHold(locks.AcquireRequest{Lock: "lowered", TTL: time.Hour})
		group := one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: time.Hour})
		if _, err := one.downgrade(lowered); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		checkAll(t, s, two)
		for _, l := range []locks.Lease{plain, lowered, group} {
			two.mustBeatFor(l, locks.Held)
		}
		for _, l := range []locks.Lease{plain, lowered, group} {
			one.mustRelease(l)
		}
		synctest.Wait()
		checkAll(t, s, two)
		two.m.mu.Lock()
		defer two.m.mu.Unlock()
		if n := len(two.m.whereabouts.at) + len(two.m.whereabouts.more); n != 0 {
			t.Errorf("%d of leases that have ended", n)
		}
	})
}

// Somebody may have made up names with a lease's id: where the real one is is found anew when
// the one that is known goes.
func TestWhereALeaseIsIsFoundAnewWhenOneOfItsNamesGoes(t *testing.T) {
	w := whereabouts{at: map[recipe.LeaseID]part{}}
	q := &queue{}
	contender := func(number int32) *recipe.Contender {
		return &recipe.Contender{LeaseID: "l", Ours: true, Number: number}
	}
	a, b, c := contender(1), contender(2), contender(3)
	for _, one := range []*recipe.Contender{a, b, c} {
		w.add(q, one)
	}
	w.remove(a)
	if w.at["l"].c != c || w.more["l"] != 1 {
		t.Errorf("%+v", w)
	}
	w.remove(c)
	if w.at != nil || w.more != nil {
		t.Errorf("%+v: it knows nothing of the second one", w)
	}
	w.remove(b)
	w = whereabouts{at: map[recipe.LeaseID]part{}}
	w.add(q, a)
	w.add(q, b)
	w.remove(a)
	w.remove(b)
	if len(w.at)+len(w.more) != 0 || w.at == nil {
		t.Errorf("%+v", w)
	}
}
