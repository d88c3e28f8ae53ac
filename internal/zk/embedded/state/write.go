package state

import "lockkeeper/internal/zk/wire"

// write carries out a request that uses up a zxid, whether it succeeds or not.
func (s *State) write(c *Conn, now int64, h wire.RequestHeader, body []byte) Reply {
	refuse := func(err wire.ErrCode) Reply {
		t := s.fail(c.Session, now, err)
		r := s.reply(h, nil, err)
		r.Txn = t
		return r
	}
	if !s.HasSession(c.Session) {
		return refuse(wire.ErrSessionExpired)
	}
	d := wire.NewDecoder(body)
	switch h.Op {
	case wire.OpCloseSession:
		t := s.CloseSession(now, c.Session)
		r := s.reply(h, nil, wire.OK)
		r.Txn, r.Close = t, true
		return r
	case wire.OpDeleteContainer:
		// For the server's own use. ZooKeeper takes the whole frame for the path, which makes it an invalid one.
		return refuse(wire.ErrBadArguments)
	case wire.OpReconfig:
		d.View()
		d.View()
		d.View()
		if d.Long(); d.Err() != nil {
			return s.reply(h, nil, wire.ErrMarshalling) // and no zxid: it is decoded before one is taken
		}
		return refuse(wire.ErrReconfigDisabled)
	case wire.OpMulti:
		return s.multi(c, now, h, d, body)
	}
	o := s.decodeOp(d, body, h.Op)
	if d.Err() != nil {
		return refuse(wire.ErrMarshalling)
	}
	change, err := s.decide(c, &o)
	if err != wire.OK {
		return refuse(err)
	}
	s.zxid++
	t := &Txn{Zxid: s.zxid, Time: now, Session: c.Session}
	var n *node
	if change.Kind != 0 {
		t.Ops = []TxnOp{change}
		n = s.mustApply(&t.Ops[0], s.zxid, now)
	}
	answer := answerOf(h.Op, change.Path, n)
	s.commit()
	r := s.reply(h, answer, wire.OK)
	r.Txn = t
	r.None = h.Op == wire.OpCheck // outside of a multi ZooKeeper fails to encode its answer, and sends none
	return r
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
