package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/history"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// seenWithin is how soon an open page must show a change.
const seenWithin = 300 * time.Millisecond

// openPage opens a page of the dashboard and waits until it is live.
func openPage(t testing.TB, g *gateway, path string) *tab {
	t.Helper()
	b := openBrowser(t, g.url())
	b.resize(desktop, "light")
	b.visit(g.url() + path)
	b.untilLink("live")
	// A page that is loaded anew loses this.
	eval[int](b, "window.sinceTheBeginning = 1")
	return b
}

// untilLink waits until the page says how it hears of changes: live, polling or away.
func (b *tab) untilLink(state string) {
	b.t.Helper()
	b.until(`document.querySelector("#link")?.dataset.link === "`+state+`"`, "the page says: "+state)
}

// notReloaded checks that the document is still the one that was opened.
func (b *tab) notReloaded() {
	b.t.Helper()
	assert.That(b.t, eval[*int](b, "window.sinceTheBeginning ?? null") != nil, "the page was loaded anew")
}

// watchFor makes the page note when an element first contains the text; seenSince waits for that, and tells how long after
// the change it was. Both sides read the machine's clock.
func (b *tab) watchFor(selector, text string) {
	b.t.Helper()
	eval[int](b, fmt.Sprintf(`(() => {
		window.seen = new Promise((resolve) => {
			const look = () => {
				if (document.querySelector(%[1]s)?.innerText.includes(%[2]s)) { observer.disconnect(); resolve(performance.timeOrigin + performance.now()); }
			};
			const observer = new MutationObserver(look);
			observer.observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
			look();
		});
		return 1;
	})()`, quoted(selector), quoted(text)))
}

func (b *tab) seenSince(changed time.Time) time.Duration {
	b.t.Helper()
	ms := eval[float64](b, "window.seen")
	return time.UnixMicro(int64(ms * 1000)).Sub(changed)
}

func quoted(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

func TestAnOpenPageShowsAQueueAsItChanges(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	overview := openPage(t, g, "/")
	overview.until(`document.querySelector("#locks").innerText.includes("curl")`, "without locks the page says how to take one")
	var late []time.Duration
	for i := range 5 {
		name := fmt.Sprintf("job-%d", i)
		overview.watchFor("#locks", name)
		lease := g.hold(name, "ttl=1m&owner=me")
		late = append(late, overview.seenSince(time.Now()))
		g.letGo(lease.Token)
		overview.until(`!document.querySelector("#locks").innerText.includes("`+name+`")`, "a lock that is let go is no longer listed")
	}
	soon(t, "the overview showed a new lock", late)
	overview.notReloaded()

	first := g.hold("deploy", "ttl=1m&owner=alice&metadata=release+7")
	page := openPage(t, g, "/locks/deploy")
	late = nil
	for i := range 3 {
		page.watchFor("#queue", fmt.Sprintf("waiter-%d", i))
		g.queue("deploy", fmt.Sprintf("ttl=1m&owner=waiter-%d", i))
		late = append(late, page.seenSince(time.Now()))
	}
	page.watchFor("#queue .chamber", "waiter-0")
	g.letGo(first.Token)
	late = append(late, page.seenSince(time.Now()))
	soon(t, "the lock's page showed a change", late)
	page.until(`document.querySelector("#history").innerText.includes("released") && document.querySelector("#history").innerText.includes("alice")`, "the history tells who let go")
	page.until(`document.querySelectorAll("#queue .waiters > li").length === 2`, "the others moved up")
	page.notReloaded()
}

// soon checks that the page was as quick as it must be. Every figure is how long after the change's answer the page showed
// it. A machine that is busy with other tests may be late once: the median counts.
func soon(t testing.TB, what string, late []time.Duration) {
	t.Helper()
	slices.Sort(late)
	t.Logf("%s after %v", what, late)
	median := late[len(late)/2]
	assert.That(t, median <= required(seenWithin), "%s %v after the change, at the median; it must be within %v", what, median, seenWithin)
}

func TestTheZooKeeperTabShowsTheZnodesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	g.hold("deploy", "ttl=1m")
	nodes := openPage(t, g, "/locks/deploy?tab=zookeeper")
	queue := openPage(t, g, "/locks/deploy")
	dir := chroot + "/lockkeeper/locks/deploy"
	out, err := zkreal.CLI(addr, "create -s "+dir+"/theirs-lock- data")
	assert.Must(t, err == nil, "%v\n%s", err, out)
	nodes.until(`/created[\s\S]*theirs-lock-0000000001/.test(document.querySelector("#nodes").innerText)`, "the created znode")
	queue.until(`document.querySelector("#queue .waiters .is-foreign, #queue .waiters li")?.innerText.includes("theirs-lock-0000000001")`, "the foreign contender stands in line")
	out, err = zkreal.CLI(addr, "set "+dir+"/theirs-lock-0000000001 other", "delete "+dir+"/theirs-lock-0000000001")
	assert.Must(t, err == nil, "%v\n%s", err, out)
	nodes.until(`/deleted[\s\S]*theirs-lock-0000000001[\s\S]*changed[\s\S]*theirs-lock-0000000001[\s\S]*created/.test(document.querySelector("#nodes").innerText)`, "all of them, the newest first")
	queue.until(`!document.querySelector("#queue").innerText.includes("theirs")`, "the foreign contender is gone")
}

