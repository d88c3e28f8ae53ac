package sim

import (
	"net/url"
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

// expect notes a lease whose client has been given the secret of its notify_url.
func (h *receivers) expect(lease, secret string) {
	if secret == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notice(lease).secret = secret
}

// notice is what is known of a lease's notify_url. The lock is held.
func (h *receivers) notice(lease string) *notified {
	n := h.notified[lease]
	if n == nil {
		n = &notified{}
		h.notified[lease] = n
	}
	return n
}

// isNotice tells messages to notify_urls from those of webhooks.
func isNotice(to *webhooks.Subscription) bool { return strings.HasPrefix(to.URL, notifyHost) }
