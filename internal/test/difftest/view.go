package difftest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"lockkeeper/internal/zk/wire"
)

// view writes down what a server says in words that are the same for every server that behaves alike.
type view struct {
	place
	began    time.Time
	numbers  map[int64]int // of sessions: id -> order of creation
	times    map[int64]int64
	rootStat wire.Stat // of the server's own root at the start: other scenarios have changed it
}

// zxidName is a zxid as distance from the start.
func (v *view) zxidName(z int64) string {
	if z <= 0 {
		return fmt.Sprint(z)
	}
	return fmt.Sprintf("%+d", z-v.base)
}

func (v *view) path(path string) string { return v.relative(inUTF8(path)) }

func (v *view) session(id int64) string {
	if id == 0 {
		return "0"
	}
	if n, ok := v.numbers[id]; ok {
		return fmt.Sprintf("S%d", n)
	}
	return fmt.Sprintf("unknown %#x", id)
}

// at checks the time of a transaction and returns what is wrong with it.
func (v *view) at(zxid, ms int64) string {
	if zxid <= v.base { // the scenario has not done it
		return ""
	}
	known, ok := v.times[zxid]
	v.times[zxid] = ms
	if ok && known != ms {
		return fmt.Sprintf(" TRANSACTION %s HAS TWO TIMES, %d ms apart", v.zxidName(zxid), ms-known)
	}
	for z, t := range v.times {
		if z < zxid && t > ms || z > zxid && t < ms {
			return fmt.Sprintf(" TIME OF %s IS OUT OF ORDER", v.zxidName(zxid))
		}
	}
	if now := time.Now(); ms < v.began.Add(-time.Second).UnixMilli() || ms > now.Add(time.Second).UnixMilli() {
		return fmt.Sprintf(" TIME OF %s IS NOT NOW: %d", v.zxidName(zxid), ms)
	}
	return ""
}

func (v *view) stat(path string, s wire.Stat) string {
	if path == "^/" || path == "^" {
		s.Version -= v.rootStat.Version
		s.Cversion -= v.rootStat.Cversion
		s.Aversion -= v.rootStat.Aversion
		s.NumChildren -= v.rootStat.NumChildren
		if s.Mzxid <= v.base {
			s.Mzxid, s.Mtime = 0, 0
		}
	}
	times := v.at(s.Czxid, s.Ctime) + v.at(s.Mzxid, s.Mtime)
	return fmt.Sprintf("{c=%s m=%s p=%s v=%d cv=%d av=%d owner=%s len=%d children=%d%s}", v.zxidName(s.Czxid), v.zxidName(s.Mzxid),
		v.zxidName(s.Pzxid), s.Version, s.Cversion, s.Aversion, v.session(s.EphemeralOwner), s.DataLength, s.NumChildren, times)
}

// names are the names of nodes. Those of other scenarios in the server's own root are left out.
func (v *view) names(of string, names []string) string {
	outside := of == "^/" || of == "^"
	var out []string
	for _, n := range names {
		switch {
		case strings.HasPrefix(n, "/"): // a path
			n = v.path(n)
		case outside && "/"+n == v.root:
			n = "(root)"
		case outside && n != "zookeeper":
			continue // another scenario's
		}
		out = append(out, n)
	}
	return fmt.Sprintf("%q", inAnyOrder(out))
}

func (v *view) acl(acl []wire.ACL) string {
	var out []string
	for _, a := range acl {
		out = append(out, fmt.Sprintf("%d %s %q", a.Perms, a.Scheme, a.ID))
	}
	return "[" + strings.Join(inAnyOrder(out), ", ") + "]"
}

func data(b []byte) string {
	if b == nil {
		return "null"
	}
	if len(b) > 100 {
		return fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
	}
	return fmt.Sprintf("%q", b)
}

func (v *view) event(body []byte) string {
	var e wire.WatcherEvent
	d := wire.NewDecoder(body)
	e.Decode(d)
	return fmt.Sprintf("event %d state=%d %q%s", e.Type, e.State, v.path(e.Path), leftOver(d, body, &e))
}

// leftOver says what is wrong with the bytes that a record was decoded from.
func leftOver(d *wire.Decoder, body []byte, r wire.Record) string {
	if err := d.Finish(); err != nil {
		return fmt.Sprintf(" %v IN %x", err, body)
	}
	if again := r.AppendTo(nil); !bytes.Equal(again, body) {
		return fmt.Sprintf(" NOT CANONICAL (%d bytes, canonical %d)", len(body), len(again))
	}
	return ""
}

