package dashboard

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/browsertest"
	"lockkeeper/internal/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Wrap(m).Run()) }

// chromium is a page in Chromium, of a dashboard on a fake.
type chromium struct {
	t   testing.TB
	ctx context.Context
}

// browsed is a dashboard on a fake, and a tab: the tab is first, because it outlives the dashboard.
func browsed(t *testing.T, change ...func(*Dashboard)) (*server, *chromium) {
	t.Helper()
	needsChromium(t)
	b := &chromium{t, browsertest.Tab(t)}
	s := newServer(t, change...)
	t.Cleanup(func() { b.do(chromedp.Navigate("about:blank")) }) // its socket ends before the server does
	return s, b
}

// open opens a page, and waits until it is live.
func (b *chromium) open(s *server, path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(s.http.URL + path))
	b.until(`document.documentElement.dataset.link === "live"`, "the page is live")
}

func needsChromium(t *testing.T) {
	t.Helper()
	testkit.NotShort(t, "a browser takes seconds")
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("there is no chromium; internal/test/e2e needs one")
	}
}

func (b *chromium) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	assert.NoError(b.t, chromedp.Do(ctx, steps...))
}

func evalIn[T any](b *chromium, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	return assert.Value(chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise)))(b.t)
}

func (b *chromium) until(expression, what string) {
	b.t.Helper()
	testkit.Eventually(b.t, time.Minute, func() bool { return evalIn[bool](b, "Boolean("+expression+")") }, "%s", what)
}

// line lets the fake's locks be held by the first of the owners, for whom the others wait.
func (f *fakeLocks) line(owners ...string) {
	f.set(func() {
		f.lock = func(r locks.LockRequest) (locks.Lock, error) {
			l := locks.Lock{NS: r.NS, Name: r.Lock, State: locks.LockHeld, HolderCount: 1, QueueLength: len(owners) - 1}
			for i, owner := range owners {
				c := locks.Contender{LeaseID: "lk7zeszcneibhyj6bvzox7mltgsjyv2at" + owner, Owner: owner, Znode: "/lockkeeper/locks/" + r.Lock + "/write-" + owner, Mode: locks.Exclusive,
					At: started, Age: time.Minute, AgeKnown: true, Position: i, Metadata: "about " + owner}
				if i == 0 {
					c.HeldFor, c.FencingToken = time.Minute, 7
					l.Holders = append(l.Holders, c)
				} else if len(l.Waiters) < r.Limit {
					l.Waiters = append(l.Waiters, c)
				}
			}
			return l, nil
		}
	})
}

const queueRow = `(owner) => document.querySelector("[data-row][data-who='" + owner + "']")`

func TestWhatAReaderDoesInARowSurvivesThoseThatComeAndGo(t *testing.T) {
	s, page := browsed(t)
	s.fake.line("a", "b", "c", "d", "e", "f", "g")
	page.open(s, "/locks/deploy")
	evalIn[int](page, `(() => {
		window.row = `+queueRow+`;
		window.kept = Object.fromEntries(["d", "e", "f"].map((owner) => [owner, row(owner)]));
		row("d").querySelector("summary").click();
		getSelection().selectAllChildren(row("e").querySelector(".owner"));
		row("f").focus();
		window.touched = new Set();
		new MutationObserver((list) => list.forEach(({target}) => {
			const at = (target.nodeType === 1 ? target : target.parentElement);
			if (!at.closest("time")) touched.add(at.closest("[data-row]")?.dataset.who ?? "");
		})).observe(document.querySelector("#queue"), {subtree: true, childList: true, characterData: true, attributes: true, attributeOldValue: true});
		return 1;
	})()`)
	s.fake.line("b", "c", "d", "e", "f", "g", "new") // a goes, b holds, one comes
	s.happen("deploy")
	page.until(`row("new")`, "the push has come")
	unharmed := func(after string) {
		t.Helper()
		for _, owner := range []string{"d", "e", "f"} {
			assert.That(t, evalIn[bool](page, `kept.`+owner+` === row("`+owner+`")`), "%s: the row of %s is another element", after, owner)
		}
		assert.That(t, evalIn[bool](page, `kept.d.querySelector("details").open`), "%s: an open detail was closed", after)
		assert.Equal(t, evalIn[string](page, `getSelection().toString()`), "e", "%s: selected", after)
		assert.Equal(t, evalIn[string](page, `document.activeElement.dataset.who`), "f", "%s: the focus is on", after)
	}
	unharmed("one has gone")
	touched := strings.Join(evalIn[[]string](page, `[...touched].sort()`), " ")
	assert.That(t, !strings.ContainsAny(touched, "def"), "rows were written to that did not change: %s", touched)

	s.fake.line("b", "g", "f", "e", "d", "c", "new") // another order
	s.happen("deploy")
	page.until(`[...document.querySelectorAll(".waiter")].map((r) => r.dataset.who).join("") === "gfedcnew"`, "the order has changed")
	unharmed("another order")

	evalIn[int](page, `(touched.clear(), 1)`)
	s.fake.set(func() {
		before := s.fake.lock
		s.fake.lock = func(r locks.LockRequest) (locks.Lock, error) {
			l, err := before(r)
			l.Waiters[4].Purpose = "another reason"
			return l, err
		}
	})
	s.happen("deploy")
	page.until(`row("c").innerText.includes("another reason")`, "a row has changed")
	unharmed("one row has changed")
	assert.Equal(t, strings.Join(evalIn[[]string](page, `[...touched]`), " "), "c", "rows that were written to")
	assert.Equal(t, evalIn[string](page, `getComputedStyle(document.querySelector(".waiter .position"), "::before").content`), "counter(list-item)", "the place in line")
}

// The rows of a table are no content of another element than a table: they must come through all the same.
func TestARowOfATableIsReplacedAlone(t *testing.T) {
	s, page := browsed(t)
	s.fake.manyRows()
	page.open(s, "/")
	evalIn[int](page, `(window.kept = document.querySelectorAll("#locks tbody tr"), 1)`)
	for i := range 3 {
		s.fake.set(func() {
			before := s.fake.locks
			s.fake.locks = func(r locks.LockFilter) (locks.LockPage, error) {
				p, err := before(r)
				p.Items[7].QueueLength = 100 + i
				return p, err
			}
		})
		s.happen("job-7")
		page.until(fmt.Sprintf(`document.querySelectorAll("#locks tbody tr")[7].innerText.includes("%d")`, 100+i), "the row has changed")
	}
	assert.That(t, evalIn[bool](page, `[...document.querySelectorAll("#locks tbody tr")].every((r, i) => r === kept[i]) && kept.length === 40 && document.querySelectorAll("#locks tbody > tr > td").length === 200`), "other rows, or not in their places")
}

