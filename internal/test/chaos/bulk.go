package chaos

import (
	"context"
	"fmt"
	"time"

	"lockkeeper/internal/test/chaos/check"
)

// bulkLeases is how many leases a client has that heartbeats all of them in one request.
const bulkLeases = 8

// kept is a lease that is kept by bulk heartbeats.
type kept struct {
	wish
	token string
	due   bool // the last heartbeat was not answered
}

// liveInBulk has many locks of its own, for long, and then lets go of them and begins again.
func (c *client) liveInBulk(ctx context.Context, stop <-chan struct{}) {
	defer c.close()
	for ctx.Err() == nil {
		var leases []kept
		for i := range bulkLeases {
			c.attempts++
			w := wish{name: fmt.Sprintf("c%02d-%d", c.id, c.attempts), lock: fmt.Sprintf("bulk-%d-%d", c.id, i), mode: check.Exclusive, ttl: longestTTL}
			if token, held := c.acquire(ctx, w, c.key(), 5*time.Second); held {
				leases = append(leases, kept{wish: w, token: token})
			}
		}
		for until := c.now() + 20*time.Second + c.upTo(20*time.Second); len(leases) > 0 && c.now() < until && ctx.Err() == nil; {
			leases = c.beatAll(ctx, leases)
			select {
			case <-stop:
				until = 0
			case <-time.After(longestTTL / 4):
			}
		}
		for _, k := range leases {
			c.letGo(ctx, k.wish, k.token)
		}
		select {
		case <-stop:
			return
		case <-time.After(c.upTo(time.Second)):
		}
	}
}

// beatAll heartbeats all leases until each has an answer, and returns those that live.
func (c *client) beatAll(ctx context.Context, leases []kept) []kept {
	for i := range leases {
		leases[i].due = true
	}
	for ctx.Err() == nil {
		var asked []int
		var tokens []string
		for i, k := range leases {
			if k.due {
				asked, tokens = append(asked, i), append(tokens, k.token)
			}
		}
		if len(asked) == 0 {
			break
		}
		sent := c.now()
		a := c.send(ctx, beatWithin, "POST", "/v1/heartbeats", "", "", map[string][]string{"tokens": tokens})
		done, missing, pause := c.now(), false, a.pause()
		for n, i := range asked {
			o := leases[i].op(c.id, check.Heartbeat)
			o.Sent, o.Done, o.Via = sent, done, a.via
			o.Status, o.Code = a.status, a.Code
			if a.ok() {
				if n >= len(a.Items) {
					o.Status, o.Code = 500, "an item is missing"
				} else {
					item := a.Items[n]
					item.status, item.via = 200, a.via
					if p := item.Problem; p != nil {
						item.status, item.Code, item.Reason, item.RetryAfterMS = p.Status, p.Code, p.Reason, p.RetryAfterMS
						pause = max(pause, item.pause())
					}
					item.into(&o)
				}
			}
			c.did(o)
			leases[i].due = o.Status == 0 || o.Status > 500
			missing = missing || leases[i].due
			if !leases[i].due && o.Status != 200 {
				leases[i].token = "" // it has ended
			}
		}
		if missing {
			c.elsewhere()
			sleep(ctx, pause)
		}
	}
	var living []kept
	for _, k := range leases {
		if k.token != "" {
			living = append(living, k)
		}
	}
	return living
}
