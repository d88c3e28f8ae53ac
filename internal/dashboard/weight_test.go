package dashboard

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"

	"lockkeeper/internal/events"
	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// What pages weigh: bytes to load them, bytes and processor time to keep them up to date, and how much they jump. The locks are a fake's, so that
// the browser's processes are all that is measured. LOCKKEEPER_FULL measures for longer, and with the bounds of the
// requirement for processor time; these are for a machine on which nothing else works.

// measured is what a page cost in a span of time.
type measured struct {
	over      time.Duration
	sent      int     // bytes
	processor float64 // of one core, of the process that renders it
	shift     float64 // cumulative layout shift
}

func (m measured) String() string {
	return fmt.Sprintf("%.1f kB/s, %.1f %% of a core, layout shift %.3f, in %v", m.kilobytes(), 100*m.processor, m.shift, m.over.Round(time.Second))
}

func (m measured) kilobytes() float64 { return float64(m.sent) / 1000 / m.over.Seconds() }

const watchShifts = `(() => {
	window.shift = 0;
	new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.shift += e.value; }).observe({type: "layout-shift", buffered: true});
	return 1;
})()`

// costs measures while something else lets things happen.
func (s *server) costs(b *chromium, over time.Duration) measured {
	b.t.Helper()
	evalIn[int](b, `(window.shift = 0, 1)`)
	sent, processor, began := s.sent.Load(), b.processor(), time.Now()
	time.Sleep(over) // on the wall clock: a browser has no other
	m := measured{over: time.Since(began), sent: int(s.sent.Load() - sent), processor: b.processor() - processor, shift: evalIn[float64](b, "shift")}
	m.processor /= m.over.Seconds()
	return m
}

// processor is the time, in seconds, that all renderers of the browser have used.
func (b *chromium) processor() (seconds float64) {
	b.t.Helper()
	got := assert.Value(chromedp.CallBrowser(b.ctx, systeminfo.GetProcessInfo, cdp.Empty{}))(b.t)
	for _, p := range got.ProcessInfo {
		if p.Type == "renderer" {
			seconds += p.CPUTime
		}
	}
	return seconds
}

// load is what happens to locks. It belongs to one goroutine, and the fake reads under its lock.
type load struct {
	s      *server
	random *rand.Rand
	n      int
	all    []locks.Lock // by name
	line   []locks.Contender
}

func newLoad(s *server) *load { return &load{s: s, random: rand.New(rand.NewPCG(1, 2))} }

func (l *load) contender(lock string) locks.Contender {
	l.n++
	at := time.Now().Add(-time.Duration(l.random.IntN(600)) * time.Second)
	id := fmt.Sprintf("lk7zeszcneibhyj6bv%022d", l.random.Uint64())
	return locks.Contender{LeaseID: id, Owner: fmt.Sprintf("worker-%d@host-%d", l.n, l.n%17), Znode: fmt.Sprintf("/lockkeeper/locks/%s/write-%s-%010d", lock, id, l.n), Mode: locks.Exclusive,
		FencingToken: int64(l.n), At: at, Age: time.Minute, AgeKnown: true, HeldFor: time.Second, Clock: 30 * time.Second, ExpiresIn: 25 * time.Minute,
		Metadata: fmt.Sprintf(`{"job":%d,"branch":"main","url":"https://ci.example/build/%d"}`, l.n, l.n)}
}

// many locks, of which each has a holder and some waiters.
func (l *load) many(n int) {
	for i := range n {
		name := fmt.Sprintf("team-%03d:service:job-%05d", i%100, i)
		l.all = append(l.all, locks.Lock{NS: "default", Name: name, State: locks.LockHeld, QueueLength: l.random.IntN(9), HolderCount: 1, Holders: []locks.Contender{l.contender(name)}})
	}
	slices.SortFunc(l.all, func(a, b locks.Lock) int { return strings.Compare(a.Name, b.Name) })
	l.s.fake.set(func() {
		l.s.fake.locks = func(r locks.LockFilter) (page locks.LockPage, _ error) {
			l.s.fake.mu.Lock()
			defer l.s.fake.mu.Unlock()
			for i := range l.all {
				if l.all[i].State == locks.LockFree {
					continue
				}
				if len(page.Items) == r.Limit {
					page.NextCursor = l.all[i].Name
					break
				}
				page.Items = append(page.Items, l.all[i])
				page.Items[len(page.Items)-1].Holders = slices.Clone(l.all[i].Holders)
			}
			return page, nil
		}
	})
}

