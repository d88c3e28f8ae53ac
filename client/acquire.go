package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	requestTimeout = 10 * time.Second // for a request that is answered at once
	defaultTTL     = 30 * time.Second // of a lease whose acquire names none
	pollTime       = 25 * time.Second // for which the gateway holds a look at a waiting lease
	leaveWithin    = 2 * time.Second  // for giving up a place in the queue
	tryWithin      = 30 * time.Second // for finding a gateway that can answer an acquire that does not wait
)

// Lock is one of the locks of AcquireAll. The zero values of the fields but Name are the defaults of Acquire.
type Lock struct {
	Name      string
	Namespace string
	Shared    bool
	Permits   int // of a semaphore, with its Limit
	Limit     int
}

// wanted is a lock as the API takes it.
type wanted struct {
	Lock    string `json:"lock,omitempty"`
	NS      string `json:"ns,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Permits int    `json:"permits,omitempty"`
	Limit   int    `json:"limit,omitempty"`
}

// body is the body of an acquire: of one lock, whose name is in the path, or of several.
type body struct {
	wanted
	Locks     []wanted `json:"locks,omitempty"`
	TTL       string   `json:"ttl,omitempty"`
	Owner     string   `json:"owner,omitempty"`
	Metadata  string   `json:"metadata,omitempty"`
	LockDelay string   `json:"lock_delay,omitempty"`
	DelayOn   string   `json:"lock_delay_on,omitempty"`
	AtLeast   string   `json:"at_least,omitempty"`
	OncePer   string   `json:"once_per,omitempty"`
	Period    string   `json:"period,omitempty"`
	DoneOn    string   `json:"done_on,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Async     bool     `json:"async,omitempty"`
}

// acquire is one call of Acquire and its like.
type acquire struct {
	name     string // of the lock, or of all of them, for people
	body     body
	wait     time.Duration
	bounded  bool          // by wait; otherwise the context alone bounds the wait
	ttl      time.Duration // 0: the gateway's
	margin   time.Duration
	onRevoke func(Revocation)
	onQueued func(int)
	onDone   func(Done)
}

// leaseAnswer is what of a lease the client reads.
type leaseAnswer struct {
	ID       string  `json:"lease_id"`
	Token    string  `json:"token"`
	State    string  `json:"state"`
	Reason   string  `json:"reason"`
	Position int     `json:"position"`
	TTL      int64   `json:"ttl_ms"`
	Waited   *int64  `json:"waited_ms"` // nil: the TTL began before the request
	Fence    uint64  `json:"fencing_token"`
	Rev      string  `json:"rev"`
	Locks    []fence `json:"locks"`

	Done   bool      `json:"done"` // of OncePer: there is no lease
	Period string    `json:"period"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`

	RevokeRequested *struct {
		Reason  string `json:"reason"`
		By      string `json:"by"`
		ForceIn *int64 `json:"force_in_ms"`
	} `json:"revoke_requested"`
}

// check says what is missing in the answer of a gateway. What else answers 200 is none.
func (a *leaseAnswer) check(r *request) error {
	if r.once && a.Done && !a.At.IsZero() {
		return nil
	}
	if a.State == "" || r.method == "POST" && a.TTL <= 0 || r.key != "" && (a.ID == "" || a.Token == "") {
		return fmt.Errorf("lockkeeper: the answer to %s %s is no lease, so it does not come from a gateway", r.method, r.path)
	}
	return nil
}

type fence struct {
	Lock  string `json:"lock"`
	NS    string `json:"ns"`
	Fence uint64 `json:"fencing_token"`
}

// Acquire takes the lock, and waits for it in its queue until ctx or Wait is over. The error is a *NotAcquired when others hold
// it, a *Done when the work of the period is done (see OncePer), a *Problem when the gateway refuses, or the error of ctx.
//
// The end of ctx gives the place in the queue up. It does not end the lease: see Lease.Release and Lease.Context.
func (c *Client) Acquire(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	a := &acquire{name: name}
	for _, o := range opts {
		o(a)
	}
	return c.acquire(ctx, a)
}

