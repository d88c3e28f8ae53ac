package dashboard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/templates"
)

func TestEveryAnswerCarriesTheSecurityHeaders(t *testing.T) {
	r := newRig(t)
	for _, target := range []string{"/", "/locks/deploy", "/nowhere", "/?wrong=1", "/ui/live?page=overview", "/ui/fragments?page=overview", "/locks", r.assets["app.css"]} {
		h := r.get(t, target).Header()
		for name, want := range map[string]string{
			"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
		} {
			assert.Equal(t, h.Get(name), want, "%s: %s", target, name)
		}
		assert.That(t, strings.Contains(h.Get("Permissions-Policy"), "camera=()"), "%s: no Permissions-Policy", target)
		cache := h.Get("Cache-Control")
		assert.That(t, (cache == "no-store") != strings.HasPrefix(target, "/static/"), "%s: Cache-Control is %q", target, cache)
	}
}

func TestPagesAreServed(t *testing.T) {
	r := newRig(t)
	r.fake.holds("somebody")
	for target, want := range map[string][]string{
		"/":                           {"status", "deadlocks", "locks"},
		"/?q=dep&state=held&ns=team":  {"status", "deadlocks", "locks"},
		"/?state=delayed":             {"status", "deadlocks", "locks"},
		"/?state=hazard":              {"status", "deadlocks", "locks"},
		"/namespaces":                 {"status", "namespaces"},
		"/gateways":                   {"status", "gateways"},
		"/?q=&state=&ns=&cursor=":     {"status", "deadlocks", "locks"}, // as a form sends it
		"/locks/deploy":               {"status", "lock-head", "queue", "history"},
		"/locks/deploy?tab=zookeeper": {"status", "lock-head", "nodes"},
	} {
		w := r.get(t, target)
		assert.That(t, w.Code == http.StatusOK && w.Header().Get("Content-Type") == "text/html; charset=utf-8",
			"%s: %d %s", target, w.Code, w.Header().Get("Content-Type"))
		body := w.Body.String()
		wantIDs(t, body, want...)
		assert.That(t, strings.HasPrefix(body, "<!doctype html>") || strings.HasPrefix(body, "<!DOCTYPE html>"),
			"%s is no whole document", target)
		assert.That(t, strings.Contains(target, "zookeeper") || strings.Contains(body, "somebody") || !strings.Contains(target, "deploy"),
			"%s does not show the holder", target)
		head := r.do(t, http.MethodHead, target)
		assert.That(t, head.Code == http.StatusOK && head.Body.Len() == 0 && head.Header().Get("Content-Length") != "",
			"HEAD %s: %d, %d bytes", target, head.Code, head.Body.Len())
	}
}

func TestThePageOffersItsSocketAndItsPoll(t *testing.T) {
	r := newRig(t)
	c := assert.Value(r.read(t.Context(), lockPage{ns: "team", lock: "a+b", tab: tabZooKeeper, cursor: "c1"}, locks.Anonymous, nil))(t)
	l := c.(*lockContent)
	const parameters = "?cursor=c1&lock=a%2Bb&ns=team&page=lock&tab=zookeeper"
	for name, got := range map[string][2]string{
		"live": {l.Live, "/ui/live" + parameters}, "poll": {l.Poll, "/ui/fragments" + parameters},
		"tabs": {l.QueueURL, "/locks/a+b?ns=team"}, "nodes": {l.NodesURL, "/locks/a+b?ns=team&tab=zookeeper"},
		"overview": {l.Overview, "/?ns=team"}, "first": {l.First, "/locks/a+b?ns=team&tab=zookeeper"},
	} {
		assert.That(t, got[0] == got[1], "%s is %s, want %s", name, got[0], got[1])
	}
}

