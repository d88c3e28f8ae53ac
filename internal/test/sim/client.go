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
	"strings"
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
	seen   map[string]int64 // by lock: the fencing token of a former lease
	at     *gateway         // where it asks; it stays there while it is answered
	fixed  bool             // or always
}

func newClient(w *world, number int) *client {
	return &client{w: w, number: number, name: fmt.Sprint("client", number), random: w.random(number), http: make(map[string]*http.Client), seen: make(map[string]int64)}
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
	if c.at == nil || c.at.gone.Load() || !c.loyal() && c.random.IntN(12) == 0 {
		c.at = c.w.gateways.pick(c.random)
	}
	return c.at
}

// loyal clients know of one gateway alone, as long as it lives.
func (c *client) loyal() bool { return c.number%3 == 0 && c.number < leaverFrom }

// answer is what came back, decoded as far as it is checked.
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
	Waited       *int64 `json:"waited_ms"` // of an acquire that was granted, and of a poll in which its lease was
	Rev          string `json:"rev"`
	Limit        int    `json:"limit"` // of a semaphore
	Code         string `json:"code"`
	Current      bool   `json:"current"` // of a fencing token
	Metadata     string `json:"metadata"`
	Holds        []string
	Revoke       *struct{} `json:"revoke_requested"`
	Locks        []struct {
		Lock  string `json:"lock"`
		Znode string `json:"znode"`
		Limit int    `json:"limit"`
	} `json:"locks"` // of a lease of several
	RetryAfter   int64  `json:"retry_after_ms"`
	NotifySecret string `json:"notify_secret"`
}

// do sends one request to one gateway.
func (c *client) do(within time.Duration, method, path string, query url.Values, header http.Header) (a answer, err error) {
	return c.send(within, method, path, query, header, "")
}

// send is do with a body of JSON; "" for none.
func (c *client) send(within time.Duration, method, path string, query url.Values, header http.Header, body string) (a answer, err error) {
	g := c.gateway()
	if g == nil {
		return a, errGone
	}
	about := path
	path, query = inSpace(path, query)
	defer func() {
		if !c.fixed && !c.loyal() && (err != nil || a.status == http.StatusServiceUnavailable && c.random.IntN(2) == 0) {
			c.at = nil
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path+"?"+query.Encode(), strings.NewReader(body))
	if err != nil {
		return a, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		r.Header[k] = v
	}
	a.sent, a.gateway = time.Now(), g.name
	resp, err := c.connected(g).Do(r)
	if err == nil {
		var text []byte
		text, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		a.raw = string(text)
		if err == nil && len(text) > 0 {
			err = json.Unmarshal(text, &a)
		}
	}
	a.received = time.Now()
	if err != nil {
		c.w.trace("%s %s %s?%s at %s: %v", c.name, method, path, query.Encode(), g.name, err)
		return a, err
	}
	a.status, a.gateway = resp.StatusCode, c.w.gateways.answerer(resp.Header, g.name)
	if a.Code == "namespace_unknown" && (about != path || strings.Contains(body, spaceName)) {
		a.status = http.StatusServiceUnavailable // that gateway does not know it yet
	}
	if a.Code == "lease_token_wrong" {
		a.status = c.w.refusedToken(header.Get("Lease-Token"), a)
	}
	c.w.answered(resp.StatusCode)
	if broken := g.manager.CheckAll(); broken != nil {
		c.w.violate("invariant: at %s: %v", g.name, broken)
	}
	c.w.judgeHolds(g)
	at := g.name
	if a.gateway != at {
		at += " for " + a.gateway
	}
	c.w.trace("%s %s %s?%s at %s: %d %s%s %s", c.name, method, path, query.Encode(), at, resp.StatusCode, a.State, a.Code, a.Znode)
	return a, nil
}

// connected is the client's HTTP client for one gateway: it has connections of its own to each.
func (c *client) connected(g *gateway) *http.Client {
	h := c.http[g.name]
	if h == nil {
		h = &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return c.w.zk.Network.Dial(c.name, g.name) },
		}}
		c.http[g.name] = h
	}
	return h
}

// lease is what a client has got.
type lease struct {
	wishes    []wish // what it is of
	id, token string
	path      string // of its first contender
	ttl       time.Duration
	rev       string
	fencing   int64 // the token; 0 until it was told
	// Named holds: those that it was answered to have, those that it was answered to have let go, and how many names it has used. A
	// reentrant lease was acquired with one, and ends with the last one.
	holds, released []string
	names           int
	reentrant       bool
	metadata        string // as it was answered last
	unsure, unknown bool   // whether some change of the metadata, or of the holds, was made is not known
	asked           bool   // it has been asked to let go
	// refused are the answers 503 to heartbeats since the last success.
	refused []answer
}

