package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"
)

const (
	// longestBooking is the longest reservation that a client takes.
	longestBooking = 40 * time.Second
	// reserveSpare is what a successor adds to the end of a reservation (manager), and clockRange how far the wall clock of a
	// gateway may be off where there are reservations: two of them differ by less than the spare.
	reserveSpare = time.Minute
	clockRange   = 29 * time.Second
)

// drawBookings gives some plans clients that take reservations, and takeovers by gateways with other clocks. It has a random source of
// its own, so that all else is as it was before there was this.
func (p *Plan) drawBookings() {
	random := rand.New(rand.NewPCG(p.Seed, 12))
	if random.IntN(4) > 0 {
		return
	}
	p.Clients = append(p.Clients, bookerFrom, bookerFrom+1)
	for i := range p.Gateways {
		p.Faults = append(p.Faults, Fault{At: time.Duration(random.Int64N(int64(5 * time.Second))), Kind: StepClock, Arg: random.Uint64()<<8/uint64(p.Gateways)*uint64(p.Gateways) + uint64(i)})
	}
	for range 1 + random.IntN(2) {
		p.Faults = append(p.Faults, Fault{At: p.Length/4 + time.Duration(random.Int64N(int64(p.Length/2))), Kind: KillGateway, Arg: random.Uint64(),
			For: time.Duration(random.Int64N(int64(10 * time.Second)))})
	}
}

// books reports whether the plan has reservations.
func (p *Plan) books() bool {
	return slices.ContainsFunc(p.Clients, func(number int) bool { return number >= bookerFrom && number < leaverFrom })
}

// book notes by when a reservation that is granted or moved now is to end.
func (l *ledger) book(lease string, span time.Duration) {
	l.note(func(l *ledger) { l.booked[lease] = later(l.booked[lease], time.Now().Add(span)) })
}

// isBooked reports whether a lease is a reservation.
func (l *ledger) isBooked(lease string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.booked[lease].IsZero()
}

// hurried is how much earlier than its client counts a reservation may end: machines that slept are late for the rest of their lives, and
// clients here do not sleep with them.
func (w *world) hurried(lease string, at time.Time) time.Duration {
	if !w.ledger.isBooked(lease) {
		return 0
	}
	return w.exemptions.asleep(w.begun, at)
}

// mayBook is how much longer than another lease a reservation may keep others waiting: its span, once more when its end was not written
// before a takeover, the spare, and what the clocks are apart.
func (w *world) mayBook(at time.Time) time.Duration {
	if !w.plan.books() {
		return 0
	}
	return 2*longestBooking + reserveSpare + 2*clockRange + w.exemptions.asleep(w.begun, at)
}

// liveBooking takes reservations until the run is over.
func (c *client) liveBooking() {
	for !c.w.clearing.Load() {
		c.sleep(c.below(3 * time.Second))
		if l := c.reserve(); l != nil {
			c.keep(l)
		}
	}
}

func (c *client) span() time.Duration {
	return 5*time.Second + c.below(longestBooking-5*time.Second).Truncate(time.Millisecond)
}

// reserve asks for a lock for a span until there is an answer that counts.
func (c *client) reserve() *lease {
	c.tries++
	owner, span := fmt.Sprintf("%s-%d", c.name, c.tries), c.span()
	wait := 5*time.Second + c.below(25*time.Second).Truncate(time.Second)
	query := url.Values{"for": {fmt.Sprint(span)}, "owner": {owner}, "wait": {wait.String()}}
	header := http.Header{"Idempotency-Key": {"key-of-the-attempt-" + owner}}
	c.w.ledger.note(func(l *ledger) { l.keyed[owner] = true })
	wishes := []wish{{lockNames[c.random.IntN(len(lockNames))], claim{mode: exclusive}}}
	path, body := ask(wishes, query)
	for range 8 {
		a, err := c.send(wait+3*time.Second, http.MethodPost, path, query, header, body)
		switch {
		case err != nil || a.status == http.StatusServiceUnavailable:
		case a.status == http.StatusOK, a.status == http.StatusCreated, a.status == http.StatusAccepted:
			if a.Token == "" || a.State == "ended" {
				return nil
			}
			c.w.ledger.book(a.LeaseID, span)
			l := newLease(wishes, a, 0)
			if c.w.believe(l, a); a.State != "held" {
				c.release(l)
				return nil
			}
			return l
		case a.status == http.StatusConflict, a.status == http.StatusGone, a.status == http.StatusTooManyRequests:
			return nil
		default:
			c.undocumented("a reservation", a)
			return nil
		}
		c.sleep(100*time.Millisecond + c.below(400*time.Millisecond))
	}
	return nil
}

// keep has a reservation for a while. Its client is asleep, or sends heartbeats, which change nothing; it may move the end once. It lets
// the reservation go, or leaves it to its end.
func (c *client) keep(l *lease) {
	moves := c.random.IntN(3) > 0
	for gone := time.Now().Add(c.below(longestBooking)); time.Now().Before(gone); {
		c.sleep(time.Second + c.below(8*time.Second))
		if moves {
			if moves = false; !c.move(l) {
				return
			}
		}
		if c.random.IntN(2) == 0 && !c.heartbeat(l) {
			return
		}
	}
	if c.random.IntN(3) == 0 {
		c.release(l)
	}
}

// move gives a reservation another end, counted from now. Its client counts on an earlier one from the moment of asking on.
func (c *client) move(l *lease) bool {
	span := c.span()
	if time.Now().Add(span).Before(c.w.beliefs.until(l.id)) {
		c.w.beliefs.end(l.id)
	}
	a, ok, over := c.repeat(l, http.MethodPatch, "/v1/leases/self", url.Values{"for": {fmt.Sprint(span)}}, http.StatusOK)
	c.w.ledger.book(l.id, span+late) // a request without an answer may be under way
	if ok {
		c.w.believe(l, a)
	}
	return !over
}

// checkBookings looks whether reservations have ended. That none ended early follows from the beliefs.
func (r *review) checkBookings() {
	for lease, end := range sorted(r.ledger.booked) {
		for _, c := range r.audit.places(lease) {
			ended := c.ended()
			if bound := end.Add(r.mayTake()); !r.exemptions.isExcused(lease) && !r.overwritten(lease) && (ended.IsZero() || ended.After(bound)) {
				r.violate("reservation: %s was to end at %s, and went at %s", c.path, r.since(end), r.since(ended))
			}
		}
	}
}
