package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/webhooks"
)

// Paths of the pages and of what keeps them live.
const (
	lockPath       = "/locks/"
	namespacesPath = "/namespaces"
	gatewaysPath   = "/gateways"
	webhooksPath   = "/webhooks"
	webhookPath    = webhooksPath + "/"
	livePath       = "/ui/live"
	pollPath       = "/ui/fragments"
)

// The pages.
const (
	pageOverview   = "overview"
	pageLock       = "lock"
	pageNamespaces = "namespaces"
	pageGateways   = "gateways"
	pageWebhooks   = "webhooks"
	pageWebhook    = "webhook"
)

// The tabs of a lock's page.
const (
	tabQueue     = "queue"
	tabZooKeeper = "zookeeper"
)

// stateHazard is a state for the overview's filter: locks with a hazard, in any state.
const stateHazard locks.LockState = "hazard"

// maxParameter bounds a parameter's length in bytes.
const maxParameter = 8192 // a cursor is as long as the directory of a lock that another program has made

// view is a page with its parameters, normalised: equal views show the same.
type view struct {
	page   string
	ns     string
	cursor string // where the list of locks or waiters goes on

	query string          // overview: part of the locks' names
	state locks.LockState // overview: "" for all

	lock string // lock page; a webhook's page: its id
	tab  string // lock page
}

// refusal is why there is no page.
type refusal struct {
	status        int
	title, detail string
	logIn         string // URL of a login that may help; ""
}

func (r *refusal) Error() string { return r.detail }

func wrongParameter(status int, format string, args ...any) *refusal {
	return &refusal{status: status, title: "The address is not valid", detail: fmt.Sprintf(format, args...)}
}

// viewOf reads the view of a page's own address.
func viewOf(r *http.Request) (view, *refusal) {
	name, isLock := strings.CutPrefix(r.URL.Path, lockPath)
	values, wrong := parameters(r)
	if wrong != nil {
		return view{}, wrong
	}
	switch r.URL.Path {
	case namespacesPath:
		return plainView(pageNamespaces, values)
	case gatewaysPath:
		return plainView(pageGateways, values)
	case webhooksPath:
		return plainView(pageWebhooks, values)
	}
	if id, is := strings.CutPrefix(r.URL.Path, webhookPath); is {
		return webhookView(id, values)
	}
	if !isLock {
		return overviewView(values, "q", "state", "ns", "cursor")
	}
	return lockView(name, values, "ns", "tab", "cursor")
}

// liveViewOf reads the view that a socket or a poll is about.
func liveViewOf(r *http.Request) (view, *refusal) {
	values, wrong := parameters(r)
	if wrong != nil {
		return view{}, wrong
	}
	switch page := values.Get("page"); page {
	case pageOverview:
		return overviewView(values, "page", "q", "state", "ns", "cursor")
	case pageNamespaces, pageGateways, pageWebhooks:
		return plainView(page, values, "page")
	case pageWebhook:
		return webhookView(values.Get("lock"), values, "page", "lock")
	case pageLock:
		return lockView(values.Get("lock"), values, "page", "lock", "ns", "tab", "cursor")
	default:
		return view{}, wrongParameter(http.StatusUnprocessableEntity, "page is overview, namespaces, gateways, webhooks, webhook or lock, not %s.", quoted(page))
	}
}

// parameters reads the query; each parameter may be there once.
func parameters(r *http.Request) (url.Values, *refusal) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wrongParameter(http.StatusBadRequest, "The query must be valid.")
	}
	for name, list := range values {
		switch value := list[0]; {
		case len(list) > 1:
			return nil, wrongParameter(http.StatusBadRequest, "The parameter %s is there more than once.", quoted(name))
		case len(value) > maxParameter:
			return nil, wrongParameter(http.StatusUnprocessableEntity, "The parameter %s is longer than %d bytes.", quoted(name), maxParameter)
		case !utf8.ValidString(value) || visible(value) != value:
			return nil, wrongParameter(http.StatusUnprocessableEntity, "The parameter %s has invisible characters: %s.", quoted(name), quoted(value))
		}
	}
	return values, nil
}

