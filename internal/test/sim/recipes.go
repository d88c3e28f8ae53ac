package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// wish is one lock that a client wants.
type wish struct {
	lock string
	claim
}

// wishes are what to ask for next: one lock or several, in any order.
func (c *client) wishes() []wish {
	names := c.w.locks()
	c.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	many := 1
	if c.random.IntN(4) == 0 {
		many = 2 + c.random.IntN(len(names)-1)
	}
	var list []wish
	for _, lock := range names[:many] {
		w := wish{lock, claim{mode: exclusive}}
		switch n := c.random.IntN(10); {
		case n >= 8:
			w.claim = claim{semaphore, 1 + c.random.IntN(2), semaphoreLimit}
			if n := c.random.IntN(8); n < 2 {
				w.limit = 0 // the lock's own
			} else if n < 3 {
				w.limit = semaphoreLimit - 1
			}
		case n >= 5:
			w.mode = shared
		}
		if w.mode == semaphore && lock == spaceLock {
			w.claim = claim{mode: exclusive} // its dialects have no semaphores
		}
		list = append(list, w)
	}
	return list
}

// semaphoreLimit is how many permits most clients want a lock to have.
const semaphoreLimit = 3

// permits reports whether a semaphore is among the wishes.
func permits(wishes []wish) bool {
	return slices.ContainsFunc(wishes, func(w wish) bool { return w.mode == semaphore })
}

// ask is where and how to ask for it; what is one lock's own goes into the query of an acquire of one.
func ask(wishes []wish, query url.Values) (path, body string) {
	if len(wishes) == 1 {
		w := wishes[0]
		if w.mode != exclusive {
			query.Set("mode", string(w.mode))
		}
		if w.mode == semaphore {
			query.Set("permits", fmt.Sprint(w.permits))
			if w.limit > 0 {
				query.Set("limit", fmt.Sprint(w.limit))
			}
		}
		return "/v1/locks/" + w.lock + "/leases", ""
	}
	type want struct {
		Lock    string `json:"lock"`
		NS      string `json:"ns,omitempty"`
		Mode    mode   `json:"mode"`
		Permits int    `json:"permits,omitempty"`
		Limit   int    `json:"limit,omitempty"`
	}
	var wants []want
	for _, w := range wishes {
		name, ns := placed(w.lock)
		wants = append(wants, want{name, ns, w.mode, w.permits, w.limit})
	}
	b, err := json.Marshal(map[string]any{"locks": wants})
	if err != nil {
		panic(err) // texts and numbers
	}
	return "/v1/leases", string(b)
}

// make does something with a lease that is held, now and then. It reports whether the lease goes on.
func (c *client) make(l *lease) bool {
	switch c.random.IntN(10) {
	case 0:
		return c.downgrade(l)
	case 1, 2:
		c.check(l)
	case 3, 4:
		return c.addHold(l)
	case 5:
		if len(l.holds) > 1 || len(l.holds) == 1 && !l.reentrant {
			return c.releaseHold(l, l.holds[c.random.IntN(len(l.holds))])
		}
	case 6:
		return c.change(l)
	case 7:
		return c.look(l)
	}
	return true
}

// downgrade makes a lease shared. From the moment of asking on its client does not count on anything else.
func (c *client) downgrade(l *lease) bool {
	if !slices.ContainsFunc(l.wishes, func(w wish) bool { return w.mode == exclusive }) {
		return true
	}
	c.w.lower(l)
	for range 20 {
		a, err := c.do(3*time.Second, http.MethodPost, "/v1/leases/self/downgrade", nil, l.header())
		switch {
		case err != nil || a.status == http.StatusServiceUnavailable:
			c.sleep(100*time.Millisecond + c.below(300*time.Millisecond))
		case a.status == http.StatusOK:
			if a.FencingToken != l.fencing {
				c.w.violate("fencing: %s had the token %d, and after its downgrade %d", l.id, l.fencing, a.FencingToken)
			}
			for _, p := range c.w.audit.places(l.id) {
				if p.mode == exclusive && p.gone.IsZero() {
					c.w.violate("downgrade: %s is answered, and %s is exclusive", l.id, p.path)
				}
			}
			return true
		case a.status == http.StatusGone, a.status == http.StatusNotFound:
			c.w.heardEnded(l, a)
			return false
		default:
			c.undocumented("a downgrade", a)
			return false
		}
	}
	return true
}

// check asks whether a fencing token is current: its own, or one that it has seen before.
func (c *client) check(l *lease) {
	lock, token := l.wishes[0].lock, l.fencing
	if old := c.seen[lock]; old != 0 && c.random.IntN(2) == 0 {
		token = old
	}
	c.seen[lock] = l.fencing
	if token == 0 {
		return
	}
	at := c.at
	if !c.fixed && c.random.IntN(2) == 0 {
		c.at = c.w.gateways.pick(c.random) // the protected resource may ask any gateway
	}
	a, err := c.do(3*time.Second, http.MethodGet, "/v1/locks/"+lock+"/fence", url.Values{"fencing_token": {fmt.Sprint(token)}}, nil)
	c.at = at
	switch {
	case err != nil || a.status == http.StatusServiceUnavailable:
	case a.status == http.StatusOK:
		c.w.judgeFence(lock, token, a)
	default:
		c.undocumented("a fence check", a)
	}
}

// judgeFence looks at an answer to a question about a fencing token.
func (w *world) judgeFence(lock string, token int64, a answer) {
	c := w.audit.byToken(lock, token)
	if c == nil {
		if a.Current {
			w.violate("fence: %d is current for %s, and no lease ever had it", token, lock)
		}
		return
	}
	orphaned := w.audit.orphaned(c)
	switch over := c.ended(); {
	case !a.Current && w.audit.broken(c.lease): // it ends whole
	case !a.Current && !orphaned.IsZero() && orphaned.Before(a.received): // no gateway can make it hold again
	case a.Current && (c.held.IsZero() || c.held.After(a.received)):
		w.violate("fence: %d is current for %s, which did not hold", token, c.path)
	case a.Current && !over.IsZero() && over.Before(a.sent):
		w.violate("fence: %d was asked at %s and is current for %s, which had ended at %s", token, w.since(a.sent), c.path, w.since(over))
	case !a.Current && over.IsZero() && !c.held.IsZero() && c.held.Before(a.sent.Add(-w.window-slack)):
		w.violate("fence: %d is refused (%s) though %s holds", token, cmp.Or(a.Reason, "?"), c.path)
	}
}
