package dashboard

import (
	"net/url"
	"path"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

const (
	// namedAhead is how many holders are named to the first in line.
	namedAhead = 2
	// mostShares is how many parts of a bar of permits have a name.
	mostShares = 24
)

// showWhy fills in why each waiter of the page waits, as the lock manager says (locks.Wait).
func showWhy(v *templates.Lock, l *locks.Lock) {
	for i := range l.Waiters {
		c, shown := &l.Waiters[i], &v.Waiters[i]
		shown.Convoy = convoyAt(l.Waiters, i)
		if c.Wait == nil {
			shown.AtFront = len(c.Group) > 0 // else it is being granted
		} else {
			shown.Why = whyOf(l, v, i, shown.Convoy)
		}
	}
}

// whyOf is why the i-th waiter of the page waits, where its place in line does not say it: in the middle of a queue an
// exclusive one waits for all before it.
func whyOf(l *locks.Lock, v *templates.Lock, i int, convoy templates.Convoy) templates.Why {
	c := &l.Waiters[i]
	var w templates.Why
	switch {
	case c.Wait.Permits:
		return templates.Why{Need: c.Permits, Free: c.Wait.Free, Of: c.Limit}
	case c.Wait.First:
		w = forThose(l, v, i)
	case c.Mode == locks.Shared && (convoy == "" || convoy == templates.ConvoyFirst) && c.Wait.Position > 0:
		w = templates.Why{At: c.Wait.Position, Writer: c.Wait.Writer}
	}
	if convoy == templates.ConvoyFirst {
		w.Together = convoyLength(l.Waiters[i:]) - 1
	}
	return w
}

// forThose is why the first blocked waiter, the i-th of the page, waits: for the holders,
// and for those before it that only wait for another lock.
func forThose(l *locks.Lock, v *templates.Lock, i int) templates.Why {
	before := l.Waiters[i].Position - 1
	if holderCount(l) == 1 && len(l.Holders) == 1 && before == 0 && l.Holders[0].Delayed {
		return templates.Why{For: []templates.Who{v.Holders[0].Who}, Delay: true, Until: v.Holders[0].ExpiresAt}
	}
	w := templates.Why{Readers: true, Others: holderCount(l) + before}
	for _, list := range [][]locks.Contender{l.Holders, l.Waiters[:i]} {
		for j := range list {
			w.Readers = w.Readers && list[j].Mode == locks.Shared
			if len(w.For) < namedAhead {
				w.For, w.Others = append(w.For, whoOf(&list[j])), w.Others-1
			}
		}
	}
	return w
}

// convoyAt is a reader's place among its neighbours that are readers.
func convoyAt(list []locks.Contender, i int) templates.Convoy {
	if list[i].Mode != locks.Shared {
		return ""
	}
	before := i > 0 && list[i-1].Mode == locks.Shared
	after := i+1 < len(list) && list[i+1].Mode == locks.Shared
	switch {
	case before && after:
		return templates.ConvoyMiddle
	case before:
		return templates.ConvoyLast
	case after:
		return templates.ConvoyFirst
	}
	return ""
}

func convoyLength(list []locks.Contender) int {
	n := 0
	for n < len(list) && list[n].Mode == locks.Shared {
		n++
	}
	return n
}

// permitsOf is the lock as a semaphore, nil when it is none, or when it is
// held in another mode.
func permitsOf(l *locks.Lock, first bool) *templates.Permits {
	p := &templates.Permits{Limit: l.Limit}
	for i := range l.Holders {
		c := &l.Holders[i]
		if c.Mode != locks.Semaphore {
			return nil
		}
		p.Limit = max(p.Limit, limitOf(l, c))
		p.Taken += c.Permits
		if len(p.Shares) < mostShares {
			p.Shares = append(p.Shares, templates.Share{Who: whoOf(c), Permits: c.Permits})
		}
	}
	p.Taken = max(p.Taken, l.HeldPermits)
	if first && len(l.Waiters) > 0 && l.Waiters[0].Mode == locks.Semaphore {
		c := &l.Waiters[0]
		p.Next, p.NextWho, p.Limit = c.Permits, whoOf(c), max(p.Limit, limitOf(l, c))
	}
	if p.Limit == 0 {
		return nil
	}
	return p
}

// limitOf is what c counts on when the lock itself has no limit to show.
func limitOf(l *locks.Lock, c *locks.Contender) int {
	if l.Limit > 0 {
		return 0
	}
	return c.Limit
}

// groupOf links to the other locks of a lease.
func groupOf(ns string, group []string) []templates.Link {
	var links []templates.Link
	for _, name := range group {
		links = append(links, templates.Link{Name: visible(name), URL: urlOf(groupPage(ns, name))})
	}
	return links
}

// groupPage is the page of another lock of a lease: its name has its namespace before it where that is another one than ns.
func groupPage(ns, name string) lockPage {
	p := lockPage{ns: ns, lock: name, tab: tabQueue}
	if other, lock, ok := strings.Cut(name, "/"); ok {
		p.ns, p.lock = other, lock
	}
	return p
}

// The addresses of what can be done, in the JSON API. A name of a znode may hold
// any bytes, so they are put together here and not in the page.

func lockAPI(ns, lock string) string { return inNamespace("/v1/locks/"+url.PathEscape(lock), ns) }

func lockAction(ns, lock, action string) string {
	return inNamespace("/v1/locks/"+url.PathEscape(lock)+"/"+action, ns)
}

func withdrawAction(ns, lock, lease string) string {
	action := lockAction(ns, lock, "revoke")
	if strings.Contains(action, "?") {
		return action + "&lease_ids=" + url.QueryEscape(lease)
	}
	return action + "?lease_ids=" + url.QueryEscape(lease)
}

func breakAction(ns, lock string, c *locks.Contender) string {
	if c.LeaseID != "" {
		return "/v1/leases/" + url.PathEscape(c.LeaseID) + "/break"
	}
	return lockAction(ns, lock, "contenders/"+url.PathEscape(path.Base(c.Znode))+"/break")
}

func inNamespace(path, ns string) string {
	values := url.Values{}
	if ns != locks.DefaultNamespace {
		values.Set("ns", ns)
	}
	return withQuery(path, values)
}
