package state

import (
	"slices"

	"lockkeeper/internal/zk/wire"
)

// opBroken stands for an operation of a multi that ZooKeeper can read but not carry out: a create with the flags of a TTL
// node and no time to live.
const opBroken wire.Op = 0

// multi carries out all operations or none. They have one zxid, and each sees what those before it did.
func (r *call) multi() Reply {
	s := r.s
	defer func() { s.ops = emptied(s.ops) }() // they point into the request
	if !r.decodeMulti() {
		return r.refuse(wire.ErrMarshalling)
	}
	t := r.begin()
	t.Ops = make([]TxnOp, 0, len(s.ops))
	s.results = slices.Grow(emptied(s.results), len(s.ops))[:len(s.ops)]
	results := s.results
	for i := range s.ops {
		o := &s.ops[i]
		if o.code == opBroken {
			s.tree.rollback()
			return r.refuse(wire.ErrMarshalling)
		}
		change, err := s.tree.decide(r.c, o)
		if err != wire.OK {
			s.tree.rollback()
			failMulti(results, i, err)
			t.Ops, t.Err = nil, err
			break
		}
		var n *node
		if change.Kind != 0 {
			t.Ops = append(t.Ops, change)
			n = s.tree.mustApply(&change, t.Zxid, r.now)
		}
		resultOf(&results[i], o.code, change.Path, n)
	}
	s.zxid = t.Zxid
	s.commit()
	answer := r.reply(&wire.MultiReply{Results: results}, wire.OK)
	answer.Txn = t
	return answer
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
func (r *call) decodeMulti() bool {
	s, d := r.s, &r.d
	s.ops = s.ops[:0]
	for {
		code, done, _ := wire.Op(d.Int()), d.Bool(), d.Int()
		if d.Err() != nil || done {
			return d.Err() == nil
		}
		if !inMultis(code) {
			return false
		}
		o := r.decodeOp(code)
		if d.Err() != nil || o.noPath {
			return false
		}
		o.code = inMulti(&o)
		s.ops = append(s.ops, o)
	}
}

// inMultis reports whether the operation may be one of a multi.
func inMultis(code wire.Op) bool {
	switch code {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpCheck:
		return true
	}
	return false
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

// lookup is a read of a multiRead.
type lookup struct {
	op   wire.Op
	path string
}

// multiRead answers reads at one point in time; each has a result or an error of its own. No watches are left.
func (r *call) multiRead() Reply {
	lookups, writes, err := r.decodeMultiRead()
	switch {
	case err != wire.OK:
		return r.reply(nil, err)
	case writes:
		answer := r.reply(nil, wire.ErrMarshalling)
		answer.Body = &wire.MultiReply{} // ZooKeeper has begun its answer before it sees that these are writes
		return answer
	}
	results := make([]wire.MultiResult, len(lookups))
	length := 0 // of the reply, about
	for i, l := range lookups {
		if length > r.s.maxReply {
			return Reply{None: true, Close: true}
		}
		answer, err := r.s.look(r.c, l.op, l.path, false)
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
	return r.reply(&wire.MultiReply{Results: results}, wire.OK)
}

// decodeMultiRead reads the lookups. There may be writes instead, but not both.
func (r *call) decodeMultiRead() (lookups []lookup, writes bool, err wire.ErrCode) {
	d := &r.d
	for {
		code, done, _ := wire.Op(d.Int()), d.Bool(), d.Int()
		if d.Err() == nil && done {
			return lookups, writes, wire.OK
		}
		switch {
		case code == wire.OpGetData, code == wire.OpGetChildren:
			path, _, err := decodeRead(d, code)
			if err != wire.OK {
				return nil, false, err
			}
			lookups = append(lookups, lookup{code, path})
		case inMultis(code):
			r.decodeOp(code)
			writes = true
		default:
			return nil, false, wire.ErrMarshalling
		}
		if d.Err() != nil || writes && len(lookups) > 0 {
			return nil, false, wire.ErrMarshalling
		}
	}
}