func TestAPageLosesItsGatewayAndFindsItAgain(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease := g.hold("deploy", "ttl=1m&owner=alice")
	page := openPage(t, g, "/locks/deploy")
	page.expectOutage(true)
	g.kill()
	page.untilLink("away")
	page.until(`!document.querySelector("#away").hidden && document.querySelector("#away").innerText.includes("No answer from the gateway since")`, "the page says so")
	assert.That(t, eval[bool](page, `document.querySelector("#queue").innerText.includes("alice")`), "what was known last is gone")
	page.resize(desktop, "light")
	page.shot("away")
	g.start()
	g.awaitServing()
	page.untilLink("live")
	page.expectOutage(false)
	g.beatUntil(lease.Token, api.StateHeld)
	g.awaitOwned(lease.LeaseID)
	g.letGo(lease.Token)
	page.until(`!document.querySelector("#queue").innerText.includes("alice")`, "the page shows the present again")
	page.notReloaded()
}

func TestAPageSaysThatZooKeeperIsAway(t *testing.T) {
	t.Parallel()
	server := zkreal.StartT(t, zkreal.WithoutFsync())
	g := startGateway(t, server.Addr())
	g.hold("deploy", "ttl=1m&owner=alice")
	page := openPage(t, g, "/")
	page.until(`document.querySelector("#status").dataset.serving === "true"`, "everything works")
	server.Freeze()
	defer server.Thaw()
	page.until(`document.querySelector("#status").dataset.serving === "false"`, "the page says that the gateway cannot serve")
	page.shot("zookeeper-away")
	server.Thaw()
	page.until(`document.querySelector("#status").dataset.serving === "true"`, "it works again")
	page.notReloaded()
}

// through puts a proxy between the browser and a gateway. hold sees each request first, and says whether it has answered it.
func through(t *testing.T, g *gateway, hold func(w http.ResponseWriter, r *http.Request) bool) *httptest.Server {
	t.Helper()
	behind := assert.Value(url.Parse(g.url()))(t)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(behind)
		r.Out.Host = r.In.Host // as a proxy for a browser must: the origin is compared with it
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hold(w, r) {
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(proxy.Close)
	return proxy
}

// Scripts may come in any order and late: the page opens its socket all the same.
func TestAScriptThatComesLateCostsNoSocket(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	proxy := through(t, g, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "pages.js") {
			<-time.After(time.Second) // a slow network
		}
		return false
	})
	b := openBrowser(t, proxy.URL)
	b.resize(desktop, "light")
	b.visit(proxy.URL + "/")
	b.untilLink("live")
	_ = eval[int](b, "(document.querySelector('#live').remove(), 1)") // its socket ends before the proxy does
}

