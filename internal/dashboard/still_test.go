package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// churning lets f change the fake's locks so often, each time with an event of the lock that f names, until the test ends or stop is called.
func (s *server) churning(every time.Duration, f func(n int) (lock string)) (stop func()) {
	n := 0
	return newLoad(s).run(every, func() string { n++; return f(n) })
}

// pointAt moves the mouse onto a row, and has the page note from then on which rows are under it. under returns them.
func (b *chromium) pointAt(row string) (under func() string) {
	b.t.Helper()
	at := evalIn[[]float64](b, `(() => { const e = document.querySelector(`+fmt.Sprintf("%q", row)+`); e.scrollIntoView({block: "nearest"}); const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()`)
	b.do(chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
	evalIn[int](b, fmt.Sprintf(`(() => {
		window.under = new Set();
		const look = () => { under.add(document.elementFromPoint(%f, %f)?.closest("[data-row]")?.id ?? "none"); requestAnimationFrame(look); };
		look();
		return 1;
	})()`, at[0], at[1]))
	return func() string { return evalIn[string](b, `[...under].join(" ")`) }
}

// span is how long something is watched: some seconds, a minute with LOCKKEEPER_FULL.
func span() time.Duration {
	if full() {
		return time.Minute
	}
	return 5 * time.Second
}

// On the list of locks a job that sorts first comes and goes all the time.
func TestAStillPointerKeepsItsRowAmongLocksThatComeAndGo(t *testing.T) {
	s, page := browsed(t)
	job := ""
	s.fake.set(func() {
		s.fake.locks = func(r locks.LockFilter) (p locks.LockPage, _ error) {
			s.fake.mu.Lock()
			defer s.fake.mu.Unlock()
			names := []string{}
			if job != "" {
				names = append(names, job)
			}
			for i := range 30 {
				names = append(names, fmt.Sprintf("service-%02d", i))
			}
			for _, name := range names {
				p.Items = append(p.Items, locks.Lock{NS: r.NS, Name: name, State: locks.LockHeld, HolderCount: 1, Holders: []locks.Contender{{Owner: "of-" + name, LeaseID: "lk1", Znode: "/" + name}}})
			}
			return p, nil
		}
	})
	page.open(s, "/")
	page.until(`document.querySelectorAll("#locks tbody tr").length === 30`, "the rows")
	under := page.pointAt("#locks tbody tr:nth-child(9)")
	stop := s.churning(250*time.Millisecond, func(n int) string {
		if job == "" {
			job = fmt.Sprintf("a-job-%04d", n)
			return job
		}
		gone := job
		job = ""
		return gone
	})
	page.until(`!document.querySelector("#rested").hidden`, "changes wait")
	time.Sleep(span()) // on the wall clock: a browser has no other
	stop()
	rows := under()
	assert.That(t, strings.HasSuffix(rows, "/service-08") && !strings.Contains(rows, " "), "under the pointer were %s", rows)
}

// In a queue the lock goes from one to the next, holders take more room and less, and others queue and leave behind the row.
func TestAStillPointerKeepsItsRowInAQueueThatMovesOn(t *testing.T) {
	s, page := browsed(t)
	var line []locks.Contender
	n := 0
	join := func() {
		n++
		c := locks.Contender{LeaseID: fmt.Sprintf("lk7zeszcneibhyj6bvzox7mltgsjyv2a%06d", n), Owner: fmt.Sprint("worker-", n), Znode: fmt.Sprint("/lockkeeper/locks/hot/write-", n), Mode: locks.Exclusive,
			At: time.Now(), AgeKnown: true}
		if n%2 == 0 {
			c.Purpose, c.Metadata = "the nightly import", `{"job":7}`
		}
		line = append(line, c)
	}
	for range 40 {
		join()
	}
	s.fake.set(func() {
		s.fake.lock = func(r locks.LockRequest) (locks.Lock, error) {
			k := locks.Lock{NS: r.NS, Name: r.Lock, State: locks.LockHeld, HolderCount: 1, QueueLength: len(line) - 1, Holders: []locks.Contender{line[0]}}
			k.Holders[0].FencingToken = 7
			for i, c := range line[1:] {
				c.Position = i + 1
				k.Waiters = append(k.Waiters, c)
			}
			return k, nil
		}
	})
	page.open(s, "/locks/hot")
	page.until(`document.querySelectorAll("#queue .waiter").length === 39`, "the rows")
	const place, handOvers = 7, 5
	under := page.pointAt(fmt.Sprintf("#queue .waiter:nth-child(%d)", place))
	began, over := time.Now(), 0
	stop := s.churning(100*time.Millisecond, func(n int) string {
		switch {
		case over < handOvers && time.Since(began) > time.Duration(over)*span()/handOvers:
			over++
			line = line[1:]
		case n%2 == 0:
			join()
		default:
			line = slices.Delete(line, len(line)-2, len(line)-1)
		}
		return "hot"
	})
	time.Sleep(span()) // on the wall clock: a browser has no other
	stop()
	page.until(`document.querySelector("#queue .holder").innerText.includes("worker-6")`, "the queue has moved on")
	rows := under()
	assert.That(t, rows != "none" && !strings.Contains(rows, " "), "under the pointer were %s", rows)

	// The gap before it closes when the pointer has left.
	assert.That(t, evalIn[bool](page, `parseFloat(document.querySelector(".waiters").style.paddingTop) > 100`), "there is no gap")
	page.do(chromedp.MouseEvent(chromedp.MouseMoved, 5, 5))
	page.until(`!document.querySelector(".waiters").style.paddingTop`, "the gap has closed")
}
