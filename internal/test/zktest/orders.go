package zktest

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"lockkeeper/internal/zk/wire"
)

// fate is what becomes of a request.
type fate int

const (
	passes fate = iota
	losesRequest
	losesReply
	swallowsRequest
)

// Order is a fault that waits for its moment: the next request of a kind, or each of them.
type Order struct {
	client string
	match  func(wire.Op) bool
	fate   fate
	done   atomic.Bool
}

// Done says whether the moment has come.
func (o *Order) Done() bool { return o.done.Load() }

// LoseRequest makes the next request of a client that matches get lost: it never reaches the server, and the connection breaks.
func (n *Network) LoseRequest(client string, match func(wire.Op) bool) *Order {
	return n.order(client, match, losesRequest)
}

// LoseReply makes the next request of a client that matches be carried out, but neither its reply nor anything else reaches
// the client any more, and the connection breaks.
func (n *Network) LoseReply(client string, match func(wire.Op) bool) *Order {
	return n.order(client, match, losesReply)
}

// Swallow makes each request of a client that matches go nowhere, until the order is revoked: it never reaches the server, and
// the connection lives on, as if what sends such requests stood still in a process whose pings are answered. What was
// swallowed is never answered: only a new connection ends the waiting for it. (Requests that are written together share the fate of the
// first one that matches.)
func (n *Network) Swallow(client string, match func(wire.Op) bool) *Order {
	return n.order(client, match, swallowsRequest)
}

// Revoke takes back an order whose moment has not come, or one that lasts.
func (n *Network) Revoke(o *Order) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.orders = slices.DeleteFunc(n.orders, func(other *Order) bool { return other == o })
}

func (n *Network) order(client string, match func(wire.Op) bool, f fate) *Order {
	o := &Order{client: client, match: match, fate: f}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.orders = append(n.orders, o)
	return o
}

// fate decides about a request.
func (n *Network) fate(client string, op wire.Op) fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, o := range n.orders {
		if o.client == client && o.match(op) {
			if o.fate != swallowsRequest {
				n.orders = slices.Delete(n.orders, i, i+1)
			}
			o.done.Store(true)
			return o.fate
		}
	}
	return passes
}

// inspector follows the frames that a client writes. Goroutines that write at once write whole frames.
type inspector struct {
	link *Link

	following sync.Mutex // guards the next two, ahead of the Network's lock
	rest      []byte
	greeted   bool // the connect request has passed

	mu   sync.Mutex
	sent map[wire.Op]int
}

// look says what becomes of a write. A write may hold several requests: the first one that an order fits decides for all that
// comes with it and after it.
func (i *inspector) look(data []byte) fate {
	i.following.Lock()
	defer i.following.Unlock()
	i.rest = append(i.rest, data...)
	f := passes
	for len(i.rest) >= 4 {
		size := int(int32(binary.BigEndian.Uint32(i.rest)))
		if size < 0 || len(i.rest) < 4+size {
			break
		}
		frame := i.rest[4 : 4+size]
		i.rest = i.rest[4+size:]
		if !i.greeted {
			i.greeted = true
			continue
		}
		if size >= 8 {
			op := wire.Op(int32(binary.BigEndian.Uint32(frame[4:])))
			i.mu.Lock()
			i.sent[op]++
			i.mu.Unlock()
			if f == passes {
				f = i.link.n.fate(i.link.Client, op)
			}
		}
	}
	i.rest = slices.Clone(i.rest)
	return f
}

func (i *inspector) count(op wire.Op) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sent[op]
}
