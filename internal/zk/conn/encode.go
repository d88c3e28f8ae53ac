package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

const (
	// MaxTransaction bounds the encoded size of a transaction. ZooKeeper's own
	// bound is 1 MB, over which it closes the connection.
	MaxTransaction = 256 << 10
	// GuardOverhead is what the header, the two guarding operations and the
	// end of a multi take at most, with a chroot of sensible length.
	GuardOverhead = 2 << 10
)

// Op is one operation of a transaction, with who may touch the node that it creates.
type Op struct {
	*zk.Op
	access Access
}

// Op is an operation of a Write.
func (c *Conn) Op(op *zk.Op) Op { return Op{op, c.accessOf(op)} }

// OpAs is Op with the access that a created node is to have.
func (c *Conn) OpAs(op *zk.Op, who Access) Op { return Op{op, who} }

// appendTransaction appends the frame of a multi.
func (c *Conn) appendTransaction(b []byte, xid int32, ops []Op) []byte {
	mark := len(b)
	b = wire.BeginFrame(b)
	header := wire.RequestHeader{Xid: xid, Op: wire.OpMulti}
	b = header.AppendTo(b)
	for i := range ops {
		b = c.appendOp(b, &ops[i])
	}
	return wire.EndFrame(wire.EndMulti(b), mark)
}

// appendOp appends one operation. Paths get their chroot here.
func (c *Conn) appendOp(b []byte, op *Op) []byte {
	path := c.cfg.Full(op.Path)
	switch op.Kind {
	case zk.OpCreate:
		r := wire.CreateRequest{Path: path, Data: notNull(op.Data), ACL: c.wireACLs[op.access]}
		if op.Ephemeral {
			r.Flags |= wire.FlagEphemeral
		}
		if op.Sequential {
			r.Flags |= wire.FlagSequential
		}
		return r.AppendTo(wire.BeginMultiOp(b, wire.OpCreate))
	case zk.OpSetData:
		r := wire.SetDataRequest{Path: path, Data: notNull(op.Data), Version: op.Version}
		return r.AppendTo(wire.BeginMultiOp(b, wire.OpSetData))
	case zk.OpDelete:
		r := wire.VersionRequest{Path: path, Version: op.Version}
		return r.AppendTo(wire.BeginMultiOp(b, wire.OpDelete))
	default:
		r := wire.VersionRequest{Path: path, Version: op.Version}
		return r.AppendTo(wire.BeginMultiOp(b, wire.OpCheck))
	}
}

// notNull is the data as it is sent: to other clients a null buffer is something else than an empty one.
func notNull(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// Size bounds what an operation takes in a multi.
func (c *Conn) Size(op *zk.Op) int {
	const header, lengthPrefix, number = 9, 4, 4
	n := header + lengthPrefix + len(c.cfg.Chroot) + len(op.Path)
	switch op.Kind {
	case zk.OpCreate:
		n += lengthPrefix + len(op.Data) + lengthPrefix + number
		for _, a := range c.acls[c.accessOf(op)] {
			n += number + lengthPrefix + len(a.Scheme) + lengthPrefix + len(a.ID)
		}
	case zk.OpSetData:
		n += lengthPrefix + len(op.Data) + number
	default:
		n += number
	}
	return n
}

// Transact is Send with a context, for before there is a writer.
func (c *Conn) Transact(ctx context.Context, ops []Op) (Answer, error) {
	answered := make(chan Answer, 1)
	began := time.Now()
	if !c.Send(ops, func(a Answer) { answered <- a }) {
		if err := c.Err(); err != nil {
			return Answer{Err: err, Culprit: -1}, nil
		}
		return unanswered(errors.New("not connected")), nil
	}
	c.Flush()
	select {
	case a := <-answered:
		c.cfg.Metrics.Op("multi", outcome(a.Err), time.Since(began))
		return a, nil
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
}

// NotReached makes ErrUnavailable of what is no answer either: the caller's
// context ended, or the new session did, before anything was known.
func NotReached(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, zk.ErrSessionGone) {
		return fmt.Errorf("%w: %w", zk.ErrUnavailable, err)
	}
	return err
}
