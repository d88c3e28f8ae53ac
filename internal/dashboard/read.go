package dashboard

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/a-h/templ"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

// notReached is what a page shows before the first state.
const notReached = "ZooKeeper has not been reached yet. The content appears as soon as it is."

// content is what a view shows at one moment: one of them.
type content struct {
	overview   *templates.Overview
	lock       *templates.Lock
	namespaces *templates.Namespaces
	gateways   *templates.Gateways
	webhooks   *templates.Webhooks
	webhook    *templates.Webhook
}

// read asks for what v shows to who; kept are the events of a lock's page, the newest first. A lasting error
// (there is no such namespace) comes with a content that says so.
func (d *Dashboard) read(ctx context.Context, v view, who locks.Principal, kept []*events.Event) (content, error) {
	info := d.status.get(ctx).For(who)
	page := templates.Page{
		Status: d.status.statusOf(info, who), Live: v.liveURL(), Poll: v.pollURL(), Assets: d.assets, Credential: d.opt.Logins != nil,
	}
	switch v.page {
	case pageLock:
		page.Title = visible(v.lock) + " · Lockkeeper"
		return d.readLock(ctx, v, who, kept, page, info)
	case pageNamespaces:
		page.Title = "Namespaces · Lockkeeper"
		return d.readNamespaces(ctx, who, page)
	case pageGateways:
		page.Title = "Gateways · Lockkeeper"
		return d.showGateways(ctx, who, page, info), nil
	case pageWebhooks:
		page.Title = "Webhooks · Lockkeeper"
		return d.readWebhooks(ctx, who, page)
	case pageWebhook:
		page.Title = v.lock + " · Lockkeeper"
		return d.readWebhook(ctx, v, who, page)
	}
	page.Title = "Locks · Lockkeeper"
	return d.readOverview(ctx, v, who, page, info)
}

func (d *Dashboard) readOverview(ctx context.Context, v view, who locks.Principal, page templates.Page, info locks.Info) (content, error) {
	shown := &templates.Overview{Page: page, Query: v.query, State: string(v.state), NS: v.ns, Namespaces: info.Namespaces, MayTake: who.Rules.May(access.Acquire, v.ns, "deploy")}
	filter := locks.LockFilter{Principal: who, NS: v.ns, Contains: v.query, State: v.state, Limit: pageSize, Cursor: v.cursor}
	if v.state == stateHazard {
		filter.State, filter.Hazardous = "", true
	}
	list, err := d.opt.Locks.Locks(ctx, filter)
	if err != nil {
		shown.Problem = problemOf(err)
		return content{overview: shown}, err
	}
	for i := range list.Items {
		shown.Rows = append(shown.Rows, rowOf(&list.Items[i]))
	}
	if v.cursor != "" {
		shown.First = v.at("").url()
	}
	if list.NextCursor != "" {
		shown.Next = v.at(list.NextCursor).url()
	}
	return content{overview: shown}, nil
}

func (d *Dashboard) readLock(ctx context.Context, v view, who locks.Principal, kept []*events.Event, page templates.Page, info locks.Info) (content, error) {
	shown := &templates.Lock{Page: page, NS: visible(v.ns), Name: visible(v.lock), Tab: v.tab,
		QueueURL: v.on(tabQueue).url(), NodesURL: v.on(tabZooKeeper).url(),
		Overview: view{page: pageOverview, ns: v.ns}.url()}
	if v.tab == tabZooKeeper {
		shown.Nodes = nodeEventsOf(kept)
	} else {
		shown.History = happeningsOf(kept)
	}
	l, err := d.opt.Locks.Lock(ctx, locks.LockRequest{
		Principal: who, NS: v.ns, Lock: v.lock, Limit: pageSize, Cursor: v.cursor})
	if err != nil {
		shown.Problem = problemOf(err)
		return content{lock: shown}, err
	}
	showLock(shown, &l, who.Rules, info.Root, v.cursor == "")
	if v.cursor != "" {
		shown.First = v.at("").url()
	}
	if l.NextCursor != "" {
		shown.Next = v.at(l.NextCursor).url()
	}
	return content{lock: shown}, nil
}

func (d *Dashboard) readNamespaces(ctx context.Context, who locks.Principal, page templates.Page) (content, error) {
	shown := &templates.Namespaces{Page: page}
	list, err := d.opt.Locks.Namespaces(ctx, who)
	if err != nil {
		shown.Problem = problemOf(err)
		return content{namespaces: shown}, err
	}
	for i := range list {
		shown.Rows = append(shown.Rows, spaceRowOf(&list[i]))
	}
	return content{namespaces: shown}, nil
}

