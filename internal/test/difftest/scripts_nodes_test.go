package difftest

import (
	"fmt"
	"math"
	"strings"

	"lockkeeper/internal/zk/wire"
)

func nodeScripts() []Scenario {
	a, b := c(0), c(1)
	return []Scenario{
		script("a sequence number counts every child ever created",
			a.opens(), a.does(create("/a", "", plain), create("/a/x", "", plain), create("/a/s-", "", sequential),
				create2("/a/", "", both)),
			a.does(del("/a/x"), del("/a/s-0000000001"), create("/a/s-", "", sequential), exists("/a"),
				children("/a")),
			a.does(create("/a/s-", "", sequential), create("/a/s-0000000005", "", plain),
				create("/a/s-", "", sequential), exists("/a"))),
		script("a directory made again counts from zero",
			a.opens(), a.does(create("/a", "", plain), create("/a/s-", "", sequential), del("/a/s-0000000000"),
				del("/a"), create("/a", "", plain), create("/a/s-", "", sequential))),
		script("a number that is taken fails, and is not used up by it",
			a.opens(), a.does(create("/a", "", plain), create("/a/s-0000000001", "", plain),
				create("/a/s-", "", sequential), exists("/a"), create("/a/s-", "", both), exists("/a"))),
		script("data is null, empty or bytes",
			a.opens(),
			a.does(fields(wire.OpCreate, Path("/n"), Null{}, int32(1), int32(31), "world", "anyone", int32(0)),
				get("/n"), exists("/n")),
			a.does(create("/e", "", plain), get("/e"), exists("/e"), create("/b", "\x00\xff", plain), get("/b")),
			a.does(fields(wire.OpSetData, Path("/b"), Null{}, int32(-1)), get("/b"), set("/n", ""), get("/n"))),
		script("versions",
			a.opens(), a.does(create("/a", "", plain), setAt("/a", "1", 0), setAt("/a", "2", 0), setAt("/a", "2", 1),
				set("/a", "3"), setAt("/a", "4", -2), setAt("/a", "", math.MinInt32)),
			a.does(delAt("/a", 2), delAt("/a", -2), check("/a", 3), check("/a", 2), check("/none", -1),
				delAt("/a", 3), delAt("/a", 3))),
		script("containers and nodes with a time to live look like any other",
			a.opens(),
			a.does(container("/k"), exists("/k"), create2("/k/x", "", plain), exists("/k"), container("/k"),
				container("/k/y"), container("/none/k")),
			a.does(ttl("/t", 600_000, wire.FlagPersistentTTL), exists("/t"),
				ttl("/t/s-", 600_000, wire.FlagPersistentSequentialTTL), create("/t/x", "", ephemeral),
				children("/t")),
			a.does(ttl("/v", 0, wire.FlagPersistentTTL), ttl("/v", -1, wire.FlagPersistentTTL),
				ttl("/v", 0xffffffffff, wire.FlagPersistentTTL), ttl("/w", 1<<40, wire.FlagPersistentTTL),
				ttl("/w", 5, plain), ttl("/w", 5, ephemeral))),
		script("the flags of an operation are not its own",
			a.opens(),
			a.does(create("/a", "", wire.FlagContainer), create2("/b", "", wire.FlagPersistentTTL),
				create("/c", "", wire.FlagPersistentSequentialTTL), create("/d", "", 7), create("/d", "", -1),
				create("/d", "", 100)),
			a.does(Request{Op: wire.OpCreateContainer,
				Record: &wire.CreateRequest{Path: "/e", ACL: worldOpen, Flags: plain}},
				Request{Op: wire.OpCreateContainer,
					Record: &wire.CreateRequest{Path: "/f", ACL: worldOpen, Flags: ephemeral}}),
			a.does(Request{Op: wire.OpCreateContainer,
				Record: &wire.CreateRequest{Path: "/g", ACL: worldOpen, Flags: sequential}}, ephemerals("/"),
				children("/")),
			a.does(multi(create("/h", "", wire.FlagContainer),
				Request{Op: wire.OpCreateContainer, Record: &wire.CreateRequest{Path: "/i", ACL: worldOpen, Flags: plain}},
				ttl("/j", 1000, plain)), multi(create("/k", "", 77)), multi(create("/k", "", wire.FlagPersistentTTL)), children("/")),
			a.closes(), b.opens(), b.does(children("/"))),
		script("ephemeral nodes have no children",
			a.opens(), a.does(create2("/e", "", ephemeral), create("/e/x", "", plain), create("/e/x", "", both),
				container("/e/k"), multi(create("/e/x", "", plain)), exists("/e"))),
		script("a node with children is not deleted",
			a.opens(), a.does(create("/a", "", plain), create("/a/x", "", plain), del("/a"), delAt("/a", 7),
				del("/a/x"), del("/a"), del("/a"))),
		script("reading",
			a.opens(), a.does(create("/a", "1", plain), create("/a/x", "", plain), create("/a/y", "", plain),
				create("/a/y/z", "", plain)),
			a.does(exists("/a"), get("/a"), children("/a"), read(wire.OpGetChildren, "/a", false), count("/a"),
				count("/"), getACL("/a"), syncs("/a")),
			a.does(exists("/n"), get("/n"), children("/n"), read(wire.OpGetChildren, "/n", false), count("/n"),
				getACL("/n"), syncs("/n"), set("/n", ""), setACL("/n", -1, worldOpen...))),
		script("a session's ephemerals by prefix",
			a.opens(), b.opens(),
			a.does(create("/a", "", plain), create("/a/x", "", ephemeral), create("/ab", "", ephemeral),
				create("/s-", "", both)), b.does(create("/b", "", ephemeral)),
			a.does(ephemerals("/"), ephemerals("/a"), ephemerals("/a/"), ephemerals("^"), ephemerals("^ "),
				ephemerals("^/"), ephemerals("^nowhere"), fields(wire.OpGetEphemerals, Null{})),
			b.does(ephemerals("/"))),
		script("a directory is filled, emptied in part and filled again",
			crowd()...),
		script("the paths that ZooKeeper refuses, and those that it does not",
			pathSteps()...),
		script("an empty path is the root to some operations",
			a.opens(), a.does(exists("^"), getACL("^"), syncs("^"), existsW("^"), getW("^"), childrenW("^"),
				check("^", -1), del("^"), create("^", "", plain), create("^", "", sequential)),
			a.does(create("/a", "", plain)),
			a.does(addWatch("^", persistent), addWatch("^", recursive), create("/b", "", plain),
				checkWatches("^", 3), removeWatches("^", 3))),
		script("ZooKeeper's own nodes",
			a.opens(),
			a.does(exists("^/"), get("^/"), children("^/"), getACL("^/"), exists("^/zookeeper"), get("^/zookeeper"),
				children("^/zookeeper"), getACL("^/zookeeper")),
			a.does(getW("^/zookeeper/config"), children("^/zookeeper/config"), getACL("^/zookeeper/config"),
				exists("^/zookeeper/quota"), getACL("^/zookeeper/quota")),
			a.does(del("^//zookeeper"), del("^/{root}"), del("^//"), multi(del("^/{root}"))),
			a.does(del("^/"), del("^/zookeeper"), del("^/zookeeper/config"), del("^/zookeeper/quota"),
				create("^/", "", plain), create("^/zookeeper", "", plain), create("^/zookeeper/config", "", plain)),
			a.does(set("^/zookeeper/config", "x"), setACL("^/zookeeper/config", -1, worldOpen...),
				create("^/zookeeper/config/x", "", plain), multi(del("^/")), multi(set("^/zookeeper/config", "")))),
	}
}

