package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
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
		switch n := c.random.IntN(12); {
		case n < 5:
			c.revoke(lock)
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
	done := c.w.intervene(i, true)
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
	query := url.Values{"reason": {"a test"}}
	force := time.Duration(c.random.IntN(5)) * time.Second
	if force > 0 {
		query.Set("force_after", force.String())
	}
	done := c.w.intervene(intervention{lock: lock, force: force}, force > 0)
	a, err := c.do(5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/revoke", query, nil)
	if err != nil || a.status == http.StatusServiceUnavailable {
		return
	}
	if a.status != http.StatusOK {
		c.w.violate("an answer that is not documented for a revocation: %d %s", a.status, a.raw)
		return
	}
	done()
	var asked struct {
		Asked []struct {
			LeaseID string `json:"lease_id"`
		}
	}
	if err := json.Unmarshal([]byte(a.raw), &asked); err != nil {
		c.w.violate("an answer to a revocation that cannot be read: %s", a.raw)
	}
	if force == 0 || len(c.w.plan.Faults) > 0 {
		return
	}
	// Nothing puts it off.
	time.AfterFunc(force+2*slack, func() {
		for _, l := range asked.Asked {
			for _, p := range c.w.audit.places(l.LeaseID) {
				if p.there() {
					c.w.violate("revocation: %s was to end at %s", p.path, c.w.since(a.received.Add(force)))
				}
			}
		}
	})
}

// intervene notes what is asked for. Whoever has the answer calls done.
func (w *world) intervene(i intervention, counts bool) (done func()) {
	i.sent = time.Now()
	i.until = i.sent.Add(late)
	if !counts {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interventions = append(w.interventions, &i)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		i.until = time.Now()
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
		if outright && !i.contenders || at.Before(i.sent.Add(i.force)) || i.contenders && at.After(i.until) {
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
