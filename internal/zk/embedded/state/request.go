package state

import "lockkeeper/internal/zk/wire"

// headerSize is the length of an encoded wire.RequestHeader.
const headerSize = 8

// Request carries out one request of an attached connection. now is in milliseconds since the Unix epoch; body is what
// follows the header, and only needed during the call.
func (s *State) Request(c *Conn, now int64, h wire.RequestHeader, body []byte) Reply {
	if headerSize+len(body) > s.maxData {
		return Reply{None: true, Close: true}
	}
	r := call{s: s, c: c, now: now, h: h, d: *wire.NewDecoder(body), body: body}
	switch h.Op {
	case wire.OpAuth:
		return r.auth()
	case wire.OpSASL:
		return r.sasl()
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpSetACL,
		wire.OpCheck, wire.OpMulti, wire.OpDeleteContainer, wire.OpReconfig, wire.OpCloseSession:
		return r.write()
	case wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetEphemerals,
		wire.OpCountChildren, wire.OpMultiRead, wire.OpWhoAmI, wire.OpSync, wire.OpPing,
		wire.OpSetWatches, wire.OpSetWatches2, wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches:
		return r.read()
	case wire.OpCreateSession:
		// ZooKeeper would begin the connection's session again, with another timeout, and answer with a second connect
		// reply. No client sends this.
		return Reply{None: true, Close: true}
	}
	return Reply{Header: wire.ReplyHeader{Xid: h.Xid, Zxid: -1, Err: wire.ErrUnimplemented}, Close: true}
}

// call is a request that is being carried out.
type call struct {
	s    *State
	c    *Conn
	now  int64
	h    wire.RequestHeader
	d    wire.Decoder // of body
	body []byte
}

// reply answers with the state's newest zxid. An error has no body.
func (r *call) reply(body wire.Record, err wire.ErrCode) Reply {
	if err != wire.OK {
		body = nil
	}
	return Reply{Header: wire.ReplyHeader{Xid: r.h.Xid, Zxid: r.s.zxid, Err: err}, Body: body}
}

// auth adds an identity to the connection. It is answered with zxid 0, because the tree has no part in it.
func (r *call) auth() Reply {
	var req wire.AuthRequest
	req.Decode(&r.d)
	if r.d.Err() != nil {
		return Reply{None: true, Close: true}
	}
	if !r.c.authenticate(req.Scheme, req.Auth) {
		return Reply{Header: wire.ReplyHeader{Xid: r.h.Xid, Err: wire.ErrAuthFailed}, Close: true}
	}
	return Reply{Header: wire.ReplyHeader{Xid: r.h.Xid}}
}

// sasl answers as a server does that has no SASL: with a null token.
func (r *call) sasl() Reply {
	var req wire.SASLRecord
	req.Decode(&r.d)
	if r.d.Err() != nil || req.Token == nil {
		return Reply{None: true, Close: true}
	}
	return Reply{Header: wire.ReplyHeader{Xid: r.h.Xid}, Body: &wire.SASLRecord{}}
}

func (r *call) read() Reply {
	if !r.c.Unlisted && !r.s.HasSession(r.c.Session) {
		return r.reply(nil, wire.ErrSessionExpired)
	}
	switch r.h.Op {
	case wire.OpPing:
		r.h.Xid = wire.XidPing
		return r.reply(nil, wire.OK)
	case wire.OpWhoAmI:
		return r.reply(r.c.clients(), wire.OK)
	case wire.OpAddWatch:
		return r.reply(r.addWatch())
	case wire.OpCheckWatches:
		return r.reply(nil, r.checkWatches())
	case wire.OpRemoveWatches:
		return r.reply(nil, r.removeWatches())
	case wire.OpSetWatches, wire.OpSetWatches2:
		return r.reply(nil, r.setWatches(r.h.Op == wire.OpSetWatches2))
	case wire.OpMultiRead:
		return r.multiRead()
	}
	path, watch, err := decodeRead(&r.d, r.h.Op)
	switch {
	case err != wire.OK:
		return r.reply(nil, err)
	case r.h.Op == wire.OpSync && isNull(r.body):
		return r.reply(null{}, wire.OK)
	}
	return r.reply(r.s.look(r.c, r.h.Op, path, watch))
}

// decodeRead reads a path and, where the operation can leave one, whether to leave a watch. A null path is an error to
// ZooKeeper, but for an answer that only repeats or filters by it.
func decodeRead(d *wire.Decoder, op wire.Op) (path string, watch bool, err wire.ErrCode) {
	view := d.View()
	switch op {
	case wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2:
		watch = d.Bool()
	}
	if d.Err() != nil || view == nil && op != wire.OpSync && op != wire.OpGetEphemerals {
		return "", false, wire.ErrMarshalling
	}
	return javaText(view), watch, wire.OK
}

// null is a null string.
type null struct{}

func (null) AppendTo(b []byte) []byte { return wire.AppendBuffer(b, nil) }
func (null) Decode(d *wire.Decoder)   { d.View() }

func isNull(body []byte) bool { return wire.NewDecoder(body).Int() == -1 }
