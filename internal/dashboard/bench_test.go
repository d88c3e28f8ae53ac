package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
)

// many is a lock manager with so many held locks, in order of their names.
func many(n int) *fakeLocks {
	all := make([]locks.Lock, n)
	for i := range all {
		name := fmt.Sprintf("team-%03d:service:job-%06d", i%100, i)
		all[i] = locks.Lock{NS: "default", Name: name, State: locks.LockHeld, QueueLength: i % 5, Holders: []locks.Contender{{
			LeaseID: "lk7zeszcneibhyj6bvzox7mltgsjyv2atyozwpj", Znode: "/lockkeeper/locks/" + name + "/write-1", Owner: "worker-17@host-3",
			Mode: locks.Exclusive, FencingToken: int64(i), HeldFor: time.Minute, Clock: 30 * time.Second, ExpiresIn: 20 * time.Second}}}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	f := newFake()
	f.locks = func(q locks.LockFilter) (page locks.LockPage, _ error) {
		for i := sort.Search(n, func(i int) bool { return all[i].Name > q.Cursor }); i < n; i++ {
			if !strings.Contains(all[i].Name, q.Contains) {
				continue
			}
			if len(page.Items) == q.Limit {
				page.NextCursor = page.Items[q.Limit-1].Name
				break
			}
			page.Items = append(page.Items, all[i])
		}
		return page, nil
	}
	return f
}

// BenchmarkOverview measures what this package adds to the lock manager's
// answer when there are 100,000 locks; the fake lists from a sorted slice.
func BenchmarkOverview(b *testing.B) {
	d := New(Options{Locks: many(100_000), Events: events.New(events.Options{}), Logger: quiet(), Version: "bench", Started: time.Now()})
	for name, target := range map[string]string{"front": "/", "middle": "/?cursor=team-050", "filtered": "/?q=job-0999"} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, target, nil)
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				d.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
		})
	}
}

// BenchmarkLiveOverview measures one look of a topic at 100,000 locks, of which
// the first page changes every time: at most five of these a second.
func BenchmarkLiveOverview(b *testing.B) {
	f := many(100_000)
	d := New(Options{Locks: f, Events: events.New(events.Options{}), Logger: quiet(), Version: "bench", Started: time.Now()})
	t := newTopic(d, overviewPage{ns: "default"}, locks.Anonymous, func() {})
	list := f.locks
	i := 0
	f.locks = func(q locks.LockFilter) (locks.LockPage, error) {
		page, err := list(q)
		i++
		page.Items[i%len(page.Items)].QueueLength = i
		return page, err
	}
	b.ReportAllocs()
	for b.Loop() {
		t.update(context.Background())
	}
}
