// Package outbox ties the lock manager to the webhooks: neither knows the other.
//
// A Box is the manager's Outbox: it translates each call for the webhooks. It keeps
// nothing, owns no goroutine, and returns at once. A feed translates events for them.
package outbox

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
)

// Box is the webhooks as the lock manager sees them. Connect it before the
// manager runs.
type Box struct{ service *webhooks.Service }

// Connect makes the service of a manager whose Outbox is this box. It sets the options that
// depend on the manager. hub is where the manager publishes; nil: nothing is delivered as best effort.
func (o *Box) Connect(m *manager.Manager, hub *events.Hub, options webhooks.Options) *webhooks.Service {
	if hub != nil {
		options.Feed = newFeed(hub, m)
	}
	options.Store = m.Nodes()
	options.Mine = func(entry string) bool {
		lease := webhooks.LeaseOf(entry)
		return lease == "" || m.Delivers(lease)
	}
	options.MineFrom = func(entry, gateway string) bool { return m.DeliversFor(gateway, entry) }
	options.Changed, options.Dropped = m.OutboxChanged, m.OutboxDropped
	options.Secrets = func(e *webhooks.Entry) (secrets []webhooks.Secret) {
		for _, value := range m.NotifySecrets(webhooks.LeaseOf(e.Name)) {
			secrets = append(secrets, webhooks.Secret{Value: value})
		}
		return secrets
	}
	o.service = webhooks.New(options)
	return o.service
}

// Ending implements manager.Outbox.
func (o *Box) Ending(notify bool, describe func() *manager.Ending) ([]zk.Op, any, bool) {
	ops, entry, ready := o.service.Ending(notify, func() *webhooks.End { return endOf(describe()) })
	return ops, entry, ready
}

// Notify implements manager.Outbox.
func (o *Box) Notify(e *manager.Ending) ([]zk.Op, any) { return o.service.Notify(endOf(e)) }

// CheckURL implements manager.Outbox.
func (o *Box) CheckURL(url string) error { return o.service.CheckURL(url) }

// Ended implements manager.Outbox.
func (o *Box) Ended(entry any, ops []zk.Op, res zk.Result) {
	e, _ := entry.(*webhooks.Entry)
	o.service.Ended(e, ops, res)
}

// Gone implements manager.Outbox.
func (o *Box) Gone(e *manager.Ending) { o.service.Record(endOf(e)) }

// Look implements manager.Outbox.
func (o *Box) Look() { o.service.Refresh() }

// Adopt implements manager.Outbox.
func (o *Box) Adopt() { o.service.Adopt() }

// typeOf is the type of its message.
func typeOf(e *manager.Ending) string {
	if e.Granted {
		return webhooks.Granted
	}
	switch e.Reason {
	case locks.ReasonReleased:
		return webhooks.Released
	case locks.ReasonExpired:
		return webhooks.Expired
	case locks.ReasonCancelled, locks.ReasonWaitElapsed, locks.ReasonWouldDeadlock, locks.ReasonDone:
		return webhooks.Cancelled
	case locks.ReasonUnclaimed:
		return webhooks.Unclaimed
	case locks.ReasonRevoked:
		return webhooks.Revoked
	case locks.ReasonDestroyed:
		return webhooks.Destroyed
	}
	return webhooks.Removed
}

// endOf is the end in the terms of webhooks.
func endOf(e *manager.Ending) *webhooks.End {
	end := &webhooks.End{TraceParent: e.Trace, NotifyURL: e.Notify, NotifyOnly: e.Granted || e.Waiting}
	// Two gateways that both see the end of a lease describe it alike.
	slices.SortFunc(e.Parts, func(a, b manager.EndingPart) int {
		return cmp.Or(strings.Compare(a.NS, b.NS), strings.Compare(a.Lock, b.Lock), strings.Compare(a.Znode, b.Znode))
	})
	for _, p := range e.Parts {
		end.Events = append(end.Events, webhooks.Event{Type: typeOf(e), Time: e.At, NS: p.NS, Lock: p.Lock, LeaseID: e.LeaseID, Program: p.Program, Znode: p.Znode,
			Owner: e.Owner, Principal: e.Principal, Purpose: e.Purpose, Mode: string(p.Mode), FencingToken: p.FencingToken, Reason: string(e.Reason), Detail: e.Words, By: e.By, Gateway: e.Gateway, Waiting: e.Waiting})
		if e.Waiting {
			end.Events[len(end.Events)-1].FencingToken = 0 // it was never granted
		}
	}
	switch {
	case e.Granted:
		end.Entry = webhooks.GrantEntry(e.LeaseID)
	case e.LeaseID != "":
		end.Entry = webhooks.PartEntry(e.LeaseID, e.Part)
	case e.Czxid != 0:
		end.Entry = webhooks.ForeignEntry(e.Czxid)
	default:
		// The node was never read: its path and the time name its end.
		h := fnv.New64a()
		for _, p := range e.Parts {
			h.Write([]byte(p.Znode))
		}
		h.Write([]byte(e.At.String()))
		end.Entry = webhooks.ForeignEntry(int64(h.Sum64() | 1<<63))
	}
	return end
}
