package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/a-h/templ"

	"lockkeeper/internal/events"
	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

const (
	pageOwner = "owner"
	pageHost  = "host"
)

const (
	// ownedLength is how many contenders the page of an owner shows.
	ownedLength = 100
	// endedLength is how many ends, of endedLooked rows of the history, and endedWithin how long a page waits for them.
	endedLength = 20
	endedLooked = 100
	endedWithin = 300 * time.Millisecond
	// endedSince is how far back the page looks.
	endedSince = 24 * time.Hour
)

// ownerPage is what an owner, or a host, holds and waits for.
type ownerPage struct {
	plain
	owner string
	host  string // instead of owner
}

func parseOwner(name string, _ url.Values) (page, *refusal) {
	return ownerPage{owner: name}, badName("owner", name)
}

func parseHost(name string, _ url.Values) (page, *refusal) {
	return ownerPage{host: name}, badName("host", name)
}

// badName refuses what no owner can be called.
func badName(what, name string) *refusal {
	if name == "" {
		return wrongParameter(http.StatusNotFound, "The address must have the name of the %s behind it.", what)
	}
	if err := locks.CheckText(what, name, locks.MaxOwner); err != nil {
		return wrongParameter(http.StatusUnprocessableEntity, "%s", sentence(visible(err.Error())))
	}
	return nil
}

func (p ownerPage) name() string {
	if p.host != "" {
		return pageHost
	}
	return pageOwner
}

func (p ownerPage) title() string { return visible(cmp.Or(p.owner, p.host)) }

func (p ownerPage) own() (subject string, parameters url.Values) { return cmp.Or(p.owner, p.host), nil }

func (p ownerPage) follows(rules *access.Rules) events.Filter {
	return events.Filter{Rules: rules, Owner: p.owner}
}

// searches: an owner's contenders may be in every lock.
func (ownerPage) searches() bool { return true }

func (p ownerPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	shown := &ownerContent{templates.Owner{Page: as.frame, Name: p.title(), Host: p.host != "", Party: locks.IsParty(p.owner)}}
	if host := locks.HostOf(p.owner); host != "" {
		shown.HostLink = templates.Link{Name: visible(host), URL: urlOf(ownerPage{host: host})}
	}
	elsewhere, answered := as.fleet.owned(ctx, p.owner, p.host)
	shown.Unasked = as.fleet.asks() && !answered
	shown.Unreached = visibleAll(elsewhere.Unreached)
	req := locks.FindRequest{Principal: as.who, Owner: p.owner, Host: p.host, Limit: ownedLength, Owners: make(map[string]string, len(elsewhere.Leases))}
	for id, l := range elsewhere.Leases {
		req.Owners[id] = l.Owner
	}
	found, err := from.Locks.Find(ctx, req)
	if err != nil {
		shown.Problem = problemOf(err)
		return shown, err
	}
	// That there are more elsewhere may be all that is known of the owner, and of locks that the viewer may not read.
	shown.More, shown.Stopped = found.More, found.Stopped || elsewhere.More && len(found.Contenders) > 0
	for i := range found.Contenders {
		elsewhere.complete(&found.Contenders[i].Contender)
		row := ownedOf(&found.Contenders[i], as.who.Rules)
		if row.Position == 0 {
			shown.Holds = append(shown.Holds, row)
			shown.CanAsk = shown.CanAsk || row.Revoke != ""
		} else {
			shown.Waits = append(shown.Waits, row)
		}
	}
	shown.Ended, shown.Remembers = p.ended(ctx, from.History, as.who.Rules)
	return shown, nil
}

// complete adds to a contender what the gateway that runs its lease says of it.
func (o *Owned) complete(c *locks.Contender) {
	l, there := o.Leases[c.LeaseID]
	if !there || c.LeaseID == "" || c.Clock != 0 || c.Delayed {
		return
	}
	c.Metadata = l.Metadata
	if left := l.ExpiresAt.Sub(c.At); left > 0 && c.ExpiresIn == 0 {
		c.ExpiresIn, c.Clock = left, l.TTL
	}
	if !l.HeardAt.IsZero() {
		c.LastHeartbeat = max(c.At.Sub(l.HeardAt), 1)
	}
}

// ownedOf is the row of a contender.
func ownedOf(f *locks.FoundContender, rules *access.Rules) templates.OwnedRow {
	l := &locks.Lock{NS: f.NS, Name: f.Lock}
	row := templates.OwnedRow{Contender: contenderOf(l, &f.Contender, rules), Lock: lockLink(f.NS, f.Lock)}
	row.WhyURL = contenderURL(f.NS, f.Lock, standingID(&locks.Standing{LeaseID: f.LeaseID, Znode: f.Znode}))
	if row.CanAsk && row.LeaseID != "" && rules.May(access.Acquire, f.NS, f.Lock) {
		row.Revoke = lockAction(f.NS, f.Lock, "revoke")
	}
	return row
}

// ended is what ended lately; remembers: the history answers.
func (p ownerPage) ended(ctx context.Context, from History, rules *access.Rules) (list []templates.OwnedEnd, remembers bool) {
	if from == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, endedWithin)
	defer cancel()
	now := time.Now()
	answer, err := from.Query(ctx, history.Query{Rules: rules, Owner: p.owner, Host: p.host, From: now.Add(-endedSince), Kinds: history.Of(history.Hold, history.Wait), Limit: endedLooked})
	if err != nil {
		return nil, false
	}
	items := slices.DeleteFunc(answer.Items, func(i history.Item) bool { return i.End.IsZero() || i.Lock == "" })
	slices.SortStableFunc(items, func(a, b history.Item) int { return b.End.Compare(a.End) })
	for i := range items[:min(len(items), endedLength)] {
		e := &items[i]
		list = append(list, templates.OwnedEnd{Owner: templates.Who{Owner: visible(e.Owner)}, Lock: lockLink(e.NS, e.Lock), Held: e.Kind == history.Hold, Span: e.Span(now), At: e.End,
			Reason: string(e.Reason), Detail: visible(e.Detail)})
	}
	return list, true
}

type ownerContent struct{ templates.Owner }

func (c *ownerContent) document() templ.Component { return templates.OwnerPage(c.Owner) }
func (c *ownerContent) parts() []part {
	return []part{{"owned", templates.OwnedFragment(c.Owner)}}
}
