package sim

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"lockkeeper/internal/webhooks"
)

// In some plans a third of the leases has a notify_url. Each is a receiver of its own, and takes nothing now and then like
// those of webhooks.

const notifyHost = "http://told.example/"

// notified is what the notify_url of one lease has to be told, and was.
type notified struct {
	secret string // as the client was told
	signed string // as messages were, when it is another one
	ended  bool   // it was told of its end
}

// notify asks for some leases to be told of. It draws nothing: everything else is as it would be without.
func (c *client) notify(owner string, query url.Values) {
	if c.w.plan.Notify && query.Get("ephemeral") == "" && nameOf(owner, "notify")%3 == 0 {
		query.Set("notify_url", notifyHost+owner)
	}
}

// awaitsTelling notes a lease whose client has been given its token.
func (w *world) awaitsTelling(lease, secret string) {
	if secret == "" {
		return
	}
	w.mu.Lock()
	w.notifiedOf(lease).secret = secret
	w.mu.Unlock()
}

func (w *world) notifiedOf(lease string) *notified {
	if w.notified == nil {
		w.notified = map[string]*notified{}
	}
	n := w.notified[lease]
	if n == nil {
		n = &notified{}
		w.notified[lease] = n
	}
	return n
}

// takeNotice takes a message to a notify_url.
func (w *world) takeNotice(gateway string, to *webhooks.Subscription, m *webhooks.Message, e *webhooks.Event) {
	w.trace("%s tells %s that %s: %s", gateway, to.URL, e.LeaseID, m.Type)
	for _, c := range w.audit.places(e.LeaseID) {
		if m.Type != webhooks.Granted && c.there() {
			w.violate("told: %s is told that %s has ended, and it is there", to.URL, c.path)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.notifiedOf(e.LeaseID)
	if len(to.Secrets) > 0 {
		n.signed = to.Secrets[0].Value
	}
	n.ended = n.ended || m.Type != webhooks.Granted
}

// checkNotified compares what notify_urls were told with what ZooKeeper committed. It reports in the outcome how much there was to tell.
func (w *world) checkNotified() {
	if !w.plan.Notify {
		return
	}
	w.mu.Lock()
	all := maps.Clone(w.notified)
	w.mu.Unlock()
	for _, lease := range slices.Sorted(maps.Keys(all)) {
		n := all[lease]
		places := w.audit.places(lease)
		if n.secret == "" || w.excused[lease] || w.overwritten(lease) || len(places) == 0 {
			continue // nobody was given it, or another program has taken a part of it
		}
		if n.signed != "" && n.signed != n.secret {
			w.violate("told: what is told of %s is signed with another secret than its client was given", lease)
		}
		c := places[0]
		if c.there() || c.ephemeral || c.endedBy == "" {
			continue
		}
		w.tellings++
		if noted := w.audit.noted[lease]; noted != c.endedAt {
			w.violate("told: %s ended by %s in zxid %#x, and its note for its notify_url is of zxid %#x", c.path, c.endedBy, c.endedAt, noted)
		} else if !n.ended {
			w.violate("told: the end of %s, zxid %#x, was never told to its notify_url", c.path, c.endedAt)
		}
	}
}

// isNotice tells messages to notify_urls from those of webhooks.
func isNotice(to *webhooks.Subscription) bool { return strings.HasPrefix(to.URL, notifyHost) }
