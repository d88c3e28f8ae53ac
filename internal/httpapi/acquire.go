package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/locks"
)

// terms are the fields that an acquire has for one lock as for several.
type terms struct {
	req    locks.AcquireRequest
	format string
	more   string // a field that was given and does not go with adding a hold
}

func (*terms) names() []string {
	return []string{"ttl", "wait", "async", "owner", "metadata", "lock_delay", "lock_delay_on", "ephemeral", "hold", "notify_url", "dry_run", "format"}
}

func (f *terms) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "ttl":
		f.req.TTL, p = duration(name, v, locks.MinTTL, locks.MaxTTL)
	case "wait":
		f.req.Wait, p = acquireWait(v)
	case "async":
		f.req.Async, p = boolean(name, v)
	case "owner":
		f.req.Owner, p = text(name, v, locks.MaxOwner)
	case "metadata":
		f.req.Metadata, p = text(name, v, locks.MaxMetadata)
	case "lock_delay":
		f.req.LockDelay, p = duration(name, v, 0, locks.MaxLockDelay)
	case "lock_delay_on":
		var on string
		on, p = choice(name, v, string(locks.DelayOnExpiry), string(locks.DelayAlways))
		f.req.LockDelayOn = locks.DelayOn(on)
	case "ephemeral":
		f.req.Ephemeral, p = boolean(name, v)
	case "hold":
		f.req.Hold, p = holdName(v)
		return true, p
	case "notify_url":
		f.req.NotifyURL, p = someText(name, v, locks.MaxNotifyURL)
	case "dry_run":
		f.req.DryRun, p = boolean(name, v)
	case "format":
		if v.source == fromBody {
			return false, nil // how the answer looks is no part of the request
		}
		f.format, p = choice(name, v, "json", "env")
		return true, p
	default:
		return false, nil
	}
	f.more = name
	return true, p
}

// begin reads the headers.
func (f *terms) begin(h http.Header) (p *problem) {
	f.req.Principal = locks.Anonymous
	if f.req.IdempotencyKey, p = idempotencyKey(h); p != nil {
		return p
	}
	f.req.Token, p = leaseToken(h)
	return p
}

// finish looks at how the fields go together.
func (f *terms) finish(h http.Header) *problem {
	if f.format == "" && prefersText(h) {
		f.format = "env"
	}
	if f.format == "env" && f.req.DryRun {
		return invalid("dry_run", "a dry run is answered in JSON only: leave out format=env, and prefer application/json in Accept")
	}
	if f.req.Token != "" {
		return f.finishHold()
	}
	if f.req.TTL == 0 {
		f.req.TTL = locks.DefaultTTL
	}
	switch {
	case f.req.Async && f.req.Wait != 0:
		return invalid("wait", "async answers at once: leave wait out, and poll the lease with wait")
	case f.req.LockDelayOn != "" && f.req.LockDelay == 0:
		return invalid("lock_delay_on", "it says which ends a lock_delay follows: give lock_delay, too")
	}
	return nil
}

// finishHold: with a token the acquire adds a hold to its lease, as it is.
func (f *terms) finishHold() *problem {
	const detail = "a Lease-Token adds a hold to its lease, and changes nothing else of it: leave this out"
	switch {
	case f.req.Hold == "":
		return invalid("hold", "a Lease-Token adds a hold to its lease: name the hold, or leave the token out")
	case f.more != "":
		return invalid(f.more, detail)
	case f.req.IdempotencyKey != "":
		return invalid("Idempotency-Key", detail+" (it is safe to repeat by the hold's name)")
	}
	return nil
}

// acquireForm is the fields of an acquire of one lock.
type acquireForm struct{ terms }

func (f *acquireForm) names() []string {
	return append([]string{"mode", "limit", "permits", "ns"}, f.terms.names()...)
}

func (f *acquireForm) take(name string, v value) (known bool, p *problem) {
	want := locks.Want{NS: f.req.NS, Mode: f.req.Mode, Limit: f.req.Limit, Permits: f.req.Permits}
	if name == "lock" {
		return false, nil // it is in the path
	}
	if known, p = takeWant(&want, name, v); !known {
		return f.terms.take(name, v)
	}
	f.req.NS, f.req.Mode, f.req.Limit, f.req.Permits = want.NS, want.Mode, want.Limit, want.Permits
	if name != "ns" {
		f.more = name
	}
	return true, p
}

// takeWant sets a field of one lock of an acquire.
func takeWant(w *locks.Want, name string, v value) (known bool, p *problem) {
	switch name {
	case "lock":
		if v.kind != isText {
			return true, invalid(name, "it is a string")
		}
		w.Lock, p = v.text, newLockName(v.text)
	case "ns":
		w.NS, p = namespace(v)
	case "mode":
		var mode string
		mode, p = choice(name, v, string(locks.Exclusive), string(locks.Shared), string(locks.Semaphore))
		w.Mode = locks.Mode(mode)
	case "limit":
		w.Limit, p = integer(name, v, 1, locks.MaxLimit)
	case "permits":
		w.Permits, p = integer(name, v, 1, locks.MaxLimit)
	default:
		return false, nil
	}
	return true, p
}

// completeWant looks at how the fields of one lock go together, and says what
// was left unsaid: a request that says it is the same request.
func completeWant(w *locks.Want) *problem {
	const detail = "it goes with mode=semaphore"
	switch {
	case w.Limit != 0 && w.Mode != locks.Semaphore:
		return invalid("limit", detail)
	case w.Permits != 0 && w.Mode != locks.Semaphore:
		return invalid("permits", detail)
	case w.Limit != 0 && w.Permits > w.Limit:
		return invalid("permits", "they are more than the limit: it would never be granted")
	}
	if w.Mode == "" {
		w.Mode = locks.Exclusive
	}
	if w.Mode == locks.Semaphore && w.Permits == 0 {
		w.Permits = 1
	}
	return nil
}

