package main

import (
	"hash/fnv"
	"log/slog"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
)

// outbox is the webhooks as the lock manager sees them. service is set before the
// manager runs.
type outbox struct{ service *webhooks.Service }

func (o *outbox) Ending(describe func() *locks.Ending) ([]zk.Op, any, bool) {
	ops, entry, ready := o.service.Ending(func() *webhooks.End { return endOf(describe()) })
	return ops, entry, ready
}

func (o *outbox) Ended(entry any, ops []zk.Op, res zk.Result) {
	e, _ := entry.(*webhooks.Entry)
	o.service.Ended(e, ops, res)
}

func (o *outbox) Gone(e *locks.Ending) { o.service.Tell(endOf(e)) }
func (o *outbox) Look()                { o.service.Look() }
func (o *outbox) Adopt()               { o.service.Adopt() }

// typeOf is the type of the message that tells an end.
func typeOf(reason locks.Reason) string {
	switch reason {
	case locks.ReasonReleased:
		return webhooks.Released
	case locks.ReasonExpired:
		return webhooks.Expired
	case locks.ReasonCancelled, locks.ReasonWaitElapsed:
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

// endOf is an end as webhooks tell it.
func endOf(e *locks.Ending) *webhooks.End {
	end := &webhooks.End{}
	for _, p := range e.Parts {
		end.Events = append(end.Events, webhooks.Event{Type: typeOf(e.Reason), Time: e.At, NS: p.NS, Lock: p.Lock, LeaseID: e.LeaseID, Program: p.Program, Znode: p.Znode,
			Owner: e.Owner, Mode: string(p.Mode), FencingToken: p.FencingToken, Reason: string(e.Reason), Detail: e.Words, Gateway: e.Gateway})
	}
	switch {
	case e.LeaseID != "":
		end.Entry = webhooks.EntryOf(e.LeaseID)
	case e.Czxid != 0:
		end.Entry = webhooks.ForeignEntry(e.Czxid)
	default:
		// Nobody had looked at the node: its path and the time are no other's.
		h := fnv.New64a()
		for _, p := range e.Parts {
			h.Write([]byte(p.Znode))
		}
		h.Write([]byte(e.At.String()))
		end.Entry = webhooks.ForeignEntry(int64(h.Sum64() | 1<<63))
	}
	return end
}

// newWebhooks ties webhooks to the manager whose outbox is given.
func newWebhooks(o *outbox, manager *locks.Manager, root string, addresses *webhooks.Addresses, transport webhooks.Transport, collectors *metrics.Metrics, logger *slog.Logger) *webhooks.Service {
	o.service = webhooks.New(webhooks.Options{
		Store: manager.Nodes(), Root: root, Addresses: addresses, Transport: transport,
		Mine: func(entry string) bool {
			lease := webhooks.LeaseOf(entry)
			return lease == "" || manager.Delivers(lease)
		},
		MineFrom: func(entry, gateway string) bool { return manager.DeliversFor(gateway, entry) },
		Changed:  manager.OutboxChanged, Metrics: collectors, Logger: logger,
	})
	return o.service
}
