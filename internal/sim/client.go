package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"
)

// client is a program that locks over HTTP as the documentation tells it to.
type client struct {
	w      *world
	number int
	name   string
	random *rand.Rand
	http   map[string]*http.Client // by gateway: connections of its own to each
	tries  int
	at     *gateway // where it asks; it stays there while it is answered
	fixed  bool     // or always
}

func newClient(w *world, number int) *client {
	return &client{w: w, number: number, name: fmt.Sprint("client", number), random: w.random(number), http: make(map[string]*http.Client)}
}

func (c *client) close() {
	for _, h := range c.http {
		h.CloseIdleConnections()
	}
}

// below is a random time.
func (c *client) below(d time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(d)))
}

func (c *client) sleep(d time.Duration) { time.Sleep(d + time.Duration(c.random.IntN(1000))) }

// gateway is where to ask next.
func (c *client) gateway() *gateway {
	if c.fixed {
		return c.at
	}
	if c.at == nil || c.at.isGone() || !c.loyal() && c.random.IntN(12) == 0 {
		c.at = c.w.pick(c.random)
	}
	return c.at
}

// loyal clients know of one gateway alone, as long as it lives.
func (c *client) loyal() bool { return c.number%3 == 0 && c.number < leaverFrom }

// answer is what came back, decoded as far as somebody looks at it.
type answer struct {
	sent, received time.Time
	gateway        string
	status         int
	raw            string

	LeaseID      string `json:"lease_id"`
	Token        string `json:"token"`
	Znode        string `json:"znode"`
	State        string `json:"state"`
	Reason       string `json:"reason"`
	FencingToken int64  `json:"fencing_token"`
	TTL          int64  `json:"ttl_ms"`
	ExpiresIn    int64  `json:"expires_in_ms"`
	Rev          string `json:"rev"`
	Code         string `json:"code"`
	RetryAfter   int64  `json:"retry_after_ms"`
}

// do sends one request to one gateway.
func (c *client) do(within time.Duration, method, path string, query url.Values, header http.Header) (a answer, err error) {
	g := c.gateway()
	if g == nil {
		return a, errGone
	}
	defer func() {
		if !c.fixed && !c.loyal() && (err != nil || a.status == http.StatusServiceUnavailable && c.random.IntN(2) == 0) {
			c.at = nil
		}
	}()
	h := c.http[g.name]
	if h == nil {
		h = &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return c.w.zk.Network.Dial(c.name, g.name) },
		}}
		c.http[g.name] = h
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path+"?"+query.Encode(), nil)
	if err != nil {
		return a, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	a.sent, a.gateway = time.Now(), g.name
	resp, err := h.Do(r)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		a.raw = string(body)
		if err == nil && len(body) > 0 {
			err = json.Unmarshal(body, &a)
		}
	}
	a.received = time.Now()
	if err != nil {
		c.w.trace("%s %s %s?%s at %s: %v", c.name, method, path, query.Encode(), g.name, err)
		return a, err
	}
	a.status = resp.StatusCode
	c.w.count(resp)
	if broken := g.manager.CheckAll(); broken != nil {
		c.w.violate("invariant: at %s: %v", g.name, broken)
	}
	c.w.trace("%s %s %s?%s at %s: %d %s%s %s", c.name, method, path, query.Encode(), g.name, a.status, a.State, a.Code, a.Znode)
	return a, nil
}

// lease is what a client has got.
type lease struct {
	lock, id, token, path string
	ttl                   time.Duration
	rev                   string
	// refused are the answers 503 to heartbeats since the last success.
	refused []answer
}

// live takes and lets go locks until the run is over.
func (c *client) live() {
	for !c.w.isClearing() {
		c.sleep(c.below(2 * time.Second))
		l, held := c.acquire()
		if l == nil {
			continue
		}
		if !held && !c.wait(l) {
			continue
		}
		c.hold(l)
	}
}

// acquire asks for a lock until there is an answer that counts. It returns nil when there is no lease.
func (c *client) acquire() (l *lease, held bool) {
	c.tries++
	lock := lockNames[c.random.IntN(len(lockNames))]
	ttl := time.Duration(1+c.random.IntN(10)) * time.Second
	query := url.Values{"ttl": {ttl.String()}, "owner": {fmt.Sprintf("%s-%d", c.name, c.tries)}}
	within := 3 * time.Second
	switch c.random.IntN(4) {
	case 0: // a try
	case 1:
		query.Set("async", "true")
	default:
		wait := time.Duration(1+c.random.IntN(10)) * time.Second
		query.Set("wait", wait.String())
		within += wait
	}
	header := http.Header{}
	if c.random.IntN(3) > 0 {
		header.Set("Idempotency-Key", "key-of-the-attempt-"+query.Get("owner"))
		c.w.mu.Lock()
		c.w.keyed[query.Get("owner")] = true
		c.w.mu.Unlock()
	}
	for try := range 8 {
		if try > 0 {
			c.w.mu.Lock()
			c.w.repeated[query.Get("owner")] = time.Now()
			c.w.mu.Unlock()
		}
		a, err := c.do(within, http.MethodPost, "/v1/locks/"+lock+"/leases", query, header)
		switch {
		case err != nil:
			if header.Get("Idempotency-Key") == "" {
				return nil, false // it may have been done: without a key nobody will ever know
			}
		case a.status == http.StatusOK, a.status == http.StatusCreated, a.status == http.StatusAccepted:
			if a.Token == "" || a.State == "ended" {
				return nil, false
			}
			l = &lease{lock: lock, id: a.LeaseID, token: a.Token, path: a.Znode, ttl: ttl, rev: a.Rev}
			c.w.believe(l, a)
			return l, a.State == "held"
		case a.status == http.StatusServiceUnavailable:
			if a.Code == "outcome_unknown" && header.Get("Idempotency-Key") == "" {
				return nil, false
			}
		case a.status == http.StatusConflict, a.status == http.StatusGone, a.status == http.StatusTooManyRequests:
			return nil, false
		default:
			c.w.violate("an answer that is not documented for an acquire: %d %s", a.status, a.raw)
			return nil, false
		}
		c.sleep(100*time.Millisecond + c.below(400*time.Millisecond))
	}
	return nil, false
}

