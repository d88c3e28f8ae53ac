package sim

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// mayTake is how long the last lease of a client that has died may keep others waiting: a takeover's wait and the longest TTL,
// once for a grant that was not claimed and once for blind time.
func (w *world) mayTake() time.Duration {
	return 2*(w.window+10*time.Second) + 30*time.Second + 2*w.timeout + 20*time.Second + w.mayBook(time.Now())
}

// checkStuck takes every lock once more.
func (w *world) checkStuck() {
	c := newClient(w, 1_000_000)
	defer c.close()
	for _, lock := range w.recorded() {
		began := time.Now()
		for done := false; !done; {
			c.tries++
			owner := fmt.Sprintf("%s-%d", c.name, c.tries)
			a, err := c.do(w.mayTake()+5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/leases",
				url.Values{"ttl": {"5s"}, "wait": {"30s"}, "owner": {owner}}, http.Header{"Idempotency-Key": {"key-of-the-attempt-" + owner}})
			if err == nil && a.status == http.StatusCreated {
				l := newLease([]wish{{lock, claim{mode: exclusive}}}, a, 5*time.Second)
				w.believe(l, a)
				c.release(l)
				done = true
			} else if time.Since(began) > w.mayTake() {
				w.violate("stuck: %s cannot be had in %v: %d %s, %v", lock, w.mayTake(), a.status, a.raw, err)
				done = true
			}
			c.sleep(50 * time.Millisecond)
		}
	}
}

// checkLitter waits until everything must have been swept.
func (w *world) checkLitter() {
	const life = 30 * time.Minute                                                           // keys live for ten minutes, and are looked for every minute or two
	roots := []string{lockRoot, lockDir(spaceLock), "/lockkeeper/succession", settingsRoot} // directories of the second namespace stay
	if w.plan.Hooks > 0 {
		roots = append(roots, outboxRoot)
	}
	if w.plan.Seed%5 == 0 { // minutes in which nothing happens are most of the work
		roots = append(roots, "/lockkeeper/keys")
	}
	var left []string
	c := newClient(w, 1_000_001)
	defer c.close()
	for began := time.Now(); time.Since(began) < life; {
		time.Sleep(time.Minute + 7*time.Nanosecond)
		if left = w.audit.litter(roots); len(left) == 0 {
			return
		}
		for _, lock := range lockNames {
			if w.ledger.configured[lock] {
				c.remove(lock) // settings stay until they are removed
			}
		}
	}
	w.violate("litter: %v", left)
}
