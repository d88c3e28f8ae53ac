package difftest

import (
	"math"

	"lockkeeper/internal/zk/wire"
)

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