// A proxy that lets no WebSocket through: pages are to be had, sockets are not.
func TestWithoutASocketThePagePollsAndSaysSo(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	var blocked atomic.Bool
	blocked.Store(true)
	proxy := through(t, g, func(w http.ResponseWriter, r *http.Request) bool {
		if blocked.Load() && r.Header.Get("Upgrade") != "" {
			http.Error(w, "no sockets here", http.StatusNotImplemented)
			return true
		}
		return false
	})

	b := openBrowser(t, proxy.URL)
	b.resize(desktop, "light")
	b.expectOutage(true) // sockets that are refused are complained of
	b.visit(proxy.URL + "/")
	b.untilLink("polling")
	eval[int](b, "window.sinceTheBeginning = 1")
	g.hold("deploy", "ttl=1m&owner=alice")
	b.until(`document.querySelector("#locks").innerText.includes("alice")`, "a poll brings the change")
	b.until(`document.querySelector("#away").innerText.includes("Refreshing every 2 s")`, "the page says that it polls")
	b.shot("polling")
	blocked.Store(false)
	b.untilLink("live")
	b.notReloaded()
	_ = eval[int](b, "(document.querySelector('#live').remove(), 1)") // its socket ends before the proxy does
}

// A filter that the gateway refuses is said so; the rows stay, and the next one works.
func TestARefusedFilterSaysSo(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy", "ttl=1m")
	page := openPage(t, g, "/")
	page.expectOutage(true) // the browser's console tells of each 422
	eval[bool](page, `(() => { const q = document.querySelector("#q"); q.value = "dep\u202eloy"; return q.dispatchEvent(new Event("input", {bubbles: true})); })()`)
	page.until(`document.querySelector("#refused") && !document.querySelector("#refused").hidden`, "the page says so")
	assert.That(t, eval[bool](page, `document.querySelector("#locks").innerText.includes("deploy")`), "the rows are gone")
	eval[bool](page, `(() => { const q = document.querySelector("#q"); q.value = "nothing"; return q.dispatchEvent(new Event("input", {bubbles: true})); })()`)
	page.until(`document.querySelector("#refused").hidden && document.querySelectorAll("#locks tbody tr").length === 0`, "another filter works")
	page.untilLink("live")
}

// EventSource connects again by itself, to the address that it was given: the position that it remembers is the stronger one.
func TestABrowsersEventSourceGoesOnByItself(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	first := g.hold("first", "ttl=1m")
	page := openPage(t, g, "/")
	eval[int](page, `(() => {
		window.told = [];
		const source = new EventSource("/v1/events?since=0-0&type=lease.granted");
		for (const type of ["resync", "lease.granted"]) source.addEventListener(type, (e) => window.told.push(type + " " + (JSON.parse(e.data).lock ?? "")));
		return 1;
	})()`)
	page.until(`window.told.includes("resync ")`, "the stream begins with a resync")
	g.hold("second", "ttl=1m")
	page.until(`window.told.includes("lease.granted second")`, "it tells")
	page.expectOutage(true)
	g.terminate()
	g.restart()
	g.beatUntil(first.Token, api.StateHeld)
	page.until(`window.told.filter((what) => what === "resync ").length === 2`, "it has come back")
	g.hold("third", "ttl=1m")
	page.until(`window.told.includes("lease.granted third")`, "it goes on")
}

func TestTypingFiltersThePageAndKeepsTheFocus(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	for _, name := range []string{"billing:close", "billing:open", "deploy:prod"} {
		g.hold(name, "ttl=1m&owner=me")
	}
	page := openPage(t, g, "/")
	eval[bool](page, `document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true, cancelable: true}))`)
	do(page, "typing", chromedp.KeyEvent("bill"))
	page.until(`document.querySelectorAll("#locks tbody tr").length === 2 && location.search.includes("q=bill")`, "what does not match is gone")
	assert.Equal(t, eval[string](page, "document.activeElement.name"), "q", "the focus went from the filter to")
	page.untilLink("live")
	g.hold("billing:audit", "ttl=1m")
	page.until(`document.querySelectorAll("#locks tbody tr").length === 3`, "the filtered page is live")
	g.hold("deploy:test", "ttl=1m")
	g.hold("a-bill", "ttl=1m")
	page.until(`document.querySelectorAll("#locks tbody tr").length === 4`, "the name may begin with something else")
	assert.That(t, !eval[bool](page, `document.querySelector("#locks").innerText.includes("deploy")`),
		"a lock that does not match is shown")
	page.notReloaded()
	page.visit(g.url() + "/?q=deploy%3Atest")
	page.until(`document.querySelectorAll("#locks tbody tr").length === 1`, "the address alone gives the same page")
}

