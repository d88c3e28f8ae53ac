package difftest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

// The words in which scripts are written. c(0), c(1) and so on are connections.
type c int

func (n c) does(requests ...Request) Step { return Step{int(n), Send(requests)} }
func (n c) opens() Step                   { return Step{int(n), Open{TimeoutMs: 30_000}} }
func (n c) asksFor(ms int32) Step         { return Step{int(n), Open{TimeoutMs: ms}} }
func (n c) attaches(session int) Step {
	return Step{int(n), Attach{Session: session, TimeoutMs: 30_000}}
}
func (n c) drops() Step           { return Step{int(n), Drop{}} }
func (n c) closes() Step          { return n.does(Request{Op: wire.OpCloseSession}) }
func (n c) sends(raw string) Step { return Step{int(n), Raw(raw)} }
func (n c) says(auth string) Step { return n.authenticates("digest", auth) }

func (n c) authenticates(scheme, auth string) Step {
	return n.does(Request{Op: wire.OpAuth, Xid: wire.XidAuth,
		Record: &wire.AuthRequest{Scheme: scheme, Auth: []byte(auth)}})
}

func create(path, data string, flags int32) Request {
	return Request{Op: wire.OpCreate,
		Record: &wire.CreateRequest{Path: path, Data: []byte(data), ACL: worldOpen, Flags: flags}}
}

func create2(path, data string, flags int32) Request {
	r := create(path, data, flags)
	r.Op = wire.OpCreate2
	return r
}

func createWith(path string, acl ...wire.ACL) Request {
	return Request{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: path, ACL: acl}}
}

func container(path string) Request {
	return Request{Op: wire.OpCreateContainer,
		Record: &wire.CreateRequest{Path: path, ACL: worldOpen, Flags: wire.FlagContainer}}
}

func ttl(path string, ms int64, flags int32) Request {
	return Request{Op: wire.OpCreateTTL,
		Record: &wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: path, ACL: worldOpen, Flags: flags},
			TTL: ms}}
}

func versioned(op wire.Op, path string, version int32) Request {
	return Request{Op: op, Record: &wire.VersionRequest{Path: path, Version: version}}
}

func del(path string) Request                  { return versioned(wire.OpDelete, path, -1) }
func delAt(path string, version int32) Request { return versioned(wire.OpDelete, path, version) }
func check(path string, version int32) Request { return versioned(wire.OpCheck, path, version) }
func set(path, data string) Request            { return setAt(path, data, -1) }
func getACL(path string) Request               { return about(wire.OpGetACL, path) }
func syncs(path string) Request                { return about(wire.OpSync, path) }
func ephemerals(path string) Request           { return about(wire.OpGetEphemerals, path) }
func count(path string) Request                { return about(wire.OpCountChildren, path) }
func exists(path string) Request               { return read(wire.OpExists, path, false) }
func get(path string) Request                  { return read(wire.OpGetData, path, false) }
func children(path string) Request             { return read(wire.OpGetChildren2, path, false) }
func existsW(path string) Request              { return read(wire.OpExists, path, true) }
func getW(path string) Request                 { return read(wire.OpGetData, path, true) }
func childrenW(path string) Request            { return read(wire.OpGetChildren2, path, true) }
func about(op wire.Op, path string) Request {
	return Request{Op: op, Record: &wire.PathRecord{Path: path}}
}
func whoAmI() Request                              { return Request{Op: wire.OpWhoAmI} }
func checkWatches(path string, kind int32) Request { return watches(wire.OpCheckWatches, path, kind) }
func removeWatches(path string, k int32) Request   { return watches(wire.OpRemoveWatches, path, k) }
func entry(perms int32, scheme, id string) wire.ACL {
	return wire.ACL{Perms: perms, Scheme: scheme, ID: id}
}

func setAt(path, data string, version int32) Request {
	return Request{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: path, Data: []byte(data), Version: version}}
}

func read(op wire.Op, path string, watch bool) Request {
	return Request{Op: op, Record: &wire.ReadRequest{Path: path, Watch: watch}}
}

func setACL(path string, version int32, acl ...wire.ACL) Request {
	return Request{Op: wire.OpSetACL, Record: &wire.SetACLRequest{Path: path, ACL: acl, Version: version}}
}

func addWatch(path string, mode int32) Request {
	return Request{Op: wire.OpAddWatch, Record: &wire.AddWatchRequest{Path: path, Mode: mode}}
}

func watches(op wire.Op, path string, kind int32) Request {
	return Request{Op: op, Record: &wire.WatchTypeRequest{Path: path, Type: kind}}
}

