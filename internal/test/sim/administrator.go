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

// intervention is what an administrator has asked a gateway to do to those who hold a lock: their leases may end when it says.
type intervention struct {
	lock, lease string    // either: all leases of a lock, or one
	sent, until time.Time // from asking to the answer; when there is none, to when it can happen no more
	force       time.Duration
	contenders  bool // all who stand in line, not holders alone, and outright: nothing stays for a lock delay
}

// late is how long a request whose answer nobody has may be under way.
const late = 20 * time.Second

// administrate asks holders to let go, and takes locks away, now and then.
func (c *client) administrate() {
	for !c.w.isClearing() {
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
			c.strike(intervention{lock: lock}, "/v1/locks/"+lock+"/reap", url.Values{"older_than": {fmt.Sprint(c.random.IntN(20), "s")}})
		case n < 11:
			c.strike(intervention{lock: lock}, "/v1/locks/"+lock+"/destroy", url.Values{"reason": {"a test"}})
		default:
			if all := c.w.audit.contenders(); len(all) > 0 {
				path := all[c.random.IntN(len(all))]
				lease := c.w.audit.leaseOf(path)
				if at := "/v1/leases/" + lease + "/break"; lease != path {
					c.strike(intervention{lease: lease}, at, nil)
				} else {
					lock, _ := lockOf(path)
					c.strike(intervention{lease: lease}, "/v1/locks/"+lock+"/contenders/"+path[strings.LastIndexByte(path, '/')+1:]+"/break", nil)
				}
			}
		}
	}
}

// strike ends leases, and other programs' contenders, without asking them.
func (c *client) strike(i intervention, path string, query url.Values) {
	i.contenders = true
	done, _ := c.w.intervene(i, true)
	a, err := c.do(5*time.Second, http.MethodPost, path, query, nil)
	switch {
	case err != nil, a.status == http.StatusServiceUnavailable:
	case a.status == http.StatusOK, a.status == http.StatusNoContent, a.status == http.StatusNotFound, a.status == http.StatusConflict, a.status == http.StatusGone:
		done()
	default:
		c.w.violate("an answer that is not documented for %s: %d %s", path, a.status, a.raw)
	}
}

// configure sets how many permits a lock has for those who come after.
func (c *client) configure(lock string) {
	c.w.mu.Lock()
	c.w.configured[lock] = true
	c.w.mu.Unlock()
	a, err := c.do(5*time.Second, http.MethodPut, "/v1/locks/"+lock, url.Values{"limit": {fmt.Sprint(1 + c.random.IntN(4))}}, nil)
	if err == nil && a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
		c.w.violate("an answer that is not documented for settings: %d %s", a.status, a.raw)
	}
}

// remove takes away a lock that nobody uses, with its settings.
func (c *client) remove(lock string) {
	a, err := c.do(5*time.Second, http.MethodDelete, "/v1/locks/"+lock, nil, nil)
	if err == nil && a.status != http.StatusNoContent && a.status != http.StatusConflict && a.status != http.StatusServiceUnavailable {
		c.w.violate("an answer that is not documented for the removal of a lock: %d %s", a.status, a.raw)
	}
}

