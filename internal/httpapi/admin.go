package httpapi

import (
	"net/http"
	"strings"
	"time"

	"lockkeeper/internal/locks"
)

// What ends the leases of others, and settings. There is no authentication yet:
// whoever reaches the gateway may, and that is its own machine.

// reasonForm is the field of what needs nothing but words.
type reasonForm struct{ reason string }

func (*reasonForm) names() []string { return []string{"reason"} }

func (f *reasonForm) take(name string, v value) (known bool, p *problem) {
	if name != "reason" {
		return false, nil
	}
	f.reason, p = text(name, v, locks.MaxReasonText)
	return true, p
}

// endForm is the fields of what ends contenders of one lock.
type endForm struct {
	reasonForm
	ns string
}

func (*endForm) names() []string { return []string{"ns", "reason"} }

func (f *endForm) take(name string, v value) (known bool, p *problem) {
	if name == "ns" {
		f.ns, p = namespace(v)
		return true, p
	}
	return f.reasonForm.take(name, v)
}

// ofLock decodes a request about one lock; p is nil when it may go on.
func (x *exchange) ofLock(f form, ns *string, bodyLimit int64) (lock string, p *problem) {
	*ns = locks.DefaultNamespace
	if lock, p = x.lockName(); p == nil {
		p = x.fields(f, bodyLimit)
	}
	if p == nil {
		x.ns = *ns
	}
	return lock, p
}

// done answers what has nothing to say.
func (x *exchange) done(err error) {
	if err != nil {
		x.fail(err)
		return
	}
	x.WriteHeader(http.StatusNoContent)
}

func (x *exchange) breakLease() {
	var form reasonForm
	id, p := x.leaseIDFromPath()
	if p == nil {
		p = x.fields(&form, maxBody)
	}
	if p != nil {
		x.problem(p)
		return
	}
	req := locks.BreakRequest{Principal: locks.Anonymous, ID: id, Reason: form.reason, AtOwner: x.s.fleet != nil}
	err := x.s.locks.Break(x.traced(), req)
	if to := ownerIn(err); to != nil && x.peer == nil {
		// Its owner tells its client in what words it was ended. This gateway ends it when that
		// one cannot.
		if x.mayForward(to) {
			if answer, _ := x.ask(to); answer != nil && answer.Status < http.StatusInternalServerError {
				x.pass(answer)
				return
			}
		}
		req.AtOwner = false
		err = x.s.locks.Break(x.traced(), req)
	}
	x.done(err)
}

// maxContender is the longest name of a contender that is looked for, in bytes.
const maxContender = 1024

func (x *exchange) breakContender() {
	var form endForm
	lock, p := x.ofLock(&form, &form.ns, maxBody)
	var name string
	if p == nil {
		name, p = x.pathSegment("name")
	}
	if p == nil && (name == "" || len(name) > maxContender || strings.ContainsAny(name, "/\x00")) {
		p = &problem{code: string(locks.CodeNoContender), detail: "this is not a contender's name: it is the last part of its znode"}
	}
	if p != nil {
		x.problem(p)
		return
	}
	x.done(x.s.locks.Break(x.traced(), locks.BreakRequest{Principal: locks.Anonymous, NS: form.ns, Lock: lock, Name: name, Reason: form.reason}))
}

// settingsForm is the fields of a lock's settings.
type settingsForm struct{ req locks.SettingsRequest }

func (*settingsForm) names() []string { return []string{"ns", "limit"} }

func (f *settingsForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "ns":
		f.req.NS, p = namespace(v)
	case "limit":
		f.req.Limit, p = integer(name, v, 1, locks.MaxLimit)
	default:
		return false, nil
	}
	return true, p
}

func (x *exchange) configureLock() {
	form := settingsForm{req: locks.SettingsRequest{Principal: locks.Anonymous}}
	var p *problem
	if form.req.Lock, p = x.ofLock(&form, &form.req.NS, maxBody); p == nil {
		p = newLockName(form.req.Lock) // only what can be taken has a limit
	}
	if p == nil && form.req.Limit == 0 {
		p = invalid("limit", "say how many permits the lock has")
	}
	if p != nil {
		x.problem(p)
		return
	}
	lock, err := x.s.locks.Configure(x.r.Context(), form.req)
	if err != nil {
		x.fail(err)
		return
	}
	x.Header()["Etag"] = []string{`"` + lock.Rev + `"`}
	shape := lockShape(&lock)
	x.answer(http.StatusOK, &shape)
}

// namespaceForm is the field of what needs nothing but a lock.
type namespaceForm struct{ ns string }

func (*namespaceForm) names() []string { return []string{"ns"} }

func (f *namespaceForm) take(name string, v value) (known bool, p *problem) {
	if name != "ns" {
		return false, nil
	}
	f.ns, p = namespace(v)
	return true, p
}

func (x *exchange) removeLock() {
	var form namespaceForm
	lock, p := x.ofLock(&form, &form.ns, 0)
	if p != nil {
		x.problem(p)
		return
	}
	x.done(x.s.locks.Remove(x.r.Context(), locks.Anonymous, form.ns, lock))
}

