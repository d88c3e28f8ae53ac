package difftest

import (
	"math"
	"strings"
	"testing"

	"lockkeeper/internal/zk/wire"
)

const (
	plain      = wire.FlagPersistent
	ephemeral  = wire.FlagEphemeral
	sequential = wire.FlagSequential
	both       = wire.FlagEphemeralSequential
	persistent = wire.WatchPersistent
	recursive  = wire.WatchRecursive
)

// TestScripts plays a scenario for each rule and quirk that clients can run into.
func TestScripts(t *testing.T) {
	pair := serversT(t)
	for _, s := range scripts() {
		t.Run(s.Name, func(t *testing.T) { pair.CheckT(t, s) })
	}
}

func script(name string, steps ...Step) Scenario { return Scenario{Name: name, Steps: steps} }

func scripts() []Scenario {
	all := nodeScripts()
	all = append(all, multiScripts()...)
	all = append(all, watchScripts()...)
	all = append(all, aclScripts()...)
	all = append(all, sessionScripts()...)
	return append(all, brokenScripts()...)
}

func aclScripts() []Scenario {
	a, b := c(0), c(1)
	world := func(perms int32) wire.ACL { return entry(perms, "world", "anyone") }
	var perms []Step
	perms = append(perms, a.opens())
	for _, p := range []int32{0, 1, 2, 4, 8, 16, 30, 29, 27, 23, 15, 31, 32, 63, -1} {
		perms = append(perms,
			a.does(create("/d", "", plain), create("/d/p", "x", plain), create("/d/p/x", "", plain),
				setACL("/d/p", -1, world(p))),
			a.does(exists("/d/p"), get("/d/p"), children("/d/p"), read(wire.OpGetChildren, "/d/p", false),
				count("/d/p"), getACL("/d/p"), set("/d/p", "y"), create("/d/p/y", "", plain), container("/d/p/k")),
			a.does(check("/d/p", -1), multi(check("/d/p", -1)), del("/d/p/x"), del("/d/p/y"), del("/d/p/k"),
				setACL("/d/p", -1, world(31)), setACL("/d", -1, world(p)), del("/d/p/x"), del("/d/p/y"),
				del("/d/p/k"), del("/d/p")),
			a.does(setACL("/d", -1, world(31)), del("/d/p"), del("/d")))
	}
	return []Scenario{
		script("each permission, alone and left out",
			perms...),
		script("lists that are invalid",
			a.opens(), a.does(create("/a", "", plain)),
			a.does(createWith("/x"), createWith("/x", entry(31, "world", "other")),
				createWith("/x", entry(31, "world", "")), createWith("/x", entry(31, "none", "x")),
				createWith("/x", entry(31, "", "")), createWith("/x", entry(31, "auth", ""))),
			a.does(createWith("/x", entry(31, "digest", "a")), createWith("/y", entry(31, "digest", "a:b:c")),
				createWith("/z", entry(31, "digest", "")), createWith("/x", entry(31, "digest", ":")),
				createWith("/x", entry(31, "ip", "1.2.3")), createWith("/w", entry(31, "ip", "1.2.3.4/0")),
				createWith("/x", entry(31, "ip", "1.2.3.4/33"))),
			a.does(createWith("/v", entry(31, "ip", "01.2.3.4")), createWith("/u", entry(31, "ip", "1.2.3.4/-1")),
				createWith("/t", entry(31, "ip", "1.2.3.4/ 8")), createWith("/s", entry(31, "ip", "::1")),
				createWith("/r", entry(31, "ip", "1.2.3.4/8/9")), createWith("/q", entry(31, "ip", "")),
				createWith("/p", entry(31, "ip", "-1.2.3.4"))),
			a.does(createWith("/o", world(31), world(31), world(1)), getACL("/o"), setACL("/a", -1),
				setACL("/a", -1, entry(31, "x", "y")), setACL("/a", 5, worldOpen...),
				setACL("/a", 0, world(31), entry(31, "bad", "")), setACL("/a", 0, worldOpen...),
				setACL("/a", 0, worldOpen...), exists("/a"), getACL("/a")),
			a.does(createWith("/n", entry(31, "sasl", "u")), createWith("/n", entry(31, "x509", "CN=x")),
				createWith("/n", entry(31, "super", "")),
				fields(wire.OpCreate, Path("/m"), Null{}, Null{}, int32(0)),
				fields(wire.OpCreate, Path("/m"), Null{}, int32(1), int32(31), Null{}, Null{}, int32(0)),
				fields(wire.OpCreate, Path("/m"), Null{}, int32(1), int32(31), "world", Null{}, int32(0)),
				fields(wire.OpCreate, Path("/m"), Null{}, int32(1), int32(31), "auth", Null{}, int32(0)),
				fields(wire.OpCreate, Path("/m"), Null{}, int32(1), int32(31), "digest", Null{}, int32(0)),
				fields(wire.OpCreate, Path("/m"), Null{}, int32(2), int32(31), "foo", Null{}, int32(31), "world", Null{}, int32(0)))),
		script("auth stands for all one's identities",
			a.opens(), b.opens(), a.does(createWith("/x", entry(31, "auth", ""))), a.says("u1:p1"),
			a.does(createWith("/x", entry(31, "auth", "ignored")), getACL("/x"),
				createWith("/y", entry(1, "auth", ""), world(31)), getACL("/y")), a.says("u2:p2"), a.says("u2:p2"),
			a.does(createWith("/z", entry(31, "auth", "")), getACL("/z"),
				createWith("/w", entry(1, "auth", ""), entry(31, "digest", id1), entry(31, "digest", id1)),
				getACL("/w"), whoAmI()), b.does(get("/x"), getACL("/x"), getACL("/y"), set("/y", ""), whoAmI()),
			b.says("u2:p2"), b.does(get("/x"), get("/z"), getACL("/z"), whoAmI())),
		script("digests are hidden from clients without the permission to administrate",
			a.opens(), a.does(createWith("/x", world(wire.PermRead), entry(31, "digest", id1)),
				createWith("/y", world(wire.PermRead|wire.PermAdmin), entry(31, "digest", id1)),
				createWith("/z", world(wire.PermAdmin), entry(31, "digest", id1)),
				createWith("/w", world(wire.PermWrite), entry(31, "digest", id1)),
				createWith("/v", world(1), entry(31, "digest", "a:b:c"), entry(31, "digest", ":x"))),
			a.does(getACL("/x"), getACL("/y"), getACL("/z"), getACL("/w"), getACL("/v")), a.says("u1:p1"),
			a.does(getACL("/x"), getACL("/y"), getACL("/z"), getACL("/w"))),
		script("the address is an identity",
			a.opens(), a.does(createWith("/x", entry(31, "ip", "127.0.0.1")),
				createWith("/y", entry(31, "ip", "127.255.0.0/8")), createWith("/z", entry(31, "ip", "127.0.0.2")),
				createWith("/w", entry(31, "ip", "10.0.0.0/8")), createWith("/v", entry(31, "ip", "255.255.255.255/0"))),
			a.does(get("/x"), get("/y"), get("/z"), get("/w"), get("/v"), getACL("/x")),
			a.authenticates("ip", "10.1.2.3"), a.does(get("/w"), whoAmI())),
		script("authentication that fails closes the connection",
			a.opens(), a.does(create("/e", "", ephemeral)), a.authenticates("foo", "x"), b.opens(),
			b.does(exists("/e")), b.authenticates("world", "anyone"), b.opens(), b.authenticates("", ""),
			b.opens(), b.authenticates("auth", "x"), b.opens(), b.authenticates("sasl", "x"), b.opens(),
			b.authenticates("super", "x"), a.attaches(0), a.does(exists("/e"))),
		script("odd digests",
			a.opens(), a.says("nocolon"), a.does(whoAmI()), a.says(""), a.does(whoAmI()), a.says(":"),
			a.says("u:p:q"), a.says("u:"), a.says(":p"), a.says("ü:ß"), a.says("super:x"),
			a.does(whoAmI(), createWith("/x", entry(31, "auth", "")), getACL("/x"))),
		script("an auth packet with an xid of its own",
			a.opens(), a.does(Request{Op: wire.OpAuth, Xid: 9,
				Record: &wire.AuthRequest{Type: 3, Scheme: "digest", Auth: []byte("u1:p1")}}), a.does(whoAmI())),
		script("identities belong to the connection",
			a.opens(), a.says("u1:p1"), a.does(createWith("/x", entry(31, "auth", ""))), a.attaches(0),
			a.does(get("/x"), whoAmI()), a.says("u1:p1"), a.does(get("/x"))),
		script("events need the permission to read",
			a.opens(), b.opens(), a.says("u1:p1"),
			a.does(create("/a", "", plain), addWatch("/", recursive), existsW("/a/x"), childrenW("/a")),
			b.does(addWatch("/", recursive), addWatch("/a", persistent), existsW("/a/x"), childrenW("/a")),
			a.does(createWith("/a/x", entry(31, "auth", "")), set("/a/x", "1")),
			b.does(existsW("/a/x"), getW("/a/x")),
			a.does(set("/a/x", "2"), createWith("/a/x/p", entry(31, "world", "anyone")), set("/a/x/p", ""),
				del("/a/x/p"), del("/a/x")),
			a.does(create("/a/y", "", plain)), b.does(getW("/a/y")),
			a.does(setACL("/a/y", -1, entry(31, "auth", "")), set("/a/y", "1"), del("/a/y")),
			a.does(setACL("/a", -1, entry(31, "auth", "")), create("/a/z", "", plain), set("/a/z", ""), del("/a/z"))),
		script("setWatches needs no permission, its events do",
			a.opens(), b.opens(), a.says("u1:p1"), a.does(createWith("/x", entry(31, "auth", "")), set("/x", "1")),
			b.does(setWatches(2, []string{"/x"}, []string{"/x"}, []string{"/x"}, nil, nil)),
			a.does(set("/x", "2"), create("/x/p", "", plain)),
			b.does(setWatches(99, []string{"/x"}, nil, []string{"/x"}, []string{"/x"}, []string{"/x"})),
			a.does(set("/x", "3"), del("/x/p"), del("/x"))),
	}
}

