package difftest

import (
	"math"
	"strings"

	"lockkeeper/internal/zk/wire"
)

func sessionScripts() []Scenario {
	a, b, d := c(0), c(1), c(2)
	var timeouts []Step
	for _, ms := range []int32{0, 1, -1, 3999, 4000, 4001, 5000, 39_999, 40_000, 40_001, math.MaxInt32,
		math.MinInt32} {
		timeouts = append(timeouts, a.asksFor(ms), a.closes())
	}
	return []Scenario{
		script("timeouts are negotiated",
			timeouts...),
		script("old clients get the old form",
			Step{0, Open{TimeoutMs: 30_000, NoReadOnly: true}}, a.does(create("/e", "", ephemeral)), a.attaches(0),
			a.does(ephemerals("/"))),
		script("the end of a session takes its ephemerals",
			a.opens(), b.opens(),
			a.does(create("/e", "", ephemeral), create("/f", "", both), create("/p", "", plain)),
			b.does(create("/g", "", ephemeral), addWatch("/", recursive)), a.closes(),
			b.does(children("/"), exists("/"))),
		script("a session moves to the newest connection",
			a.opens(), a.does(create("/e", "", ephemeral), getW("/e")), b.attaches(0),
			b.does(ephemerals("/"), set("/e", "")), a.does(get("/e")), d.attaches(0), d.does(get("/e")),
			d.closes(), a.opens(), a.does(exists("/e"))),
		script("a session survives its connection",
			a.opens(), a.does(create("/e", "", ephemeral)), a.drops(), b.opens(), b.does(exists("/e")),
			a.attaches(0), a.does(ephemerals("/")), Step{0, Attach{Session: 0, TimeoutMs: 5000}},
			a.does(ephemerals("/")), Step{0, Attach{Session: 0, TimeoutMs: 1}}),
		script("wrong passwords and sessions that are over get zeros",
			a.opens(), a.drops(), Step{0, Attach{Session: 0, TimeoutMs: 30_000, WrongPasswd: true}},
			Step{1, Attach{Session: 0, TimeoutMs: 30_000, ShortPasswd: true}},
			Step{1, Attach{Session: 0, TimeoutMs: 30_000, WrongID: true}}, a.attaches(0), a.closes(), a.attaches(0),
			b.attaches(0)),
		script("a client that has seen more than there is gets nothing",
			a.opens(), a.does(create("/e", "", ephemeral)), Step{1, Open{TimeoutMs: 30_000, LastSeen: 1000}},
			Step{1, Attach{Session: 0, TimeoutMs: 30_000, LastSeen: 1000}}, a.does(get("/e")),
			Step{1, Open{TimeoutMs: 30_000, LastSeen: 2}}, Step{2, Open{TimeoutMs: 30_000, LastSeen: 4}},
			Step{2, Open{TimeoutMs: 30_000, LastSeen: math.MinInt64}},
			Step{0, Attach{Session: 0, TimeoutMs: 30_000, LastSeen: 3}}, a.does(get("/e"))),
		script("a closed session's requests before the end are carried out",
			a.opens(), b.opens(),
			a.does(create("/e", "", ephemeral), create("/p", "", plain), Request{Op: wire.OpCloseSession}),
			b.does(children("/")), a.does(get("/p"))),
		script("a transaction's ephemerals have an owner",
			a.opens(), b.opens(),
			a.does(multi(create("/a", "", plain), create("/a/e", "", ephemeral), create2("/a/s-", "", both))),
			b.does(exists("/a/e"), exists("/a/s-0000000001")), a.closes(), b.does(children("/a"))),
		script("a ping is answered in its turn",
			a.opens(), a.does(create("/a", "", plain), Request{Op: wire.OpPing}, getW("/a"), set("/a", ""),
				Request{Op: wire.OpPing})),
	}
}

