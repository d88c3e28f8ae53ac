package httpapi

import (
	"errors"
	"strings"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/httpapi/compat"
	"lockkeeper/internal/httpapi/compat/fleetlock"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

const fleetLockPath = compat.Prefix + compat.FleetLock + "/v1/"

// fleetLockProblem is a problem as the protocol has errors: kind and value, and the members of every problem beside them.
type fleetLockProblem struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
	api.Problem
}

// inFleetLock reports whether a request is the protocol's.
func (x *exchange) inFleetLock() bool {
	return strings.HasPrefix(x.r.URL.Path, fleetLockPath)
}

// kindOf is one of few words, as the protocol asks: clients count by it.
func kindOf(p *problem) string {
	if p.code == code(locks.CodeHeldByOther) {
		return fleetlock.Full
	}
	return p.code
}

// fleetLockClient reads a request, and refuses a caller that may not have the group's lock.
func fleetLockClient(x *exchange) (c fleetlock.Client, err error) {
	if err := decode(x, &unreadBody, new(struct{})); err != nil {
		return c, err
	}
	if text, _, err := x.single(fleetlock.Header); err != nil || text != "true" {
		return c, invalid("fleet-lock-protocol", "the header fleet-lock-protocol must be true")
	}
	body, err := x.readBody(maxBody)
	if err != nil {
		return c, err
	}
	c, err = fleetlock.Read(body)
	if wrong, ok := errors.AsType[*fleetlock.Wrong](err); ok {
		return c, invalid(wrong.Field, wrong.Detail)
	}
	x.line.ns, x.line.lock, x.line.owner = locks.DefaultNamespace, c.Lock(), owned(c)
	return c, mayAsk(x, access.Acquire, locks.DefaultNamespace, c.Lock())
}

// unreadBody is an operation without fields, whose body the handler reads.
var unreadBody = operation[struct{}]{body: unread}

// owned is the owner of the client's leases, for people: as much of the id as an owner may have.
func owned(c fleetlock.Client) string { return locks.CutText(c.ID, locks.MaxOwner) }

// slots are the client's holders in the order of the queue: one, or more after requests of the same client at the same time.
func (a *adapters) slots(x *exchange, c fleetlock.Client) (list []locks.Contender, err error) {
	all, _, err := a.queueOf(x, locks.DefaultNamespace, c.Lock())
	mark := c.Mark()
	for i := range all {
		if h := &all[i]; ofProtocol(h) && !h.Delayed && h.Metadata == mark {
			if err := mayActFor(x, h); err != nil {
				return nil, err
			}
			list = append(list, *h)
		}
	}
	return list, err
}

// preReboot is RecursiveLock. A client that has a slot keeps it.
func (a *adapters) preReboot(x *exchange) error {
	c, err := fleetLockClient(x)
	if err != nil {
		return err
	}
	again, err := a.keepSlot(x, c)
	if again || err != nil {
		return err
	}
	lease, err := a.takeSlot(x, c)
	if err != nil {
		// A request of the same client may have taken the last slot meanwhile.
		if p := problemOf(err); p.code == code(locks.CodeHeldByOther) {
			if again, failed := a.keepSlot(x, c); again || failed != nil {
				return failed
			}
			p.detail, p.holders, p.queueLength = "all slots of "+c.Lock()+" are taken: repeat the request later", nil, 0
			return p
		}
		return err
	}
	// Of requests of the same client at the same time the first in the queue stays. Each of them sees those before it.
	all, err := a.slots(x, c)
	switch {
	case err != nil:
		return err
	case len(all) > 0 && all[0].LeaseID != lease.ID:
		if err := a.release(x, &locks.Contender{LeaseID: lease.ID, Owner: lease.Owner}); err != nil {
			return err
		}
		return x.answer(struct{}{})
	}
	return x.granted(lease.Term, struct{}{})
}

// keepSlot answers when the client has a slot.
func (a *adapters) keepSlot(x *exchange, c fleetlock.Client) (has bool, err error) {
	all, err := a.slots(x, c)
	if len(all) == 0 || err != nil {
		return false, err
	}
	return true, a.keepFor(x, &all[0], struct{}{})
}

// takeSlot acquires a permit. The limit is the one that the lock has; a lock without one gets FleetLockLimit.
func (a *adapters) takeSlot(x *exchange, c fleetlock.Client) (locks.Lease, error) {
	req := locks.AcquireRequest{NS: locks.DefaultNamespace, Lock: c.Lock(), Mode: locks.Semaphore, Limit: a.FleetLockLimit, Owner: owned(c), Purpose: "reboot", Metadata: c.Mark()}
	lease, err := a.take(x, req)
	if err != nil && problemOf(err).code == code(locks.CodeSettingsDiffer) {
		req.Limit = 0
		lease, err = a.take(x, req)
	}
	return lease, err
}

// steadyState is UnlockIfHeld.
func (a *adapters) steadyState(x *exchange) error {
	c, err := fleetLockClient(x)
	if err != nil {
		return err
	}
	all, err := a.slots(x, c)
	if err != nil {
		return err
	}
	for i := range all {
		if err := a.release(x, &all[i]); err != nil {
			return err
		}
	}
	return x.answer(struct{}{})
}
