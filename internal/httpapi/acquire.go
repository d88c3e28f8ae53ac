package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// acquireInput is an acquire of one lock or several, and how its answer looks.
type acquireInput struct {
	locks.AcquireRequest
	format string // "env" or "json"
}

// acquiring is an acquire with its answer: a kilobyte that waits with its exchange for the next one.
type acquiring struct {
	in     acquireInput
	result locks.AcquireResult
}

// forAcquire is where the exchange has its acquire. It is empty.
func (x *exchange) forAcquire() *acquiring {
	if x.acquiring == nil {
		x.acquiring = new(acquiring)
	}
	return x.acquiring
}

// commonFields are those that an acquire has for one lock as for several.
var commonFields = []field[acquireInput]{
	{name: "Idempotency-Key", in: inHeader, to: func(a *acquireInput) any { return (*idempotencyKey)(&a.IdempotencyKey) }},
	{name: "Lease-Token", in: inHeader, zero: true, to: func(a *acquireInput) any { return (*secret)(&a.Token) }},
	{name: "ttl", to: func(a *acquireInput) any { return &a.TTL }},
	{name: "wait", to: func(a *acquireInput) any { return (*patience)(&a.Wait) }},
	{name: "async", to: func(a *acquireInput) any { return &a.Async }},
	{name: "owner", zero: true, to: func(a *acquireInput) any { return &a.Owner }},
	{name: "metadata", zero: true, to: func(a *acquireInput) any { return (*metadata)(&a.Metadata) }},
	{name: "lock_delay", zero: true, to: func(a *acquireInput) any { return &a.LockDelay }},
	{name: "lock_delay_on", to: func(a *acquireInput) any { return &a.LockDelayOn }},
	{name: "ephemeral", to: func(a *acquireInput) any { return &a.Ephemeral }},
	{name: "hold", to: func(a *acquireInput) any { return &a.Hold }},
	{name: "at_least", zero: true, to: func(a *acquireInput) any { return &a.AtLeast }},
	{name: "notify_url", to: func(a *acquireInput) any { return &a.NotifyURL }},
	{name: "reason", zero: true, to: func(a *acquireInput) any { return &a.Purpose }},
	{name: "for", to: func(a *acquireInput) any { return &a.For }},
	{name: "until", to: func(a *acquireInput) any { return &a.Until }},
	{name: "deadlock", to: func(a *acquireInput) any { return (*string)(&a.Deadlock) }},
	{name: "format", in: inQuery, to: func(a *acquireInput) any { return oneOf{&a.format, []string{"json", "env"}} }}, // no part of what is asked for
}

var acquireOne = operation[acquireInput]{body: maxBody, fields: slices.Concat([]field[acquireInput]{
	{name: "lock", in: inPath, to: func(a *acquireInput) any { return (*lockName)(&a.Lock) }},
	{name: "mode", to: func(a *acquireInput) any { return &a.Mode }},
	{name: "limit", to: func(a *acquireInput) any { return &a.Limit }},
	{name: "permits", to: func(a *acquireInput) any { return &a.Permits }},
	{name: "once_per", zero: true, to: func(a *acquireInput) any { return &a.OncePer }},
	{name: "period", to: func(a *acquireInput) any { return &a.Period }},
	{name: "done_on", to: func(a *acquireInput) any { return &a.DoneOn }},
	{name: "ns", preset: locks.DefaultNamespace, to: func(a *acquireInput) any { return &a.NS }},
}, commonFields)}

var acquireGroup = operation[acquireInput]{body: maxBody, fields: slices.Concat([]field[acquireInput]{
	{name: "locks", to: func(a *acquireInput) any { return (*wants)(&a.Group) }},
}, commonFields)}

