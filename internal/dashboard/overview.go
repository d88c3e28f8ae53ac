package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

const pageOverview = "overview"

// stateHazard is a state for the overview's filter: locks with a hazard, in any state.
const stateHazard locks.LockState = "hazard"

// rowHolders is how many holders the row of a lock names.
const rowHolders = 3

// overviewPage is a list of locks.
type overviewPage struct {
	plain
	ns     string
	cursor string          // where the list goes on
	query  string          // part of the locks' names
	state  locks.LockState // "" for all
	sort   locks.LockSort  // "" by name
}

func parseOverview(_ string, values url.Values) (page, *refusal) {
	p := overviewPage{ns: namespaceOf(values), cursor: values.Get("cursor"), query: strings.TrimSpace(values.Get("q")), state: locks.LockState(values.Get("state")), sort: locks.LockSort(values.Get("sort"))}
	switch p.sort {
	case "", locks.SortWaiters, locks.SortWait, locks.SortHeld:
	default:
		return nil, wrongParameter(http.StatusUnprocessableEntity, "sort is -waiters, -wait or -held, not %s.", quoted(string(p.sort)))
	}
	switch p.state {
	case "", locks.LockFree, locks.LockHeld, locks.LockUnclaimed, locks.LockQueued, locks.LockDelayed, stateHazard:
		return p, nil
	}
	return nil, wrongParameter(http.StatusUnprocessableEntity, "state is free, held, unclaimed, queued, delayed or hazard, not %s.", quoted(string(p.state)))
}

func (overviewPage) name() string  { return pageOverview }
func (overviewPage) title() string { return "Locks" }

func (p overviewPage) own() (subject string, parameters url.Values) {
	return "", differing([3]string{"ns", p.ns, locks.DefaultNamespace}, [3]string{"cursor", p.cursor}, [3]string{"q", p.query}, [3]string{"state", string(p.state)}, [3]string{"sort", string(p.sort)})
}

func (p overviewPage) searches() bool { return p.query != "" || p.state != "" }

// at is the page at another place of its list.
func (p overviewPage) at(cursor string) overviewPage {
	p.cursor = cursor
	return p
}

func (p overviewPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	shown := &overviewContent{templates.Overview{Page: as.frame, Query: p.query, State: string(p.state), NS: p.ns, Namespaces: as.info.Namespaces,
		MayTake: as.who.Rules.May(access.Acquire, p.ns, "deploy"), Sort: string(p.sort)}}
	shown.Sheet = "overview.css"
	filter := locks.LockFilter{Principal: as.who, NS: p.ns, Contains: p.query, State: p.state, Sort: p.sort, Limit: pageSize, Cursor: p.cursor}
	if p.state == stateHazard {
		filter.State, filter.Hazardous = "", true
	}
	shown.Deadlocks, shown.MoreDeadlocks, _ = as.waits.deadlocks(ctx, as.who, "", "") // without: the locks are shown all the same
	if !p.searches() && p.cursor == "" {
		shown.Attention = as.lookout.attention(as.who, as.info.Namespaces)
		shown.Hazardous, shown.HazardousURL = as.info.HazardousLocks, hazardsURL(as.info)
	}
	if !p.searches() && len(as.info.Namespaces) == 1 && as.who.Rules.MayAll(access.Read) {
		shown.Total = as.info.Locks
	}
	list, err := from.Locks.Locks(ctx, filter)
	if err != nil {
		shown.Problem = problemOf(err)
		return shown, err
	}
	for i := range list.Items {
		shown.Rows = append(shown.Rows, as.row(&list.Items[i]))
	}
	if p.cursor != "" {
		shown.First = urlOf(p.at(""))
	}
	if list.NextCursor != "" {
		shown.Next = urlOf(p.at(list.NextCursor))
	}
	return shown, nil
}

type overviewContent struct{ templates.Overview }

func (c *overviewContent) document() templ.Component { return templates.OverviewPage(c.Overview) }
func (c *overviewContent) parts() []part {
	return []part{{"deadlocks", templates.DeadlocksFragment(c.Overview)}, {"attention", templates.AttentionFragment(c.Overview)}, {"locks", templates.LocksFragment(c.Overview)}}
}

// row is the row of a lock, on any page, with what the history says of it.
func (as reading) row(l *locks.Lock) templates.LockRow {
	row := rowOf(l)
	as.trends.show(&row, l.NS, l.Name)
	return row
}

// rowOf is a lock as it is now.
func rowOf(l *locks.Lock) templates.LockRow {
	row := templates.LockRow{
		NS: visible(l.NS), Name: visible(l.Name), URL: urlOf(lockPage{ns: l.NS, lock: l.Name, tab: tabQueue}),
		State: string(l.State), HolderCount: holderCount(l), Waiting: l.QueueLength, Hazards: len(l.Hazards),
	}
	if len(l.Holders) > 0 {
		row.Mode = string(l.Holders[0].Mode)
	}
	if row.Mode == string(locks.Semaphore) || l.Limit > 0 {
		if p := permitsOf(l, false); p != nil {
			row.Permits, row.Limit = p.Taken, p.Limit
		}
	}
	for i := range l.Holders {
		c := &l.Holders[i]
		if i < rowHolders {
			row.Holders = append(row.Holders, whoOf(c))
		}
		if since, earliest := heldSince(c); !since.IsZero() && (row.HeldSince.IsZero() || since.Before(row.HeldSince)) {
			row.HeldSince, row.HeldLonger, row.HeldEarliest = since, c.HeldLonger, earliest
		}
	}
	if row.HolderCount == 1 && len(l.Holders) == 1 {
		row.ExpiresAt = expiry(&l.Holders[0])
	}
	return row
}