// A push replaces what has changed and nothing else: what the reader has opened, marked or focused stays.
func TestAPushLeavesTheReaderAlone(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy", "ttl=1m&owner=alice&metadata=release+7")
	page := openPage(t, g, "/locks/deploy")
	eval[int](page, `(() => {
		document.querySelector("#queue details summary").click();
		document.querySelector("#queue .holder button.copy").focus();
		window.kept = document.querySelector("#queue .holder");
		return 1;
	})()`)
	focused := eval[string](page, `document.activeElement.outerHTML`)
	for i := range 3 {
		g.queue("deploy", fmt.Sprintf("ttl=1m&owner=waiter-%d", i))
		page.until(fmt.Sprintf(`document.querySelector("#queue").innerText.includes("waiter-%d")`, i), "the push has come")
	}
	assert.That(t, eval[bool](page, `document.querySelector("#queue details").open`), "an open detail was closed")
	assert.Equal(t, eval[string](page, `document.activeElement.outerHTML`), focused, "the focus went from %s to", focused)
	assert.That(t, eval[bool](page, `window.kept === document.querySelector("#queue .holder")`),
		"an element that did not change was replaced")
	page.notReloaded()
}

func TestWhatClientsAndProgramsWriteIsShownAsText(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	const evil = `<script>window.evil=1</script><img src=x onerror="window.evil=2">`
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		http.Error(w, evil, http.StatusInternalServerError)
	}))
	defer receiver.Close()
	g := startGateway(t, addr+chroot, "--webhook-allow=127.0.0.1")
	g.hold("deploy", "ttl=1m&"+url.Values{"owner": {evil}, "metadata": {`"><svg onload=window.evil=3> </pre><b>bold</b>`}}.Encode())
	g.queue("deploy", "ttl=1m&"+url.Values{"owner": {"' onmouseover='window.evil=4"}}.Encode())
	f := newForeign(t, addr, chroot)
	f.put("/lockkeeper/locks/deploy/<img src=x onerror=window.evil=5>-lock-", []byte("<script>window.evil=6</script>\x1b[31mred"))
	f.put("/lockkeeper/locks/deploy/\u202etxt\u200b-lock-", []byte{0xff, 0xfe, 0})
	const dir = `"><img src=x onerror=window.evil=7>`
	assert.Value(f.Create(chroot+"/lockkeeper/locks/"+dir, nil, 0, zk.WorldACL(zk.PermAll)))(t)
	f.put("/lockkeeper/locks/"+dir+"/stray <b onclick=window.evil=8>", nil)
	f.put("/lockkeeper/locks/"+dir+"/x-lock-", []byte(evil))
	send := func(path string, body any) *apitest.Answer {
		text := assert.Value(json.Marshal(body))(t)
		a, err := g.Send(t.Context(), http.MethodPost, path, apitest.JSON(string(text)))
		assert.Must(t, err == nil && a.Status < 300, "%s: %v %d %s", path, err, a.Status, a.Body)
		return a
	}
	send("/v1/locks/deploy/revoke", map[string]any{"reason": "<svg onload=window.evil=9>" + evil})
	var hook struct {
		ID string `json:"id"`
	}
	made := send("/v1/webhooks", map[string]any{"url": receiver.URL + "/'><script>window.evil=10</script>", "locks": "nothing-*", "description": evil})
	if err := json.Unmarshal(made.Body, &hook); err != nil || hook.ID == "" {
		t.Fatalf("%v: %s", err, made.Body)
	}
	tested, err := g.Send(t.Context(), http.MethodPost, "/v1/webhooks/"+hook.ID+"/test")
	expect(t, tested, err, http.StatusOK, "")

	page := openPage(t, g, "/")
	odd := url.PathEscape(url.PathEscape(dir)) // as a lock's name, then in a path
	for path, says := range map[string]string{
		"/": "onerror", "/?q=" + url.QueryEscape(`"><script>window.evil=11</script>`): "", "/?state=" + url.QueryEscape(evil): "",
		"/locks/deploy": "onerror", "/locks/deploy?tab=zookeeper": "onerror", "/locks/" + odd: "onerror", "/locks/" + odd + "?tab=zookeeper": "onclick",
		"/locks/" + url.PathEscape(evil): "", "/webhooks": "onerror", "/webhooks/" + hook.ID: "onerror", "/webhooks/" + url.PathEscape("<script>window.evil=12</script>"): "",
		"/namespaces": "", "/gateways": "",
	} {
		page.expectOutage(says == "") // some of these are 404 and 422, which the console tells
		page.visit(g.url() + path)
		page.until(`document.querySelector("main")?.innerText.includes(`+quoted(says)+`)`, path+" has the text")
		page.expectOutage(false)
		n := eval[int](page, `document.querySelectorAll("main script:not([src^=\"/static/\"]), main img, main svg[onload], main b, main [onerror], main [onmouseover], main [onclick]").length`)
		assert.That(t, n == 0, "%s: %d elements were made of text", path, n)
		away := eval[[]string](page, `[...document.querySelectorAll("[href], [src], [action]")].map((e) => e.href || e.src || e.action).filter((to) => new URL(to, location).origin !== location.origin)`)
		assert.That(t, len(away) <= 0, "%s: leads to %q", path, away)
		if got := eval[*int](page, "window.evil ?? null"); got != nil {
			t.Errorf("%s: script number %d has run", path, *got)
		}
		raw := eval[bool](page, `/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText)`)
		assert.That(t, !raw, "%s: control or direction characters are shown as they are", path)
	}
}