// revokeForm is the fields of a revocation.
type revokeForm struct {
	endForm
	shownForm
	forceAfter time.Duration
}

func (*revokeForm) names() []string {
	return []string{"ns", "reason", "force_after", "lease_ids", "znodes"}
}

func (f *revokeForm) take(name string, v value) (known bool, p *problem) {
	if name == "force_after" {
		f.forceAfter, p = duration(name, v, time.Millisecond, locks.MaxForceAfter)
		return true, p
	}
	if known, p = f.shownForm.take(name, v); known {
		return true, p
	}
	return f.endForm.take(name, v)
}

func (x *exchange) revoke() {
	var form revokeForm
	lock, p := x.ofLock(&form, &form.ns, maxShownBody)
	if p != nil {
		x.problem(p)
		return
	}
	written, ok := x.reserve()
	if !ok {
		return
	}
	defer written()
	answer, err := x.s.locks.Revoke(x.r.Context(), locks.RevokeRequest{
		Principal: locks.Anonymous, NS: form.ns, Lock: lock, Reason: form.reason, ForceAfter: form.forceAfter, Shown: form.shown,
	})
	if err != nil {
		x.fail(err)
		return
	}
	x.answer(http.StatusOK, revokeShape(&answer))
}

// withdrawForm is the fields of the withdrawal of a revocation.
type withdrawForm struct {
	namespaceForm
	shownForm
}

func (*withdrawForm) names() []string { return []string{"ns", "lease_ids", "znodes"} }

func (f *withdrawForm) take(name string, v value) (known bool, p *problem) {
	if known, p = f.shownForm.take(name, v); known {
		return true, p
	}
	return f.namespaceForm.take(name, v)
}

func (x *exchange) withdrawRevocation() {
	var form withdrawForm
	lock, p := x.ofLock(&form, &form.ns, 0)
	if p != nil {
		x.problem(p)
		return
	}
	written, ok := x.reserve()
	if !ok {
		return
	}
	defer written()
	answer, err := x.s.locks.Withdraw(x.r.Context(), locks.WithdrawRequest{Principal: locks.Anonymous, NS: form.ns, Lock: lock, Shown: form.shown})
	if err != nil {
		x.fail(err)
		return
	}
	x.answer(http.StatusOK, withdrawShape(&answer))
}

// maxAge is the oldest that older_than can ask for: ten years.
const maxAge = 87_600 * time.Hour

// reapForm is the fields of a reap.
type reapForm struct {
	shownForm
	req  locks.ReapRequest
	aged bool // older_than was given
}

func (*reapForm) names() []string {
	return []string{"ns", "older_than", "mode", "state", "owner", "foreign", "lease_ids", "znodes", "dry_run", "reason"}
}

func (f *reapForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "ns":
		f.req.NS, p = namespace(v)
	case "older_than":
		f.req.OlderThan, p = duration(name, v, 0, maxAge)
		f.aged = true
	case "mode":
		var mode string
		mode, p = choice(name, v, string(locks.Exclusive), string(locks.Shared), string(locks.Semaphore))
		f.req.Mode = locks.Mode(mode)
	case "state":
		var state string
		state, p = choice(name, v, string(locks.Waiting), string(locks.Held))
		f.req.State = locks.State(state)
	case "owner":
		f.req.Owner, p = someText(name, v, locks.MaxOwner)
	case "foreign":
		var foreign bool
		foreign, p = boolean(name, v)
		f.req.Foreign = &foreign
	case "dry_run":
		f.req.DryRun, p = boolean(name, v)
	case "reason":
		f.req.Reason, p = text(name, v, locks.MaxReasonText)
	default:
		return f.shownForm.take(name, v)
	}
	return true, p
}

func (x *exchange) reap() {
	form := reapForm{req: locks.ReapRequest{Principal: locks.Anonymous}}
	var p *problem
	form.req.Lock, p = x.ofLock(&form, &form.req.NS, maxShownBody)
	form.req.Shown = form.shown
	if p == nil && !form.aged && form.shown.LeaseIDs == nil && form.shown.Znodes == nil {
		// A request without any filter would end everyone.
		p = invalid("older_than", "say how old a contender has to be, such as 10m; 0s is every one")
	}
	if p != nil {
		x.problem(p)
		return
	}
	written, ok := x.reserve()
	if !ok {
		return
	}
	defer written()
	answer, err := x.s.locks.Reap(x.traced(), form.req)
	if err != nil {
		x.fail(err)
		return
	}
	x.answer(http.StatusOK, reapShape(&answer))
}

func (x *exchange) destroy() {
	var form endForm
	lock, p := x.ofLock(&form, &form.ns, maxBody)
	if p != nil {
		x.problem(p)
		return
	}
	answer, err := x.s.locks.Destroy(x.traced(), locks.DestroyRequest{Principal: locks.Anonymous, NS: form.ns, Lock: lock, Reason: form.reason})
	if err != nil {
		x.fail(err)
		return
	}
	x.answer(http.StatusOK, destroyShape(&answer))
}
