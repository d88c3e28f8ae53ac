package dashboard

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/static"
	"lockkeeper/web/templates"
)

// page is a page with its parameters, normalised: equal ones show the same. It is a comparable value, because topics are keyed by it.
// Each is in a file of its own, which has all that is particular to it. Embed plain for what most of them answer alike.
type page interface {
	// name is that of its row in the table.
	name() string
	// own is what stands behind the row's path, where the row has a subject, and the parameters that differ from their defaults. The
	// row's parse makes the same page of both.
	own() (subject string, parameters url.Values)
	title() string
	// read asks for what it shows. A lasting error (there is no such namespace) comes with a content that says so.
	read(ctx context.Context, from *Options, as reading) (content, error)

	// follows selects the events after which it may show something else to viewers with the rules.
	follows(*access.Rules) events.Filter
	// keeps is what it remembers of these events and shows; nil: they are only a reason to read again.
	keeps(*access.Rules) *keeper
	// pause is the least time between two renderings.
	pause() time.Duration
	// waits reports whether read may wait, for other gateways or for ZooKeeper. Such a page takes no turn among those that list
	// locks, and the time does not count as its cost.
	waits() bool
	// searches reports whether read may have to look at every lock.
	searches() bool
	// personal reports whether what it shows depends on the viewer's name, and not on the rules alone.
	personal() bool
}

// plain is how a page behaves that has nothing particular: it changes with every event, and lists what is in memory.
type plain struct{}

func (plain) own() (subject string, parameters url.Values) { return "", nil }

// follows selects the events of all namespaces: the state of ZooKeeper has none.
func (plain) follows(rules *access.Rules) events.Filter { return events.Filter{Rules: rules} }
func (plain) keeps(*access.Rules) *keeper               { return nil }
func (plain) pause() time.Duration                      { return listPause }
func (plain) waits() bool                               { return false }
func (plain) searches() bool                            { return false }
func (plain) personal() bool                            { return false }

// reading is the viewer that a page is read for, and what it need not ask for.
type reading struct {
	who   locks.Principal
	kept  []*events.Event // of a page that keeps some, the newest first
	frame templates.Page
	info  locks.Info // as who may see it
	// memory is what the history has answered.
	memory *memory
	waits  *waits // the wait-for graph
	// lookout is what needs attention.
	lookout *lookout
	fleet   *fleet  // what other gateways know
	trends  *trends // of the locks in rows
}

// content is what a page shows at one moment.
type content interface {
	Frame() *templates.Page    // of templates.Page, which a content embeds
	document() templ.Component // the whole page
	parts() []part             // the fragments behind the status
}

// part is a fragment of a page that is yet to be rendered.
type part struct {
	id        string
	component templ.Component
}

// row is a page's place in the table.
type row struct {
	name string
	// path is its address; with a subject, what stands before that.
	path string
	// subject is the parameter by which its socket and its poll name the subject; "": it has none.
	subject    string
	parameters []string // of its address
	// nav is what the navigation calls it; "": it does not lead there, and under is the name of the page to which this one belongs.
	nav, under string
	// parse makes the page of its subject and its parameters.
	parse func(subject string, values url.Values) (page, *refusal)
}

// table has every page. The routes, the addresses of sockets and polls, and the navigation follow from it.
var table = []row{
	{name: pageOverview, path: "/", nav: "Locks", parameters: []string{"q", "state", "sort", "ns", "cursor"}, parse: parseOverview},
	{name: pagePinned, path: "/pinned", parameters: []string{"pin"}, parse: parsePinned},
	{name: pageWall, path: "/wall", parameters: []string{"q", "ns", "warn"}, parse: parseWall},
	{name: pageNamespaces, path: "/namespaces", nav: "Namespaces", parse: is(namespacesPage{})},
	{name: pageOwner, path: templates.OwnersPath, under: pageOverview, subject: "owner", parse: parseOwner},
	{name: pageHost, path: templates.HostsPath, under: pageOverview, subject: "host", parse: parseHost},
	{name: pageGraph, path: "/graph", nav: "Waits", parameters: []string{"ns", "lock", "owner"}, parse: parseGraph},
	{name: pageActivity, path: "/activity", nav: "Activity", parameters: []string{"window"}, parse: parseActivity},
	{name: pageGateways, path: "/gateways", nav: "Gateways", parse: is(gatewaysPage{})},
	{name: pageWebhooks, path: "/webhooks", nav: "Webhooks", parse: is(webhooksPage{})},
	{name: pageWebhook, path: "/webhooks/", under: pageWebhooks, subject: "lock", parse: parseWebhook},
	{name: pageLock, path: "/locks/", under: pageOverview, subject: "lock", parameters: []string{"ns", "tab", "cursor", "contender", "range", "until", "at", "hold"}, parse: parseLock},
}

// is parses a page that has neither a subject nor parameters.
func is(p page) func(string, url.Values) (page, *refusal) {
	return func(string, url.Values) (page, *refusal) { return p, nil }
}

// rowNamed is the row with a name, nil when there is none.
func rowNamed(name string) *row {
	if i := slices.IndexFunc(table, func(r row) bool { return r.name == name }); i >= 0 {
		return &table[i]
	}
	return nil
}

// navPath is the address to which the navigation leads for the row.
func (r *row) navPath() string {
	if r.under != "" {
		return rowNamed(r.under).path
	}
	return r.path
}

// rowAt is the row of a page's path and the subject in it, nil when there is no page.
func rowAt(path string) (at *row, subject string) {
	for i := range table {
		r := &table[i]
		if behind, below := strings.CutPrefix(path, r.path); below && (behind == "" || r.subject != "") {
			return r, behind
		}
	}
	return nil, ""
}

// Paths are the patterns of the addresses of pages and of what they load; those with a star at their end are prefixes. The paths of logins
// are not among them.
func (*Dashboard) Paths() []string {
	var paths []string
	for i := range table {
		path := table[i].path
		if table[i].subject != "" {
			path += "*"
		}
		paths = append(paths, path)
	}
	return append(paths, uiPrefix+"*", static.Prefix+"*")
}

// Navigation are the pages to which the navigation on each page leads, in its order.
func (*Dashboard) Navigation() []templates.Link {
	var links []templates.Link
	for i := range table {
		if table[i].nav != "" {
			links = append(links, templates.Link{Name: table[i].nav, URL: table[i].path})
		}
	}
	return links
}
