package chaos

import (
	"context"
	"fmt"
	"time"

	"lockkeeper/internal/test/chaos/check"
)

const probeLock = "probe-"

// probe takes locks without other clients, one after the other: how long that takes is how long the fleet gives none.
func (c *client) probe(ctx context.Context, stop <-chan struct{}) {
	defer c.close()
	for ctx.Err() == nil {
		select {
		case <-stop:
			return
		default:
		}
		c.attempts++
		w := wish{name: fmt.Sprintf("c%02d-%d", c.id, c.attempts), lock: fmt.Sprint(probeLock, c.attempts%50), mode: check.Exclusive, ttl: 4 * time.Second}
		if token, _ := c.acquire(ctx, w, c.key(), 2*time.Second); token != "" {
			c.letGo(ctx, w, token)
		}
		sleep(ctx, 200*time.Millisecond)
	}
}
