package dashboard

import (
	"net/url"
	"path"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

// Why somebody waits, in as few words as the queue leaves open. A queue is fair:
// everybody ahead counts, those who wait too (internal/locks/recipe has the
// rules). So of an exclusive one in the middle its place in line says all.

const (
	// namedAhead is how many holders are named to the first in line.
	namedAhead = 2
	// mostShares is how many parts of a bar of permits have a name.
	mostShares = 24
)

// ahead sums up who stands before a waiter.
type ahead struct {
	first       bool // the first page of waiters: everybody ahead is known
	some        bool // there is somebody
	waiting     bool // there is somebody in whose way others are
	permits     int
	at          int // place in line of the last one that is no reader, 0: a holder, or none
	readersOnly bool
	other       bool // somebody who takes no permits
}

// showWhy fills in why each waiter of the page waits.
func showWhy(v *templates.Lock, l *locks.Lock, first bool) {
	a := ahead{first: first, readersOnly: true}
	for i := range l.Holders {
		a.pass(&l.Holders[i])
	}
	a.permits = max(a.permits, l.HeldPermits) // those of holders on other pages, too
	for i := range l.Waiters {
		c, shown := &l.Waiters[i], &v.Waiters[i]
		shown.Convoy = convoyAt(l.Waiters, i)
		if !a.admits(c) {
			shown.Why = a.why(l, v, i, c, shown.Convoy)
			a.waiting = true
		} else {
			shown.AtFront = len(c.Group) > 0 // else it is being let in
		}
		a.pass(c)
	}
}

func (a *ahead) pass(c *locks.Contender) {
	a.some = true
	a.permits += c.Permits
	a.other = a.other || c.Mode != locks.Semaphore
	if c.Mode != locks.Shared {
		a.at, a.readersOnly = c.Position, false
	}
}

// admits reports whether nobody ahead is in c's way.
func (a *ahead) admits(c *locks.Contender) bool {
	switch {
	case !a.first:
		return false
	case c.Mode == locks.Shared:
		return a.readersOnly
	case c.Mode == locks.Semaphore:
		return !a.other && a.permits+c.Permits <= c.Limit
	}
	return !a.some
}

func (a *ahead) why(l *locks.Lock, v *templates.Lock, i int, c *locks.Contender, convoy templates.Convoy) templates.Why {
	var w templates.Why
	switch {
	case c.Mode == locks.Semaphore && c.Limit > 0 && a.first && !a.other:
		return templates.Why{Need: c.Permits, Free: max(c.Limit-a.permits, 0), Of: c.Limit}
	case a.first && !a.waiting:
		w = forThose(l, v, i)
	case c.Mode == locks.Shared && (convoy == "" || convoy == templates.ConvoyFirst):
		switch {
		case a.at > 0:
			w = templates.Why{At: a.at, Writer: isWriter(l, a.at)}
		case !a.first:
			w = templates.Why{Earlier: true}
		}
	}
	if convoy == templates.ConvoyFirst {
		w.Together = convoyLength(l.Waiters[i:]) - 1
	}
	return w
}

// forThose is why the first who really waits, the i-th, does: for those who hold,
// and for those before it who only wait for another lock.
func forThose(l *locks.Lock, v *templates.Lock, i int) templates.Why {
	if holderCount(l) == 1 && len(l.Holders) == 1 && i == 0 && l.Holders[0].Delayed {
		return templates.Why{For: []templates.Who{v.Holders[0].Who}, Delay: true, Until: v.Holders[0].ExpiresAt}
	}
	w := templates.Why{Readers: true, Others: holderCount(l) + i}
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

func isWriter(l *locks.Lock, position int) bool {
	for i := range l.Waiters {
		if l.Waiters[i].Position == position {
			return l.Waiters[i].Mode == locks.Exclusive
		}
	}
	return false
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

// permitsOf is the lock as a semaphore, nil when it is none, or when somebody
// holds all of it in another mode.
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
		v := view{page: pageLock, ns: ns, lock: name, tab: tabQueue}
		if other, lock, ok := strings.Cut(name, "/"); ok {
			v.ns, v.lock = other, lock
		}
		links = append(links, templates.Link{Name: visible(name), URL: v.url()})
	}
	return links
}

// The addresses of what can be done, in the JSON API. A name of a znode may hold
// any bytes, so they are put together here and not in the page.

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
