package wire

import "fmt"

// multiHeader stands before each operation and each result of a multi, and at its end with Done set.
type multiHeader struct {
	Op   Op
	Done bool
	Err  ErrCode
}

func (h multiHeader) AppendTo(b []byte) []byte {
	return AppendInt(AppendBool(AppendInt(b, int32(h.Op)), h.Done), int32(h.Err))
}

func (h *multiHeader) Decode(d *Decoder) {
	h.Op, h.Done, h.Err = Op(d.Int()), d.Bool(), ErrCode(d.Int())
}

// multiEnd closes a multi.
var multiEnd = multiHeader{Op: OpError, Done: true, Err: -1}

// MultiOp is one operation of a MultiRequest.
type MultiOp struct {
	Op Op
	// Record is the operation's request: *CreateRequest for OpCreate, OpCreate2 and OpCreateContainer,
	// *CreateTTLRequest for OpCreateTTL, *VersionRequest for OpDelete and OpCheck, *SetDataRequest for OpSetData; in an
	// OpMultiRead *ReadRequest for OpGetData and OpGetChildren.
	Record Record
}

// BeginMultiOp begins one operation of a multi; its request follows, and EndMulti after the last one.
func BeginMultiOp(b []byte, op Op) []byte { return multiHeader{Op: op, Err: -1}.AppendTo(b) }

// EndMulti ends a multi.
func EndMulti(b []byte) []byte { return multiEnd.AppendTo(b) }

// MultiRequest is the body of OpMulti and OpMultiRead.
type MultiRequest struct{ Ops []MultiOp }

// AppendTo implements Record.
func (r *MultiRequest) AppendTo(b []byte) []byte {
	for _, op := range r.Ops {
		b = BeginMultiOp(b, op.Op)
		b = op.Record.AppendTo(b)
	}
	return EndMulti(b)
}

// Decode implements Record. An operation that does not belong into a multi is ErrUnknown.
func (r *MultiRequest) Decode(d *Decoder) {
	r.Ops = nil
	for d.err == nil {
		var h multiHeader
		h.Decode(d)
		if h.Done || d.err != nil {
			return
		}
		var rec Record
		switch h.Op {
		case OpCreate, OpCreate2, OpCreateContainer:
			rec = new(CreateRequest)
		case OpCreateTTL:
			rec = new(CreateTTLRequest)
		case OpDelete, OpCheck:
			rec = new(VersionRequest)
		case OpSetData:
			rec = new(SetDataRequest)
		case OpGetData, OpGetChildren:
			rec = new(ReadRequest)
		default:
			d.fail(fmt.Errorf("%w %d in a multi", ErrUnknown, h.Op))
			return
		}
		rec.Decode(d)
		r.Ops = append(r.Ops, MultiOp{Op: h.Op, Record: rec})
	}
}

// MultiResult is the result of one operation of a multi. Op is the result's own type, which tells what fields it has;
// OpError where the operation has no result because it failed, or because another one of the transaction did.
type MultiResult struct {
	Op       Op
	Err      ErrCode  // OpError: 0 before the operation that failed, -2 after it
	Path     string   // OpCreate, OpCreate2
	Stat     Stat     // OpCreate2, OpSetData, OpGetData
	Data     []byte   // OpGetData
	Children []string // OpGetChildren
}

// MultiReply answers OpMulti and OpMultiRead.
type MultiReply struct{ Results []MultiResult }

// AppendTo implements Record.
func (r *MultiReply) AppendTo(b []byte) []byte {
	for i := range r.Results {
		b = r.Results[i].appendTo(b)
	}
	return multiEnd.AppendTo(b)
}

func (r *MultiResult) appendTo(b []byte) []byte {
	b = multiHeader{Op: r.Op, Err: r.Err}.AppendTo(b)
	switch r.Op {
	case OpCreate:
		return AppendString(b, r.Path)
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		return r.Stat.AppendTo(AppendString(b, r.Path))
	case OpSetData:
		return r.Stat.AppendTo(b)
	case OpGetData:
		return r.Stat.AppendTo(AppendBuffer(b, r.Data))
	case OpGetChildren:
		return AppendStrings(b, r.Children)
	case OpError:
		return AppendInt(b, int32(r.Err))
	}
	return b // OpDelete, OpCheck
}

// Decode implements Record.
func (r *MultiReply) Decode(d *Decoder) {
	r.Results = nil
	for res := (MultiResult{}); d.MultiResult(&res); {
		r.Results = append(r.Results, res)
	}
}

// MultiResult reads the next result of a MultiReply. It returns false at the end of the reply, and after a failure.
func (d *Decoder) MultiResult(r *MultiResult) bool {
	var h multiHeader
	h.Decode(d)
	if h.Done || d.err != nil {
		return false
	}
	*r = MultiResult{Op: h.Op, Err: h.Err}
	switch h.Op {
	case OpCreate:
		r.Path = d.String()
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		r.Path = d.String()
		r.Stat.Decode(d)
	case OpDelete, OpCheck:
	case OpSetData:
		r.Stat.Decode(d)
	case OpGetData:
		r.Data = d.View()
		r.Stat.Decode(d)
	case OpGetChildren:
		r.Children = d.Strings()
	case OpError:
		r.Err = ErrCode(d.Int())
	default:
		d.fail(fmt.Errorf("%w %d in a multi's reply", ErrUnknown, h.Op))
	}
	return d.err == nil
}