// A storm of events in one lock, seen from its two tabs and the overview: nothing grows, and the pages still answer.
func TestTenThousandEventsNeitherFreezeNorGrowAPage(t *testing.T) { // alone: a storm beside it would measure the machine
	g := onShared(t)
	events := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Socket(t.Context(), apitest.Query("type=*"))
	})
	pages := []*tab{openPage(t, g, "/"), openPage(t, g, "/locks/hot"), openPage(t, g, "/locks/hot?tab=zookeeper")}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				lease, _, err := g.Acquire(ctx, "hot", apitest.Query("ttl=2s&wait=1m&owner=storm"))
				if err != nil {
					return
				}
				_, _ = g.Release(context.WithoutCancel(ctx), lease.Token)
			}
		})
	}
	for n := 0; n < 10_000; n++ {
		<-events
		if n%2500 == 0 {
			for _, page := range pages {
				began := time.Now()
				eval[int](page, "new Promise((done) => requestAnimationFrame(() => done(1)))")
				took := time.Since(began)
				assert.That(t, took <= required(5*time.Second), "a page drew nothing for %v", took)
			}
		}
	}
	cancel()
	clients.Wait()
	last := g.hold("hot", "ttl=1m&owner=calm&wait=30s") // one of them may have gone with a grant
	for i, page := range pages {
		page.until(`document.querySelector("main")?.innerText.match(/calm|`+last.LeaseID+`/)`, "the page shows the end of it")
		page.untilLink("live")
		n := eval[int](page, `document.querySelectorAll("*").length`)
		assert.That(t, n <= 1500, "page %d has grown to %d elements", i, n)
		page.notReloaded()
	}
}

