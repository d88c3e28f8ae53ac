package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// administrate asks holders to release, and ends leases, now and then.
func (c *client) administrate() {
	for !c.w.clearing.Load() {
		c.sleep(c.below(15 * time.Second))
		lock := lockNames[c.random.IntN(len(lockNames))]
		switch n := c.random.IntN(14); {
		case n < 4:
			c.revoke(lock)
		case n < 5:
			c.revokeShown()
		case n >= 12:
			c.withdraw(lock)
		case n < 7:
			c.configure(lock)
		case n < 9:
			c.remove(lock)
		case n < 10:
			c.terminate(intervention{lock: lock}, "/v1/locks/"+lock+"/reap", url.Values{"older_than": {fmt.Sprint(c.random.IntN(20), "s")}})
		case n < 11:
			c.terminate(intervention{lock: lock}, "/v1/locks/"+lock+"/destroy", url.Values{"reason": {"a test"}})
		default:
			if all := c.w.audit.contenders(); len(all) > 0 {
				path := all[c.random.IntN(len(all))]
				lease := c.w.audit.leaseOf(path)
				if at := "/v1/leases/" + lease + "/break"; lease != path {
					c.terminate(intervention{lease: lease}, at, nil)
				} else {
					lock, _ := lockOf(path)
					c.terminate(intervention{lease: lease}, "/v1/locks/"+lock+"/contenders/"+path[strings.LastIndexByte(path, '/')+1:]+"/break", nil)
				}
			}
		}
	}
}

// terminate ends leases, and other programs' contenders, without asking them.
func (c *client) terminate(i intervention, path string, query url.Values) {
	i.contenders = true
	done, _ := c.w.exemptions.intervene(i, true)
	a, err := c.do(5*time.Second, http.MethodPost, path, query, nil)
	switch {
	case err != nil, a.status == http.StatusServiceUnavailable:
	case a.status == http.StatusOK, a.status == http.StatusNoContent, a.status == http.StatusNotFound, a.status == http.StatusConflict, a.status == http.StatusGone:
		done()
	default:
		c.undocumented(path, a)
	}
}

// configure sets how many permits a lock has from now on.
func (c *client) configure(lock string) {
	c.w.ledger.note(func(l *ledger) { l.configured[lock] = true })
	a, err := c.do(5*time.Second, http.MethodPut, "/v1/locks/"+lock, url.Values{"limit": {fmt.Sprint(1 + c.random.IntN(4))}}, nil)
	if err == nil && a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
		c.undocumented("settings", a)
	}
}

// remove removes an unused lock and its settings.
func (c *client) remove(lock string) {
	a, err := c.do(5*time.Second, http.MethodDelete, "/v1/locks/"+lock, nil, nil)
	if err == nil && a.status != http.StatusNoContent && a.status != http.StatusConflict && a.status != http.StatusServiceUnavailable {
		c.undocumented("the removal of a lock", a)
	}
}

// revoke asks the holders of a lock to release, with force or without.
func (c *client) revoke(lock string) { c.ask(lock, url.Values{}, intervention{lock: lock}) }

// revokeShown does so to one lease alone, which may not hold any more, or not yet.
func (c *client) revokeShown() {
	all := c.w.audit.contenders()
	if len(all) == 0 {
		return
	}
	path := all[c.random.IntN(len(all))]
	lease := c.w.audit.leaseOf(path)
	if lease == path {
		return // another program's
	}
	lock, _ := lockOf(path)
	c.ask(lock, url.Values{"lease_ids": {lease}}, intervention{lease: lease})
}

func (c *client) ask(lock string, query url.Values, i intervention) {
	query.Set("reason", "a test")
	force := time.Duration(c.random.IntN(5)) * time.Second
	if force > 0 {
		query.Set("force_after", force.String())
	}
	i.force = force
	done, void := c.w.exemptions.intervene(i, force > 0)
	began := time.Now()
	a, err := c.do(5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/revoke", query, nil)
	switch {
	case err != nil, a.status == http.StatusServiceUnavailable:
		return
	case a.status == http.StatusConflict && a.Code == "holder_changed", a.status == http.StatusConflict && a.Code == "nothing_to_ask":
		void()
		return
	case a.status != http.StatusOK:
		c.undocumented("a revocation", a)
		return
	}
	done()
	asked := c.leasesIn(a)
	for _, l := range asked {
		if only := query.Get("lease_ids"); only != "" && l != only {
			c.w.violate("a revocation of %s has asked %s", only, l)
		}
	}
	if force == 0 || len(c.w.plan.Faults) > 0 {
		return
	}
	// Nothing puts it off, unless it is withdrawn: at any of the locks of a lease of several, for a revocation belongs to the lease.
	time.AfterFunc(force+2*slack, func() {
		for _, l := range asked {
			places := c.w.audit.places(l)
			if slices.ContainsFunc(places, func(p contender) bool {
				lock, _ := lockOf(p.path)
				return c.w.exemptions.withdrawnSince(lock, began)
			}) {
				continue
			}
			for _, p := range places {
				if p.there() {
					c.w.violate("revocation: %s was to end at %s", p.path, c.w.since(a.received.Add(force)))
				}
			}
		}
	})
}

// leasesIn are the leases in the answer to a revocation, or to its withdrawal.
func (c *client) leasesIn(a answer) (ids []string) {
	var list struct {
		Asked, Withdrawn []struct {
			LeaseID string `json:"lease_id"`
		}
	}
	if err := json.Unmarshal([]byte(a.raw), &list); err != nil {
		c.w.violate("an answer about a revocation that cannot be read: %s", a.raw)
	}
	for _, l := range append(list.Asked, list.Withdrawn...) {
		ids = append(ids, l.LeaseID)
	}
	return ids
}

// withdraw takes back what the holders of a lock were asked. From its answer on, force that was asked for before is no
// excuse for an end.
func (c *client) withdraw(lock string) {
	done := c.w.exemptions.withdraw(lock)
	a, err := c.do(5*time.Second, http.MethodDelete, "/v1/locks/"+lock+"/revoke", nil, nil)
	switch {
	case err != nil, a.status == http.StatusServiceUnavailable:
	case a.status != http.StatusOK:
		c.undocumented("the withdrawal of a revocation", a)
	default:
		done(c.leasesIn(a))
	}
}