// acquireWait reads wait, which besides a duration can be 0 or forever.
func acquireWait(v value) (time.Duration, *problem) {
	if v.kind == isText {
		switch v.text {
		case "0":
			return 0, nil
		case "forever":
			return locks.WaitForever, nil
		}
	}
	wait, p := duration("wait", v, 0, maxWait)
	if p != nil && p.code == codeInvalidField {
		p.detail += ", or forever"
	}
	return wait, p
}

// decode reads the whole request.
func (f *acquireForm) decode(x *exchange) *problem {
	f.req.NS = locks.DefaultNamespace
	var p *problem
	if f.req.Lock, p = x.newLockName(); p != nil {
		return p
	}
	if p = f.begin(x.r.Header); p != nil {
		return p
	}
	if p = x.fields(f, maxBody); p != nil {
		return p
	}
	x.ns, x.owner = f.req.NS, f.req.Owner
	if p = f.finish(x.r.Header); p != nil || f.req.Token != "" {
		return p
	}
	want := locks.Want{Mode: f.req.Mode, Limit: f.req.Limit, Permits: f.req.Permits}
	p = completeWant(&want)
	f.req.Mode, f.req.Permits = want.Mode, want.Permits
	return p
}

func (x *exchange) acquire() {
	var form acquireForm
	if p := form.decode(x); p != nil {
		x.problem(p)
		return
	}
	x.queue(&form.terms)
}

// queue asks the manager for what the terms say, and answers.
func (x *exchange) queue(form *terms) {
	ctx := x.r.Context()
	var unpark func()
	x.wait = form.req.Wait
	if form.req.Wait > 0 {
		var p *problem
		if ctx, unpark, p = x.park(); p != nil {
			x.problem(p)
			return
		}
	}
	result, err := x.s.locks.Acquire(ctx, form.req)
	if unpark != nil {
		unpark()
	}
	x.s.metrics.Acquire(acquireResult(&result, err), time.Since(x.started))
	if form.req.Token != "" {
		x.tell(form.req.Token, err)
	}
	if err != nil {
		if to := ownerIn(err); to != nil && form.req.IdempotencyKey == "" && form.req.Token == "" {
			// Elsewhere it would be a new request: its place here is given up.
			x.problem(problemOf(err))
			return
		}
		x.fail(err)
		return
	}
	if result.DryRun != nil {
		x.answer(http.StatusOK, dryRunShape(result.DryRun))
		return
	}
	if form.req.Wait > 0 && result.Lease.State == locks.Waiting && x.s.drained.Err() != nil {
		// It asked to hold the lock: a 202 would look like success to a script.
		// Its place is kept, and the repeat with the same key finds it.
		x.leaseID = result.Lease.ID
		x.problem(draining())
		return
	}
	x.acquired(&result, form.format == "env")
}

func (x *exchange) acquired(result *locks.AcquireResult, env bool) {
	lease := &result.Lease
	x.leaseID = lease.ID
	h := x.Header()
	h["Location"] = []string{"/v1/leases/" + lease.ID}
	status := http.StatusCreated
	switch {
	case result.Replayed:
		status = http.StatusOK
		h["Idempotency-Replayed"] = []string{"true"}
	case result.HoldAdded:
		status = http.StatusOK
	case lease.State != locks.Held:
		status = http.StatusAccepted
	}
	contentType := typeJSON
	switch {
	case env && lease.State == locks.Ended:
		// A script would go on: a success is a lease that holds, or waits.
		delete(h, "Location")
		delete(h, "Idempotency-Replayed")
		x.problem(&problem{code: code(locks.CodeEnded), reason: lease.Reason, detail: "the lease has ended; acquire the lock anew, with a fresh idempotency key"})
		return
	case env:
		contentType = typeText
		if asked := status; x.encodeShell(shellLease(lease, status)) != asked {
			x.send(http.StatusInternalServerError, contentType)
			return
		}
	default:
		shape := leaseShape(lease)
		x.encode(&shape)
	}
	if lease.State != locks.Ended {
		x.confirmed(lease.Term, status, contentType) // whoever waits counts on its place
		return
	}
	x.send(status, contentType)
}

// acquireResult is the label of an acquire in the metrics.
func acquireResult(result *locks.AcquireResult, err error) string {
	switch {
	case err != nil:
		return problemOf(err).code
	case result.Replayed:
		return "replayed"
	case result.HoldAdded:
		return "hold_added"
	case result.DryRun != nil:
		return "dry_run"
	default:
		return string(result.Lease.State)
	}
}

// prefersText reports whether the Accept header asks for text rather than JSON.
// Among equals JSON is given: curl and browsers accept everything.
func prefersText(h http.Header) bool {
	accept := h["Accept"]
	if len(accept) == 0 || len(accept) == 1 && (accept[0] == "*/*" || accept[0] == "application/json") {
		return false
	}
	var plain, structured float64
	anyType := -1.0
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		mediaType, params, _ := strings.Cut(part, ";")
		q := quality(params)
		switch strings.ToLower(strings.TrimSpace(mediaType)) {
		case "text/plain":
			plain = q
		case "application/json", "application/*":
			structured = max(structured, q)
		case "*/*":
			anyType = q
		}
	}
	return plain > max(structured, anyType)
}

// quality is the q of one element of an Accept header (RFC 9110, section 12.4.2).
func quality(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		if q, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
			if f, err := strconv.ParseFloat(q, 64); err == nil {
				return f
			}
		}
	}
	return 1
}
