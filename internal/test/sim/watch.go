package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"
)

// watch follows the events of one gateway after another.
func (c *client) watch() {
	for !c.w.clearing.Load() {
		c.follow(10*time.Second + c.below(10*time.Second))
		c.sleep(c.below(500 * time.Millisecond))
	}
}

// follow reads events until something breaks or it is tired.
func (c *client) follow(atMost time.Duration) {
	g := c.w.gateways.pick(c.random)
	if g == nil {
		return
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return c.w.zk.Network.Dial(c.name, g.name)
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/events?format=jsonl&type=lease.*", nil)
	if err != nil {
		c.w.violate("a request for events that cannot be made: %v", err)
		return
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); resp.StatusCode == http.StatusOK && lines.Scan(); {
		var event struct{ Type, Znode string }
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			if ctx.Err() == nil && len(lines.Bytes()) > 0 && lines.Bytes()[len(lines.Bytes())-1] == '}' {
				c.w.violate("an event that is no JSON: %q", lines.Text())
			}
			return
		}
		// Not in the history: whether two events come together or five milliseconds apart depends on whether the hub has woken
		// this stream between them, which is up to the scheduler. Nothing else follows from it.
		if event.Type == "lease.granted" {
			c.w.ledger.note(func(l *ledger) { l.granted[event.Znode] = true })
		}
	}
}
