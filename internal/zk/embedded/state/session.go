package state

import (
	"iter"
	"maps"
	"slices"

	"lockkeeper/internal/zk/wire"
)

// session is what the tree knows of a session; its clock is the server's.
type session struct {
	timeout    int32 // milliseconds
	ephemerals roster
}

// OpenSession begins the session id, which the server has chosen.
func (s *State) OpenSession(now int64, id int64, timeoutMs int32) *Txn {
	s.addSession(id, timeoutMs)
	s.zxid++
	return &Txn{Zxid: s.zxid, Time: now, Session: id, Ops: []TxnOp{{Kind: TxnOpenSession, Timeout: timeoutMs}}}
}

func (s *State) addSession(id int64, timeoutMs int32) {
	s.sessions[id] = &session{timeout: timeoutMs}
	s.noteSession(id)
}

// noteSession remembers the newest id of each server number.
func (s *State) noteSession(id int64) {
	for i, newest := range s.newest {
		if newest>>56 == id>>56 {
			s.newest[i] = max(newest, id)
			return
		}
	}
	s.newest = append(s.newest, id)
}

// NewestSession is the greatest session id that there ever was with this number in its first byte; 0 when there was none. Ids
// must not be given twice, also when the clock is put back.
func (s *State) NewestSession(number uint8) int64 {
	for _, newest := range s.newest {
		if uint8(newest>>56) == number {
			return newest
		}
	}
	return 0
}

// CloseSession ends a session: its ephemeral nodes go in one transaction, and events are delivered. It is nil when there
// is no such session.
func (s *State) CloseSession(now int64, id int64) *Txn {
	ended := s.sessions[id]
	if ended == nil {
		return nil
	}
	s.zxid++
	t := &Txn{Zxid: s.zxid, Time: now, Session: id}
	for _, path := range ended.paths() {
		t.Ops = append(t.Ops, TxnOp{Kind: TxnDelete, Path: path})
	}
	for i := range t.Ops {
		s.mustApply(&t.Ops[i], s.zxid, now)
	}
	t.Ops = append(t.Ops, TxnOp{Kind: TxnCloseSession})
	s.commit()
	delete(s.sessions, id)
	return t
}

// paths lists the ephemeral nodes in the order of their creation: the roster has it, and a snapshot keeps it.
func (s *session) paths() []string {
	paths := make([]string, 0, s.ephemerals.len())
	for _, n := range s.ephemerals.nodes {
		if n != nil {
			paths = append(paths, n.path())
		}
	}
	return paths
}

// HasSession says whether the session lives.
func (s *State) HasSession(id int64) bool { return s.sessions[id] != nil }

// Sessions yields each living session and its timeout in milliseconds, in the order of their ids.
func (s *State) Sessions() iter.Seq2[int64, int32] {
	return func(yield func(int64, int32) bool) {
		for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
			if !yield(id, s.sessions[id].timeout) {
				return
			}
		}
	}
}

// maxReaped bounds what one Reap does, as ZooKeeper does for a minute. The rest has to wait for the next.
const maxReaped = 10_000

// Reap deletes containers that have had a child and have none, and nodes whose time to live is over, as ZooKeeper does
// once a minute. A parent that this makes empty has to wait for the next time.
func (s *State) Reap(now int64) []*Txn {
	var due []*node
	for _, n := range s.containers.nodes {
		if n != nil && n.numChildren() == 0 && n.cversion > 0 && len(due) < maxReaped {
			due = append(due, n)
		}
	}
	for _, n := range s.ttls.nodes {
		if n != nil && n.numChildren() == 0 && now-n.mtime > n.owner&maxTTL && len(due) < maxReaped {
			due = append(due, n)
		}
	}
	var done []*Txn
	for _, n := range due {
		s.zxid++
		t := &Txn{Zxid: s.zxid, Time: now, Ops: []TxnOp{{Kind: TxnDelete, Path: n.path()}}}
		s.mustApply(&t.Ops[0], s.zxid, now)
		s.commit()
		done = append(done, t)
	}
	return done
}

// mustApply makes a change that was decided on this very tree, so that a refusal is a mistake of this package.
func (s *State) mustApply(op *TxnOp, zxid, now int64) *node {
	n, err := s.apply(op, zxid, now)
	if err != nil {
		panic(err)
	}
	return n
}

// fail is the transaction of a write that failed: nothing but its number is used up.
func (s *State) fail(session, now int64, err wire.ErrCode) *Txn {
	s.zxid++
	return &Txn{Zxid: s.zxid, Time: now, Session: session, Err: err}
}