func watchScripts() []Scenario {
	a, b := c(0), c(1)
	return []Scenario{
		script("a watch fires once",
			a.opens(), b.opens(),
			a.does(create("/a", "", plain), getW("/a"), existsW("/a"), childrenW("/a"), existsW("/n"),
				getW("/m"), childrenW("/m")),
			b.does(set("/a", "1"), set("/a", "2"), create("/a/x", "", plain), create("/a/y", "", plain)),
			b.does(create("/n", "", plain), create("/m", "", plain), del("/n"), del("/m"))),
		script("a deletion ends all watches of a node",
			a.opens(), b.opens(), a.does(create("/a", "", plain), getW("/a"), childrenW("/a"), childrenW("/")),
			b.does(del("/a"), create("/a", "", plain)), b.does(set("/a", ""), create("/a/x", "", plain))),
		script("an event comes before the writer's own reply",
			a.opens(), a.does(existsW("/a"), childrenW("/"), create("/a", "", plain), getW("/a"), set("/a", ""),
				childrenW("/a"), getW("/a"), del("/a"))),
		script("a setACL is no event",
			a.opens(), a.does(create("/a", "", plain), getW("/a"), childrenW("/a"), addWatch("/a", persistent),
				setACL("/a", -1, entry(31, "world", "anyone")), exists("/a"))),
		script("persistent watches stay, recursive ones see what is below",
			a.opens(), b.opens(),
			a.does(create("/a", "", plain), addWatch("/a", persistent), addWatch("/a/x", persistent)),
			b.does(create("/a/x", "", plain), create("/a/x/p", "", plain), set("/a/x", "1"), set("/a/x/p", ""),
				set("/a", "")),
			b.does(del("/a/x/p"), del("/a/x"), del("/a"), create("/a", "", plain)),
			a.does(addWatch("/a", recursive)),
			b.does(create("/a/x", "", plain), create("/a/x/p", "", plain), set("/a/x/p", ""), set("/a", ""),
				del("/a/x/p"), del("/a/x"), del("/a"))),
		script("all kinds of watches on one node",
			a.opens(), b.opens(),
			a.does(create("/a", "", plain), getW("/a"), childrenW("/a"), addWatch("/a", persistent),
				addWatch("/a", recursive), getW("/a"), childrenW("/a")),
			b.does(set("/a", ""), create("/a/x", "", plain), set("/a", ""), set("/a/x", ""), del("/a/x"), del("/a"))),
		script("recursive then persistent, and the other way round",
			a.opens(), b.opens(),
			a.does(create("/a", "", plain), addWatch("/a", recursive), addWatch("/a", persistent)),
			b.does(create("/a/x", "", plain), set("/a/x", ""), set("/a", "")),
			a.does(addWatch("/a", recursive)), b.does(create("/a/y", "", plain), set("/a/y", ""), set("/a", "")),
			a.does(getW("/a")), b.does(set("/a", "")), b.does(set("/a", ""))),
		script("a one-shot watch below a recursive one fires with it",
			a.opens(), b.opens(),
			a.does(create("/a", "", plain), create("/a/x", "", plain), addWatch("/a", recursive), getW("/a/x"),
				childrenW("/a/x"), childrenW("/a")),
			b.does(set("/a/x", "")), b.does(create("/a/x/p", "", plain)), b.does(del("/a/x/p"), del("/a/x"))),
		script("addWatch at the root of all",
			a.opens(), b.opens(), a.does(addWatch("^/", recursive)),
			b.does(create("/a", "", plain), set("/a", ""), create("/a/x", "", ephemeral), del("/a/x"),
				del("/a")), a.does(addWatch("^/", persistent), childrenW("^/"), removeWatches("^/", 3))),
		script("a path that is null has no watches", nullKinds()...),
		script("modes and paths that addWatch refuses",
			a.opens(), a.does(addWatch("/a", 2), addWatch("/a", -1), addWatch("^", recursive),
				addWatch("^a", recursive), addWatch("/a/", persistent)),
			a.does(create("/a", "", plain), set("/a", ""))),
		script("watches are looked up and removed by kind",
			watchKinds()...),
		script("setWatches tells what was missed",
			a.opens(), b.opens(),
			b.does(create("/same", "", plain), create("/changed", "", plain), create("/gone", "", plain),
				create("/kids", "", plain), create("/born", "", plain)),
			b.does(set("/changed", "1"), del("/gone"), create("/kids/x", "", plain)),
			a.does(setWatches(7, []string{"/same", "/changed", "/gone", "/never"}, nil, nil, nil, nil)),
			a.does(setWatches(7, nil, []string{"/same", "/changed", "/gone", "/never"}, nil, nil, nil)),
			a.does(setWatches(7, nil, nil, []string{"/same", "/kids", "/gone", "/never"}, nil, nil)),
			b.does(set("/same", ""), create("/gone", "", plain), create("/never", "", plain),
				create("/same/x", "", plain), create("/kids/y", "", plain), set("/changed", ""))),
		script("setWatches with what is old, new and to come",
			a.opens(), b.opens(), b.does(create("/a", "", plain), set("/a", "1"), create("/a/x", "", plain)),
			a.does(setWatches(2, []string{"/a"}, []string{"/a"}, []string{"/a"}, nil, nil)),
			a.does(setWatches(3, []string{"/a"}, []string{"/a"}, []string{"/a"}, nil, nil)),
			a.does(setWatches(4, []string{"/a"}, nil, []string{"/a"}, nil, nil)),
			a.does(setWatches(5, []string{"/a"}, nil, []string{"/a"}, nil, nil)),
			b.does(set("/a", "2"), create("/a/y", "", plain)),
			a.does(setWatches(-1, []string{"/a"}, nil, nil, nil, nil),
				setWatches(0, []string{"/a"}, nil, nil, nil, nil),
				setWatches(math.MaxInt64, []string{"/a"}, nil, []string{"/a"}, nil, nil)), b.does(set("/a", "3"))),
		script("setWatches2 brings persistent watches back without what was missed",
			a.opens(), b.opens(), b.does(create("/a", "", plain), set("/a", "1")),
			a.does(setWatches(0, nil, nil, nil, []string{"/a", "/n"}, []string{"/a", "/n"}),
				checkWatches("/a", 4), checkWatches("/a", 5)),
			b.does(set("/a", "2"), create("/a/x", "", plain), create("/n", "", plain), create("/n/x", "", plain)),
			a.does(setWatches(9, []string{"/a"}, []string{"/z"}, []string{"/a"}, []string{"/z"}, nil)),
			b.does(set("/a", "3"), create("/z", "", plain), create("/z/x", "", plain))),
		script("watches end with the connection, not the session",
			a.opens(), b.opens(), a.does(create("/a", "", plain), getW("/a"), addWatch("/a", recursive)),
			a.attaches(0), b.does(set("/a", "")), a.does(checkWatches("/a", 3), getW("/a")),
			b.does(set("/a", ""))),
		script("an ephemeral's end is an event for watchers",
			a.opens(), b.opens(), a.does(create("/a", "", plain), create("/a/e", "", ephemeral)),
			b.does(existsW("/a/e"), childrenW("/a"), addWatch("/", recursive)), a.closes(),
			b.does(exists("/a"), children("/a"))),
		script("container and time to live in events",
			a.opens(), a.does(addWatch("/", recursive), childrenW("/"), container("/k"),
				ttl("/t", 60_000, wire.FlagPersistentTTL), del("/k"), del("/t"))),
	}
}

