package zktest

import (
	"encoding/binary"
	"slices"
)

// A client that has connected elsewhere may have said something here that is still on its way. ZooKeeper's leader carries
// such a transaction out when it comes, however late: what protects from it must be in the transaction. A follower hands it on
// by way of the session's present connection, when that is with a follower too.

// xidLate is the xid of requests to the leader whose answers are dropped.
const xidLate int32 = 1<<31 - 16

// came notes a connection, in the order in which they came; went takes it away; knows tells whose session it has.
func (e *Ensemble) came(c *followed) {
	e.moving.Lock()
	defer e.moving.Unlock()
	e.present = append(e.present, c)
}

func (e *Ensemble) went(c *followed) {
	e.moving.Lock()
	defer e.moving.Unlock()
	e.present = slices.DeleteFunc(e.present, func(other *followed) bool { return other == c })
}

func (e *Ensemble) knows(c *followed, session int64) {
	e.moving.Lock()
	defer e.moving.Unlock()
	c.session = session
}

// successor is the newest connection by which the session of an older one goes on, nil when there is none.
func (e *Ensemble) successor(c *followed) *followed {
	e.moving.Lock()
	defer e.moving.Unlock()
	for i := len(e.present) - 1; i >= 0; i-- {
		switch other := e.present[i]; {
		case other == c:
			return nil
		case other.session == c.session && c.session != 0:
			return other
		}
	}
	return nil
}

// late gives the leader a transaction that came too late.
func (c *followed) late(frame []byte) {
	frame = slices.Clone(frame)
	binary.BigEndian.PutUint32(frame, uint32(xidLate))
	c.forward(frame)
}