func TestEveryAddressOfAViewLeadsBackToIt(t *testing.T) {
	for _, v := range []page{
		overviewPage{ns: "default"},
		overviewPage{ns: "team", query: "a b&c=d", state: locks.LockQueued, cursor: "x-_"},
		overviewPage{ns: "team", state: stateHazard},
		namespacesPage{},
		gatewaysPage{},
		webhooksPage{},
		webhookPage{id: "wh_aaaaaaaaaaaaaaaa"},
		lockPage{ns: "default", lock: "deploy", tab: tabQueue},
		lockPage{ns: "team", lock: "~a:b@c+d=e%2F", tab: tabZooKeeper, cursor: "w"},
		lockPage{ns: "team", lock: "deploy", tab: tabQueue, past: past{span: "7d", until: 1795402860001, at: 1795316400000, hold: "lk1"}},
	} {
		r := httptest.NewRequest("GET", urlOf(v), nil)
		at, subject := rowAt(r.URL.Path)
		if got, wrong := pageAt(r, at, subject); wrong != nil || got != v {
			t.Errorf("%s: %+v, %v", urlOf(v), got, wrong)
		}
		for _, target := range []string{liveURL(v), pollURL(v)} {
			got, wrong := livePage(httptest.NewRequest("GET", target, nil))
			assert.That(t, wrong == nil && got == v, "%s: %+v, %v", target, got, wrong)
		}
	}
}

func TestTheOverviewAsksForOnePageOfWhatWasAskedFor(t *testing.T) {
	r := newRig(t)
	var asked locks.LockFilter
	r.fake.set(func() {
		r.fake.locks = func(f locks.LockFilter) (locks.LockPage, error) {
			asked = f
			return locks.LockPage{Items: []locks.Lock{{NS: "team", Name: "a"}}, NextCursor: "n2"}, nil
		}
	})
	c := assert.Value(r.read(t.Context(), overviewPage{ns: "team", query: "a", state: locks.LockHeld, cursor: "n1"}, locks.Anonymous, nil))(t)
	want := (locks.LockFilter{Principal: locks.Anonymous, NS: "team", Contains: "a", State: locks.LockHeld, Limit: pageSize, Cursor: "n1"})
	assert.That(t, asked == want, "asked for %+v", asked)
	v := c.(*overviewContent)
	assert.That(t, v.First == "/?ns=team&q=a&state=held" && v.Next == "/?cursor=n2&ns=team&q=a&state=held",
		"first %s, next %s", v.First, v.Next)
	assert.That(t, v.Query == "a" && v.State == "held" && v.NS == "team" && len(v.Namespaces) == 2 && len(v.Rows) == 1, "%+v", v)
}

func TestTheOverviewOfLocksWithHazardsAsksForThem(t *testing.T) {
	r := newRig(t)
	var asked locks.LockFilter
	r.fake.set(func() {
		r.fake.locks = func(f locks.LockFilter) (locks.LockPage, error) { asked = f; return locks.LockPage{}, nil }
	})
	r.get(t, "/?state=hazard&ns=team")
	assert.That(t, asked.Hazardous && asked.State == "" && asked.NS == "team", "asked for %+v", asked)
}

