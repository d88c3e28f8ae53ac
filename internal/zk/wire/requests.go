package wire

// CreateRequest is the body of OpCreate, OpCreate2 and OpCreateContainer.
type CreateRequest struct {
	Path  string
	Data  []byte
	ACL   []ACL
	Flags int32
}

// AppendTo implements Record.
func (r *CreateRequest) AppendTo(b []byte) []byte {
	b = AppendBuffer(AppendString(b, r.Path), r.Data)
	return AppendInt(AppendACLs(b, r.ACL), r.Flags)
}

// Decode implements Record.
func (r *CreateRequest) Decode(d *Decoder) {
	r.Path, r.Data, r.ACL, r.Flags = d.String(), d.View(), d.ACLs(), d.Int()
}

// CreateTTLRequest is the body of OpCreateTTL; TTL is in milliseconds.
type CreateTTLRequest struct {
	CreateRequest
	TTL int64
}

// AppendTo implements Record.
func (r *CreateTTLRequest) AppendTo(b []byte) []byte {
	return AppendLong(r.CreateRequest.AppendTo(b), r.TTL)
}

// Decode implements Record.
func (r *CreateTTLRequest) Decode(d *Decoder) {
	r.CreateRequest.Decode(d)
	r.TTL = d.Long()
}

// VersionRequest is the body of OpDelete and OpCheck; Version -1 means any.
type VersionRequest struct {
	Path    string
	Version int32
}

// AppendTo implements Record.
func (r *VersionRequest) AppendTo(b []byte) []byte {
	return AppendInt(AppendString(b, r.Path), r.Version)
}

// Decode implements Record.
func (r *VersionRequest) Decode(d *Decoder) { r.Path, r.Version = d.String(), d.Int() }

// SetDataRequest is the body of OpSetData; Version -1 means any.
type SetDataRequest struct {
	Path    string
	Data    []byte
	Version int32
}

// AppendTo implements Record.
func (r *SetDataRequest) AppendTo(b []byte) []byte {
	return AppendInt(AppendBuffer(AppendString(b, r.Path), r.Data), r.Version)
}

// Decode implements Record.
func (r *SetDataRequest) Decode(d *Decoder) {
	r.Path, r.Data, r.Version = d.String(), d.View(), d.Int()
}

// ReadRequest is the body of OpExists, OpGetData, OpGetChildren and OpGetChildren2. Watch leaves a one-shot watch.
type ReadRequest struct {
	Path  string
	Watch bool
}

// AppendTo implements Record.
func (r *ReadRequest) AppendTo(b []byte) []byte { return AppendBool(AppendString(b, r.Path), r.Watch) }

// Decode implements Record.
func (r *ReadRequest) Decode(d *Decoder) { r.Path, r.Watch = d.String(), d.Bool() }

// PathRecord is a path and nothing else: the body of OpSync, OpGetACL, OpGetEphemerals, OpCountChildren and
// OpDeleteContainer, and the reply to OpSync and OpCreate.
type PathRecord struct{ Path string }

// AppendTo implements Record.
func (r *PathRecord) AppendTo(b []byte) []byte { return AppendString(b, r.Path) }

// Decode implements Record.
func (r *PathRecord) Decode(d *Decoder) { r.Path = d.String() }

// SetACLRequest is the body of OpSetACL; Version (of the ACL) -1 means any.
type SetACLRequest struct {
	Path    string
	ACL     []ACL
	Version int32
}

// AppendTo implements Record.
func (r *SetACLRequest) AppendTo(b []byte) []byte {
	return AppendInt(AppendACLs(AppendString(b, r.Path), r.ACL), r.Version)
}

// Decode implements Record.
func (r *SetACLRequest) Decode(d *Decoder) { r.Path, r.ACL, r.Version = d.String(), d.ACLs(), d.Int() }

// WatchTypeRequest is the body of OpCheckWatches and OpRemoveWatches: Type 1 is children, 2 data, 3 any.
type WatchTypeRequest struct {
	Path string
	Type int32
}

// AppendTo implements Record.
func (r *WatchTypeRequest) AppendTo(b []byte) []byte {
	return AppendInt(AppendString(b, r.Path), r.Type)
}

// Decode implements Record.
func (r *WatchTypeRequest) Decode(d *Decoder) { r.Path, r.Type = d.String(), d.Int() }

// AddWatchRequest is the body of OpAddWatch.
type AddWatchRequest struct {
	Path string
	Mode int32
}

// AppendTo implements Record.
func (r *AddWatchRequest) AppendTo(b []byte) []byte {
	return AppendInt(AppendString(b, r.Path), r.Mode)
}

// Decode implements Record.
func (r *AddWatchRequest) Decode(d *Decoder) { r.Path, r.Mode = d.String(), d.Int() }

// AuthRequest is the body of OpAuth, sent with XidAuth. Type is always 0.
type AuthRequest struct {
	Type   int32
	Scheme string
	Auth   []byte
}

// AppendTo implements Record.
func (r *AuthRequest) AppendTo(b []byte) []byte {
	return AppendBuffer(AppendString(AppendInt(b, r.Type), r.Scheme), r.Auth)
}

// Decode implements Record.
func (r *AuthRequest) Decode(d *Decoder) { r.Type, r.Scheme, r.Auth = d.Int(), d.String(), d.View() }

// SetWatchesRequest is the body of OpSetWatches and, with Persistent and
// Recursive, of OpSetWatches2 (see SetWatches2Request).
type SetWatchesRequest struct {
	RelativeZxid int64
	Data         []string
	Exist        []string
	Child        []string
}

// AppendTo implements Record.
func (r *SetWatchesRequest) AppendTo(b []byte) []byte {
	b = AppendStrings(AppendLong(b, r.RelativeZxid), r.Data)
	return AppendStrings(AppendStrings(b, r.Exist), r.Child)
}

// Decode implements Record.
func (r *SetWatchesRequest) Decode(d *Decoder) {
	r.RelativeZxid, r.Data, r.Exist, r.Child = d.Long(), d.Strings(), d.Strings(), d.Strings()
}

// SetWatches2Request is the body of OpSetWatches2.
type SetWatches2Request struct {
	SetWatchesRequest
	Persistent []string
	Recursive  []string
}

// AppendTo implements Record.
func (r *SetWatches2Request) AppendTo(b []byte) []byte {
	b = r.SetWatchesRequest.AppendTo(b)
	return AppendStrings(AppendStrings(b, r.Persistent), r.Recursive)
}

// Decode implements Record.
func (r *SetWatches2Request) Decode(d *Decoder) {
	r.SetWatchesRequest.Decode(d)
	r.Persistent, r.Recursive = d.Strings(), d.Strings()
}