// only refuses parameters other than those that are allowed: one that is
// mistyped must not look as if it had been obeyed.
func only(values url.Values, allowed []string) *refusal {
	for name := range values {
		if !slices.Contains(allowed, name) {
			return wrongParameter(http.StatusBadRequest, "There is no parameter %s; there are %s.", quoted(name), strings.Join(allowed, ", "))
		}
	}
	return nil
}

func overviewView(values url.Values, allowed ...string) (view, *refusal) {
	v := view{page: pageOverview, ns: namespaceOf(values), cursor: values.Get("cursor"),
		query: strings.TrimSpace(values.Get("q")), state: locks.LockState(values.Get("state"))}
	switch v.state {
	case "", locks.LockFree, locks.LockHeld, locks.LockUnclaimed, locks.LockQueued, locks.LockDelayed, stateHazard:
	default:
		return view{}, wrongParameter(http.StatusUnprocessableEntity, "state is free, held, unclaimed, queued, delayed or hazard, not %s.", quoted(string(v.state)))
	}
	return v, only(values, allowed)
}

// plainView is a page that has no parameters of its own.
func plainView(page string, values url.Values, allowed ...string) (view, *refusal) {
	return view{page: page, ns: locks.DefaultNamespace}, only(values, allowed)
}

func webhookView(id string, values url.Values, allowed ...string) (view, *refusal) {
	if !webhooks.IsID(id) {
		return view{}, &refusal{status: http.StatusNotFound, title: "There is no such webhook", detail: "None has the id " + quoted(id) + "."}
	}
	return view{page: pageWebhook, ns: locks.DefaultNamespace, lock: id}, only(values, allowed)
}

func lockView(name string, values url.Values, allowed ...string) (view, *refusal) {
	v := view{page: pageLock, ns: namespaceOf(values), cursor: values.Get("cursor"), lock: name, tab: values.Get("tab")}
	switch v.tab {
	case "":
		v.tab = tabQueue
	case tabQueue, tabZooKeeper:
	default:
		return view{}, wrongParameter(http.StatusUnprocessableEntity, "tab is queue or zookeeper, not %s.", quoted(v.tab))
	}
	return v, only(values, allowed)
}

func namespaceOf(values url.Values) string {
	if ns := values.Get("ns"); ns != "" {
		return ns
	}
	return locks.DefaultNamespace
}

func quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strconv.Quote(visible(s))
}

// filters reports whether finding what the view shows may mean to look at every lock.
func (v view) filters() bool { return v.query != "" || v.state != "" }

// ofWebhooks reports whether other gateways have to be asked for what the view shows.
func (v view) ofWebhooks() bool { return v.page == pageWebhooks || v.page == pageWebhook }

// at is the view at another place of its list.
func (v view) at(cursor string) view {
	v.cursor = cursor
	return v
}

// on is the view of another tab, from its front.
func (v view) on(tab string) view {
	v.tab, v.cursor = tab, ""
	return v
}

// parameters are what differs from the defaults.
func (v view) parameters() url.Values {
	values := url.Values{}
	set := func(name, value, usual string) {
		if value != usual {
			values.Set(name, value)
		}
	}
	set("ns", v.ns, locks.DefaultNamespace)
	set("cursor", v.cursor, "")
	set("q", v.query, "")
	set("state", string(v.state), "")
	if v.page == pageLock {
		set("tab", v.tab, tabQueue)
	}
	return values
}

// url is the address of the view's page.
func (v view) url() string {
	path := "/"
	switch v.page {
	case pageLock:
		path = lockPath + url.PathEscape(v.lock)
	case pageNamespaces:
		path = namespacesPath
	case pageGateways:
		path = gatewaysPath
	case pageWebhooks:
		path = webhooksPath
	case pageWebhook:
		path = webhookPath + url.PathEscape(v.lock)
	}
	return withQuery(path, v.parameters())
}

// liveURL and pollURL are the addresses of what keeps the page live.
func (v view) liveURL() string { return withQuery(livePath, v.liveParameters()) }
func (v view) pollURL() string { return withQuery(pollPath, v.liveParameters()) }

func (v view) liveParameters() url.Values {
	values := v.parameters()
	values.Set("page", v.page)
	if v.page == pageLock || v.page == pageWebhook {
		values.Set("lock", v.lock)
	}
	return values
}

func withQuery(path string, values url.Values) string {
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}