func TestThePageOfNamespacesShowsEachAndWhatIsWrongWithIt(t *testing.T) {
	r := newRig(t)
	r.fake.set(func() {
		r.fake.info = func() locks.Info {
			info := servingInfo()
			info.HazardousLocks = 3
			return info
		}
		r.fake.namespaces = func() ([]locks.NamespaceInfo, error) {
			own := locks.NamespaceInfo{Name: "own", Root: "/own\u202e", Dialect: "custom", Ready: true, Hazardous: 3}
			own.Names.Exclusive = "{id}-W-"
			return []locks.NamespaceInfo{{Name: "default", Root: "/l", Dialect: "native", Ready: true, Locks: 4}, own,
				{Name: "ruby", Root: "/r", Dialect: "kazoo"}, {Name: "new", Problem: "it is newer"}}, nil
		}
	})
	c := assert.Value(r.read(t.Context(), namespacesPage{}, locks.Anonymous, nil))(t)
	want := []templates.NamespaceRow{
		{Name: "default", URL: "/", Root: "/l", Dialect: "native", Ready: true, Locks: 4, HazardsURL: "/?state=hazard"},
		{Name: "own", URL: "/?ns=own", Root: `/own\u{202e}`, Dialect: "custom", Names: "{id}-W-", Ready: true, Hazards: 3, HazardsURL: "/?ns=own&state=hazard"},
		{Name: "ruby", Root: "/r", Dialect: "kazoo"}, {Name: "new", Problem: "It is newer."},
	}
	diff := cmp.Diff(want, c.(*namespacesContent).Rows)
	assert.That(t, diff == "", "%v", diff)
	body := r.get(t, "/namespaces").Body.String()
	for _, part := range []string{`href="/?ns=own&amp;state=hazard"`, "3 locks with hazards", "It is newer.", "loading", `href="/namespaces">3 locks</a>`} {
		assert.That(t, strings.Contains(body, part), "the page lacks %s:\n%s", part, body)
	}
	assert.Equal(t, r.get(t, "/namespaces?ns=own").Code, http.StatusBadRequest, "a parameter that there is not")
	assert.That(t, r.fake.count("namespaces") != 0, "the manager was not asked")
}

func TestALockWithoutContendersIsFree(t *testing.T) {
	r := newRig(t)
	w := r.get(t, "/locks/nobody")
	assert.That(t, w.Code == http.StatusOK && strings.Contains(w.Body.String(), "free"), "%d\n%s", w.Code, w.Body)
}

