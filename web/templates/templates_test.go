package templates

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"lockkeeper/internal/test/assert"
	"lockkeeper/web/static"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// parse is a whole page as a browser sees it.
func parse(t *testing.T, page string) *html.Node {
	t.Helper()
	root := assert.Value(html.Parse(strings.NewReader(page)))(t)
	return root
}

func elements(root *html.Node) []*html.Node {
	var found []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			found = append(found, n)
		}
	}
	return found
}

func attr(n *html.Node, key string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val, true
		}
	}
	return "", false
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

func TestEveryFragmentIsOneElementThatIsMorphedIntoTheOneWithItsID(t *testing.T) {
	for id, c := range fragments(noon) {
		body := &html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body}
		nodes := assert.Value(html.ParseFragment(strings.NewReader(render(c)), body))(t)
		if len(nodes) != 1 || nodes[0].Type != html.ElementNode {
			t.Errorf("%s: %d nodes at the top, want one element", id, len(nodes))
			continue
		}
		got, _ := attr(nodes[0], "id")
		assert.Equal(t, got, id, "%s: its root has the id", id)
		got, _ = attr(nodes[0], "hx-swap-oob")
		assert.Equal(t, got, "outerMorph", "%s: hx-swap-oob", id)
		for _, e := range elements(nodes[0]) {
			_, nested := attr(e, "hx-swap-oob")
			assert.That(t, !nested, "%s: a fragment in a fragment: %s", id, e.Data)
		}
	}
}

// A component in the middle of a line of text is text.
func TestNoPageShowsTheSourceOfATemplate(t *testing.T) {
	for path, c := range samples(noon) {
		shown := text(parse(t, render(c)))
		for _, source := range []string{"@since(", "@held(", "@until(", "{ count(", "{ who("} {
			assert.That(t, !strings.Contains(shown, source), "%s shows %s", path, source)
		}
	}
}

func TestIDsAreUnique(t *testing.T) {
	for path, c := range samples(noon) {
		seen := map[string]bool{}
		for _, e := range elements(parse(t, render(c))) {
			id, ok := attr(e, "id")
			if !ok {
				continue
			}
			assert.That(t, !seen[id], "%s: the id %q is there twice", path, id)
			seen[id] = true
			assert.That(t, id != "" && !strings.ContainsAny(id, " \t\n\f\r"), "%s: %q is no id", path, id)
		}
	}
}

// Twice the same in one millisecond: both are shown, and what comes later does
// not rename what is there, or the page would take it for new.
func TestEventsKeepTheirIDsWhenMoreCome(t *testing.T) {
	created := NodeEvent{At: noon, Event: "node.created", Path: "/a"}
	before := nodeEventIDs([]NodeEvent{created, created})
	after := nodeEventIDs([]NodeEvent{created, created, created})
	assert.That(t, before[0] != before[1] && slices.Equal(after[1:], before), "before %v, after %v", before, after)
}

// Fragments are pushed when their bytes differ: a clock in them would push all of them always.
func TestOnlyTheStatusDependsOnTheClock(t *testing.T) {
	early, late := lockSample(noon, 12), lockSample(noon, 12)
	late.Status.Now = late.Status.Now.Add(time.Second)
	listEarly, listLate := overviewSample(noon), overviewSample(noon)
	listLate.Status.Now = late.Status.Now
	for id, pair := range map[string][2]string{
		"lock-head": {render(LockHeadFragment(early)), render(LockHeadFragment(late))},
		"queue":     {render(QueueFragment(early)), render(QueueFragment(late))},
		"history":   {render(HistoryFragment(early)), render(HistoryFragment(late))},
		"nodes":     {render(NodesFragment(early)), render(NodesFragment(late))},
		"locks":     {render(LocksFragment(listEarly)), render(LocksFragment(listLate))},
	} {
		assert.That(t, pair[0] == pair[1], "%s differs a second later", id)
	}
	assert.That(t, render(StatusFragment(early.Status)) != render(StatusFragment(late.Status)), "the status does not say what time it is")
}

