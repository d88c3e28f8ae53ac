package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// mostShift is what the page of a hot lock may shift while it is watched, as Chromium's layout shift counts it. Where rows do not glide it is ten
// in that time.
const mostShift = 0.1

// watchShifts adds up the layout shift of a page from now on, and notes what shifted.
const watchShifts = `(() => {
	const name = (e) => e ? e.nodeName + "." + (e.nodeType === 1 ? e : e.parentElement).closest("[class]")?.getAttribute("class") : "gone";
	const box = (r) => [r.x, r.y, r.width, r.height].map(Math.round).join();
	window.shift = 0;
	window.shifted = [];
	new PerformanceObserver((list) => {
		for (const e of list.getEntries()) {
			if (e.hadRecentInput) continue;
			shift += e.value;
			shifted.push(e.value.toFixed(4) + " " + e.sources.map((s) => name(s.node) + " " + box(s.previousRect) + " > " + box(s.currentRect)).join("; "));
		}
	}).observe({type: "layout-shift"});
	return 1;
})()`

// churn has so many leases granted each second in a lock with a queue, until stop is called. Every third lease has a purpose and metadata,
// and once a second one of those that wait near the front gives up.
func (g *gateway) churn(lock string, waiting, perSecond int) (grants *atomic.Int64, stop func()) {
	g.t.Helper()
	n := 0
	grants = new(atomic.Int64)
	var line []string
	join := func(ctx context.Context) bool {
		query := fmt.Sprintf("ttl=1h&async=true&owner=worker-%d@host-%d", n*7919%100_003, n%17)
		if n%3 == 0 {
			query += "&reason=the+nightly+import&metadata=job-" + fmt.Sprint(n)
		}
		n++
		lease, _, err := g.Acquire(ctx, lock, apitest.Query(query))
		line = append(line, lease.Token)
		return err == nil && lease.Token != ""
	}
	for range waiting + 1 {
		assert.Must(g.t, join(g.t.Context()), "no place in line")
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := g.Release(ctx, line[0]); err != nil || !join(ctx) {
				return
			}
			line = line[1:]
			grants.Add(1)
			if n%perSecond == 0 {
				if _, err := g.Release(ctx, line[5]); err != nil || !join(ctx) {
					return
				}
				line = slices.Delete(line, 5, 6)
			}
		}
	})
	return grants, func() { cancel(); done.Wait() }
}

// shiftsIn is how far the page jumps in that time.
func (b *tab) shiftsIn(d time.Duration) float64 {
	b.t.Helper()
	eval[int](b, `(shift = 0, shifted = [], 1)`)
	elapse(b.t, d)
	return eval[float64](b, "shift")
}

// shifted are the greatest shifts, for the log.
func (b *tab) shifted() string {
	return eval[string](b, `shifted.sort().reverse().slice(0, 12).join("\n")`)
}

// Rows of the queue and of the history move on several times a second, and holders take more room and less. None of it counts as a jump of the page.
func TestThePageOfAHotLockDoesNotJump(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	grants, stop := g.churn("hot", 100, 17)
	defer stop()
	page := openPage(t, g, "/locks/hot")
	page.until(`document.querySelectorAll("#queue .waiter").length === 50 && document.querySelectorAll("#history .event").length === 20`, "queue and history")
	page.until(`parseFloat(document.querySelector(".chamber").style.minHeight) > 280`, "a holder with a purpose, which takes more room")
	eval[int](page, watchShifts)
	// The tests' browser wants less motion, and then rows do not glide.
	wanted := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "no-preference"}}}
	assert.Value(chromedp.Call(page.ctx, emulation.SetEmulatedMedia, wanted))(t, "motion")
	const queue = `document.querySelector(".canal").getBoundingClientRect().top + scrollY`
	scroll := func(to string) { eval[int](page, `(scrollTo(0, `+to+`), 1)`) }
	point := func(x, y float64) { do(page, "pointing", chromedp.MouseEvent(chromedp.MouseMoved, x, y)) }
	for _, where := range []struct {
		name  string
		begin func()
		over  time.Duration
	}{
		{"at the queue", func() { scroll(queue) }, 10 * time.Second},
		{"at the top", func() { scroll("0") }, 5 * time.Second},
		{"with the pointer on a row", func() { scroll(queue); point(400, 600) }, 5 * time.Second},
		{"when the pointer has left", func() { point(5, 5) }, 5 * time.Second},
	} {
		where.begin()
		before := grants.Load()
		shift := page.shiftsIn(where.over)
		went := grants.Load() - before
		t.Logf("%s: layout shift %.4f, %d grants in %v\n%s", where.name, shift, went, where.over, page.shifted())
		assert.That(t, went > 10, "%s: nothing went on: %d grants", where.name, went)
		assert.That(t, shift < mostShift, "%s: a layout shift of %.3f", where.name, shift)
	}

	// A row is drawn where the document has it.
	stop()
	page.until(`!document.querySelector(".waiters").style.transform && [...document.querySelectorAll(".waiter")].every((row) => !row.previousElementSibling || Math.abs(row.getBoundingClientRect().top - row.previousElementSibling.getBoundingClientRect().bottom) < 1)`, "rows stand below one another")
}