func TestWrongAddressesGetAPageThatSaysWhatIsWrong(t *testing.T) {
	r := newRig(t)
	r.fake.set(func() {
		r.fake.lock = func(q locks.LockRequest) (locks.Lock, error) {
			switch {
			case strings.Contains(q.Lock, "/"):
				return locks.Lock{}, &locks.Error{Code: locks.CodeInvalid, Field: "lock", Detail: "lock name: must not contain '/'"}
			case q.NS == "nope":
				return locks.Lock{}, &locks.Error{Code: locks.CodeNamespaceUnknown, Detail: "no namespace nope"}
			case q.Cursor != "":
				return locks.Lock{}, &locks.Error{Code: locks.CodeInvalid, Field: "cursor", Detail: "not a cursor of this list"}
			}
			return locks.Lock{}, errors.New("a bug")
		}
	})
	for target, want := range map[string]struct {
		status int
		says   string
	}{
		"/nowhere":                          {404, "nowhere"},
		"/ui/other":                         {404, "/ui/other"},
		"/?nss=x":                           {400, "nss"},
		"/?q=a&q=b":                         {400, "more than once"},
		"/?q=%zz":                           {400, "query must be valid"},
		"/?state=heldd":                     {422, "heldd"},
		"/?q=%1b":                           {422, "␛"},
		"/?q=%ff":                           {422, `x{ff}`},
		"/?q=" + strings.Repeat("a", 8193):  {422, "8192"},
		"/?tab=queue":                       {400, "tab"},
		"/locks/a?tab=nodes":                {422, "nodes"},
		"/locks/a?q=b":                      {400, "no parameter"},
		"/locks/a%2Fb":                      {422, "must not contain"},
		"/locks/a?ns=nope":                  {404, "No namespace"},
		"/locks/a?cursor=zz":                {422, "cursor: not a cursor"},
		"/locks/a":                          {500, "log"},
		"/ui/live?page=other":               {422, "other"},
		"/ui/live":                          {422, "page is"},
		"/ui/fragments?page=lock&lock=a&x=": {400, "x"},
		"/ui/fragments?page=lock&lock=a":    {500, "log"},
		"/static/0000/app.css":              {404, ""},
	} {
		w := r.get(t, target)
		assert.That(t, w.Code == want.status && strings.Contains(w.Body.String(), want.says),
			"%s: %d, want %d with %q in\n%s", target, w.Code, want.status, want.says, w.Body)
		assert.That(t, !strings.Contains(w.Body.String(), "a bug"), "%s tells the world what belongs in the log", target)
	}
	if w := r.do(t, http.MethodPost, "/"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
	if w := r.get(t, "/locks/"); w.Code != http.StatusFound || w.Header().Get("Location") != "/" {
		t.Errorf("/locks/: %d to %q", w.Code, w.Header().Get("Location"))
	}
}

func TestMarkupInAnAddressIsTextOnThePage(t *testing.T) {
	r := newRig(t)
	const script = "<script>alert(1)</script>"
	for _, target := range []string{"/?q=" + url.QueryEscape(script), "/?x" + url.QueryEscape(script) + "=1", "/" + url.PathEscape(script)} {
		body := r.get(t, target).Body.String()
		assert.That(t, !strings.Contains(body, script), "%s runs:\n%s", target, body)
	}
}

func TestMarkupAndControlCharactersOfOthersAreTextOnThePages(t *testing.T) {
	r := newRig(t)
	const script = "<script>alert(1)</script>\x1b[2J\u202e"
	r.fake.set(func() {
		held := locks.Lock{NS: "default", Name: "deploy", State: locks.LockHeld, Holders: []locks.Contender{{Znode: "/l/deploy/" + script, Owner: script, Metadata: script,
			LeaseID: "lk1", Mode: locks.Exclusive}}, Waiters: []locks.Contender{{Znode: "/l/deploy/2", Position: 1, Mode: locks.Exclusive,
			Foreign: &locks.Foreign{Program: script, Data: []byte("<script>alert(1)</script>\u202e")}}}, QueueLength: 1, Hazards: []locks.Hazard{{Code: "stray_child", Detail: script}}}
		r.fake.lock = func(locks.LockRequest) (locks.Lock, error) { return held, nil }
		r.fake.locks = func(locks.LockFilter) (locks.LockPage, error) { return locks.LockPage{Items: []locks.Lock{held}}, nil }
	})
	for _, target := range []string{"/", "/locks/deploy", "/locks/deploy?tab=zookeeper", "/ui/fragments?page=lock&lock=deploy"} {
		body := r.get(t, target).Body.String()
		assert.That(t, !strings.Contains(body, "<script>alert") && !strings.ContainsAny(body, "\x1b\u202e"), "%s:\n%s", target, body)
	}
}

func TestAGatewayWithoutZooKeeperShowsThePageAndSaysSo(t *testing.T) {
	r := newRig(t)
	r.fake.set(func() {
		r.fake.info = func() locks.Info { return locks.Info{ZooKeeper: locks.ZooKeeperInfo{State: "none"}} }
		r.fake.lock = func(locks.LockRequest) (locks.Lock, error) { return locks.Lock{}, unavailable() }
		r.fake.locks = func(locks.LockFilter) (locks.LockPage, error) { return locks.LockPage{}, unavailable() }
	})
	for _, v := range []page{overviewPage{ns: "default"}, lockPage{ns: "default", lock: "a", tab: tabQueue}} {
		for _, target := range []string{urlOf(v), pollURL(v)} {
			w := r.get(t, target)
			assert.That(t, w.Code == http.StatusOK, "%s: %d", target, w.Code)
		}
		c, _ := r.read(t.Context(), v, locks.Anonymous, nil)
		switch shown := c.(type) {
		case *overviewContent:
			assert.Equal(t, shown.Problem, notReached)
		case *lockContent:
			assert.Equal(t, shown.Problem, notReached)
			assert.Equal(t, shown.State, "", "a lock that the manager could not read is shown as")
		}
	}
}

func TestTheStateOfTheGatewayIsAskedForOnceForAll(t *testing.T) {
	r := newRig(t)
	for range 100 {
		r.get(t, "/")
	}
	n := r.fake.count("info")
	assert.That(t, n <= 10, "asked %d times for 100 pages in a moment", n)
}
