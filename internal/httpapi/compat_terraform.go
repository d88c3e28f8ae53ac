package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"path"
	"time"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/httpapi/compat"
	"lockkeeper/internal/httpapi/compat/terraform"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

const terraformPath = compat.Prefix + compat.Terraform + "/"

const noStates = "; it keeps locks, and no states: give it as lock_address and unlock_address alone, and another address for the state"

func init() {
	chi.RegisterMethod(terraform.MethodLock)
	chi.RegisterMethod(terraform.MethodUnlock)
}

// mountTerraform gives the backend its methods, and those to which lock_method and unlock_method are set where a proxy lets no
// others pass. A state is never asked for at the same path: GET is not there, and a POST without a lock info is refused.
func (a *adapters) mountTerraform() {
	const pattern = terraformPath + "{lock}"
	for _, method := range []string{terraform.MethodLock, http.MethodPost, http.MethodPut} {
		a.s.mountAdapter(method, pattern, "TerraformLock", a.lockState)
	}
	for _, method := range []string{terraform.MethodUnlock, http.MethodDelete} {
		a.s.mountAdapter(method, pattern, "TerraformUnlock", a.unlockState)
	}
}

// stateLock is the lock of a state, and the info that a request carries.
type stateLock struct {
	lock, ns string
	info     terraform.Info
	empty    bool // there is no body
}

var stateLockFields = operation[stateLock]{body: unread, fields: []field[stateLock]{
	{name: "lock", in: inPath, to: func(s *stateLock) any { return (*lockName)(&s.lock) }},
	{name: "ns", in: inQuery, preset: locks.DefaultNamespace, to: func(s *stateLock) any { return &s.ns }},
}}

// readStateLock reads a request, and refuses a caller that may not do this with the lock.
func readStateLock(x *exchange) (s stateLock, err error) {
	if err := decode(x, &stateLockFields, &s); err != nil {
		return s, err
	}
	if err := locks.CheckPlace(&s.ns, &s.lock); err != nil {
		return s, err
	}
	body, err := x.readBody(maxBody)
	if err != nil {
		return s, err
	}
	if s.empty = len(body) == 0; !s.empty || x.operation == "TerraformLock" {
		s.info, err = terraform.Read(body)
		if wrong, ok := errors.AsType[*terraform.Wrong](err); ok {
			return s, invalid(wrong.Field, wrong.Detail)
		}
	}
	if s.empty && x.r.Method == http.MethodDelete {
		return s, invalid("ID", "the body must be a lock info with the ID"+noStates)
	}
	verb := access.Acquire
	if x.operation == "TerraformUnlock" && (s.empty || s.info.Forced()) {
		verb = access.Operate // force-unlock
	}
	return s, mayAsk(x, verb, s.ns, s.lock)
}

// holder is what stands in the way of a lock: its first holder, or else the first waiter; nil when the lock is free.
func (a *adapters) holder(x *exchange, s *stateLock) (*locks.Contender, error) {
	holders, first, err := a.queueOf(x, s.ns, s.lock)
	if len(holders) > 0 {
		first = &holders[0]
	}
	return first, err
}

// lockState takes the lock under the id of the lock info. A repeat with the same id is answered as the first time.
func (a *adapters) lockState(x *exchange) error {
	s, err := readStateLock(x)
	if err != nil {
		return err
	}
	req := locks.AcquireRequest{NS: s.ns, Lock: s.lock, Owner: locks.CutText(cmp.Or(s.info.Who, s.info.ID), locks.MaxOwner), Purpose: s.info.Operation, Metadata: s.info.String()}
	for range 2 {
		h, err := a.holder(x, &s)
		switch {
		case err != nil:
			return err
		case h != nil && s.locked(h) && h.Position == 0 && !h.Delayed:
			if err := mayActFor(x, h); err != nil {
				return err
			}
			return a.keepFor(x, h, &s.info)
		case h != nil:
			return x.locked(http.StatusLocked, h)
		}
		lease, err := a.take(x, req)
		if err == nil {
			return x.granted(lease.Term, &s.info)
		}
		if p := problemOf(err); p.code != code(locks.CodeHeldByOther) && p.code != code(locks.CodeLockDelayed) {
			return err
		}
	}
	return &problem{code: code(locks.CodeUnavailable), detail: "the lock changes hands at the moment: repeat the request"}
}

// locked reports whether a lease was taken by LOCK under the ID of the request. A lease of the API is not, though it is shown
// under an ID, too.
func (s *stateLock) locked(h *locks.Contender) bool {
	info, ok := terraform.Of(h.Metadata)
	return ok && ofProtocol(h) && info.ID == s.info.ID
}

// unlockState releases the lock for the client that has locked it. force-unlock breaks it.
func (a *adapters) unlockState(x *exchange) error {
	s, err := readStateLock(x)
	if err != nil {
		return err
	}
	h, err := a.holder(x, &s)
	switch {
	case err != nil:
		return err
	case h == nil: // a repeat, or the lock ended otherwise: it is not locked
		return x.answer(struct{}{})
	case !s.empty && infoOf(h).ID != s.info.ID && h.LeaseID != s.info.ID:
		return x.locked(http.StatusConflict, h)
	case s.empty || s.info.Forced() || !s.locked(h):
		err = a.forceUnlock(x, &s, h)
	default:
		if err = mayActFor(x, h); err == nil {
			err = a.release(x, h)
		}
	}
	if err != nil {
		return err
	}
	return x.answer(struct{}{})
}

// forceUnlock breaks a lease, or another program's contender, as an administrator does.
func (a *adapters) forceUnlock(x *exchange, s *stateLock, h *locks.Contender) error {
	x.operation, x.line.lease, x.line.owner = "TerraformForceUnlock", h.LeaseID, h.Owner
	req := locks.BreakRequest{Principal: x.principal(), Client: x.client(), ID: h.LeaseID, Reason: "force-unlock", AtOwner: x.s.forwarder.fleet != nil}
	if h.LeaseID == "" {
		req.NS, req.Lock, req.Name = s.ns, s.lock, path.Base(h.Znode)
	}
	err := a.locks.Break(x.traced(), req)
	if to := ownerIn(err); to != nil {
		if x.s.forwarder.may(x, to) {
			err = x.askOwner(to, "BreakLease", http.MethodPost, "/v1/leases/"+h.LeaseID+"/break?reason="+req.Reason, "")
		}
		if e, ok := errors.AsType[*locks.Error](err); err != nil && (!ok || e.Code != locks.CodeEnded) {
			req.AtOwner = false // this gateway ends the lease where the owner cannot
			err = a.locks.Break(x.traced(), req)
		}
	}
	if e, ok := errors.AsType[*locks.Error](err); ok && (e.Code == locks.CodeEnded || e.Code == locks.CodeNoContender) {
		return nil // meanwhile
	}
	return err
}

// infoOf is the lock info of a contender: what its client has sent, or for a lease of another client what is known of it.
func infoOf(c *locks.Contender) terraform.Info {
	if info, ok := terraform.Of(c.Metadata); ok && c.Foreign == nil {
		return info
	}
	info := terraform.Info{ID: cmp.Or(c.LeaseID, path.Base(c.Znode)), Operation: "not of Terraform", Who: c.Owner, Info: c.Metadata}
	if c.AgeKnown {
		info.Created = c.At.Add(-c.Age).UTC().Truncate(time.Second)
	}
	return info
}

// locked answers with the info of the holder.
func (x *exchange) locked(status int, h *locks.Contender) error {
	x.line.code = code(locks.CodeHeldByOther)
	x.encode(new(infoOf(h)))
	return x.send(status, typeJSON)
}