// change changes a lock's holder or its queue; every tenth event frees a lock or takes one.
func (l *load) change(among int) string {
	k := &l.all[l.random.IntN(among)]
	switch l.random.IntN(20) {
	case 0, 1:
		if k.State == locks.LockFree {
			k.State, k.Holders[0] = locks.LockHeld, l.contender(k.Name)
		} else {
			k.State = locks.LockFree
		}
	case 2, 3, 4, 5, 6, 7, 8, 9:
		k.Holders[0] = l.contender(k.Name)
	default:
		k.QueueLength = max(0, k.QueueLength+l.random.IntN(3)-1)
	}
	return k.Name
}

// hot is one lock for which so many wait.
func (l *load) hot(waiting int) {
	for range waiting + 1 {
		l.line = append(l.line, l.contender("hot"))
	}
	l.s.fake.set(func() {
		l.s.fake.lock = func(r locks.LockRequest) (locks.Lock, error) {
			k := locks.Lock{NS: r.NS, Name: r.Lock, State: locks.LockHeld, HolderCount: 1, QueueLength: len(l.line) - 1, Holders: []locks.Contender{l.line[0]}}
			for i, c := range l.line[1:min(1+r.Limit, len(l.line))] {
				c.Position, c.FencingToken, c.HeldFor = i+1, 0, 0
				k.Waiters = append(k.Waiters, c)
			}
			return k, nil
		}
	})
}

// handOver ends the holder's lease; another client queues.
func (l *load) handOver() {
	l.line = append(l.line[1:], l.contender("hot"))
}

