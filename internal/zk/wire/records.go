package wire

import "math"

// RequestHeader stands before every request but the first of a connection.
type RequestHeader struct {
	Xid int32
	Op  Op
}

// AppendTo implements Record.
func (r *RequestHeader) AppendTo(b []byte) []byte { return AppendInt(AppendInt(b, r.Xid), int32(r.Op)) }

// Decode implements Record.
func (r *RequestHeader) Decode(d *Decoder) { r.Xid, r.Op = d.Int(), Op(d.Int()) }

// ReplyHeader stands before every reply but the first of a connection. Zxid is the last transaction that the server had
// applied when it answered, -1 in watch events. Where Err is not OK no body follows, except behind a multi.
type ReplyHeader struct {
	Xid  int32
	Zxid int64
	Err  ErrCode
}

// AppendTo implements Record.
func (r *ReplyHeader) AppendTo(b []byte) []byte {
	return AppendInt(AppendLong(AppendInt(b, r.Xid), r.Zxid), int32(r.Err))
}

// Decode implements Record.
func (r *ReplyHeader) Decode(d *Decoder) { r.Xid, r.Zxid, r.Err = d.Int(), d.Long(), ErrCode(d.Int()) }

// ConnectRequest is a client's first frame. Old clients send no read-only byte; HasReadOnly keeps the difference,
// because the answer must have the same form.
type ConnectRequest struct {
	ProtocolVersion int32
	LastZxidSeen    int64
	TimeoutMs       int32
	SessionID       int64
	Passwd          []byte
	HasReadOnly     bool
	ReadOnly        bool
}

// AppendTo implements Record.
func (r *ConnectRequest) AppendTo(b []byte) []byte {
	b = AppendInt(b, r.ProtocolVersion)
	b = AppendLong(b, r.LastZxidSeen)
	b = AppendInt(b, r.TimeoutMs)
	b = AppendLong(b, r.SessionID)
	b = AppendBuffer(b, r.Passwd)
	if r.HasReadOnly {
		b = AppendBool(b, r.ReadOnly)
	}
	return b
}

// Decode implements Record.
func (r *ConnectRequest) Decode(d *Decoder) {
	r.ProtocolVersion = d.Int()
	r.LastZxidSeen = d.Long()
	r.TimeoutMs = d.Int()
	r.SessionID = d.Long()
	r.Passwd = d.View()
	r.HasReadOnly = d.Len() > 0
	r.ReadOnly = r.HasReadOnly && d.Bool()
}

// ConnectReply is a server's first frame. A refused session has TimeoutMs and
// SessionID zero, and the server closes the connection.
type ConnectReply struct {
	ProtocolVersion int32
	TimeoutMs       int32
	SessionID       int64
	Passwd          []byte
	HasReadOnly     bool
	ReadOnly        bool
}

// AppendTo implements Record.
func (r *ConnectReply) AppendTo(b []byte) []byte {
	b = AppendInt(b, r.ProtocolVersion)
	b = AppendInt(b, r.TimeoutMs)
	b = AppendLong(b, r.SessionID)
	b = AppendBuffer(b, r.Passwd)
	if r.HasReadOnly {
		b = AppendBool(b, r.ReadOnly)
	}
	return b
}

// Decode implements Record.
func (r *ConnectReply) Decode(d *Decoder) {
	r.ProtocolVersion = d.Int()
	r.TimeoutMs = d.Int()
	r.SessionID = d.Long()
	r.Passwd = d.View()
	r.HasReadOnly = d.Len() > 0
	r.ReadOnly = r.HasReadOnly && d.Bool()
}

// StatSize is the length of an encoded Stat.
const StatSize = 68

// Stat is what ZooKeeper knows of a node. Times are milliseconds since the
// Unix epoch. Cversion on the wire is 2*creates - NumChildren.
type Stat struct {
	Czxid          int64
	Mzxid          int64
	Ctime          int64
	Mtime          int64
	Version        int32
	Cversion       int32
	Aversion       int32
	EphemeralOwner int64
	DataLength     int32
	NumChildren    int32
	Pzxid          int64
}