// TryAcquire takes the lock if it is free, and returns a *NotAcquired if it is not.
func (c *Client) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.Acquire(ctx, name, append(opts[:len(opts):len(opts)], Wait(0))...)
}

// AcquireAll takes all the locks at once, or none. Two clients that name the same locks in different orders cannot block each
// other. Options about one lock (Namespace, Shared, Permits) are an error here: the locks have fields for them.
func (c *Client) AcquireAll(ctx context.Context, locks []Lock, opts ...Option) (*Lease, error) {
	a := &acquire{}
	for _, o := range opts {
		o(a)
	}
	if a.body.wanted != (wanted{}) {
		return nil, errors.New("lockkeeper: Namespace, Shared and Permits are options of one lock; AcquireAll takes them in each Lock")
	}
	names := make([]string, len(locks))
	for i, l := range locks {
		w := wanted{Lock: l.Name, NS: l.Namespace, Permits: l.Permits, Limit: l.Limit}
		switch {
		case l.Shared && l.Permits > 0:
			return nil, fmt.Errorf("lockkeeper: lock %s is both shared and a semaphore's", l.Name)
		case l.Shared:
			w.Mode = "shared"
		case l.Permits > 0:
			w.Mode = "semaphore"
		}
		names[i] = l.Name
		a.body.Locks = append(a.body.Locks, w)
	}
	a.name = strings.Join(names, ",")
	return c.acquire(ctx, a)
}

// acquire asks for the lease, and waits for it. A ticket (async) keeps the place in the queue while gateways come and go, and
// gives the client the token that it needs to leave the queue.
func (c *Client) acquire(ctx context.Context, a *acquire) (*Lease, error) {
	if err := a.checkMargin(cmp.Or(a.ttl, defaultTTL)); err != nil {
		return nil, err // before anything is taken
	}
	a.body.Async = !a.bounded || a.wait > 0
	wait, stop := ctx, func() {}
	switch {
	case !a.body.Async:
		wait, stop = context.WithTimeout(ctx, c.try) // time to find a gateway that can answer
	case a.bounded:
		wait, stop = context.WithTimeout(ctx, a.wait)
	}
	defer stop()
	known := false // that others have the lock
	for {
		lease, err := c.attempt(ctx, wait, a)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.As(err, new(*Done)) {
			return nil, err
		}
		p := asProblem(err)
		lost, taken := errors.Is(err, errPlaceLost), p != nil && p.taken()
		known = known || taken || lost && a.body.Async || errors.Is(err, errWaited)
		switch {
		case (lost || taken && a.body.Async) && wait.Err() == nil:
			// The place was lost, or the lock cannot be waited for in its queue now (held_by_other of a ticket).
			pause := leastPause
			if p != nil {
				pause = max(pause, p.retryAfter)
			}
			_ = sleep(wait, jitter(pause))
		case taken, known && wait.Err() != nil:
			return nil, c.notAcquired(ctx, a, p)
		default:
			return nil, err
		}
	}
}

// errPlaceLost says that a lease ended before this client knew that it holds.
var errPlaceLost = errors.New("lockkeeper: the place in the queue was lost")

// errWaited says that the time for waiting was over while a gateway kept the place in the queue.
var errWaited = errors.New("lockkeeper: the wait is over")

