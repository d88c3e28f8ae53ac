package chaos

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/chaos/check"
)

// lister looks at one queue after the other, all the while: not from memory, but as it is when the question comes.
func (w *World) lister(ctx context.Context, locks []string, seed uint64) {
	c := newCaller(w.ways, rand.New(rand.NewPCG(seed, 1<<32)))
	defer c.close()
	for i := 0; ctx.Err() == nil; i++ {
		w.look(ctx, c, locks[i%len(locks)])
		sleep(ctx, 100*time.Millisecond)
	}
}

// look is true when the queue was shown, and written down.
func (w *World) look(ctx context.Context, c *caller, lock string) bool {
	l := check.Listing{Lock: lock, Sent: w.now()}
	a := c.send(ctx, 5*time.Second, "GET", "/v1/locks/"+lock+"?consistent=true&limit=1000", "", "", nil)
	l.Done = w.now()
	if !a.ok() {
		assert.That(w.t, a.again(), "a look at %s is answered %d %s", lock, a.status, a.Code)
		return false
	}
	type contender struct {
		LeaseID string `json:"lease_id"`
		Owner   string `json:"owner"`
	}
	var queue struct {
		Holders []contender `json:"holders"`
		Waiters []contender `json:"waiters"`
	}
	err := json.Unmarshal(a.body, &queue)
	assert.That(w.t, err == nil, "a look at %s: %v: %s", lock, err, a.body)
	for _, h := range queue.Holders {
		l.Contenders = append(l.Contenders, check.Contender{LeaseID: h.LeaseID, Attempt: h.Owner, Holds: true})
	}
	for _, h := range queue.Waiters {
		l.Contenders = append(l.Contenders, check.Contender{LeaseID: h.LeaseID, Attempt: h.Owner})
	}
	w.saw(l)
	return true
}
