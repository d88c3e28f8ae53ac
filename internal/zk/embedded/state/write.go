package state

import "lockkeeper/internal/zk/wire"

// write carries out a request that uses up a zxid, whether it succeeds or not.
func (r *call) write() Reply {
	if !r.s.HasSession(r.c.Session) {
		return r.refuse(wire.ErrSessionExpired)
	}
	switch r.h.Op {
	case wire.OpCloseSession:
		t := r.s.CloseSession(r.now, r.c.Session)
		answer := r.reply(nil, wire.OK)
		answer.Txn, answer.Close = t, true
		return answer
	case wire.OpDeleteContainer:
		// For the server's own use. ZooKeeper takes the whole frame for the path, which makes it an invalid one.
		return r.refuse(wire.ErrBadArguments)
	case wire.OpReconfig:
		r.d.View()
		r.d.View()
		r.d.View()
		if r.d.Long(); r.d.Err() != nil {
			return r.reply(nil, wire.ErrMarshalling) // and no zxid: it is decoded before one is taken
		}
		return r.refuse(wire.ErrReconfigDisabled)
	case wire.OpMulti:
		return r.multi()
	}
	o := r.decodeOp(r.h.Op)
	if r.d.Err() != nil {
		return r.refuse(wire.ErrMarshalling)
	}
	change, err := r.s.tree.decide(r.c, &o)
	if err != wire.OK {
		return r.refuse(err)
	}
	t := r.begin()
	var n *node
	if change.Kind != 0 {
		t.Ops = []TxnOp{change}
		n = r.s.tree.mustApply(&t.Ops[0], t.Zxid, r.now)
	}
	body := answerOf(r.h.Op, change.Path, n)
	r.s.zxid = t.Zxid
	r.s.commit()
	answer := r.reply(body, wire.OK)
	answer.Txn = t
	answer.None = r.h.Op == wire.OpCheck // outside of a multi ZooKeeper fails to encode its answer, and sends none
	return answer
}

// begin is the request's transaction, without changes yet.
func (r *call) begin() *Txn { return &Txn{Zxid: r.s.zxid + 1, Time: r.now, Session: r.c.Session} }

// refuse answers a write that failed: it uses up a zxid all the same.
func (r *call) refuse(err wire.ErrCode) Reply {
	t := r.begin()
	t.Err = err
	r.s.zxid = t.Zxid
	answer := r.reply(nil, err)
	answer.Txn = t
	return answer
}

// answerOf is the body of the reply to a single write.
func answerOf(op wire.Op, path string, n *node) wire.Record {
	switch op {
	case wire.OpCreate:
		return &wire.PathRecord{Path: path}
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		return &wire.Create2Reply{Path: path, Stat: n.stat()}
	case wire.OpSetData, wire.OpSetACL:
		return &wire.StatReply{Stat: n.stat()}
	}
	return nil // delete and check
}
