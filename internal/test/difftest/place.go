package difftest

import (
	"strings"

	"lockkeeper/internal/zk/wire"
)

// place says where on its server a scenario takes place.
type place struct {
	root string // the scenario's "/"
	base int64  // the zxid of its start
}

// absolute is the path that is sent for one of a step. Behind "^" {root} stands for the scenario's root.
func (p place) absolute(path string) string {
	if rest, ok := strings.CutPrefix(path, "^"); ok {
		return strings.ReplaceAll(rest, "{root}", p.root)
	}
	if path == "/" {
		return p.root
	}
	return p.root + path
}

// relative is absolute's inverse, for what the server says.
func (p place) relative(path string) string {
	switch rest, ok := strings.CutPrefix(path, p.root); {
	case !ok:
		return "^" + strings.ReplaceAll(path, p.root, "{root}")
	case rest == "":
		return "/"
	default:
		return rest
	}
}

func (p place) absolutes(paths []string) []string {
	var all []string
	for _, path := range paths {
		all = append(all, p.absolute(path))
	}
	return all
}

// zxid is the zxid that is sent for one of a step: counted from the start, except for what cannot be.
func (p place) zxid(z int64) int64 {
	if z <= 0 || z > 1<<40 {
		return z
	}
	return p.base + z
}

// record is a request's record with the paths and zxids of this place.
func (p place) record(r wire.Record) wire.Record {
	switch r := r.(type) {
	case *wire.CreateRequest:
		c := *r
		c.Path = p.absolute(c.Path)
		return &c
	case *wire.CreateTTLRequest:
		c := *r
		c.Path = p.absolute(c.Path)
		return &c
	case *wire.VersionRequest:
		return &wire.VersionRequest{Path: p.absolute(r.Path), Version: r.Version}
	case *wire.ReadRequest:
		return &wire.ReadRequest{Path: p.absolute(r.Path), Watch: r.Watch}
	case *wire.SetDataRequest:
		return &wire.SetDataRequest{Path: p.absolute(r.Path), Data: r.Data, Version: r.Version}
	case *wire.SetACLRequest:
		return &wire.SetACLRequest{Path: p.absolute(r.Path), ACL: r.ACL, Version: r.Version}
	case *wire.PathRecord:
		return &wire.PathRecord{Path: p.absolute(r.Path)}
	case *wire.AddWatchRequest:
		return &wire.AddWatchRequest{Path: p.absolute(r.Path), Mode: r.Mode}
	case *wire.WatchTypeRequest:
		return &wire.WatchTypeRequest{Path: p.absolute(r.Path), Type: r.Type}
	case *wire.SetWatchesRequest:
		return p.setWatches(r)
	case *wire.SetWatches2Request:
		return &wire.SetWatches2Request{
			SetWatchesRequest: *p.setWatches(&r.SetWatchesRequest),
			Persistent:        p.absolutes(r.Persistent), Recursive: p.absolutes(r.Recursive),
		}
	case *wire.MultiRequest:
		m := &wire.MultiRequest{}
		for _, op := range r.Ops {
			m.Ops = append(m.Ops, wire.MultiOp{Op: op.Op, Record: p.record(op.Record)})
		}
		return m
	case *Fields:
		return p.fields(r)
	}
	return r
}

func (p place) setWatches(r *wire.SetWatchesRequest) *wire.SetWatchesRequest {
	return &wire.SetWatchesRequest{
		RelativeZxid: p.zxid(r.RelativeZxid), Data: p.absolutes(r.Data), Exist: p.absolutes(r.Exist),
		Child: p.absolutes(r.Child),
	}
}

// Path is a path among Fields; Null is a string, buffer or vector that is null.
type Path string

// Null is a null string, buffer or vector.
type Null struct{}

// Fields is a body that no record of package wire makes: null strings and vectors, wrong counts. Its elements are
// Path, string, []byte, Null, bool, int32 and int64.
type Fields []any

func (p place) fields(f *Fields) wire.Record {
	var sent Fields
	for _, v := range *f {
		if path, ok := v.(Path); ok {
			v = p.absolute(string(path))
		}
		sent = append(sent, v)
	}
	return &sent
}

// AppendTo implements wire.Record.
func (f *Fields) AppendTo(b []byte) []byte {
	for _, v := range *f {
		switch v := v.(type) {
		case Path:
			b = wire.AppendString(b, string(v))
		case string:
			b = wire.AppendString(b, v)
		case []byte:
			b = wire.AppendBuffer(b, v)
		case Null:
			b = wire.AppendInt(b, -1)
		case bool:
			b = wire.AppendBool(b, v)
		case int32:
			b = wire.AppendInt(b, v)
		case int64:
			b = wire.AppendLong(b, v)
		default:
			panic("difftest: a field of unknown type")
		}
	}
	return b
}

// Decode implements wire.Record; it is never called, because this package only sends it.
func (f *Fields) Decode(*wire.Decoder) { panic("difftest: Fields are for sending") }