// run lets something happen so often, until the test ends or stop is called.
func (l *load) run(every time.Duration, happen func() (lock string)) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(max(every, 10*time.Millisecond))
		defer tick.Stop()
		began, n := time.Now(), 0
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for ; n < int(time.Since(began)/every); n++ {
				var lock string
				var c locks.Contender
				l.s.fake.set(func() {
					lock = happen()
					if len(l.line) > 0 {
						c = l.line[0]
					}
				})
				for _, kind := range []events.Type{events.LeaseReleased, events.LeaseGranted} {
					l.s.hub.Publish(&events.Event{Type: kind, NS: "default", Lock: lock, Owner: c.Owner, LeaseID: c.LeaseID, FencingToken: c.FencingToken, Time: time.Now()})
				}
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// remembering has a history in which all queues go up and down each minute: no line is longer. Of the lock that is hot it knows what is usual alone: its
// page is measured without a timeline. The one that is busy has a timeline of 300 holds.
func remembering(d *Dashboard) {
	h := &fakeHistory{
		stats: func(history.StatsQuery) (*history.Stats, error) {
			return &history.Stats{Hold: history.Spans{Count: 99, P50: 3 * time.Minute}, Ends: map[locks.Reason]int{}}, nil
		},
		query: func(q history.Query) (a history.Answer, _ error) {
			switch q.Lock {
			case "hot":
				return a, history.ErrOff
			case "busy":
				return turns(q.To, 300), nil
			}
			random := rand.New(rand.NewPCG(uint64(len(q.Lock)), uint64(q.Lock[len(q.Lock)-1])))
			for range 300 {
				a.Items = append(a.Items, history.Item{Kind: history.Hold, Begin: q.To.Add(-time.Duration(random.IntN(3600)) * time.Second), Waited: time.Minute, WaitedKnown: true})
			}
			return a, nil
		},
	}
	d.opt.History, d.memory = h, newMemory(h)
	d.trends.memory, d.lookout.memory = d.memory, d.memory
}

// turns are holds of a lock that goes from one to the next for an hour, most for some seconds. Every tenth lease expires.
func turns(to time.Time, n int) (a history.Answer) {
	random := rand.New(rand.NewPCG(3, 4))
	end := to
	for i := range n {
		begin := end.Add(-time.Hour/time.Duration(n) + time.Duration(random.IntN(8000)-4000)*time.Millisecond)
		one := history.Item{Kind: history.Hold, LeaseID: fmt.Sprintf("lk7zeszcneibhyj6bv%022d", random.Uint64()), Owner: fmt.Sprintf("worker-%d@host-%d", n-i, (n-i)%17), Mode: locks.Exclusive,
			Begin: begin, End: end, Reason: locks.ReasonReleased, FencingToken: int64(n - i), Waited: time.Minute, WaitedKnown: true}
		if i%10 == 9 {
			one.Reason = locks.ReasonExpired
		}
		a.Items = append(a.Items, one)
		end = begin.Add(-time.Duration(random.IntN(100)) * time.Millisecond)
	}
	return a
}

// remembered opens the overview until all rows have their lines.
func (b *chromium) remembered(s *server) {
	b.t.Helper()
	b.open(s, "/")
	b.until(`document.querySelectorAll("#locks tbody tr").length === document.querySelectorAll(".spark").length`, "each row has its line")
}

func full() bool { return os.Getenv("LOCKKEEPER_FULL") != "" }

func TestWhatItTakesToLoadAPage(t *testing.T) {
	s, b := browsed(t, remembering)
	l := newLoad(s)
	l.many(5000)
	l.hot(60)
	b.remembered(s)
	_, err := chromedp.Call(b.ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	assert.NoError(t, err)
	for path, most := range map[string]int{"/": 52_000, "/locks/hot": 55_000, "/locks/busy": 60_000} {
		before := s.sent.Load()
		b.do(chromedp.Navigate(s.http.URL + path))
		evalIn[int](b, watchShifts)
		b.until(`document.documentElement.dataset.link === "live" && document.readyState === "complete"`, "the page is live")
		loaded := evalIn[int](b, `[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].reduce((sum, e) => sum + e.transferSize, 0)`)
		time.Sleep(time.Second) // what shifts after it has been painted
		shift := evalIn[float64](b, "shift")
		t.Logf("%s: %d bytes to load it, %d with the first push; layout shift %.3f", path, loaded, s.sent.Load()-before, shift)
		assert.That(t, loaded > 20_000, "%s: nothing was measured", path)
		assert.That(t, loaded <= most, "%s: %d bytes, want at most %d", path, loaded, most)
		assert.That(t, shift < 0.1, "%s: a layout shift of %.3f", path, shift)
	}
}

func TestWhatItTakesToKeepAPageUpToDate(t *testing.T) {
	s, b := browsed(t, remembering)
	over := 5 * time.Second
	if full() {
		over = time.Minute
	}
	for _, c := range []struct {
		name, path string
		begin      func(*load)
		every      time.Duration // between happenings, of two events each
		happen     func(*load) string
		processor  float64
	}{
		{"an idle overview of 5,000 locks", "/", func(l *load) { l.many(5000) }, time.Hour, func(l *load) string { return "" }, 0.05},
		{"an overview of 5,000 locks, 1,000 events a second among them", "/", func(l *load) { l.many(5000) }, 2 * time.Millisecond, func(l *load) string { return l.change(5000) }, 0.12},
		{"an overview of 50 locks, 1,000 events a second in them", "/", func(l *load) { l.many(50) }, 2 * time.Millisecond, func(l *load) string { return l.change(50) }, 1},
		{"an overview of 50 locks, 200 events a second in them", "/", func(l *load) { l.many(50) }, 10 * time.Millisecond, func(l *load) string { return l.change(50) }, 1},
		{"a lock with 100 waiters, 50 events a second", "/locks/hot", func(l *load) { l.hot(100) }, 40 * time.Millisecond, func(l *load) string { l.handOver(); return "hot" }, 0.15},
		{"a lock with 100 waiters, 4 events a second", "/locks/hot", func(l *load) { l.hot(100) }, 500 * time.Millisecond, func(l *load) string { l.handOver(); return "hot" }, 0.15},
		{"a lock with 100 waiters, 1,000 events a second", "/locks/hot", func(l *load) { l.hot(100) }, 2 * time.Millisecond, func(l *load) string { l.handOver(); return "hot" }, 1},
	} {
		l := newLoad(s)
		c.begin(l)
		b.open(s, c.path)
		evalIn[int](b, watchShifts)
		stop := l.run(c.every, func() string { return c.happen(l) })
		time.Sleep(time.Second)
		m := s.costs(b, over)
		stop()
		t.Logf("%s: %v", c.name, m)
		assert.That(t, m.kilobytes() <= 30, "%s: %.1f kB/s", c.name, m.kilobytes())
		assert.That(t, m.shift < 0.1, "%s: a layout shift of %.3f", c.name, m.shift)
		assert.That(t, !full() || m.processor <= c.processor, "%s: %.1f %% of a core", c.name, 100*m.processor)
	}
}