func watchKinds() []Step {
	a := c(0)
	steps := []Step{a.opens(), a.does(create("/a", "", plain))}
	set := []Request{getW("/a"), childrenW("/a"), addWatch("/a", persistent), addWatch("/a", recursive),
		existsW("/n")}
	for kind := int32(-1); kind <= 6; kind++ {
		for _, one := range set {
			steps = append(steps,
				a.does(one, checkWatches("/a", kind), removeWatches("/a", kind), removeWatches("/a", kind)),
				a.does(checkWatches("/a", 1), checkWatches("/a", 2), checkWatches("/a", 3), checkWatches("/a", 4),
					checkWatches("/a", 5), removeWatches("/a", 3)))
		}
		steps = append(steps, a.does(set...), a.does(removeWatches("/a", kind)),
			c(0).does(checkWatches("/a", 1), checkWatches("/a", 2), checkWatches("/a", 3), checkWatches("/a", 4),
				checkWatches("/a", 5)),
			a.does(Request{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/a", Version: -1}},
				create("/a/x", "", plain), del("/a/x"), removeWatches("/a", 3), removeWatches("/n", 3),
				checkWatches("/none", 3), removeWatches("^", 3)))
	}
	return steps
}

func nullKinds() []Step {
	steps := []Step{c(0).opens()}
	for kind := range int32(5) {
		steps = append(steps, c(0).does(fields(wire.OpCheckWatches, Null{}, kind), fields(wire.OpRemoveWatches, Null{}, kind)))
	}
	return steps
}

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