// problemOf is the sentence that a page shows in place of its content.
func problemOf(err error) string {
	var e *locks.Error
	switch {
	case !errors.As(err, &e):
		return "The gateway could not read this. See its log."
	case e.Code == locks.CodeUnavailable:
		return notReached
	}
	return sentence(visible(e.Detail))
}

// refusalOf is the refusal when err means that there is no such page; nil when the
// page itself shows the error.
func refusalOf(err error) *refusal {
	var e *locks.Error
	var known *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case !errors.As(err, &e):
		return &refusal{status: http.StatusInternalServerError, title: "Internal error", detail: problemOf(err)}
	case e.Code == locks.CodeUnavailable:
		return nil
	case e.Code == locks.CodeInvalid && e.Field == "lock":
		return &refusal{status: http.StatusUnprocessableEntity, title: "No lock can have this name", detail: sentence(visible(e.Detail))}
	case e.Code == locks.CodeInvalid:
		return &refusal{status: http.StatusUnprocessableEntity, title: "The address is not valid", detail: sentence("The parameter " + e.Field + ": " + visible(e.Detail))}
	case e.Code == locks.CodeForbidden:
		return &refusal{status: http.StatusForbidden, title: "Not for you to see", detail: sentence(visible(e.Detail))}
	case e.Code == locks.CodeNamespaceUnknown:
		return &refusal{status: http.StatusNotFound, title: "There is no such namespace", detail: sentence(visible(e.Detail))}
	}
	return &refusal{status: http.StatusInternalServerError, title: "Internal error", detail: problemOf(err)}
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + strings.TrimSuffix(s[size:], ".") + "."
}

// page is the frame's part of the content.
func (c content) page() *templates.Page {
	switch {
	case c.lock != nil:
		return &c.lock.Page
	case c.namespaces != nil:
		return &c.namespaces.Page
	case c.gateways != nil:
		return &c.gateways.Page
	case c.webhooks != nil:
		return &c.webhooks.Page
	case c.webhook != nil:
		return &c.webhook.Page
	}
	return &c.overview.Page
}

// document is the whole page.
func (c content) document() templ.Component {
	switch {
	case c.lock != nil:
		return templates.LockPage(*c.lock)
	case c.namespaces != nil:
		return templates.NamespacesPage(*c.namespaces)
	case c.gateways != nil:
		return templates.GatewaysPage(*c.gateways)
	case c.webhooks != nil:
		return templates.WebhooksPage(*c.webhooks)
	case c.webhook != nil:
		return templates.WebhookPage(*c.webhook)
	}
	return templates.OverviewPage(*c.overview)
}

// part is a fragment of a page that is yet to be rendered.
type part struct {
	id        string
	component templ.Component
}

// statusID is the fragment that every page has: the first of them.
const statusID = "status"

// parts are the page's fragments behind the status.
func (c content) parts() []part {
	switch l := c.lock; {
	case c.namespaces != nil:
		return []part{{"namespaces", templates.NamespacesFragment(*c.namespaces)}}
	case c.gateways != nil:
		return []part{{"gateways", templates.GatewaysFragment(*c.gateways)}}
	case c.webhooks != nil:
		return []part{{"webhooks", templates.WebhooksFragment(*c.webhooks)}}
	case c.webhook != nil:
		return []part{{"webhook-head", templates.WebhookHeadFragment(*c.webhook)}, {"dead-letters", templates.DeadLettersFragment(*c.webhook)},
			{"attempts", templates.AttemptsFragment(*c.webhook)}}
	case l == nil:
		return []part{{"locks", templates.LocksFragment(*c.overview)}}
	case l.Tab == tabZooKeeper:
		return []part{{"lock-head", templates.LockHeadFragment(*l)}, {"nodes", templates.NodesFragment(*l)}}
	default:
		return []part{{"lock-head", templates.LockHeadFragment(*l)}, {"queue", templates.QueueFragment(*l)},
			{"history", templates.HistoryFragment(*l)}}
	}
}

func render(ctx context.Context, c templ.Component) ([]byte, error) {
	var b bytes.Buffer
	err := c.Render(ctx, &b)
	return b.Bytes(), err
}

func renderStatus(ctx context.Context, s templates.Status, now time.Time) ([]byte, error) {
	s.Now = now.UTC()
	return render(ctx, templates.StatusFragment(s))
}
