package state

import "lockkeeper/internal/zk/wire"

// op is a decoded write: alone, or one of a multi. Its data is a view into the request.
type op struct {
	code   wire.Op
	path   string
	noPath bool // the path was null
	data   []byte
	acl    []wire.ACL // as asked for; not fixed unless known
	known  bool       // acl is a list of the table, right as it is
	// nullID is the number, from 1, of the first ACL entry with a null id that ZooKeeper would look at.
	nullID int
	flags  int32
	ttl    int64
	// version that is expected, -1 for any.
	version int32
}

// decodeOp reads the body of a write.
func (r *call) decodeOp(code wire.Op) (o op) {
	d := &r.d
	o.code = code
	path := d.View()
	o.path, o.noPath = javaText(path), path == nil
	switch code {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		o.data = d.View()
		r.decodeACL(&o)
		o.flags = d.Int()
		o.ttl = -1
		if code == wire.OpCreateTTL {
			o.ttl = d.Long()
		}
	case wire.OpSetData:
		o.data = d.View()
		o.version = d.Int()
	case wire.OpSetACL:
		r.decodeACL(&o)
		o.version = d.Int()
	case wire.OpDelete, wire.OpCheck:
		o.version = d.Int()
	}
	return o
}

// decodeACL reads a list, which costs nothing when it is one of the table's: nearly every list is.
func (r *call) decodeACL(o *op) {
	d, at := &r.d, r.d
	from := len(r.body) - d.Len()
	for i := range d.Count(12) {
		d.Int()
		scheme, id := d.View(), d.View()
		if id == nil && o.nullID == 0 && looksAtID(string(scheme)) {
			o.nullID = i + 1
		}
	}
	if d.Err() != nil {
		return
	}
	if o.acl, o.known = r.s.tree.acls.lookup(r.body[from : len(r.body)-d.Len()]); !o.known {
		o.acl = at.ACLs()
	}
}

// modes of a create, by its flags.
type mode struct{ ephemeral, sequential, container, ttl bool }

var modes = [...]mode{
	wire.FlagPersistent:              {},
	wire.FlagEphemeral:               {ephemeral: true},
	wire.FlagSequential:              {sequential: true},
	wire.FlagEphemeralSequential:     {ephemeral: true, sequential: true},
	wire.FlagContainer:               {container: true},
	wire.FlagPersistentTTL:           {ttl: true},
	wire.FlagPersistentSequentialTTL: {ttl: true, sequential: true},
}

// modeOf is the mode that flags stand for; ok is false when they stand for none.
func modeOf(flags int32) (m mode, ok bool) {
	if flags < 0 || int(flags) >= len(modes) {
		return mode{}, false
	}
	return modes[flags], true
}

// looksAtID says whether ZooKeeper looks at the ids of a scheme, which it cannot when they are null.
func looksAtID(scheme string) bool {
	return scheme == "world" || scheme == schemeDigest || scheme == schemeIP
}