// setWatches is what a client sends after it has come back.
func setWatches(zxid int64, data, exist, child, persistent, recursive []string) Request {
	one := wire.SetWatchesRequest{RelativeZxid: zxid, Data: data, Exist: exist, Child: child}
	if persistent == nil && recursive == nil {
		return Request{Op: wire.OpSetWatches, Xid: wire.XidSetWatches, Record: &one}
	}
	return Request{Op: wire.OpSetWatches2, Xid: wire.XidSetWatches,
		Record: &wire.SetWatches2Request{SetWatchesRequest: one, Persistent: persistent, Recursive: recursive}}
}

func multi(ops ...Request) Request { return many(wire.OpMulti, ops) }

func multiRead(ops ...Request) Request { return many(wire.OpMultiRead, ops) }

func many(op wire.Op, ops []Request) Request {
	m := &wire.MultiRequest{}
	for _, r := range ops {
		m.Ops = append(m.Ops, wire.MultiOp{Op: r.Op, Record: r.Record})
	}
	return Request{Op: op, Record: m}
}

func fields(op wire.Op, v ...any) Request {
	f := Fields(v)
	return Request{Op: op, Record: &f}
}

func TestPathsAreMovedThereAndBack(t *testing.T) {
	p := place{root: "/d1"}
	for path, sent := range map[string]string{"/": "/d1", "/a": "/d1/a", "//": "/d1//", "^/zookeeper": "/zookeeper",
		"^a": "a", "^": "", "^/q{root}/x": "/q/d1/x"} {
		assert.Equal(t, p.absolute(path), sent, "%q is sent as", path)
		assert.Equal(t, p.relative(sent), path, "%q is read as", sent)
	}
}

func TestSurrogatesAreReadAsTheCharacterThatTheyAre(t *testing.T) {
	for sent, want := range map[string]string{
		"/\xed\xa0\xbd\xed\xb4\x92x": "/\U0001f512x", "/a": "/a", "": "", "\xed\xa0\xbd": "\xed\xa0\xbd",
		"\xed\xb4\x92\xed\xa0\xbd": "\xed\xb4\x92\xed\xa0\xbd", "é\xed": "é\xed",
	} {
		assert.Equal(t, inUTF8(sent), want, "%q is read as", sent)
	}
}

// TestTimesThatCannotBeAreTold: a view does not write times down, so it must see by itself what is wrong with them.
func TestTimesThatCannotBeAreTold(t *testing.T) {
	now := time.Now()
	fresh := func() *view {
		return &view{place: place{root: "/d1", base: 10}, began: now, times: map[int64]int64{}}
	}
	ms := now.UnixMilli()
	for what, second := range map[string]wire.Stat{
		"HAS TWO TIMES":   {Czxid: 11, Ctime: ms + 1, Mzxid: 11, Mtime: ms + 1},
		"IS OUT OF ORDER": {Czxid: 12, Ctime: ms - 1, Mzxid: 12, Mtime: ms - 1},
		"IS NOT NOW":      {Czxid: 12, Ctime: ms, Mzxid: 13, Mtime: ms + 60_000},
		"":                {Czxid: 11, Ctime: ms, Mzxid: 12, Mtime: ms + 1},
	} {
		v := fresh()
		v.stat("/a", wire.Stat{Czxid: 11, Ctime: ms, Mzxid: 11, Mtime: ms})
		got := v.stat("/a", second)
		assert.That(t, (what == "" || strings.Contains(got, what)) && (what != "" || !strings.Contains(got, "TIME")),
			"want %q, got %s", what, got)
	}
}

// TestOnlyTheEventsOfASessionsEndAreSorted: what any other step tells has one order, and so have events and replies.
func TestOnlyTheEventsOfASessionsEndAreSorted(t *testing.T) {
	said := func() []string {
		return []string{"c0 event b", "c0 event a", "c0 reply", "c0 event a", "c1 reply", "c1 event b", "c1 event a", "c2 event z", "c2 event y"}
	}
	sorted := []string{"c0 event a", "c0 event b", "c0 reply", "c0 event a", "c1 reply", "c1 event a", "c1 event b", "c2 event y", "c2 event z"}
	for _, test := range []struct {
		step Step
		want []string
	}{
		{c(0).closes(), sorted}, {Step{0, Expire{1}}, sorted}, {c(0).does(del("/a"), Request{Op: wire.OpCloseSession}), sorted},
		{c(0).does(del("/a")), said()}, {c(0).drops(), said()}, {c(0).opens(), said()},
	} {
		got := said()
		endInAnyOrder(test.step, got)
		assert.That(t, slices.Equal(got, test.want), "%v: %q, want %q", test.step, got, test.want)
	}
}