// crowd fills a directory, empties it in part and fills it again. One session ends with many ephemerals, the next one has
// many identities.
func crowd() []Step {
	a, b := c(0), c(1)
	var more, some, again []Request
	for i := range 60 {
		name := fmt.Sprintf("/a/n%d", i)
		more = append(more, create(name, "", int32(i%2)))
		if i%3 != 0 {
			some = append(some, del(name))
		}
		again = append(again, create(fmt.Sprintf("/a/lock-%d-", i), "", both))
	}
	look := []Request{read(wire.OpGetChildren, "/a", false), children("/a"), ephemerals("/"),
		multiRead(read(wire.OpGetChildren, "/a", false))}
	return []Step{
		a.opens(), b.opens(), b.does(addWatch("/", recursive)), a.does(create("/a", "", plain)), a.does(more...),
		a.does(look...), a.does(some...), a.does(look...), a.does(create("/a/\u4e2d\u6587", "", ephemeral)), a.does(look...),
		a.does(again...), a.does(look...), a.does(del("/a/n0"), create("/a/n0", "", ephemeral)), a.does(look...),
		a.closes(), b.does(children("/a")),
		a.opens(), a.says("u1:p1"), a.says("u2:p2"), a.says("a:b"), a.says("zz:top"), a.authenticates("ip", "x"),
		a.says("u1:other"), a.does(whoAmI(), createWith("/x", entry(31, "auth", "")), getACL("/x")),
	}
}

func pathSteps() []Step {
	steps := []Step{c(0).opens()}
	for _, path := range append(badPaths, "/\u0100", "/\ud7ff", "/\ufdd0", "/\ufffd", "/\u200b", "/a/b/..", "/...",
		"/a...", "/x/", "/a\\b", "/\t", "/\n", "/\x7f", "/\u009f", "/\u00a0", "/\ufff0a", "/\uf8ff", "/\uffefz") {
		var flags int32 = plain
		if strings.HasPrefix(path, "^/") || path == "^" {
			continue
		}
		steps = append(steps,
			c(0).does(exists(path), get(path), set(path, ""), getACL(path), children(path), count(path),
				create2(path, "", flags), exists(path), syncs(path)),
			c(0).does(existsW(path), addWatch(path, recursive), set(path, ""), multi(check(path, -1), set(path, "")),
				multi(del(path)), create(path, "", sequential), children("/")))
	}
	return steps
}

