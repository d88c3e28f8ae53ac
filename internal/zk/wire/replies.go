package wire

// Create2Reply answers OpCreate2, OpCreateContainer and OpCreateTTL. (OpCreate
// and OpSync are answered by a PathRecord.)
type Create2Reply struct {
	Path string
	Stat Stat
}

// AppendTo implements Record.
func (r *Create2Reply) AppendTo(b []byte) []byte { return r.Stat.AppendTo(AppendString(b, r.Path)) }

// Decode implements Record.
func (r *Create2Reply) Decode(d *Decoder) {
	r.Path = d.String()
	r.Stat.Decode(d)
}

// StatReply answers OpExists, OpSetData and OpSetACL.
type StatReply struct{ Stat Stat }

// AppendTo implements Record.
func (r *StatReply) AppendTo(b []byte) []byte { return r.Stat.AppendTo(b) }

// Decode implements Record.
func (r *StatReply) Decode(d *Decoder) { r.Stat.Decode(d) }

// DataReply answers OpGetData.
type DataReply struct {
	Data []byte
	Stat Stat
}

// AppendTo implements Record.
func (r *DataReply) AppendTo(b []byte) []byte { return r.Stat.AppendTo(AppendBuffer(b, r.Data)) }

// Decode implements Record.
func (r *DataReply) Decode(d *Decoder) {
	r.Data = d.View()
	r.Stat.Decode(d)
}

// ACLReply answers OpGetACL.
type ACLReply struct {
	ACL  []ACL
	Stat Stat
}

// AppendTo implements Record.
func (r *ACLReply) AppendTo(b []byte) []byte { return r.Stat.AppendTo(AppendACLs(b, r.ACL)) }

// Decode implements Record.
func (r *ACLReply) Decode(d *Decoder) {
	r.ACL = d.ACLs()
	r.Stat.Decode(d)
}

// ChildrenReply answers OpGetChildren, and OpGetEphemerals.
type ChildrenReply struct{ Children []string }

// AppendTo implements Record.
func (r *ChildrenReply) AppendTo(b []byte) []byte { return AppendStrings(b, r.Children) }

// Decode implements Record.
func (r *ChildrenReply) Decode(d *Decoder) { r.Children = d.Strings() }

// Children2Reply answers OpGetChildren2.
type Children2Reply struct {
	Children []string
	Stat     Stat
}

// AppendTo implements Record.
func (r *Children2Reply) AppendTo(b []byte) []byte {
	return r.Stat.AppendTo(AppendStrings(b, r.Children))
}

// Decode implements Record.
func (r *Children2Reply) Decode(d *Decoder) {
	r.Children = d.Strings()
	r.Stat.Decode(d)
}

// IntReply is one int: it answers OpCountChildren, and as an ErrorResult
// OpAddWatch, and each operation of a failed multi.
type IntReply struct{ Value int32 }

// AppendTo implements Record.
func (r *IntReply) AppendTo(b []byte) []byte { return AppendInt(b, r.Value) }

// Decode implements Record.
func (r *IntReply) Decode(d *Decoder) { r.Value = d.Int() }
