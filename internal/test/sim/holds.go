package sim

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// repeat asks until there is an answer that says something, and once more now and then: what was done before is not done again. It
// gives the last answer; ok is false when there was none, and over when the lease has ended.
func (c *client) repeat(l *lease, method, path string, query url.Values, good ...int) (a answer, ok, over bool) {
	for range 20 {
		answered, err := c.do(3*time.Second, method, path, query, l.header())
		switch {
		case err != nil || answered.status == http.StatusServiceUnavailable:
			if ok {
				return a, true, false
			}
			c.sleep(100*time.Millisecond + c.below(300*time.Millisecond))
		case slices.Contains(good, answered.status):
			if a, ok = answered, true; c.random.IntN(3) > 0 {
				return a, true, false
			}
			// The answer was lost, or so it thinks.
		case answered.status == http.StatusGone, answered.status == http.StatusNotFound:
			c.w.heardEnded(l, answered)
			return answered, false, true
		case answered.status == http.StatusUnprocessableEntity && c.w.overwritten(l.id):
			return answered, false, false // its holds are unknown
		default:
			c.undocumented(method+" "+path+"?"+query.Encode(), answered)
			return answered, false, false
		}
	}
	return a, ok, false
}

// overwritten reports whether another program has written over what a lease's contender says.
func (w *world) overwritten(lease string) bool {
	return slices.ContainsFunc(w.audit.places(lease), func(c contender) bool { return !c.written.IsZero() })
}

// someLock is where a hold of the lease is asked for: at one of its locks.
func (c *client) someLock(l *lease) string {
	return "/v1/locks/" + l.wishes[c.random.IntN(len(l.wishes))].lock + "/leases"
}

// addHold takes the lock once more by another name.
func (c *client) addHold(l *lease) bool {
	path := c.someLock(l)
	name := fmt.Sprint("h", l.names)
	l.names++
	a, ok, over := c.repeat(l, http.MethodPost, path, url.Values{"hold": {name}}, http.StatusOK)
	if !ok {
		l.unknown = true
		return !over
	}
	l.holds = append(l.holds, name)
	c.judgeHolds(l, a)
	return true
}

// releaseHold lets one of several holds go: the lease goes on.
func (c *client) releaseHold(l *lease, name string) bool {
	l.holds = slices.DeleteFunc(l.holds, func(h string) bool { return h == name })
	_, ok, over := c.repeat(l, http.MethodDelete, "/v1/leases/self", url.Values{"hold": {name}}, http.StatusNoContent)
	if ok {
		l.released = append(l.released, name)
	} else {
		l.unknown = true
	}
	if ok && c.random.IntN(3) == 0 {
		return c.takeAgain(l, name)
	}
	return !over
}

// takeAgain is a late repeat of the request that took a hold which was let go since.
func (c *client) takeAgain(l *lease, name string) bool {
	path := c.someLock(l)
	untouched := !c.w.overwritten(l.id)
	a, err := c.do(3*time.Second, http.MethodPost, path, url.Values{"hold": {name}}, l.header())
	if err == nil && a.status == http.StatusOK && untouched && !c.w.overwritten(l.id) {
		c.w.violate("holds: %s has taken %s again, which it had let go", l.id, name)
	}
	return true
}

// change gives a lease other metadata, and now and then another TTL, which renews it.
func (c *client) change(l *lease) bool {
	metadata := fmt.Sprintf("%s-%d", c.name, c.random.IntN(1000))
	query := url.Values{"metadata": {metadata}}
	if c.random.IntN(2) == 0 {
		query.Set("ttl", fmt.Sprint(1+c.random.IntN(10), "s"))
	}
	a, ok, over := c.repeat(l, http.MethodPatch, "/v1/leases/self", query, http.StatusOK)
	if !ok {
		l.unsure = true
		return !over
	}
	l.metadata, l.unsure = metadata, false
	if query.Has("ttl") {
		c.w.believe(l, a)
	}
	c.judgeHolds(l, a)
	return true
}

// look asks for the lease and compares it with what was answered before.
func (c *client) look(l *lease) bool {
	a, err := c.do(3*time.Second, http.MethodGet, "/v1/leases/self", nil, l.header())
	if err == nil && a.status == http.StatusOK && a.State == "held" {
		c.judgeHolds(l, a)
	}
	return true // what else there may be is heard at the next heartbeat
}

// judgeHolds checks that earlier answers are still true, also when the lease's gateway has gone since.
func (c *client) judgeHolds(l *lease, a answer) {
	if c.w.overwritten(l.id) {
		return // another program has taken it away
	}
	for _, h := range l.holds {
		if !slices.Contains(a.Holds, h) {
			c.w.violate("holds: %s has lost %s: %q", l.id, h, a.Holds)
		}
	}
	for _, h := range l.released {
		if slices.Contains(a.Holds, h) {
			c.w.violate("holds: %s has let %s go, and has it again: %q", l.id, h, a.Holds)
		}
	}
	if !l.unsure && a.Metadata != l.metadata {
		c.w.violate("metadata: of %s they are %q, and were set to %q", l.id, a.Metadata, l.metadata)
	}
}