func newLease(wishes []wish, a answer, ttl time.Duration) *lease {
	l := &lease{wishes: wishes, id: a.LeaseID, token: a.Token, path: a.Znode, ttl: ttl, rev: a.Rev}
	if len(a.Locks) > 0 {
		l.path = a.Locks[0].Znode
	}
	for i := range l.wishes {
		if limit := a.Limit; l.wishes[i].mode == semaphore {
			if i < len(a.Locks) {
				limit = a.Locks[i].Limit
			}
			l.wishes[i].limit = limit // what is in force
		}
	}
	return l
}

// live takes and lets go locks until the run is over.
func (c *client) live() {
	for !c.w.clearing.Load() {
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

// patience draws how an acquire waits: not at all, with a ticket, or so long.
func (c *client) patience(query url.Values) (wait time.Duration) {
	switch c.random.IntN(4) {
	case 0: // a try
	case 1:
		query.Set("async", "true")
	default:
		wait = time.Duration(1+c.random.IntN(10)) * time.Second
		query.Set("wait", wait.String())
	}
	return wait
}

// acquire asks for what it wishes until there is an answer that counts. It returns nil when there is no lease.
func (c *client) acquire() (l *lease, held bool) {
	c.tries++
	wishes := c.wishes()
	ttl := time.Duration(1+c.random.IntN(10)) * time.Second
	owner := fmt.Sprintf("%s-%d", c.name, c.tries)
	query := url.Values{"ttl": {ttl.String()}, "owner": {owner}}
	within := 3*time.Second + c.patience(query)
	header := http.Header{}
	if c.random.IntN(3) > 0 {
		header.Set("Idempotency-Key", "key-of-the-attempt-"+owner)
		c.w.ledger.note(func(l *ledger) { l.keyed[owner] = true })
	}
	reentrant := c.random.IntN(4) == 0
	if reentrant {
		query.Set("hold", "h0")
	}
	t := c.terms(query)
	once := c.period(wishes, query)
	c.notify(owner, query)
	path, body := ask(wishes, query)
	for try := range 8 {
		if try > 0 {
			c.w.ledger.note(func(l *ledger) { l.repeated[owner] = time.Now() })
		}
		a, err := c.send(within, http.MethodPost, path, query, header, body)
		switch {
		case err != nil:
			if header.Get("Idempotency-Key") == "" {
				return nil, false // it may have been done: without a key this stays unknown
			}
		case a.status == http.StatusOK, a.status == http.StatusCreated, a.status == http.StatusAccepted:
			if a.Token == "" || a.State == "ended" {
				return nil, false
			}
			c.w.ledger.count(a.LeaseID, once)
			return c.accept(newLease(wishes, a, ttl), a, t, reentrant), a.State == "held"
		case a.status == http.StatusServiceUnavailable:
			if a.Code == "outcome_unknown" && header.Get("Idempotency-Key") == "" {
				return nil, false
			}
		case a.status == http.StatusConflict, a.status == http.StatusGone, a.status == http.StatusTooManyRequests:
			return nil, false
		case a.status == http.StatusUnprocessableEntity && permits(wishes):
			return nil, false // the lock has no limit, or fewer permits than that
		default:
			c.undocumented("an acquire", a)
			return nil, false
		}
		c.sleep(100*time.Millisecond + c.below(400*time.Millisecond))
	}
	return nil, false
}

// accept notes what a new lease's client counts on.
func (c *client) accept(l *lease, a answer, t terms, reentrant bool) *lease {
	if l.names++; reentrant {
		l.reentrant, l.holds = true, []string{"h0"}
	}
	if a.State == "held" && a.Waited == nil {
		c.w.violate("rule: %s is granted without waited_ms", l.path)
	}
	c.w.ledger.agree(l.id, t)
	c.w.receivers.expect(l.id, a.NotifySecret)
	c.w.believe(l, a)
	return l
}

// undocumented notes an answer that the documentation does not have.
func (c *client) undocumented(what string, a answer) {
	c.w.violate("an answer that is not documented for %s: %d %s", what, a.status, a.raw)
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
			c.undocumented("a poll", a)
			return false
		}
	}
	c.release(l)
	return false
}

