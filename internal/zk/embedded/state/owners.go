package state

import (
	"iter"
	"maps"
	"slices"
)

// owners lists the nodes that can go without a request, by what owns them: a session, or the server's clock.
type owners struct {
	sessions map[int64]*session
	newest   []int64 // session ids; see State.NewestSession

	containers, ttls roster
}

// session is what the state knows of a session; its clock is the server's.
type session struct {
	timeout    int32 // milliseconds
	ephemerals roster
}

func (o *owners) open(id int64, timeoutMs int32) {
	o.sessions[id] = &session{timeout: timeoutMs}
	o.given(id)
}

// given remembers the newest id of each server number.
func (o *owners) given(id int64) {
	for i, newest := range o.newest {
		if newest>>56 == id>>56 {
			o.newest[i] = max(newest, id)
			return
		}
	}
	o.newest = append(o.newest, id)
}

// roster is the list that a node with this owner is on; nil for none.
func (o *owners) roster(owner int64) *roster {
	switch {
	case owner == 0:
		return nil
	case isContainer(owner):
		return &o.containers
	case isTTL(owner):
		return &o.ttls
	}
	if session := o.sessions[owner]; session != nil {
		return &session.ephemerals
	}
	return nil
}

// paths lists the ephemeral nodes in the order of their creation: the roster has it, and a snapshot keeps it.
func (s *session) paths() []string {
	paths := make([]string, 0, s.ephemerals.len())
	for n := range s.ephemerals.all {
		paths = append(paths, n.path())
	}
	return paths
}

// HasSession reports whether the session lives.
func (s *State) HasSession(id int64) bool { return s.owners.sessions[id] != nil }

// NewestSession is the greatest session id that there ever was with this number in its first byte; 0 when there was none. Ids
// must not be given twice, also when the clock is put back.
func (s *State) NewestSession(number uint8) int64 {
	for _, newest := range s.owners.newest {
		if uint8(newest>>56) == number {
			return newest
		}
	}
	return 0
}

// Sessions yields each living session and its timeout in milliseconds, in the order of their ids.
func (s *State) Sessions() iter.Seq2[int64, int32] {
	return func(yield func(int64, int32) bool) {
		for _, id := range slices.Sorted(maps.Keys(s.owners.sessions)) {
			if !yield(id, s.owners.sessions[id].timeout) {
				return
			}
		}
	}
}

// OpenSession begins the session id, which the server has chosen.
func (s *State) OpenSession(now int64, id int64, timeoutMs int32) *Txn {
	s.owners.open(id, timeoutMs)
	s.zxid++
	return &Txn{Zxid: s.zxid, Time: now, Session: id, Ops: []TxnOp{{Kind: TxnOpenSession, Timeout: timeoutMs}}}
}

// CloseSession ends a session: one transaction deletes its ephemeral nodes, and events are delivered. It is nil when there
// is no such session.
func (s *State) CloseSession(now int64, id int64) *Txn {
	ended := s.owners.sessions[id]
	if ended == nil {
		return nil
	}
	paths := ended.paths()
	ops := make([]TxnOp, 0, len(paths)+1)
	for _, path := range paths {
		ops = append(ops, TxnOp{Kind: TxnDelete, Path: path})
	}
	txn := s.transact(now, ops)
	txn.Session, txn.Ops = id, append(txn.Ops, TxnOp{Kind: TxnCloseSession})
	delete(s.owners.sessions, id)
	return txn
}

// maxReaped bounds what one Reap does, as ZooKeeper does for a minute. The rest has to wait for the next.
const maxReaped = 10_000

// Reap deletes containers that have had a child and have none, and nodes whose time to live is over, as ZooKeeper does
// once a minute. A parent that this makes empty has to wait for the next time.
func (s *State) Reap(now int64) (done []*Txn) {
	var due []*node
	for n := range s.owners.containers.all {
		if n.numChildren() == 0 && n.cversion() > 0 && len(due) < maxReaped {
			due = append(due, n)
		}
	}
	for n := range s.owners.ttls.all {
		if n.numChildren() == 0 && now-n.mtime() > n.owner()&maxTTL && len(due) < maxReaped {
			due = append(due, n)
		}
	}
	for _, n := range due {
		done = append(done, s.transact(now, []TxnOp{{Kind: TxnDelete, Path: n.path()}}))
	}
	return done
}