// The content security policy allows no inline script, style or handler; the page must not depend on one either.
func TestNothingInlineInAnyPage(t *testing.T) {
	for path, c := range samples(noon) {
		for _, e := range elements(parse(t, render(c))) {
			assert.That(t, e.Data != "style" && e.Data != "base" && e.Data != "iframe" && e.Data != "object", "%s: <%s>", path, e.Data)
			_, external := attr(e, "src")
			assert.That(t, e.Data != "script" || external && e.FirstChild == nil, "%s: an inline script", path)
			for _, a := range e.Attr {
				assert.That(t, a.Key != "style" && !strings.HasPrefix(a.Key, "on") && !strings.HasPrefix(a.Key, "hx-on"),
					"%s: <%s %s=%q>", path, e.Data, a.Key, a.Val)
				assert.That(t, !strings.HasPrefix(strings.TrimSpace(a.Val), "javascript:") && !strings.HasPrefix(a.Val, "js:"),
					"%s: <%s %s=%q>", path, e.Data, a.Key, a.Val)
			}
		}
	}
}

func TestWhatClientsWriteIsShownAsText(t *testing.T) {
	// The shape of a page: its elements and their attributes' names. What a client writes must not change it.
	shape := func(page string) []string {
		var names []string
		for _, e := range elements(parse(t, page)) {
			name := e.Data
			for _, a := range e.Attr {
				name += " " + a.Key
			}
			names = append(names, name)
		}
		return names
	}
	tame := func(page string) string {
		for _, form := range []string{html.EscapeString(hostile), templEscaped(hostile)} {
			page = strings.ReplaceAll(page, form, "tame")
		}
		return page
	}
	all := samples(noon)
	for _, path := range []string{"/evil", "/evil-nodes", "/evil-list", "/evil-problem"} {
		page := render(all[path])
		assert.That(t, slices.Equal(shape(page), shape(tame(page))), "%s: hostile text changes the shape of the page", path)
		for _, e := range elements(parse(t, page)) {
			assert.That(t, e.Data != "img" && (e.Data != "script" || !strings.Contains(text(e), "alert")),
				"%s: <%s> out of hostile text", path, e.Data)
		}
		// The parser turns the escape character of terminals into nothing else.
		assert.That(t, strings.Contains(text(parse(t, page)), strings.TrimSpace(hostile)), "%s: hostile text is not shown as it is", path)
	}

	evil := lockSample(noon, 1)
	evil.Holders[0].Owner, evil.Holders[0].Metadata, evil.Holders[0].Purpose, evil.Waiters[0].Znode = hostile, hostile, hostile, hostile
	shown := parse(t, "<!doctype html><body>"+render(QueueFragment(evil)))
	var owner, metadata, znode, purpose bool
	for _, e := range elements(shown) {
		whole, _ := attr(e, "title")
		owner = owner || e.Data == "h3" && text(e) == hostile
		purpose = purpose || e.Data == "span" && text(e) == hostile
		metadata = metadata || e.Data == "pre" && text(e) == hostile
		znode = znode || e.Data == "code" && whole == hostile
	}
	assert.That(t, owner && metadata && znode && purpose, "shown as it is: owner %t, metadata %t, znode %t, reason %t", owner, metadata, znode, purpose)
}

// templEscaped is how templ writes text.
func templEscaped(s string) string {
	return strings.NewReplacer("&", "&amp;", "'", "&#39;", "<", "&lt;", ">", "&gt;", `"`, "&#34;").Replace(s)
}