// hold heartbeats a lease for a while and lets it go; some clients die instead.
func (c *client) hold(l *lease) {
	// To its gateway, a lease whose contender was overwritten has a TTL of a day; clients do not count on that.
	pace := func() time.Duration { return min(l.ttl, 10*time.Second) }
	until := time.Now().Add(c.below(2 * pace()))
	for {
		if !c.heartbeat(l) {
			return
		}
		if !time.Now().Before(until) {
			break
		}
		c.sleep(pace()/4 + c.below(pace()/4))
		if !c.make(l) {
			return
		}
		if l.asked && c.random.IntN(2) == 0 {
			c.release(l) // politely
			return
		}
	}
	if c.random.IntN(8) == 0 {
		c.sleep(pace() + c.below(2*time.Second)) // it was busy, and has lost its lease or not
		if !c.heartbeat(l) {
			return
		}
	}
	if c.random.IntN(5) > 0 {
		c.release(l)
	}
}

// heartbeat asks until it is answered that the lease goes on, or that it has ended, or until it gives up.
func (c *client) heartbeat(l *lease) bool {
	query := url.Values{}
	if !c.w.ledger.isBooked(l.id) && c.random.IntN(8) == 0 {
		query.Set("ttl", fmt.Sprint(1+c.random.IntN(10), "s"))
	}
	for range 40 {
		a, err := c.do(2*time.Second, http.MethodPost, "/v1/leases/self/heartbeat", query, l.header())
		if err == nil && a.status == http.StatusServiceUnavailable && a.Code != "owned_by_other_gateway" && a.Code != "owner_unreachable" {
			l.refused = append(l.refused, a)
		}
		switch {
		case err != nil || a.status == http.StatusServiceUnavailable:
			c.sleep(100*time.Millisecond + c.below(300*time.Millisecond))
		case a.status == http.StatusOK:
			c.w.believe(l, a)
			l.refused = nil
			l.asked = l.asked || a.Revoke != nil
			return true
		case a.status == http.StatusGone, a.status == http.StatusNotFound:
			c.w.heardEnded(l, a)
			c.w.checkExpired(l, a)
			return false
		default:
			c.undocumented("a heartbeat", a)
			return false
		}
	}
	return false
}

// release lets a lease go, again and again until that is answered.
func (c *client) release(l *lease) {
	if l.reentrant && c.random.IntN(2) == 0 {
		for len(l.holds) > 1 {
			if !c.releaseHold(l, l.holds[c.random.IntN(len(l.holds))]) {
				return
			}
		}
	}
	c.w.letGo(l.id)
	query := url.Values{}
	if l.reentrant && len(l.holds) == 1 && !l.unknown && !c.w.overwritten(l.id) {
		query.Set("hold", l.holds[0]) // the last one ends it
	}
	undone := c.w.ledger.onlyReleaseCounts(l.id) && c.random.IntN(3) == 0
	if undone {
		query.Set("done", "false")
	}
	for range 20 {
		a, err := c.do(3*time.Second, http.MethodDelete, "/v1/leases/self", query, l.header())
		if err == nil && a.status == http.StatusNoContent && !undone {
			c.w.ledger.released(l.id)
		}
		switch {
		case err != nil || a.status == http.StatusServiceUnavailable:
			c.sleep(100*time.Millisecond + c.below(300*time.Millisecond))
		case a.status == http.StatusNoContent, a.status == http.StatusGone, a.status == http.StatusNotFound:
			return
		case a.status == http.StatusUnprocessableEntity && query.Has("hold") && c.w.overwritten(l.id):
			query.Del("hold") // its holds are unknown since the request was sent first
		default:
			c.undocumented("a release", a)
			return
		}
	}
}

// leaveTickets takes tickets and goes away. It makes sure that it has nothing else: what it holds it lets go.
func (c *client) leaveTickets() {
	for !c.w.clearing.Load() {
		c.sleep(c.below(20 * time.Second))
		c.tries++
		owner := fmt.Sprintf("%s-%d", c.name, c.tries)
		wishes := c.wishes()
		query := url.Values{"ttl": {forgotten.String()}, "async": {"true"}, "owner": {owner}}
		header := http.Header{"Idempotency-Key": {"key-of-the-attempt-" + owner}}
		path, body := ask(wishes, query)
		for range 20 {
			a, err := c.send(3*time.Second, http.MethodPost, path, query, header, body)
			if err != nil || a.status == http.StatusServiceUnavailable {
				c.sleep(300 * time.Millisecond)
				continue
			}
			if l := newLease(wishes, a, forgotten); a.State == "held" {
				c.release(l)
			} else if a.State == "waiting" {
				c.w.ledger.note(func(book *ledger) { book.tickets = append(book.tickets, l.id) })
			}
			break
		}
	}
}