// AppendTo implements Record.
func (s *Stat) AppendTo(b []byte) []byte {
	b = AppendLong(b, s.Czxid)
	b = AppendLong(b, s.Mzxid)
	b = AppendLong(b, s.Ctime)
	b = AppendLong(b, s.Mtime)
	b = AppendInt(b, s.Version)
	b = AppendInt(b, s.Cversion)
	b = AppendInt(b, s.Aversion)
	b = AppendLong(b, s.EphemeralOwner)
	b = AppendInt(b, s.DataLength)
	b = AppendInt(b, s.NumChildren)
	return AppendLong(b, s.Pzxid)
}

// Decode implements Record.
func (s *Stat) Decode(d *Decoder) {
	s.Czxid = d.Long()
	s.Mzxid = d.Long()
	s.Ctime = d.Long()
	s.Mtime = d.Long()
	s.Version = d.Int()
	s.Cversion = d.Int()
	s.Aversion = d.Int()
	s.EphemeralOwner = d.Long()
	s.DataLength = d.Int()
	s.NumChildren = d.Int()
	s.Pzxid = d.Long()
}

// Created is the number of children that were ever created in the node: the number that the next sequential child gets.
// The wire carries twice that number as a 32-bit int, so it is known modulo 2^31: exact until the counter itself
// overflows and becomes negative, 2^31 too high from there on.
func (s *Stat) Created() int32 { return int32((uint32(s.Cversion) + uint32(s.NumChildren)) >> 1) }

// Ephemeral reports whether the node goes with a session. The owner of a container and that of a node with a time to
// live are no sessions. (The latter begins with 0xff, as do the sessions of a server whose id is 255: their ephemeral
// nodes are not recognised.)
func (s *Stat) Ephemeral() bool {
	return s.EphemeralOwner != 0 && s.EphemeralOwner != math.MinInt64 && uint64(s.EphemeralOwner)>>56 != 0xff
}

// ACL is one entry of a node's access control list.
type ACL struct {
	Perms  int32
	Scheme string
	ID     string
}

// AppendTo implements Record.
func (a *ACL) AppendTo(b []byte) []byte {
	return AppendString(AppendString(AppendInt(b, a.Perms), a.Scheme), a.ID)
}

// Decode implements Record.
func (a *ACL) Decode(d *Decoder) { a.Perms, a.Scheme, a.ID = d.Int(), d.String(), d.String() }

// AppendACLs appends a vector of ACL entries, never a null one.
func AppendACLs(b []byte, acls []ACL) []byte {
	b = AppendInt(b, int32(len(acls)))
	for i := range acls {
		b = acls[i].AppendTo(b)
	}
	return b
}

// ACLs reads a vector of ACL entries; null and empty are both nil.
func (d *Decoder) ACLs() []ACL {
	n := d.Count(12)
	if n == 0 {
		return nil
	}
	acls := make([]ACL, n)
	for i := range acls {
		acls[i].Decode(d)
	}
	return acls
}

// WatcherEvent is the body of a frame with XidWatcherEvent.
type WatcherEvent struct {
	Type  EventType
	State int32
	Path  string
}

// AppendTo implements Record.
func (e *WatcherEvent) AppendTo(b []byte) []byte {
	return AppendString(AppendInt(AppendInt(b, int32(e.Type)), e.State), e.Path)
}

// Decode implements Record.
func (e *WatcherEvent) Decode(d *Decoder) {
	e.Type, e.State, e.Path = EventType(d.Int()), d.Int(), d.String()
}

// Event reads a WatcherEvent without copying its path.
func (d *Decoder) Event() (t EventType, path []byte) {
	t = EventType(d.Int())
	d.Int() // the keeper state: always connected
	return t, d.View()
}