// revoke asks the holders of a lock to let go, and means it or not.
func (c *client) revoke(lock string) {
	c.ask(lock, url.Values{}, intervention{lock: lock})
}

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
	done, void := c.w.intervene(i, force > 0)
	began := time.Now()
	a, err := c.do(5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/revoke", query, nil)
	switch {
	case err != nil, a.status == http.StatusServiceUnavailable:
		return
	case a.status == http.StatusConflict && a.Code == "holder_changed", a.status == http.StatusConflict && a.Code == "nothing_to_ask":
		void() // it says that nobody was asked
		return
	case a.status != http.StatusOK:
		c.w.violate("an answer that is not documented for a revocation: %d %s", a.status, a.raw)
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
	// Nothing puts it off, unless it is withdrawn.
	time.AfterFunc(force+2*slack, func() {
		for _, l := range asked {
			for _, p := range c.w.audit.places(l) {
				if p.there() && !c.w.withdrawnSince(lock, began) {
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

// withdrawal is what an administrator was told of a revocation that was taken back.
type withdrawal struct {
	lock           string
	leases         map[string]bool // those that the answer names
	sent, answered time.Time
}

// withdraw takes back what the holders of a lock were asked. From its answer on, force that was asked for before is no
// excuse for an end.
func (c *client) withdraw(lock string) {
	back := &withdrawal{lock: lock, leases: map[string]bool{}, sent: time.Now()}
	c.w.mu.Lock()
	c.w.withdrawals = append(c.w.withdrawals, back)
	c.w.mu.Unlock()
	a, err := c.do(5*time.Second, http.MethodDelete, "/v1/locks/"+lock+"/revoke", nil, nil)
	switch {
	case err != nil, a.status == http.StatusServiceUnavailable:
		return
	case a.status != http.StatusOK:
		c.w.violate("an answer that is not documented for the withdrawal of a revocation: %d %s", a.status, a.raw)
		return
	}
	withdrawn := c.leasesIn(a)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	back.answered = time.Now()
	for _, l := range withdrawn {
		back.leases[l] = true
	}
}

// withdrawnSince reports whether a lock's revocation may have been withdrawn after that time.
func (w *world) withdrawnSince(lock string, since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.withdrawals, func(back *withdrawal) bool { return back.lock == lock && !back.sent.Before(since) })
}

// withdrawn reports whether an intervention was withdrawn for a lease before that time.
func (w *world) withdrawn(i *intervention, lease string, at time.Time) bool {
	return !i.contenders && slices.ContainsFunc(w.withdrawals, func(back *withdrawal) bool {
		return back.leases[lease] && i.until.Before(back.sent) && at.After(back.answered)
	})
}

// intervene notes what is asked for. Whoever has the answer calls done, or void when it says that nothing was done.
func (w *world) intervene(i intervention, counts bool) (done, void func()) {
	i.sent = time.Now()
	i.until = i.sent.Add(late)
	if !counts {
		return func() {}, func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interventions = append(w.interventions, &i)
	return func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			i.until = time.Now()
		}, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.interventions = slices.DeleteFunc(w.interventions, func(other *intervention) bool { return other == &i })
		}
}

// hasten is told that some gateway's clock jumps: what it does by force comes so much earlier, as other clocks see it.
func (w *world) hasten(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jumps = append(w.jumps, jump{time.Now(), by})
	for _, i := range w.interventions {
		i.force -= by
	}
}

// jump is one of a gateway's clock.
type jump struct {
	at time.Time
	by time.Duration
}

// mayEnd reports whether a lease may end at that time without its gateway having to keep it.
func (w *world) mayEnd(lease string, at time.Time) bool {
	places := w.audit.places(lease)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.excused[lease] || w.freed[lease] {
		return true
	}
	for _, c := range places {
		if c.ephemeral {
			return true // it goes with its gateway's session
		}
	}
	return w.intervened(lease, places, at, false)
}

// struckDown reports whether an administrator may have ended a lease, or another program's contender, outright.
func (w *world) struckDown(lease string, at time.Time) bool {
	places := w.audit.places(lease)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.intervened(lease, places, at, true)
}

func (w *world) intervened(lease string, places []contender, at time.Time, outright bool) bool {
	for _, i := range w.interventions {
		if w.withdrawn(i, lease, at) || outright && !i.contenders || at.Before(i.sent.Add(i.force)) || i.contenders && at.After(i.until) {
			continue
		}
		for _, c := range places {
			if c.made.Before(i.until) && (i.lease == lease || c.lock == i.lock && (i.contenders || !c.led.IsZero() && c.led.Before(i.until))) {
				return true
			}
		}
	}
	return false
}
