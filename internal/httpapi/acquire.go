package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/locks"
)

// acquireForm is the fields of an acquire.
type acquireForm struct {
	req    locks.AcquireRequest
	format string
}

func (*acquireForm) names() []string {
	return []string{"ttl", "wait", "async", "mode", "owner", "metadata", "ns", "format"}
}

func (f *acquireForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "ttl":
		f.req.TTL, p = duration(name, v, locks.MinTTL, locks.MaxTTL)
	case "wait":
		f.req.Wait, p = acquireWait(v)
	case "async":
		f.req.Async, p = boolean(name, v)
	case "mode":
		_, p = choice(name, v, string(locks.Exclusive))
	case "owner":
		f.req.Owner, p = text(name, v, locks.MaxOwner)
	case "metadata":
		f.req.Metadata, p = text(name, v, locks.MaxMetadata)
	case "ns":
		f.req.NS, p = namespace(v)
	case "format":
		if v.source == fromBody {
			return false, nil // how the answer looks is no part of the request
		}
		f.format, p = choice(name, v, "json", "env")
	default:
		return false, nil
	}
	return true, p
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
	f.req.Principal, f.req.NS, f.req.TTL = locks.Anonymous, locks.DefaultNamespace, locks.DefaultTTL
	var p *problem
	if f.req.Lock, p = x.lockName(); p != nil {
		return p
	}
	if f.req.IdempotencyKey, p = idempotencyKey(x.r.Header); p != nil {
		return p
	}
	if p = x.fields(f, maxBody); p != nil {
		return p
	}
	x.ns, x.owner = f.req.NS, f.req.Owner
	if f.req.Async && f.req.Wait != 0 {
		return invalid("wait", "async answers at once: leave wait out, and poll the lease with wait")
	}
	if f.format == "" && prefersText(x.r.Header) {
		f.format = "env"
	}
	return nil
}

func (x *exchange) acquire() {
	var form acquireForm
	if p := form.decode(x); p != nil {
		x.problem(p)
		return
	}
	ctx := x.r.Context()
	var unpark func()
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
	if err != nil {
		x.fail(err)
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
	case lease.State != locks.Held:
		status = http.StatusAccepted
	}
	contentType := typeJSON
	if env {
		contentType = typeText
		x.encodeEnv(lease)
	} else {
		shape := leaseShape(lease)
		x.encode(&shape)
	}
	if lease.State == locks.Held {
		x.confirmed(lease.Basis, status, contentType)
		return
	}
	x.send(status, contentType)
}

// encodeEnv writes lines for a shell to eval. Nothing needs quoting: an id is
// base32, a token adds dots and base64url, a fencing token is digits. It is
// empty while the lease waits, so that an older one does not live on.
func (x *exchange) encodeEnv(lease *locks.Lease) {
	x.out.Reset()
	x.out.WriteString("LEASE_ID=" + lease.ID + "\nLEASE_TOKEN=" + lease.Token + "\nFENCING_TOKEN=")
	if lease.FencingToken != 0 {
		x.out.WriteString(strconv.FormatInt(lease.FencingToken, 10))
	}
	x.out.WriteByte('\n')
}

// acquireResult is the label of an acquire in the metrics.
func acquireResult(result *locks.AcquireResult, err error) string {
	switch {
	case err != nil:
		return problemOf(err).code
	case result.Replayed:
		return "replayed"
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
