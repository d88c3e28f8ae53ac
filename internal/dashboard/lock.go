package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/a-h/templ"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

const pageLock = "lock"

// The tabs of a lock's page.
const (
	tabQueue     = "queue"
	tabZooKeeper = "zookeeper"
)

// historyLength and nodesLength are how many events a lock's page shows.
const (
	historyLength = 20
	nodesLength   = 50
)

// lockPage is one lock with its queue.
type lockPage struct {
	plain
	ns     string
	lock   string
	tab    string
	cursor string // where the list of waiters goes on
	past   past   // what the timeline shows
	// contender is the lease's id, or the znode's name, of a contender that the page marks, and around which it shows the queue.
	contender string
}

func parseLock(name string, values url.Values) (page, *refusal) {
	p := lockPage{ns: namespaceOf(values), cursor: values.Get("cursor"), lock: name, tab: values.Get("tab"), contender: values.Get("contender")}
	var wrong *refusal
	if p.past, wrong = parsePast(values); wrong != nil {
		return nil, wrong
	}
	switch p.tab {
	case "":
		p.tab = tabQueue
	case tabQueue, tabZooKeeper:
	default:
		return nil, wrongParameter(http.StatusUnprocessableEntity, "tab is queue or zookeeper, not %s.", quoted(p.tab))
	}
	return p, nil
}

func (lockPage) name() string { return pageLock }

func (p lockPage) title() string { return visible(p.lock) }

func (p lockPage) own() (subject string, parameters url.Values) {
	return p.lock, differing(append(p.past.parameters(), [3]string{"ns", p.ns, locks.DefaultNamespace}, [3]string{"cursor", p.cursor}, [3]string{"contender", p.contender},
		[3]string{"tab", p.tab, tabQueue})...)
}

func (p lockPage) follows(rules *access.Rules) events.Filter {
	f := events.Filter{Rules: rules, NS: p.ns, Lock: events.Literal(p.lock)}
	if p.tab == tabZooKeeper {
		f.Types = events.AllTypes
	}
	return f
}

func (p lockPage) keeps(rules *access.Rules) *keeper {
	if p.tab == tabZooKeeper {
		return &keeper{filter: p.follows(rules), nodes: true, most: nodesLength}
	}
	return &keeper{filter: p.follows(rules), most: historyLength}
}

func (lockPage) pause() time.Duration { return lockPause }

// waits: what is read of other programs' contenders may have to be asked of ZooKeeper.
func (lockPage) waits() bool { return true }

// at is the page at another place of its queue.
func (p lockPage) at(cursor string) lockPage {
	p.cursor = cursor
	return p
}

// about is the page that marks another contender.
func (p lockPage) about(contender string) lockPage {
	p.contender, p.cursor = contender, ""
	return p
}

// on is another tab, from its front.
func (p lockPage) on(tab string) lockPage {
	p.tab, p.cursor, p.contender, p.past = tab, "", "", past{}
	return p
}

func (p lockPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	shown := &lockContent{templates.Lock{Page: as.frame, NS: visible(p.ns), Name: visible(p.lock), Tab: p.tab,
		QueueURL: urlOf(p.on(tabQueue)), NodesURL: urlOf(p.on(tabZooKeeper)), Overview: urlOf(overviewPage{ns: p.ns}),
		API: lockAPI(p.ns, p.lock), APIPast: "/v1/history?" + url.Values{"lock": {p.lock}, "ns": {p.ns}}.Encode(), APIRevoke: lockAction(p.ns, p.lock, "revoke")}}
	if p.tab == tabZooKeeper {
		shown.Nodes = nodeEventsOf(as.kept)
	} else {
		shown.History = happeningsOf(as.kept)
	}
	l, err := from.Locks.Lock(ctx, locks.LockRequest{Principal: as.who, NS: p.ns, Lock: p.lock, Limit: pageSize, Cursor: p.cursor, Around: p.contender})
	if err != nil {
		shown.Problem = problemOf(err)
		return shown, err
	}
	first := len(l.Waiters) == 0 || l.Waiters[0].Position <= 1
	showLock(&shown.Lock, &l, as.who.Rules, as.info.Root, first)
	p.showWaits(ctx, from, as, &shown.Lock, &l)
	if p.tab == tabQueue {
		p.showUsual(ctx, as, &shown.Lock, &l)
		p.showThen(ctx, from, as, &shown.Lock, &l)
	}
	if p.cursor != "" || !first {
		shown.First = urlOf(p.about(""))
	}
	if l.NextCursor != "" {
		shown.Next = urlOf(p.at(l.NextCursor))
	}
	return shown, nil
}

type lockContent struct{ templates.Lock }

func (c *lockContent) document() templ.Component { return templates.LockPage(c.Lock) }

func (c *lockContent) parts() []part {
	head := part{"lock-head", templates.LockHeadFragment(c.Lock)}
	if c.Tab == tabZooKeeper {
		return []part{head, {"nodes", templates.NodesFragment(c.Lock)}}
	}
	parts := []part{head, {"queue", templates.QueueFragment(c.Lock)}, {"history", templates.HistoryFragment(c.Lock)}}
	if t := c.Timeline; t != nil {
		parts = append(parts, part{"timeline", templates.TimelineFragment(*t)})
		if t.Off == "" {
			parts = append(parts, part{"holds", templates.HoldsFragment(*t)})
		}
	}
	return parts
}