// attempt takes the lock, or one place in its queue and waits there. All its requests have one idempotency key.
func (c *Client) attempt(ctx, wait context.Context, a *acquire) (*Lease, error) {
	r := request{method: "POST", path: "/v1/leases", body: a.body, key: rand.Text(), timeout: c.perGateway(requestTimeout), once: a.body.OncePer != ""}
	if a.body.Locks == nil {
		r.path = "/v1/locks/" + url.PathEscape(a.name) + "/leases"
	}
	var answer leaseAnswer
	sent, err := c.repeated(wait, r, &answer)
	switch p := asProblem(err); {
	case err == nil:
	case p == nil, p.temporary():
		if waits := c.leaveUnheard(ctx, a, r); waits {
			err = fmt.Errorf("%w: %w", errWaited, err)
		}
		return nil, err
	case p.Code == "lease_ended":
		return nil, errPlaceLost // an answer was lost that granted it, and so was its time
	default:
		return nil, err
	}
	if answer.Done {
		return nil, a.done(answer)
	}
	if answer.State == "held" && answer.Waited != nil {
		return c.keep(ctx, a, answer, sent+ms(*answer.Waited)+ms(answer.TTL))
	}
	if answer.State == "waiting" {
		if err := c.awaitGrant(wait, a, &answer); err != nil {
			c.leave(ctx, a, answer.Token)
			if wait.Err() != nil && !errors.Is(err, errPlaceLost) {
				err = fmt.Errorf("%w: %w", errWaited, err)
			}
			return nil, err
		}
	}
	// The TTL began before this answer was asked for: a heartbeat begins it anew. What no gateway confirms within a TTL is lost.
	confirming, stop := context.WithTimeout(ctx, ms(answer.TTL))
	defer stop()
	sent, err = c.repeated(confirming, heartbeat(answer.Token, 0), &leaseAnswer{})
	if err != nil {
		c.leave(ctx, a, answer.Token)
		if p := asProblem(err); p != nil && p.final() || ctx.Err() == nil && confirming.Err() != nil {
			return nil, errPlaceLost
		}
		return nil, err
	}
	return c.keep(ctx, a, answer, sent+ms(answer.TTL))
}

// awaitGrant polls a ticket until it is granted.
func (c *Client) awaitGrant(wait context.Context, a *acquire, ticket *leaseAnswer) error {
	for position := 0; ticket.State == "waiting"; {
		if ticket.Position != position && a.onQueued != nil {
			position = ticket.Position
			a.onQueued(position)
		}
		r := request{
			method: "GET", lease: ticket.Token, timeout: pollTime + requestTimeout,
			path: fmt.Sprintf("/v1/leases/self?wait=%s&since=%s", millis(pollTime), url.QueryEscape(ticket.Rev)),
		}
		token := ticket.Token
		var look leaseAnswer
		if _, err := c.repeated(wait, r, &look); err != nil {
			if p := asProblem(err); p != nil && p.final() {
				return errPlaceLost
			}
			return err
		}
		*ticket = look
		ticket.Token = token
	}
	if ticket.State != "held" {
		return errPlaceLost
	}
	return nil
}

// leave gives up a place in the queue, or a lease that was granted meanwhile. Without an answer the place passes on when its
// time is over.
func (c *Client) leave(ctx context.Context, a *acquire, token string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer stop()
	_, _ = c.repeated(ctx, leaving(token, a.body.DoneOn != onRelease), nil)
}

// leaveUnheard gives up what an acquire without an answer may have taken. A repeat with its idempotency key tells the token. It
// reports whether that was a place in the queue: then others have the lock.
func (c *Client) leaveUnheard(ctx context.Context, a *acquire, r request) (waits bool) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer stop()
	var taken leaseAnswer
	if _, err := c.repeated(ctx, r, &taken); err == nil && !taken.Done {
		c.leave(ctx, a, taken.Token)
	}
	return taken.State == "waiting"
}

// notAcquired tells who holds the lock: from the refusal, or else by a look at the lock.
func (c *Client) notAcquired(ctx context.Context, a *acquire, p *Problem) error {
	e := &NotAcquired{Lock: a.name}
	if p != nil {
		e.Holders, e.QueueLength, e.RetryAfter = p.Holders, p.QueueLength, p.retryAfter
	}
	if len(e.Holders) > 0 || a.body.Locks != nil {
		return e
	}
	var lock struct {
		Holders     []Holder `json:"holders"`
		QueueLength int      `json:"queue_length"`
	}
	look := request{method: "GET", path: "/v1/locks/" + url.PathEscape(a.name), timeout: leaveWithin}
	if a.body.NS != "" {
		look.path += "?ns=" + url.QueryEscape(a.body.NS)
	}
	if c.once(ctx, look, &lock) == nil {
		e.Holders, e.QueueLength = lock.Holders, lock.QueueLength
	}
	return e
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// millis writes a duration as the API takes it.
func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
