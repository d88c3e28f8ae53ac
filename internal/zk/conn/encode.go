package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/zk"
)

const (
	// MaxTransaction bounds the encoded size of a transaction. ZooKeeper's own
	// bound is 1 MB, over which it closes the connection.
	MaxTransaction = 256 << 10
	// GuardOverhead is what the header, the two guarding operations and the
	// end of a multi take at most, with a chroot of sensible length.
	GuardOverhead = 2 << 10
)

// Encode turns one operation of a Write into the library's form. Paths get their chroot here.
func (c *Conn) Encode(op *zk.Op) any { return c.EncodeAs(op, c.accessOf(op)) }

// EncodeAs is encode with the access that a created node is to have.
func (c *Conn) EncodeAs(op *zk.Op, who Access) any {
	path := c.cfg.Full(op.Path)
	switch op.Kind {
	case zk.OpCreate:
		var flags int32
		if op.Ephemeral {
			flags |= gozk.FlagEphemeral
		}
		if op.Sequential {
			flags |= gozk.FlagSequence
		}
		return &gozk.CreateRequest{Path: path, Data: notNull(op.Data), Acl: c.acls[who], Flags: flags}
	case zk.OpDelete:
		return &gozk.DeleteRequest{Path: path, Version: op.Version}
	case zk.OpSetData:
		return &gozk.SetDataRequest{Path: path, Data: notNull(op.Data), Version: op.Version}
	default:
		return &gozk.CheckVersionRequest{Path: path, Version: op.Version}
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

// Transact is multi with a context, for before there is a writer.
func (c *Conn) Transact(ctx context.Context, ops []any) (Answer, error) {
	answered := make(chan Answer, 1)
	began := time.Now()
	go func() { answered <- c.Multi(ops) }() // ends with the connection at the latest
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