func TestPagesAskNoOtherHostAndEveryAssetIsThere(t *testing.T) {
	files := static.Handler()
	for path, c := range samples(noon) {
		assets := 0
		for _, e := range elements(parse(t, render(c))) {
			for _, key := range []string{"href", "src", "action", "hx-get", "hx-ws:connect", "data-poll"} {
				link, ok := attr(e, key)
				if rel, _ := attr(e, "rel"); !ok || rel == "noreferrer nofollow" { // a client's link
					continue
				}
				u, err := url.Parse(link)
				assert.That(t, err == nil && u.Host == "" && (u.Scheme == "" || strings.HasPrefix(link, "about:invalid")),
					"%s: <%s %s=%q>", path, e.Data, key, link)
				if e.Data != "link" && e.Data != "script" {
					continue
				}
				assets++
				w := httptest.NewRecorder()
				files.ServeHTTP(w, httptest.NewRequest(http.MethodGet, link, nil))
				assert.That(t, w.Code == http.StatusOK, "%s: %s is %d", path, link, w.Code)
			}
		}
		want := len(static.URLs()) - len([]string{"docs.css", "docs.js", "login.js", "activity.css", "follow.js", "favicon-open.svg", "copy.js", "overview.css", "search.js", "hooks.js", "owner.js", "queue.js", "more.css"})
		for _, some := range []string{"<link rel=\"stylesheet\" href=\"" + static.URLs()["activity.css"], "<link rel=\"stylesheet\" href=\"" + static.URLs()["overview.css"],
			"<link rel=\"stylesheet\" href=\"" + static.URLs()["more.css"], "<script defer src=\"" + static.URLs()["follow.js"], "<script defer src=\"" + static.URLs()["hooks.js"]} {
			want += min(1, strings.Count(render(c), some))
		}
		if strings.Contains(render(c), `class="on-wall"`) {
			want = len([]string{"favicon.svg", "app.css", "activity.css", "htmx.min.js", "pages.js"})
		}
		if strings.Contains(render(c), `<body class="bare"`) {
			want = len([]string{"favicon.svg", "app.css", "more.css", "theme.js", "copy.js", "login.js"})
		}
		assert.That(t, assets == want, "%s loads %d files, of the dashboard's %d", path, assets, want)
	}
}

func TestPagesCanBeUsedWithoutSight(t *testing.T) {
	for path, c := range samples(noon) {
		count := map[string]int{}
		level := 0
		for _, e := range elements(parse(t, render(c))) {
			count[e.Data]++
			_, scoped := attr(e, "scope")
			assert.That(t, e.Data != "th" || scoped, "%s: a th without scope", path)
			if len(e.Data) == 2 && e.Data[0] == 'h' && e.Data[1] >= '1' && e.Data[1] <= '6' {
				if next := int(e.Data[1] - '0'); next > level+1 {
					t.Errorf("%s: h%d follows h%d", path, next, level)
				} else {
					level = next
				}
			}
			label, _ := attr(e, "aria-label")
			assert.That(t, e.Data != "button" || strings.TrimSpace(text(e)) != "" || label != "", "%s: a button without a name", path)
			_, live := attr(e, "aria-live")
			assert.That(t, !live, "%s: <%s aria-live>: what ticks must not be read out", path, e.Data)
		}
		assert.That(t, count["h1"] == 1 && count["main"] == 1, "%s: %d h1, %d main, want one each", path, count["h1"], count["main"])
	}
}

func TestHTMXIsGivenValidConfiguration(t *testing.T) {
	var config struct {
		IncludeIndicatorCSS *bool
		MorphIgnore         []string
	}
	assert.NoError(t, json.Unmarshal([]byte(htmxConfig), &config))
	assert.That(t, config.IncludeIndicatorCSS != nil && !*config.IncludeIndicatorCSS && slices.Contains(config.MorphIgnore, "open"),
		"config %+v", config)
}

