package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"lockkeeper/internal/test/chaos/check"
)

// Locks that clients share. Of each kind there are few enough to be fought for.
const (
	exclusiveLocks = 16
	sharedLocks    = 6
	permitLocks    = 6
)

// permitLimit is the same for each semaphore: the first client agrees on it.
const permitLimit = 3

// wish is what a client wants to have: an attempt, before it is made.
type wish struct {
	name    string // of the attempt; the owner label
	lock    string
	mode    check.Mode
	permits int
	ttl     time.Duration
}

func (c *client) wish() wish {
	c.attempts++
	w := wish{name: fmt.Sprintf("c%02d-%d", c.id, c.attempts), mode: check.Exclusive, ttl: pick(c.rng, 4*time.Second, 9*time.Second, longestTTL)}
	switch n := c.rng.IntN(exclusiveLocks + sharedLocks + permitLocks); {
	case n < exclusiveLocks:
		w.lock = fmt.Sprint("exclusive-", n)
	case n < exclusiveLocks+sharedLocks:
		w.lock = fmt.Sprint("shared-", n-exclusiveLocks)
		if c.rng.IntN(3) > 0 {
			w.mode = check.Shared
		}
	default:
		w.lock = fmt.Sprint("permits-", n-exclusiveLocks-sharedLocks)
		w.mode, w.permits = check.Semaphore, 1+c.rng.IntN(2)
	}
	return w
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// query is the acquire of a wish, with what else is given.
func (w wish) query(more ...string) string {
	v := url.Values{"owner": {w.name}, "ttl": {w.ttl.String()}, "mode": {string(w.mode)}}
	if w.mode == check.Semaphore {
		v.Set("permits", strconv.Itoa(w.permits))
		v.Set("limit", strconv.Itoa(permitLimit))
	}
	for i := 0; i < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	return "/v1/locks/" + w.lock + "/leases?" + v.Encode()
}

// op is a record of a request about a wish, without its answer.
func (w wish) op(client int, kind check.Kind) check.Op {
	o := check.Op{Client: client, Attempt: w.name, Kind: kind, Lock: w.lock, Mode: w.mode, TTL: w.ttl}
	if w.mode == check.Semaphore {
		o.Permits, o.Limit = w.permits, permitLimit
	}
	return o
}
