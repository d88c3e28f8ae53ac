package httpapi

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/ratelimit"
)

// Limits per principal, where the gateway asks who sends a request. A request counts at the gateway that the client asked, and
// nowhere else.

// PrincipalLimits bound what one principal asks of this gateway. 0 stands for no bound.
type PrincipalLimits struct {
	Rate    float64 // requests per second, where the principal's roles have no rate
	Active  int     // requests that are being answered
	Waiting int     // requests that wait
	Streams int     // streams and pages
}

// uncounted are the operations that are never refused for what else their principal does: a lease must not end, and a lock must
// not stay taken, because its client has used up its rate. The address's bound on connections holds for them.
var uncounted = map[string]bool{"Heartbeat": true, "HeartbeatMany": true, "Release": true, "Healthz": true, "Readyz": true}

// account counts a request for its principal, or says why it is refused.
func (x *exchange) account() *problem {
	if x.s.callers == nil || x.peer != nil || uncounted[x.operation] {
		return nil
	}
	p := &x.caller.Principal
	place, bucket, refused := x.s.callers.Begin(x.accountName(), p.Rules.Rate(x.s.rate), x.started)
	if refused != nil {
		return x.overLimit(refused)
	}
	x.place = place
	if bucket.Rate > 0 && (bucket.Remaining < bucket.Burst/4 || x.operation == "WhoAmI") {
		x.rateHeaders(&bucket)
	}
	return nil
}

// accountName is what the request counts for: its principal, or the address of a client that shows no credential, for these have
// one name all together.
func (x *exchange) accountName() string {
	if x.caller.Kind == auth.Anonymous {
		return "anonymous " + ratelimit.NetworkOf(x.client())
	}
	return x.caller.Principal.Name
}

// waits says that the request waits from now on. One that is not counted otherwise, a heartbeat, counts from its first wait on.
func (x *exchange) waits() error {
	if x.s.callers == nil || x.peer != nil {
		return nil
	}
	var refused *ratelimit.Refusal
	if !x.place.Counts() {
		x.place, refused = x.s.callers.Enter(x.accountName(), ratelimit.Waiting, time.Now())
	} else {
		refused = x.place.Move(ratelimit.Waiting, time.Now())
	}
	if refused != nil {
		return x.overLimit(refused)
	}
	return nil
}

// moveTo says that the request goes on with another kind of work.
func (x *exchange) moveTo(w ratelimit.Work) error {
	if refused := x.place.Move(w, time.Now()); refused != nil {
		return x.overLimit(refused)
	}
	return nil
}

// overLimit is the refusal of a request whose principal is at a limit.
func (x *exchange) overLimit(r *ratelimit.Refusal) *problem {
	x.line.repeated = !r.First
	name := x.caller.Principal.Name
	if r.Most == 0 {
		x.rateHeaders(&r.Bucket)
		return &problem{code: codeRateLimited, retryAfter: r.Retry,
			detail: fmt.Sprintf("%s may send %g requests in a second to this gateway, and has used them up: repeat after Retry-After, or ask an operator for a role with a higher rate; heartbeats and releases are not counted", name, r.Rate)}
	}
	what := [...]string{
		ratelimit.Active:  "%s has %d requests under way at this gateway, as many as one caller may: repeat when some are answered",
		ratelimit.Waiting: "%s has %d requests that wait at this gateway, as many as one caller may: ask without wait, repeat later, or ask another gateway",
		ratelimit.Stream:  "%s has %d streams at this gateway, as many as one caller may: end one, or ask another gateway",
	}[r.Work]
	return &problem{code: codePrincipalLimit, detail: fmt.Sprintf(what, name, r.Most)}
}

// rateHeaders tells of the rate as draft-ietf-httpapi-ratelimit-headers-11 has it.
func (x *exchange) rateHeaders(b *ratelimit.Bucket) {
	seconds := func(d time.Duration) string { return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10) }
	h := x.Header()
	h["Ratelimit-Policy"] = []string{`"requests";q=` + strconv.Itoa(b.Burst) + ";w=" + strconv.Itoa(int(math.Ceil(float64(b.Burst)/b.Rate)))}
	h["Ratelimit"] = []string{`"requests";r=` + strconv.Itoa(b.Remaining) + ";t=" + seconds(b.Full)}
}
