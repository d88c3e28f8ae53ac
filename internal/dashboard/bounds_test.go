package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// A lock in shared mode may have a thousand holders, and each may say 4 KiB.
func TestALocksPageShowsTheFirstHoldersAndCountsTheRest(t *testing.T) {
	r := newRig(t)
	crowd := func(n int, mode locks.Mode) []locks.Contender {
		list := make([]locks.Contender, n)
		for i := range list {
			list[i] = locks.Contender{Znode: fmt.Sprintf("/l/deploy/%s-%d", mode, i), Owner: fmt.Sprintf("%s-%d.", mode, i), Mode: mode, Metadata: strings.Repeat("m", 4096)}
		}
		return list
	}
	r.fake.set(func() {
		l := locks.Lock{NS: "default", Name: "deploy", State: locks.LockHeld, Holders: crowd(1000, locks.Shared), Waiters: crowd(pageSize, locks.Exclusive), QueueLength: pageSize}
		for i := range l.Waiters {
			l.Waiters[i].Position = i + 1
		}
		r.fake.lock = func(locks.LockRequest) (locks.Lock, error) { return l, nil }
	})
	for _, target := range []string{urlOf(deploy), pollURL(deploy)} {
		body := r.get(t, target).Body.String()
		for _, want := range []string{"1,000 holders", "Held by 1,000", "and 950 more", "shared-49.", "exclusive-49."} {
			assert.That(t, strings.Contains(body, want), "%s does not say %q", target, want)
		}
		assert.That(t, !strings.Contains(body, "shared-50."), "%s shows more holders than a page has", target)
		assert.That(t, len(body) <= 1<<20, "%s is %d bytes", target, len(body))
	}
}

// A page whose namespace is gone (a gateway was restarted with others) says
// so by its poll as by its socket: an error would look like a gateway that is away.
func TestAPollSaysWhatIsWrongAsASocketDoes(t *testing.T) {
	r := newRig(t)
	r.fake.set(func() {
		gone := &locks.Error{Code: locks.CodeNamespaceUnknown, Detail: "there is no namespace team"}
		r.fake.lock = func(locks.LockRequest) (locks.Lock, error) { return locks.Lock{}, gone }
		r.fake.locks = func(locks.LockFilter) (locks.LockPage, error) { return locks.LockPage{}, gone }
	})
	for _, v := range []page{overviewPage{ns: "team"}, lockPage{ns: "team", lock: "a", tab: tabQueue}} {
		if w := r.get(t, pollURL(v)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "There is no namespace team.") {
			t.Errorf("%s: %d\n%s", pollURL(v), w.Code, w.Body)
		}
		if w := r.get(t, urlOf(v)); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", urlOf(v), w.Code)
		}
	}
}

// A topic has no request that would end in its place.
func TestAReadingThatPanicsDoesNotEndTheGateway(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		topic := r.watch(t, overview)
		r.fake.set(func() {
			r.fake.locks = func(locks.LockFilter) (locks.LockPage, error) { panic("a bug") }
		})
		time.Sleep(3 * tick)
		r.fake.holds("at last")
		html, _ := next(t, topic, 2*tick)
		assert.That(t, strings.Contains(html, "at last"), "got\n%s", html)
	})
}

// A client that asks for pages by the hundred, with filters that find nothing, has the
// lock manager look at every lock each time.
func TestPagesTakeTurnsAtTheLockManager(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		var now, most atomic.Int32
		r.fake.set(func() {
			r.fake.locks = func(locks.LockFilter) (locks.LockPage, error) {
				n := now.Add(1)
				defer now.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				time.Sleep(10 * time.Millisecond)
				return locks.LockPage{}, nil
			}
		})
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		for i := range 50 {
			v := overview
			v.query = fmt.Sprint(i)
			for _, target := range []string{urlOf(v), pollURL(v)} {
				go r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil))
			}
		}
		time.Sleep(105 * time.Millisecond) // no list ends in the moment in which they give up
		got := most.Load()
		assert.That(t, got <= maxSearches, "%d lists at a time", got)
		began := time.Now()
		if r.get(t, urlOf(overview)); time.Since(began) > 20*time.Millisecond {
			t.Errorf("a page without a filter, which costs little, took %v", time.Since(began))
		}
		asked := r.fake.count("locks")
		giveUp()
		time.Sleep(time.Second)
		more := r.fake.count("locks") - asked
		assert.That(t, more <= 0, "%d lists for those who have gone", more)
	})
}