// wantFields are those of one of several locks.
var wantFields = operation[locks.Want]{fields: []field[locks.Want]{
	{name: "lock", in: inBody, zero: true, to: func(w *locks.Want) any { return &w.Lock }},
	{name: "ns", in: inBody, to: func(w *locks.Want) any { return &w.NS }},
	{name: "mode", in: inBody, to: func(w *locks.Want) any { return &w.Mode }},
	{name: "limit", in: inBody, to: func(w *locks.Want) any { return &w.Limit }},
	{name: "permits", in: inBody, to: func(w *locks.Want) any { return &w.Permits }},
}}

// wants are several locks: an array of objects, in the query names with commas between.
type wants []locks.Want

func (w *wants) read(name string, v value) error {
	if v.plain() {
		for lock := range strings.SplitSeq(v.text, ",") {
			if err := recipe.CheckLockName(lock); isSecret(lock) {
				return invalid(fmt.Sprintf("locks[%d]", len(*w)), tokenHint(lock))
			} else if err != nil {
				return invalid(fmt.Sprintf("locks[%d]", len(*w)), err.Error())
			}
			*w = append(*w, locks.Want{Lock: lock})
		}
		return nil
	}
	elements, ok := decodeArray(v)
	if !ok || len(elements) == 0 {
		return invalid(name, "locks must be an array of objects, such as [{\"lock\": \"a\"}, {\"lock\": \"b\", \"mode\": \"shared\"}]")
	}
	*w = make(wants, len(elements))
	for i, element := range elements {
		if err := (*w)[i:].readOne(element); err != nil {
			p := problemOf(err)
			p.field = strings.TrimSuffix(fmt.Sprintf("locks[%d].%s", i, p.field), ".")
			return p
		}
	}
	return nil
}

// readOne reads the first of the locks.
func (w wants) readOne(element json.RawMessage) error {
	if element[0] != '{' {
		return invalid("", "it must be an object, such as {\"lock\": \"a\"}")
	}
	d := decoder[locks.Want]{op: &wantFields, into: &w[0], what: "each of locks"}
	return decodeObject(element, d.take)
}

func (l *leases) acquire(x *exchange) error {
	a := x.forAcquire()
	if err := decode(x, &acquireOne, &a.in); err != nil {
		return err
	}
	return l.queue(x, a)
}

func (l *leases) acquireSeveral(x *exchange) error {
	a := x.forAcquire()
	in := &a.in
	if err := decode(x, &acquireGroup, in); err != nil {
		return err
	}
	x.line.lock = namesOf(in.Group)
	switch {
	case in.Token != "":
		return invalid("Lease-Token", "this takes a lease that is not there yet: a hold is added at one of the locks of its lease, with POST /v1/locks/{lock}/leases")
	case in.Group == nil:
		return invalid("locks", "name the locks: locks=a,b in the query, or an array of objects in the body")
	}
	return l.queue(x, a)
}

// namesOf joins the names of several locks for the log.
func namesOf(group []locks.Want) string {
	const most = 256
	var b strings.Builder
	for i, want := range group {
		if i > 0 {
			b.WriteByte(',')
		}
		if b.Len()+len(want.Lock) > most {
			b.WriteString("...")
			break
		}
		b.WriteString(want.Lock)
	}
	return b.String()
}

// queue asks the manager for what the request says, and answers.
func (l *leases) queue(x *exchange, a *acquiring) error {
	in, result := &a.in, &a.result
	in.Principal, in.Client = x.principal(), x.client()
	x.line.by(in.Owner)
	if in.format == "" && prefersText(x.r.Header) {
		in.format = "env"
	}
	ctx, end, err := x.takePlaceInQueue(in.Wait)
	if err != nil {
		return err
	}
	*result, err = l.locks.Acquire(ctx, in.AcquireRequest)
	end()
	x.s.metrics.Acquire(acquireResult(result, err), time.Since(x.started))
	if in.Token != "" {
		x.tell(in.Token, err)
	}
	lease := &result.Lease
	switch {
	case err == nil && result.Done != nil:
		return doneBefore(x, result.Done, in.format == "env")
	case err != nil && in.IdempotencyKey == "" && in.Token == "":
		return problemOf(err) // at another gateway it would be a new request: its place here is given up
	case err != nil:
		return err
	case lease.State == locks.Ended:
		// A client would go on: a success is a lease that holds, or waits.
		return &problem{code: code(locks.CodeEnded), reason: lease.Reason, detail: "the lease has ended; acquire the lock anew, with a fresh idempotency key"}
	}
	x.line.lease = lease.ID
	if in.Wait > 0 && lease.State == locks.Waiting && x.s.drained.Err() != nil {
		// It asked to hold the lock: a 202 would look like success to a script. Its place is kept, and the repeat with the
		// same key finds it.
		return draining()
	}
	return acquired(x, result, in.format == "env")
}