func TestStatusSaysWhatDoesNotWork(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Status
		want []string
		not  []string
	}{
		{"all is well", Status{ZooKeeper: "connected", GatewayID: "g", Trusted: true, ReplicaCurrent: true, Serving: true}, []string{"connected", `data-stale="false"`}, []string{"banner"}},
		{"embedded", Status{ZooKeeper: "connected", Embedded: true, GatewayID: "g", Trusted: true, ReplicaCurrent: true, Serving: true}, []string{">embedded<"}, []string{"banner"}},
		{"embedded and down", Status{ZooKeeper: "suspended", Embedded: true, GatewayID: "g"}, []string{"embedded, down", "disk", "banner"}, []string{"connection"}},
		{"suspended", Status{ZooKeeper: "suspended", GatewayID: "g"}, []string{"connection lost", "banner", `data-stale="true"`}, []string{"closed"}},
		{"away", Status{ZooKeeper: "none"}, []string{"away", "no session", "banner bad", `data-stale="true"`}, nil},
		{"not trusted", Status{ZooKeeper: "connected", GatewayID: "g", ReplicaCurrent: true}, []string{"not confirmed", "banner"}, []string{"stale<"}},
		{"behind", Status{ZooKeeper: "connected", GatewayID: "g", Trusted: true}, []string{">stale<", "banner", `data-stale="true"`}, []string{"closed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := render(StatusFragment(c.s))
			for _, want := range c.want {
				assert.That(t, strings.Contains(got, want), "no %q in %s", want, got)
			}
			for _, not := range c.not {
				assert.That(t, !strings.Contains(got, not), "%q in %s", not, got)
			}
		})
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{count(0), "0"}, {count(999), "999"}, {count(1000), "1,000"}, {count(1234567), "1,234,567"}, {count(-1000), "-1,000"},
		{counted(1, "lock"), "1 lock"}, {counted(2000, "lock"), "2,000 locks"},
		{tail("short"), "short"}, {tail("lk2s4u7q3v"), "…2s4u7q3v"},
		{within("/l/a", "/l/a/n-1"), "n-1"}, {within("/l/a", "/l/ab/n-1"), "/l/ab/n-1"}, {within("/l/a", "/l/a"), "(the directory itself)"},
		{happened("lease.revoke_requested"), "revoke requested"}, {happened("odd"), "odd"},
		{domID("lock", "a/b", "c"), "lock/a%2Fb/c"}, {domID("lock", "a", "b/c"), "lock/a/b%2Fc"},
		{who(Who{Foreign: true}), "another program"}, {who(Who{LeaseID: "lk2s4u7q3v"}), "lease …2s4u7q3v"}, {who(Who{}), "unnamed"},
		{foreignLabel(Who{Owner: "me", Program: "Kazoo"}), "foreign · Kazoo"}, {foreignLabel(Who{Program: "Kazoo"}), "foreign"},
		{inNamespace("default"), ""}, {inNamespace("a&b"), "&ns=a%26b"},
		{andMore(Lock{QueueLength: 1204, Waiters: []Contender{{Position: 100}}}), "and 1,104 more"}, {andMore(Lock{QueueLength: 1, Waiters: []Contender{{Position: 1}}}), ""},
	} {
		assert.That(t, c.got == c.want, "got %q, want %q", c.got, c.want)
	}
	head, end := cut("write-v1.lk2s4u-lock-0000000012")
	assert.That(t, head+end == "write-v1.lk2s4u-lock-0000000012" && strings.HasSuffix(end, "0000000012"), "cut: %q and %q", head, end)
}

// What a page of 100 waiters costs, and that it stays a page.
func TestAFullPageOfWaitersStaysSmall(t *testing.T) {
	v := lockSample(noon, 1204)
	v.Waiters[3].Metadata = ""
	size := len(render(QueueFragment(v)))
	assert.That(t, size <= 300_000, "%d bytes for 100 waiters", size)
	assert.That(t, strings.Contains(render(QueueFragment(v)), fmt.Sprintf("and %s more", "1,104")), "it does not say how many more wait")
}
