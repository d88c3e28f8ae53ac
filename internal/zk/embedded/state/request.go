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
	switch h.Op {
	case wire.OpAuth:
		return s.auth(c, h, body)
	case wire.OpSASL:
		return sasl(h, body)
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpSetACL,
		wire.OpCheck, wire.OpMulti, wire.OpDeleteContainer, wire.OpReconfig, wire.OpCloseSession:
		return s.write(c, now, h, body)
	case wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetEphemerals,
		wire.OpCountChildren, wire.OpMultiRead, wire.OpWhoAmI, wire.OpSync, wire.OpPing,
		wire.OpSetWatches, wire.OpSetWatches2, wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches:
		return s.read(c, h, body)
	case wire.OpCreateSession:
		// ZooKeeper would begin the connection's session again, with another timeout, and answer with a second connect
		// reply. No client sends this.
		return Reply{None: true, Close: true}
	}
	return Reply{Header: wire.ReplyHeader{Xid: h.Xid, Zxid: -1, Err: wire.ErrUnimplemented}, Close: true}
}

// reply answers with the state's newest zxid. An error has no body.
func (s *State) reply(h wire.RequestHeader, body wire.Record, err wire.ErrCode) Reply {
	if err != wire.OK {
		body = nil
	}
	return Reply{Header: wire.ReplyHeader{Xid: h.Xid, Zxid: s.zxid, Err: err}, Body: body}
}

// auth adds an identity to the connection. It is answered with zxid 0, because it is no business of the tree.
func (s *State) auth(c *Conn, h wire.RequestHeader, body []byte) Reply {
	var req wire.AuthRequest
	d := wire.NewDecoder(body)
	req.Decode(d)
	if d.Err() != nil {
		return Reply{None: true, Close: true}
	}
	if !c.authenticate(req.Scheme, req.Auth) {
		return Reply{Header: wire.ReplyHeader{Xid: h.Xid, Err: wire.ErrAuthFailed}, Close: true}
	}
	return Reply{Header: wire.ReplyHeader{Xid: h.Xid}}
}

// sasl answers as a server does that has no SASL: with a null token.
func sasl(h wire.RequestHeader, body []byte) Reply {
	var req wire.SASLRecord
	d := wire.NewDecoder(body)
	req.Decode(d)
	if d.Err() != nil || req.Token == nil {
		return Reply{None: true, Close: true}
	}
	return Reply{Header: wire.ReplyHeader{Xid: h.Xid}, Body: &wire.SASLRecord{}}
}

func (s *State) read(c *Conn, h wire.RequestHeader, body []byte) Reply {
	if !c.Unlisted && !s.HasSession(c.Session) {
		return s.reply(h, nil, wire.ErrSessionExpired)
	}
	d := wire.NewDecoder(body)
	switch h.Op {
	case wire.OpPing:
		h.Xid = wire.XidPing
		return s.reply(h, nil, wire.OK)
	case wire.OpWhoAmI:
		return s.reply(h, c.clients(), wire.OK)
	case wire.OpAddWatch:
		body, err := s.addWatch(c, d)
		return s.reply(h, body, err)
	case wire.OpCheckWatches:
		return s.reply(h, nil, s.checkWatches(d))
	case wire.OpRemoveWatches:
		return s.reply(h, nil, s.removeWatches(c, d))
	case wire.OpSetWatches, wire.OpSetWatches2:
		return s.reply(h, nil, s.setWatches(c, d, h.Op == wire.OpSetWatches2))
	case wire.OpMultiRead:
		return s.multiRead(c, h, d, body)
	}
	path, watch, err := decodeRead(d, h.Op)
	switch {
	case err != wire.OK:
		return s.reply(h, nil, err)
	case h.Op == wire.OpSync && isNull(body):
		return s.reply(h, null{}, wire.OK)
	}
	answer, err := s.look(c, h.Op, path, watch)
	return s.reply(h, answer, err)
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
