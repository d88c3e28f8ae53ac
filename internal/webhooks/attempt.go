package webhooks

import (
	"container/heap"
	"iter"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/fault"
)

// sendDue starts the attempts that are due, and sets the timer for the others. Messages for a subscription
// that cannot be read wait until it can be read or is removed, and those whose maker's rules are not known until they are.
// What the maker may not read now is forgotten. begin decides once more, when the attempt has its place.
func (c *Courier) sendDue(r *receiver) {
	if c.closed {
		return
	}
	r.stopTimer()
	to := c.subscriptions[r.id] // nil: a host
	if to != nil && (to.Unread || to.Standing.Unknown) {
		return
	}
	now := time.Now()
	limit := perReceiver
	if r.failures >= pauseAfter {
		limit = 1 // the probe
	}
	for r.sending < limit && !r.until.After(now) {
		idle := r.first(now)
		if idle == nil || !c.hosts.place(r) {
			break
		}
		ln := heap.Pop(idle).(*lane)
		d := ln.queue[0]
		if to != nil && !to.mayGet(d.event().NS, d.event().Lock) {
			ln.queue = ln.queue[1:]
			c.end(d, "")
			r.replace(ln)
			continue
		}
		ln.sending = true
		r.sending++
		c.busy.Go(func() { c.attempt(r, ln, d) })
	}
	at, waits := r.due()
	if !waits || r.sending >= limit || r.queued {
		return // the end of an attempt calls sendDue again
	}
	if r.until.After(at) {
		at = r.until
	}
	r.timer = time.AfterFunc(max(at.Sub(now), 0), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.receivers[r.id] == r {
			c.sendDue(r)
		}
	})
}

// attempt makes one try and applies its result.
func (c *Courier) attempt(r *receiver, ln *lane, d *delivery) {
	host := isNotify(r.id) // and has its place
	if !host {
		select {
		case c.room <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
	}
	to, m, try := c.begin(r, ln, d)
	var a Attempt
	if m != nil {
		a = c.opt.Transport.Send(c.ctx, to, m)
	}
	if !host {
		<-c.room
	}
	if m == nil {
		return
	}
	a.Try = try
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if c.opt.Metrics != nil {
		c.opt.Metrics.WebhookAttempt(a.Result.String())
	}
	if !host { // a host has no list of attempts
		r.remember(a)
	}
	switch {
	case a.Result == Delivered:
		r.failing = time.Time{}
	case r.failing.IsZero():
		r.failing = a.At
	}
	r.sending--
	ln.sending = false
	c.conclude(r, ln, d, to, &a)
	r.replace(ln)
	if host {
		c.hosts.sending--
	}
	c.sendDue(r)
	if host {
		if len(r.lanes) == 0 && r.sending == 0 {
			delete(c.receivers, r.id)
		}
		c.nextHosts()
	}
}

// begin gives what a try sends, once it has its place: the message, and the subscription as it is now. While the try waited, that
// may have been changed, disabled or removed, or its maker's rights changed. m is nil when nothing is sent: the message has
// ended, or is back in its lane. A changed subscription costs no place: else frequent changes could keep a message from ever being sent.
func (c *Courier) begin(r *receiver, ln *lane, d *delivery) (to *Subscription, m *Message, try int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, 0
	}
	to = c.target(d)
	ended, why := true, ""
	switch {
	case to == nil: // removed
	case !to.active():
		why = to.whyInactive()
	case !to.mayGet(d.event().NS, d.event().Lock):
	case to.Unread || to.Standing.Unknown:
		ended = false // sendDue sends it when that is over
	default:
		d.tries++
		return to, d.message(to), d.tries
	}
	r.sending--
	ln.sending = false
	if ended {
		ln.queue = ln.queue[1:]
		c.end(d, why)
	}
	r.replace(ln)
	c.sendDue(r)
	return nil, nil, 0
}

// conclude decides what becomes of the head of a lane after a try. sent is the subscription as it was when the try began.
func (c *Courier) conclude(r *receiver, ln *lane, d *delivery, sent *Subscription, a *Attempt) {
	now := time.Now()
	s := c.target(d)
	finish := func(why string) {
		ln.queue = ln.queue[1:]
		c.end(d, why)
	}
	switch {
	case a.Result == Delivered:
		r.failures, r.until = 0, time.Time{}
		ln.due = now
		finish("")
		r.recover(now)
		return
	case s == nil: // removed meanwhile
		finish("")
		return
	case a.Result == Gone && (s.Unread || s.URL != sent.URL):
		// The subscription has, or may have, another address by now: that one decides for itself.
	case a.Result == Gone && !isNotify(d.subscription):
		finish(a.Error)
		if s.Enabled {
			off := *s
			off.Enabled, off.Disabled = false, a.Error
			c.subscriptions[s.ID] = &off // until the record says so
			c.empty(r, a.Error)
			c.opt.Keeper.Disable(s.ID, s.URL, a.Error)
		}
		return
	case a.Result == Gone, !s.active():
		finish(a.Error)
		return
	}
	c.failed(r, ln, d, a, now)
}

// failed applies a failed try: the delivery waits for its next try, or has had its last one.
func (c *Courier) failed(r *receiver, ln *lane, d *delivery, a *Attempt, now time.Time) {
	if d.again {
		d.again, d.tries, ln.due = false, 0, now
		return
	}
	answered := isNotify(r.id) && a.Status != 0
	if answered {
		r.failures, r.until = 0, time.Time{}
		r.recover(now)
	} else {
		r.failures++
		d.outage = r.failures >= pauseAfter
		r.outage = r.outage || d.outage
	}
	wait, again := delay(d.schedule(), d.tries, c.opt.Random)
	if !again || d.late(now.Add(max(wait, a.RetryAfter))) || fault.On("hooks-tries") {
		ln.queue = ln.queue[1:]
		ln.due = now
		c.end(d, a.Error)
	} else {
		ln.due = now.Add(max(wait, a.RetryAfter))
	}
	if !answered { // else the answer is about that lease alone
		r.until = now.Add(max(pause(r.failures, c.opt.Random), a.RetryAfter))
	}
	if now.Sub(r.failing) > giveUpAfter {
		before := now.Add(-giveUpAfter)
		c.giveUp(r, maps.Values(r.lanes), func(d *delivery) bool { return d.since.Before(before) }, "no message was delivered for "+giveUpAfter.String()+": "+a.Error)
	}
}

// giveUp ends the deliveries in lanes of a receiver that are too old: they become dead letters. A receiver that accepts nothing
// gets one message at a time and may have a lane for each of very many locks: not each of them comes to its last try.
func (c *Courier) giveUp(r *receiver, lanes iter.Seq[*lane], tooOld func(*delivery) bool, why string) {
	for ln := range lanes {
		if ln.sending {
			continue
		}
		if len(ln.queue) > 0 && tooOld(ln.queue[0]) {
			ln.due = time.Now() // the time was the head's: the next message has had no try
		}
		ln.queue = slices.DeleteFunc(ln.queue, func(d *delivery) bool {
			old := tooOld(d)
			if old {
				c.end(d, why)
			}
			return old
		})
		r.replace(ln)
	}
}