func (l *lease) header() http.Header { return http.Header{"Lease-Token": {l.token}} }

// wait polls a ticket until it is held and confirmed, or gives up.
func (c *client) wait(l *lease) bool {
	if c.random.IntN(12) == 0 {
		return false // it dies
	}
	for patience := 5 + c.random.IntN(20); patience > 0; patience-- {
		a, err := c.do(8*time.Second, http.MethodGet, "/v1/leases/self", url.Values{"wait": {"5s"}, "since": {l.rev}}, l.header())
		switch {
		case err != nil || a.status == http.StatusServiceUnavailable:
			c.sleep(200 * time.Millisecond)
		case a.status == http.StatusOK && a.State == "waiting":
			c.w.believe(l, a)
			l.rev = a.Rev
		case a.status == http.StatusOK && a.State == "held":
			return true // hold begins with the heartbeat that confirms it
		case a.status == http.StatusOK && a.State == "ended", a.status == http.StatusGone, a.status == http.StatusNotFound:
			return false
		default:
			c.w.violate("an answer that is not documented for a poll: %d %s", a.status, a.raw)
			return false
		}
	}
	c.release(l)
	return false
}

// hold heartbeats a lease for a while and lets it go; some clients die instead.
func (c *client) hold(l *lease) {
	until := time.Now().Add(c.below(2 * l.ttl))
	for {
		if !c.heartbeat(l) {
			return
		}
		if !time.Now().Before(until) {
			break
		}
		c.sleep(l.ttl/4 + c.below(l.ttl/4))
	}
	if c.random.IntN(8) == 0 {
		c.sleep(l.ttl + c.below(2*time.Second)) // it was busy, and has lost its lease or not
		if !c.heartbeat(l) {
			return
		}
	}
	if c.random.IntN(5) > 0 {
		c.release(l)
	}
}

// heartbeat asks until it is answered that the lease goes on, or that it has ended, or until nobody can say so any more.
func (c *client) heartbeat(l *lease) bool {
	query := url.Values{}
	if c.random.IntN(8) == 0 {
		query.Set("ttl", fmt.Sprint(1+c.random.IntN(10), "s"))
	}
	for range 40 {
		a, err := c.do(2*time.Second, http.MethodPost, "/v1/leases/self/heartbeat", query, l.header())
		if err == nil && a.status == http.StatusServiceUnavailable {
			l.refused = append(l.refused, a)
		}
		switch {
		case err != nil || a.status == http.StatusServiceUnavailable:
			c.sleep(100*time.Millisecond + c.below(300*time.Millisecond))
		case a.status == http.StatusOK:
			c.w.believe(l, a)
			l.refused = nil
			return true
		case a.status == http.StatusGone, a.status == http.StatusNotFound:
			c.w.told(l, a)
			c.w.checkHeard(l, a)
			return false
		default:
			c.w.violate("an answer that is not documented for a heartbeat: %d %s", a.status, a.raw)
			return false
		}
	}
	return false
}

// release lets a lease go, again and again until that is answered.
func (c *client) release(l *lease) {
	c.w.letGo(l)
	for range 20 {
		a, err := c.do(3*time.Second, http.MethodDelete, "/v1/leases/self", nil, l.header())
		switch {
		case err != nil || a.status == http.StatusServiceUnavailable:
			c.sleep(100*time.Millisecond + c.below(300*time.Millisecond))
		case a.status == http.StatusNoContent, a.status == http.StatusGone, a.status == http.StatusNotFound:
			return
		default:
			c.w.violate("an answer that is not documented for a release: %d %s", a.status, a.raw)
			return
		}
	}
}

// leaveTickets takes tickets and goes away. It makes sure that it has nothing else: what it holds it lets go.
func (c *client) leaveTickets() {
	for !c.w.isClearing() {
		c.sleep(c.below(20 * time.Second))
		c.tries++
		owner := fmt.Sprintf("%s-%d", c.name, c.tries)
		lock := lockNames[c.random.IntN(len(lockNames))]
		query := url.Values{"ttl": {forgotten.String()}, "async": {"true"}, "owner": {owner}}
		header := http.Header{"Idempotency-Key": {"key-of-the-attempt-" + owner}}
		for range 20 {
			a, err := c.do(3*time.Second, http.MethodPost, "/v1/locks/"+lock+"/leases", query, header)
			if err != nil || a.status == http.StatusServiceUnavailable {
				c.sleep(300 * time.Millisecond)
				continue
			}
			if l := (&lease{lock: lock, id: a.LeaseID, token: a.Token, path: a.Znode, ttl: forgotten}); a.State == "held" {
				c.release(l)
			} else if a.State == "waiting" {
				c.w.leaveTicket(l)
			}
			break
		}
	}
}