// fillForShow makes queues that show everything there is.
func fillForShow(t testing.TB, g *gateway, f *foreign) {
	t.Helper()
	g.hold("billing:close-month", "ttl=30m&"+url.Values{"owner": {"worker-14@fra1"}, "metadata": {`{"run":"2026-10","step":"ledger"}`}}.Encode())
	for _, owner := range []string{"worker-3@fra1", "worker-8@fra1", "worker-1@ams2"} {
		g.queue("billing:close-month", "ttl=30m&"+url.Values{"owner": {owner}}.Encode())
	}
	f.put("/lockkeeper/locks/billing:close-month/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	g.queue("billing:close-month", "ttl=30m&"+url.Values{"owner": {"worker-2@ams2"}}.Encode())
	g.hold("db:migrate:orders", "ttl=10m&owner=ci-runner-3")
	g.queue("db:migrate:orders", "ttl=10m&owner=ci-runner-5")
	g.hold("deploy:prod", "ttl=2m&"+url.Values{"owner": {"alice@laptop"}}.Encode())
	for i := range 3 {
		g.hold("cache:warm", fmt.Sprintf("ttl=5m&mode=shared&owner=edge-%d", i+1))
	}
	g.hold("transcode", "ttl=40m&mode=semaphore&limit=10&permits=4&owner=gpu-1")
	g.hold("transcode", "ttl=40m&mode=semaphore&limit=10&permits=3&owner=gpu-3")
	g.queue("transcode", "ttl=40m&mode=semaphore&limit=10&permits=4&owner=gpu-2")
	g.hold("index:rebuild", "ttl=45m&owner=search-2")
	g.hold("payments@eu-west-1", "ttl=10m&owner=api-7f9c")
	g.hold("report:nightly", "ttl=1h&owner=cron")
	g.hold("thumbnails", "ttl=20m&owner=media-4")
	for i := range 4 {
		g.queue("thumbnails", fmt.Sprintf("ttl=20m&owner=media-%d", 5+i))
	}
	f.put("/lockkeeper/locks/legacy.import", nil)
	f.put("/lockkeeper/locks/legacy.import/_c_0b9e3f52-1d7a-4f0e-9a55-7c1f2a9b8c66-lock-", []byte("10.0.3.21"))
	// A hand-over, so that there is a history.
	first := g.hold("billing:audit", "ttl=30m&owner=worker-9")
	g.queue("billing:audit", "ttl=30m&owner=worker-11")
	g.letGo(first.Token)
}

// pastForShow is the last hour of the locks of fillForShow.
func pastForShow() [][]history.Item {
	workers := []string{"worker-9@fra1", "worker-2@ams2", "worker-14@fra1", "worker-3@fra1", "worker-8@fra1"}
	runners := []string{"ci-runner-3", "ci-runner-1", "ci-runner-5"}
	month := turns("billing:close-month", 0, 9*time.Minute, workers, 0, 1, 1, 3, 2, 4, 5)
	month[2].Reason = locks.ReasonExpired
	return [][]history.Item{
		month,
		turns("db:migrate:orders", 0, 4*time.Minute, runners, 0, 0, 2, 3, 1, 0, 0, 1, 2, 1),
		turns("deploy:prod", 0, 95*time.Second, []string{"alice@laptop", "bob@laptop"}, 0, 1, 0, 0, 2, 0, 0, 1, 0),
		turns("report:nightly", 40*time.Minute, 12*time.Minute, []string{"cron"}, 0),
		turns("thumbnails", 0, 2*time.Minute, []string{"media-4", "media-5", "media-6"}, 1, 2, 4, 3, 5, 2, 1, 2, 3, 4),
		turns("transcode", 0, 6*time.Minute, []string{"gpu-1", "gpu-2", "gpu-3"}, 0, 1, 0, 2, 1),
		turns("billing:audit", 0, 7*time.Minute, workers, 1, 0, 0, 1, 1),
	}
}

// The pictures that the README shows. LOCKKEEPER_SCREENSHOTS=docs/images writes them where it looks for them.
func TestThePicturesOfTheReadmeCanBeTaken(t *testing.T) {
	t.Parallel()
	g := onShared(t, "--promise-window=10s", "--session-timeout=10s", withPast(t, pastForShow()...))
	fillForShow(t, g, g.foreign(t))
	b := openPage(t, g, "/")
	b.until(`document.querySelectorAll("#locks .spark").length >= 6`, "rows have their last hour")
	dir := cmp.Or(os.Getenv("LOCKKEEPER_SCREENSHOTS"), t.TempDir())
	for _, look := range []struct {
		name, path string
		window
		scheme string
	}{
		{"overview-light", "/", desktop, "light"},
		{"overview-dark", "/", desktop, "dark"},
		{"lock-light", "/locks/billing:close-month", tall, "light"},
		{"lock-dark", "/locks/billing:close-month", tall, "dark"},
		{"nodes-light", "/locks/billing:close-month?tab=zookeeper", desktop, "light"},
		{"phone-light", "/", phone, "light"},
		{"phone-dark", "/locks/billing:close-month", phone, "dark"},
	} {
		b.resize(look.window, look.scheme)
		b.visit(g.url() + look.path)
		b.untilLink("live")
		b.picture(dir, look.name)
	}
	assert.That(t, !strings.Contains(eval[string](b, "document.body.innerText"), "undefined"), "a page says undefined")
}
