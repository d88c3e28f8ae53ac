package locks

import "time"

// Reservations: leases that no heartbeat keeps, and that end at a time. A person takes a lock until six.

// NoTTL refuses a TTL beside the end of a reservation.
const NoTTL = "a reservation ends at its time and has no ttl: leave ttl out, or leave out for and until"

// Reserves reports whether the acquire asks for a reservation.
func (r *AcquireRequest) Reserves() bool { return r.For != 0 || !r.Until.IsZero() }

// Reserves reports whether the change moves the end of a reservation.
func (r *UpdateRequest) Reserves() bool { return r.For != 0 || !r.Until.IsZero() }

// normalizeReserve checks what makes an acquire a reservation. Its TTL is the longest, for a gateway whose
// record of it another program has written over.
func (r *AcquireRequest) normalizeReserve() error {
	switch {
	case !r.Reserves():
		return nil
	case r.TTL != 0:
		return Invalid("ttl", NoTTL)
	case r.Ephemeral:
		return Invalid("ephemeral", "an ephemeral lease ends with its gateway's session, and not at a time; leave ephemeral out, or leave out for and until")
	case r.Owner == "" && r.Principal.Owner() == "":
		return Invalid("owner", "name the owner of the reservation, so that others know who has the lock: owner=NAME")
	}
	r.TTL = MaxTTL
	return checkEnd(r.For, r.Until)
}

// checkEnd refuses an end of a reservation that is out of bounds, whatever the time is.
func checkEnd(span time.Duration, until time.Time) error {
	switch {
	case span != 0 && !until.IsZero():
		return Invalid("until", "for and until both say when the reservation ends: leave one of them out")
	case span != 0 && (span < MinTTL || span > MaxReserve):
		return Invalid("for", "for must be between 1s and 31 days (744h)")
	}
	return nil
}

// CheckUntil refuses an end that has passed, or is too far away.
func CheckUntil(until, now time.Time) *Error {
	switch {
	case until.IsZero():
		return nil
	case !until.After(now):
		return Invalid("until", "until must be in the future; by the gateway's clock it is "+now.UTC().Format(time.RFC3339))
	case until.Sub(now) > MaxReserve:
		return Invalid("until", "until must be at most 31 days from now; by the gateway's clock it is "+now.UTC().Format(time.RFC3339))
	}
	return nil
}