func multiScripts() []Scenario {
	a, b := c(0), c(1)
	fails := []Request{create("/a", "", plain), create("/none/x", "", plain), del("/none"), del("/a"),
		delAt("/a/x", 5), setAt("/a", "", 5), set("/none", ""), check("/a", 5), check("/none", -1),
		create("/e/x", "", plain), create("bad", "", plain), createWith("/c"),
		createWith("/c", entry(31, "foo", "bar")), ttl("/c", -1, wire.FlagPersistentTTL), container("/a")}
	var positions []Step
	positions = append(positions, a.opens(),
		a.does(create("/a", "", plain), create("/a/x", "", plain), create("/e", "", ephemeral)))
	for _, bad := range fails {
		positions = append(positions,
			a.does(multi(bad), multi(bad, create("/m", "", plain)), multi(create("/m", "", plain), bad),
				multi(create("/m", "", plain), set("/a", ""), bad, del("/a/x"), bad)), a.does(exists("/a"), children("/")))
	}
	return []Scenario{
		script("a transaction does all",
			a.opens(), a.does(multi(create("/a", "1", plain), create2("/a/x", "", ephemeral),
				create("/a/s-", "", sequential), create("/a/s-", "", both), set("/a", "2"), check("/a", 1),
				set("/a", "3"), del("/a/x"))),
			a.does(get("/a"), children("/a"), exists("/a/s-0000000002")),
			a.does(multi(container("/k"), ttl("/t", 600_000, wire.FlagPersistentTTL),
				create("/k/x", "", plain))), a.does(exists("/k"), exists("/t"), multi())),
		script("a transaction fails at each position",
			positions...),
		script("an operation of a transaction sees those before it",
			a.opens(), a.does(multi(create("/a", "", plain), del("/a"), create("/a", "2", plain),
				create("/a/x", "", plain), check("/a", 0), del("/a"))),
			a.does(multi(create("/a", "", plain), create("/a/x", "", plain), del("/a/x"), del("/a")), children("/")),
			a.does(create("/b", "", plain), multi(set("/b", ""), delAt("/b", 0)),
				multi(set("/b", ""), delAt("/b", 1)), exists("/b"))),
		script("a failed transaction uses one zxid and no numbers",
			a.opens(), a.does(create("/a", "", plain),
				multi(create("/a/s-", "", sequential), create("/a/s-", "", sequential), check("/a", 9)),
				create("/a/s-", "", sequential), exists("/a"))),
		script("a transaction's events",
			a.opens(), b.opens(), b.does(addWatch("/", recursive), existsW("/a"), childrenW("/")),
			a.does(multi(create("/a", "", plain), create("/a/x", "", plain), set("/a", "1"), set("/a", "2"),
				del("/a/x"), del("/a"))),
			b.does(childrenW("/"), addWatch("/", persistent)),
			a.does(multi(create("/a", "", plain), create("/b", "", plain), del("/a"))),
			a.does(multi(create("/a", "", plain), del("/none")))),
		script("operations that no transaction knows",
			a.opens(), a.does(create("/a", "", plain)), a.does(multi(get("/a"))), a.opens(),
			a.does(multi(set("/a", ""), Request{Op: wire.OpSync, Record: &wire.PathRecord{Path: "/a"}})),
			a.opens(), a.does(exists("/a"), multi(create("/b", "", plain), exists("/a"))), a.opens(),
			a.does(children("/"))),
		script("many reads",
			a.opens(), b.opens(),
			a.does(create("/a", "1", plain), create("/a/x", "", plain),
				createWith("/p", entry(31, "digest", id3))),
			a.does(multiRead(get("/a"), read(wire.OpGetChildren, "/a", false), get("/none"),
				read(wire.OpGetChildren, "/none", false), get("/p"), get("/a/x")), multiRead(),
				multiRead(exists("/a")), multiRead(get("/a"), del("/a")), children("/")),
			a.does(multiRead(getW("/a"), read(wire.OpGetChildren, "/a", true), getW("/none"))),
			b.does(set("/a", "2"), create("/a/y", "", plain), create("/none", "", plain))),
		script("a transaction is bound by permissions",
			a.opens(), a.does(createWith("/r", entry(wire.PermRead, "world", "anyone")),
				createWith("/c", entry(wire.PermCreate, "world", "anyone")), create("/a", "", plain)),
			a.does(multi(set("/a", ""), create("/r/x", "", plain)), multi(set("/r", "")), multi(check("/c", -1)),
				multi(check("/r", -1)), multi(create("/c/x", "", plain)), multi(del("/c/x")),
				multi(create("/c/y", "", plain), del("/c/y")))),
	}
}