func brokenScripts() []Scenario {
	a, b := c(0), c(1)
	frames := []Step{b.opens(), b.does(create("/a", "", plain))}
	for _, raw := range []string{"\xff\xff\xff\xff", "\x80\x00\x00\x00", "\x7f\xff\xff\xff",
		"\x00\x0f\xff\xff" + strings.Repeat("\x00", 0xfffff), "\x00\x10\x00\x00", "\x01\x00\x00\x00",
		"\x00\x00\x00\x00", "\x00\x00\x00\x01x", "\x00\x00\x00\x04\x00\x00\x00\x07",
		"\x00\x00\x00\x07\x00\x00\x00\x07\x00\x00\x00"} {
		frames = append(frames, a.opens(), a.sends(raw), b.does(get("/a")))
	}
	unknown := []Step{b.opens(), b.does(create("/a", "", plain))}
	for _, op := range []wire.Op{-13, -12, -10 - 100, -5, -2, -1, 0, 10, 20 + 3, 24, 99, 106 + 2, 109, 1000,
		math.MaxInt32, math.MinInt32} {
		unknown = append(unknown, a.opens(), a.does(about(op, "/a")), b.does(get("/a")))
	}
	var short []Step
	short = append(short, a.opens(), a.does(create("/a", "1", plain)))
	for _, r := range []Request{create("/x", "d", plain), create2("/x", "d", plain), container("/x"),
		ttl("/x", 9, wire.FlagPersistentTTL), del("/a"), set("/a", ""), setACL("/a", -1, worldOpen...),
		check("/a", 0), exists("/a"), get("/a"), children("/a"), read(wire.OpGetChildren, "/a", false), getACL("/a"),
		syncs("/a"), ephemerals("/a"), count("/a"), multi(set("/a", "")), multiRead(get("/a")), addWatch("/a", 0),
		checkWatches("/a", 3), removeWatches("/a", 3), setWatches(1, []string{"/a"}, nil, nil, nil, nil),
		setWatches(1, nil, nil, nil, []string{"/a"}, nil)} {
		none, some, more := r, r, r
		none.Cut, some.Cut, more.Extra = 1<<20, 3, []byte("more")
		short = append(short, a.opens(), a.does(none), a.opens(), a.does(some), a.opens(), a.does(more),
			a.does(exists("/a")))
	}
	big := strings.Repeat("x", 0xfffff-200)
	return []Scenario{
		script("frames that are none end their connection alone",
			frames...),
		script("operations that do not exist",
			unknown...),
		script("deleteContainer is the server's own",
			a.opens(), a.does(container("/k"), create("/a", "", plain)), a.does(about(wire.OpDeleteContainer, "/k")),
			a.does(about(wire.OpDeleteContainer, "/a"), versioned(wire.OpDeleteContainer, "/k", -1),
				Request{Op: wire.OpDeleteContainer}, Request{Op: wire.OpDeleteContainer, Extra: []byte("/k")}),
			a.does(children("/")), a.does(multi(about(wire.OpDeleteContainer, "/k")))),
		script("bodies that end early or late",
			short...),
		script("lengths that are absurd",
			a.opens(), a.does(fields(wire.OpGetData, int32(-2), false),
				fields(wire.OpGetData, int32(math.MaxInt32), false),
				fields(wire.OpGetData, int32(math.MinInt32), false), fields(wire.OpGetData, Null{}, false),
				fields(wire.OpExists, Null{}, false), fields(wire.OpSync, Null{}),
				fields(wire.OpDelete, Null{}, int32(-1))),
			a.does(fields(wire.OpCreate, Path("/x"), int32(-2)),
				fields(wire.OpCreate, Path("/x"), int32(1<<30), "d"),
				fields(wire.OpCreate, Path("/x"), Null{}, int32(-2), int32(0)),
				fields(wire.OpCreate, Path("/x"), Null{}, int32(1<<30), int32(0)),
				fields(wire.OpSetWatches, int64(0), int32(-2)), fields(wire.OpSetWatches, int64(0), int32(1<<30))),
			a.does(children("/"))),
		script("nulls",
			a.opens(), a.does(create("/a", "", plain)),
			a.does(fields(wire.OpSetWatches, int64(0), Null{}, Null{}, Null{})), a.opens(),
			a.does(fields(wire.OpSetWatches2, int64(0), Null{}, Null{}, Null{}, Null{}, Null{})), a.opens(),
			a.does(fields(wire.OpSetACL, Path("/a"), Null{}, int32(-1))),
			a.does(fields(wire.OpCreate, Null{}, Null{}, int32(1), int32(31), "world", "anyone", int32(0)), exists("/a\x00"), existsW("/n\x00")),
			a.does(fields(wire.OpSetData, Null{}, Null{}, int32(-1)), fields(wire.OpGetACL, Null{}),
				fields(wire.OpGetChildren, Null{}, false), fields(wire.OpCountChildren, Null{}))),
		script("a node may be almost as large as a frame",
			a.opens(), a.does(create("/a", big, plain)), a.does(exists("/a")),
			a.does(set("/a", big+strings.Repeat("y", 100))), a.does(exists("/a"), get("/a")),
			a.does(set("/a", strings.Repeat("z", 1<<20))), a.opens(), a.does(exists("/a"))),
		script("reconfig is switched off",
			a.opens(), a.does(fields(wire.OpReconfig, "server.1=a:1:2", Null{}, Null{}, int64(-1))), a.opens(),
			a.does(exists("/"))),
		script("an xid is the client's business",
			a.opens(), a.does(Request{Op: wire.OpExists, Xid: 5, Record: &wire.ReadRequest{Path: "/"}},
				Request{Op: wire.OpExists, Xid: 5, Record: &wire.ReadRequest{Path: "/a"}},
				Request{Op: wire.OpGetData, Xid: -77, Record: &wire.ReadRequest{Path: "/"}},
				Request{Op: wire.OpExists, Xid: math.MinInt32, Record: &wire.ReadRequest{Path: "/"}})),
	}
}
