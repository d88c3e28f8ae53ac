package dashboard

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
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
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1440, Height: 900, DeviceScaleFactor: 1})
	assert.NoError(t, err)
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

// line lets the fake's locks be held by the first of the owners; the others wait for it.
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
		new MutationObserver((list) => list.forEach(({target, attributeName}) => {
			if (attributeName === "style") return; // where rows are drawn (glide.js), and not what they show
			const at = (target.nodeType === 1 ? target : target.parentElement);
			if (!at.closest("time")) touched.add(at.closest("[data-row]")?.dataset.who ?? "");
		})).observe(document.querySelector("#queue"), {subtree: true, childList: true, characterData: true, attributes: true, attributeOldValue: true});
		return 1;
	})()`)
	s.fake.line("b", "c", "d", "e", "f", "g", "z") // a goes, b holds, one comes
	s.happen("deploy")
	page.until(`row("z")`, "the push has come")
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
	touched := evalIn[[]string](page, `[...touched].sort()`)
	for _, owner := range []string{"d", "e", "f"} {
		assert.That(t, !slices.Contains(touched, owner), "rows were written to that did not change: %q", touched)
	}

	s.fake.line("b", "g", "f", "e", "d", "c", "z") // another order
	s.happen("deploy")
	page.until(`[...document.querySelectorAll(".waiter")].map((r) => r.dataset.who).join("") === "gfedcz"`, "the order has changed")
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
	assert.Equal(t, evalIn[string](page, `getComputedStyle(document.querySelector(".waiter .position"), "::before").content`), "counter(list-item, two)", "the place in line")
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

// rowUnder is the row at a place of the window.
const rowUnder = `(([x, y]) => document.elementFromPoint(x, y)?.closest("[data-row]")?.id)`

// A still pointer keeps its row, whatever comes and goes: what it points at is what a click hits.
func TestARowThatIsPointedAtStaysWhereItIs(t *testing.T) {
	s, page := browsed(t)
	names := func(list ...string) {
		s.fake.set(func() {
			s.fake.locks = func(r locks.LockFilter) (p locks.LockPage, _ error) {
				for _, name := range list {
					p.Items = append(p.Items, locks.Lock{NS: r.NS, Name: name, State: locks.LockHeld, HolderCount: 1, Holders: []locks.Contender{{Owner: "of-" + name, LeaseID: "lk1", Znode: "/" + name}}})
				}
				return p, nil
			}
		})
		s.happen("deploy")
	}
	names("b", "c", "d", "e")
	page.open(s, "/")
	page.until(`document.querySelectorAll("#locks tbody tr").length === 4`, "the rows")
	const point = `(() => { const r = [...document.querySelectorAll("#locks tbody tr")].at(-2).getBoundingClientRect(); return [r.left + 200, r.top + r.height / 2]; })()`
	at := evalIn[[]float64](page, point)
	page.do(chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
	under := fmt.Sprintf(`%s([%f, %f])`, rowUnder, at[0], at[1])
	assert.Must(t, strings.HasSuffix(evalIn[string](page, under), "/d"), "the pointer is on %s", evalIn[string](page, under))

	names("a", "b", "d", "e", "f") // c has gone, a and f have come
	page.until(`document.querySelector("#rested").innerText.startsWith("3 changes")`, "the page says that changes wait")
	assert.That(t, strings.HasSuffix(evalIn[string](page, under), "/d"), "the row under the pointer is %s", evalIn[string](page, under))
	assert.Equal(t, evalIn[string](page, `document.querySelector(".gone a").textContent`), "c", "grey is")
	s.fake.set(func() {
		before := s.fake.locks
		s.fake.locks = func(r locks.LockFilter) (locks.LockPage, error) {
			p, err := before(r)
			p.Items[0].QueueLength, p.Items[2].QueueLength = 77, 88 // of a, which waits, and of d
			return p, err
		}
	})
	s.happen("deploy")
	page.until(`[...document.querySelectorAll("#locks tbody tr")].at(-2).innerText.includes("88")`, "the row changes where it is")

	page.do(chromedp.MouseEvent(chromedp.MouseMoved, at[0], 5)) // away from the table
	shown := `[...document.querySelectorAll("#locks tbody tr")].map((r) => r.querySelector("a").textContent + (r.className && "!")).join("")`
	page.until(shown+` === "abdef"`, "what has waited is shown once the pointer has left")
	assert.That(t, evalIn[bool](page, `document.querySelectorAll("#locks tbody tr")[0].innerText.includes("77") && document.querySelector("#rested").hidden`), "what happened to a row while it waited is lost")

	// The same with the focus; the button shows what waits.
	evalIn[int](page, `(document.querySelectorAll("#locks tbody .lock-name a")[2].focus(), document.dispatchEvent(new KeyboardEvent("keydown", {key: "Shift"})), 1)`)
	names("d", "e")
	page.until(`!document.querySelector("#rested").hidden`, "changes wait")
	assert.Equal(t, evalIn[string](page, shown), "a!b!def!", "the rows")
	evalIn[int](page, `(document.querySelector("#rested").click(), 1)`)
	page.until(shown+` === "de"`, "the button shows them")
	assert.Equal(t, evalIn[string](page, `document.activeElement.textContent`), "d", "the focus is on")
}

// A page that has lost a row, whatever the cause, does not go on without it.
func TestAPageThatMissesARowLoadsAllOfThemAnew(t *testing.T) {
	s, page := browsed(t)
	s.fake.line("a", "b", "c", "d")
	page.open(s, "/locks/deploy")
	evalIn[int](page, `(window.row = `+queueRow+`, row("c").remove(), 1)`)
	s.fake.line("b", "c", "d")
	s.happen("deploy")
	page.until(`row("c")?.innerText.includes("c") && !document.querySelector("[data-same]")`, "the row is there again")
}

// A browser draws a page that animates without end sixty times a second: that alone cost 4 % of a core.
func TestAPageAtWhichNothingHappensStandsStill(t *testing.T) {
	s, page := browsed(t)
	s.fake.line("a", "b", "c")
	for _, path := range []string{"/", "/locks/deploy", "/gateways", "/wall", "/activity", "/graph"} {
		page.open(s, path)
		moving := `document.getAnimations().filter((a) => a.effect.getComputedTiming().endTime === Infinity).map((a) => a.animationName ?? a.id).join()`
		assert.Equal(t, evalIn[string](page, moving), "", "%s: animations without end", path)
	}
}