// reply is a reply to a request.
func (v *view) reply(r Request, h wire.ReplyHeader, body []byte) string {
	head := fmt.Sprintf("reply xid=%d zxid=%s err=%d", h.Xid, v.zxidName(h.Zxid), h.Err)
	if len(body) == 0 {
		return head
	}
	if h.Err != wire.OK && r.Op != wire.OpMulti && r.Op != wire.OpMultiRead {
		return fmt.Sprintf("%s AND A BODY %x", head, body)
	}
	path := pathOf(r.Record)
	d := wire.NewDecoder(body)
	var rec wire.Record
	var text string
	switch r.Op {
	case wire.OpCreate, wire.OpSync:
		out := new(wire.PathRecord)
		out.Decode(d)
		rec, text = out, fmt.Sprintf("%q", v.path(out.Path))
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		out := new(wire.Create2Reply)
		out.Decode(d)
		rec, text = out, fmt.Sprintf("%q %s", v.path(out.Path), v.stat(path, out.Stat))
	case wire.OpExists, wire.OpSetData, wire.OpSetACL, wire.OpCheck:
		out := new(wire.StatReply)
		out.Decode(d)
		rec, text = out, v.stat(path, out.Stat)
	case wire.OpGetData:
		out := new(wire.DataReply)
		out.Decode(d)
		rec, text = out, data(out.Data)+" "+v.stat(path, out.Stat)
	case wire.OpGetACL:
		out := new(wire.ACLReply)
		out.Decode(d)
		rec, text = out, v.acl(out.ACL)+" "+v.stat(path, out.Stat)
	case wire.OpGetChildren, wire.OpGetEphemerals:
		out := new(wire.ChildrenReply)
		out.Decode(d)
		rec, text = out, v.names(path, out.Children)
	case wire.OpGetChildren2:
		out := new(wire.Children2Reply)
		out.Decode(d)
		rec, text = out, v.names(path, out.Children)+" "+v.stat(path, out.Stat)
	case wire.OpCountChildren, wire.OpAddWatch:
		out := new(wire.IntReply)
		out.Decode(d)
		rec, text = out, fmt.Sprint(out.Value)
	case wire.OpMulti, wire.OpMultiRead:
		out := new(wire.MultiReply)
		out.Decode(d)
		rec, text = out, v.multi(r.Record, out)
	case wire.OpWhoAmI:
		out := new(identities)
		out.Decode(d)
		rec, text = out, out.String()
	default:
		return fmt.Sprintf("%s body %x", head, body)
	}
	return head + " " + text + leftOver(d, body, rec)
}

func (v *view) multi(asked wire.Record, reply *wire.MultiReply) string {
	var out []string
	for i, res := range reply.Results {
		var path string
		if m, ok := asked.(*wire.MultiRequest); ok && i < len(m.Ops) {
			path = pathOf(m.Ops[i].Record)
		}
		text := fmt.Sprintf("%s err=%d", opName(res.Op), res.Err)
		switch res.Op {
		case wire.OpCreate:
			text += fmt.Sprintf(" %q", v.path(res.Path))
		case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
			text += fmt.Sprintf(" %q %s", v.path(res.Path), v.stat(path, res.Stat))
		case wire.OpSetData:
			text += " " + v.stat(path, res.Stat)
		case wire.OpGetData:
			text += " " + data(res.Data) + " " + v.stat(path, res.Stat)
		case wire.OpGetChildren:
			text += " " + v.names(path, res.Children)
		}
		out = append(out, text)
	}
	return "[" + strings.Join(out, "; ") + "]"
}

// pathOf is the path that a request is about, as the step has it; "" when it is about none.
func pathOf(r wire.Record) string {
	switch r := r.(type) {
	case *wire.CreateRequest:
		return r.Path
	case *wire.CreateTTLRequest:
		return r.Path
	case *wire.VersionRequest:
		return r.Path
	case *wire.ReadRequest:
		return r.Path
	case *wire.SetDataRequest:
		return r.Path
	case *wire.SetACLRequest:
		return r.Path
	case *wire.PathRecord:
		return r.Path
	}
	return ""
}

// identities answers OpWhoAmI.
type identities [][2]string // scheme, user

func (ids *identities) Decode(d *wire.Decoder) {
	for range d.Count(8) {
		*ids = append(*ids, [2]string{d.String(), d.String()})
	}
}

func (ids *identities) AppendTo(b []byte) []byte {
	b = wire.AppendInt(b, int32(len(*ids)))
	for _, id := range *ids {
		b = wire.AppendString(wire.AppendString(b, id[0]), id[1])
	}
	return b
}

func (ids *identities) String() string {
	var out []string
	for _, id := range *ids {
		out = append(out, id[0]+":"+id[1])
	}
	return fmt.Sprintf("%q", inAnyOrder(out))
}