func acquired(x *exchange, result *locks.AcquireResult, env bool) error {
	lease := &result.Lease
	h := x.Header()
	x.location[0] = "/v1/leases/" + lease.ID
	h["Location"] = x.location[:]
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
	if env {
		contentType = typeText
		if asked := status; x.encodeShell(shellLease(lease, status)) != asked {
			return x.send(http.StatusInternalServerError, contentType)
		}
	} else {
		x.encodeLease(lease)
	}
	return x.confirmed(lease.Term, status, contentType) // a client that waits counts on its place
}

var previewAcquire = operation[locks.AcquireRequest]{fields: ofLock(
	func(a *locks.AcquireRequest) *string { return &a.Lock }, func(a *locks.AcquireRequest) *string { return &a.NS },
	field[locks.AcquireRequest]{name: "mode", to: func(a *locks.AcquireRequest) any { return &a.Mode }},
	field[locks.AcquireRequest]{name: "limit", to: func(a *locks.AcquireRequest) any { return &a.Limit }},
	field[locks.AcquireRequest]{name: "permits", to: func(a *locks.AcquireRequest) any { return &a.Permits }},
	field[locks.AcquireRequest]{name: "once_per", zero: true, to: func(a *locks.AcquireRequest) any { return &a.OncePer }},
	field[locks.AcquireRequest]{name: "period", to: func(a *locks.AcquireRequest) any { return &a.Period }},
)}

// previewAcquire answers with what an acquire would find. Nothing is done.
func (l *leases) previewAcquire(x *exchange) error {
	req := locks.AcquireRequest{Principal: x.principal(), DryRun: true}
	if err := decode(x, &previewAcquire, &req); err != nil {
		return err
	}
	found, err := l.locks.Acquire(x.r.Context(), req)
	switch {
	case err != nil:
		return err
	case found.Done != nil:
		return doneBefore(x, found.Done, false)
	}
	return x.answer(&api.Preview{State: api.LivingState(found.DryRun.State), QueueLength: found.DryRun.QueueLength, Holders: contenders(found.DryRun.Holders)})
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
	case result.Done != nil:
		return "done"
	default:
		return string(result.Lease.State)
	}
}

// tell puts the lease that a token names into the log, unless the manager has found that the token is not genuine: then it is
// the client's invention.
func (x *exchange) tell(token string, err error) {
	if e, ok := errors.AsType[*locks.Error](err); x.line.lease == "" && (!ok || e.Code != locks.CodeTokenWrong) {
		x.line.lease = leaseOf(token)
	}
}

// idempotencyKey is the key bare or as a string of a structured field (RFC 9651, section 3.3.3), which are the same key.
type idempotencyKey string

func (k *idempotencyKey) read(name string, v value) error {
	key, quoted := strings.CutPrefix(strings.TrimSpace(v.text), `"`)
	if !quoted {
		return (*secret)(k).read(name, v)
	}
	var b strings.Builder
	for ; key != "" && key[0] != '"'; key = key[1:] {
		if key[0] == '\\' {
			if key = key[1:]; key == "" || key[0] != '"' && key[0] != '\\' {
				break
			}
		}
		b.WriteByte(key[0])
	}
	if key != `"` {
		return invalid(name, "Idempotency-Key begins with a quote, and must be one string: \"...\", or have no quotes")
	}
	return (*secret)(k).read(name, value{text: b.String()})
}
