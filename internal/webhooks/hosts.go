package webhooks

// The hosts of notify_urls are receivers that anybody who takes a lock makes, and as many of them as he likes. So
// they have places of their own: what they do not answer takes none away from subscriptions. There are
// fewer places than hosts may want, and they go round: who has sent a message stands behind those who wait.
//
// A host may be many people's, each with an address there. What it answers at one of them, a
// Retry-After for instance, is said of that lease and of no other: only a host that does not answer is left alone.

// hostsAtOnce is how many attempts are made at the same time toward all hosts.
const hostsAtOnce = 64

// hosts are those that want to send; guarded by Courier.mu.
type hosts struct {
	sending int
	line    []*receiver // that wait for a place, each once
}

// place takes one for an attempt toward a receiver. A host that gets none stands in line for it.
func (c *Courier) place(r *receiver) bool {
	h := &c.hosts
	switch {
	case !isNotify(r.id):
		return true // it waits for room by itself: there are not many
	case h.sending < hostsAtOnce && (r.called || len(h.line) == 0):
		r.called = false
		h.sending++
		return true
	case !r.stands:
		r.stands = true
		h.line = append(h.line, r)
	}
	return false
}

// nextHosts gives the places that are free to those who have waited the longest, one each.
func (c *Courier) nextHosts() {
	h := &c.hosts
	for h.sending < hostsAtOnce && len(h.line) > 0 {
		r := h.line[0]
		h.line[0] = nil
		h.line = h.line[1:]
		r.stands, r.called = false, true
		c.pump(r)
		r.called = false
	}
	if len(h.line) == 0 {
		h.line = nil
	}
}
