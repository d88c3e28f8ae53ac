package state

import "lockkeeper/internal/zk/wire"

// opBroken stands for an operation of a multi that ZooKeeper can read but not carry out: a create with the flags of a TTL
// node and no time to live.
const opBroken wire.Op = 0

// multi carries out all operations or none. They have one zxid, and each sees what those before it did.
func (s *State) multi(c *Conn, now int64, h wire.RequestHeader, d *wire.Decoder, body []byte) Reply {
	marshalling := func() Reply {
		t := s.fail(c.Session, now, wire.ErrMarshalling)
		r := s.reply(h, nil, wire.ErrMarshalling)
		r.Txn = t
		return r
	}
	defer s.forgetOps()
	if !s.decodeMulti(d, body) {
		return marshalling()
	}
	zxid := s.zxid + 1
	t := &Txn{Zxid: zxid, Time: now, Session: c.Session, Ops: make([]TxnOp, 0, len(s.ops))}
	results := make([]wire.MultiResult, len(s.ops))
	for i := range s.ops {
		o := &s.ops[i]
		if o.code == opBroken {
			s.rollback()
			return marshalling()
		}
		change, err := s.decide(c, o)
		if err != wire.OK {
			s.rollback()
			failMulti(results, i, err)
			t.Ops, t.Err = nil, err
			break
		}
		var n *node
		if change.Kind != 0 {
			t.Ops = append(t.Ops, change)
			n = s.mustApply(&change, zxid, now)
		}
		resultOf(&results[i], o.code, change.Path, n)
	}
	s.zxid = zxid
	s.commit()
	r := s.reply(h, &wire.MultiReply{Results: results}, wire.OK)
	r.Txn = t
	return r
}

// failMulti fills in the results of a multi whose operation i failed.
func failMulti(results []wire.MultiResult, i int, err wire.ErrCode) {
	for j := range results {
		results[j] = wire.MultiResult{Op: wire.OpError}
		switch {
		case j == i:
			results[j].Err = err
		case j > i:
			results[j].Err = wire.ErrRuntimeInconsistency
		}
	}
}

// resultOf is the result of an operation that succeeded: containers and TTL nodes have a stat, other creates have not.
func resultOf(r *wire.MultiResult, op wire.Op, path string, n *node) {
	r.Op = op
	switch op {
	case wire.OpCreate:
		r.Path = path
	case wire.OpCreateContainer, wire.OpCreateTTL:
		r.Op, r.Path, r.Stat = wire.OpCreate2, path, n.stat()
	case wire.OpSetData:
		r.Stat = n.stat()
	}
}

// decodeMulti reads the operations into s.ops. Reads do not belong there.
func (s *State) decodeMulti(d *wire.Decoder, body []byte) bool {
	s.ops = s.ops[:0]
	for {
		code, done, _ := wire.Op(d.Int()), d.Bool(), d.Int()
		if d.Err() != nil || done {
			return d.Err() == nil
		}
		switch code {
		case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpCheck:
		default:
			return false
		}
		o := s.decodeOp(d, body, code)
		if d.Err() != nil || o.noPath {
			return false
		}
		o.code = inMulti(&o)
		s.ops = append(s.ops, o)
	}
}

// inMulti is the operation that o is in a multi, where ZooKeeper goes by the flags of a create and not by its code.
func inMulti(o *op) wire.Op {
	switch o.code {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
	default:
		return o.code
	}
	m, _ := modeOf(o.flags) // unknown flags fail later
	switch {
	case m.ttl && o.code == wire.OpCreateTTL:
		return wire.OpCreateTTL
	case m.ttl:
		return opBroken
	case m.container:
		return wire.OpCreateContainer
	}
	return wire.OpCreate
}

// forgetOps empties s.ops, which point into the request, but keeps its memory within reason.
func (s *State) forgetOps() {
	clear(s.ops)
	if s.ops = s.ops[:0]; cap(s.ops) > 4096 {
		s.ops = nil
	}
}

// multiRead answers reads at one point in time; each has a result or an error of its own. No watches are left.
func (s *State) multiRead(c *Conn, h wire.RequestHeader, d *wire.Decoder, body []byte) Reply {
	type lookup struct {
		op   wire.Op
		path string
	}
	var lookups []lookup
	writes := 0
	for {
		code, done, _ := wire.Op(d.Int()), d.Bool(), d.Int()
		if d.Err() == nil && done {
			break
		}
		switch code {
		case wire.OpGetData, wire.OpGetChildren:
			path, _, err := decodeRead(d, code)
			if err != wire.OK {
				return s.reply(h, nil, err)
			}
			lookups = append(lookups, lookup{code, path})
		case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpCheck:
			s.decodeOp(d, body, code)
			writes++
		default:
			return s.reply(h, nil, wire.ErrMarshalling)
		}
		if d.Err() != nil || writes > 0 && len(lookups) > 0 {
			return s.reply(h, nil, wire.ErrMarshalling)
		}
	}
	if writes > 0 {
		r := s.reply(h, nil, wire.ErrMarshalling)
		r.Body = &wire.MultiReply{} // ZooKeeper has begun its answer before it sees that they are none of its business
		return r
	}
	results := make([]wire.MultiResult, len(lookups))
	length := 0 // of the reply, about
	for i, l := range lookups {
		if length > s.maxReply {
			return Reply{None: true, Close: true}
		}
		answer, err := s.look(c, l.op, l.path, false)
		switch a := answer.(type) {
		case *wire.DataReply:
			results[i] = wire.MultiResult{Op: l.op, Data: a.Data, Stat: a.Stat}
			length += len(a.Data)
		case *wire.ChildrenReply:
			results[i] = wire.MultiResult{Op: l.op, Children: a.Children}
			for _, name := range a.Children {
				length += 4 + len(name)
			}
		default:
			results[i] = wire.MultiResult{Op: wire.OpError, Err: err}
		}
	}
	return s.reply(h, &wire.MultiReply{Results: results}, wire.OK)
}
