// Package deptest holds the rules about which package may import which and how large some types may grow, and tests that the code
// keeps them.
//
// Imports point one way:
//
//	cmd  >  httpapi, dashboard, outbox  >  locks/manager, webhooks, auth, fleet, migrate, sweep, aclrepair
//	  >  offline, zk, events  >  locks, docsite  >  zk/wire, locks/recipe, locks/access, locks/quota, locks/lifecycle, metrics, web, docs  >  fault
//
// A package may import what is in a lower layer, or in its own part (internal/zk and internal/zk/embedded are one part;
// zk/wire and locks/recipe are parts of their own, at the bottom, and so are docs and the package at the top of the module, which only
// hold the documentation and the specification). Code that only tests use and the
// benchmarks stand outside: they may import anything, and nothing may import them. The rules are about the code that
// is shipped, so imports of _test.go files do not count.
package deptest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Graph holds the imports of each package of the module. The module's own packages are written from its top
// ("internal/zk"), all others as they are imported.
type Graph map[string][]string

// layers from the top; each names parts, by the path that their packages begin with.
var layers = [][]string{
	{"cmd"},
	{"internal/httpapi", "internal/dashboard", "internal/outbox"},
	{"internal/locks/manager", "internal/webhooks", "internal/auth", "internal/fleet", "internal/migrate", "internal/sweep", "internal/aclrepair", "internal/secret", "internal/history"},
	{"internal/locks/settings", "internal/locks/reports", "internal/locks/paging", "internal/locks/orders", "internal/locks/parties", "internal/locks/periods"},
	{"internal/locks/queues", "internal/locks/idempotency"},
	{"internal/locks/interop", "internal/locks/record", "internal/locks/postmortem", "internal/locks/term", "internal/locks/cluster", "internal/offline"},
	{"internal/zk", "internal/events", "internal/traces"},
	{"internal/locks", "internal/locks/waitfor", "internal/docsite", "internal/audit"},
	{"internal/zk/wire", "internal/locks/recipe", "internal/locks/access", "internal/locks/quota", "internal/locks/lifecycle", "internal/metrics", "web", "docs", "lockkeeper"},
	{"internal/certs", "internal/unixsock", "internal/supervise"},
	{"internal/fault", "internal/backoff", "internal/secretfile", "internal/ratelimit", "internal/byname", "internal/clidoc", "internal/gzipped"},
}

// client stands beside the layers: programs of other people link it.
const (
	client          = "client"
	generatedClient = "internal/httpapi/api"
)

// testSupport is code that exists for tests only.
const testSupport = "internal/test"

// tools are programs for work on the project. They are not shipped.
var tools = []string{"bench"}

const zooKeeperClient = "github.com/go-zookeeper/zk"

// zkParts says which packages of internal/zk each of them may import: session, layout, conn and the nouns build on each other
// in this order, and the observer on the nouns alone, so that what is read never depends on who writes.
var zkParts = map[string][]string{
	"internal/zk":          {"internal/zk/wire"},
	"internal/zk/conn":     {"internal/zk", "internal/zk/wire"},
	"internal/zk/layout":   {"internal/zk", "internal/zk/conn"},
	"internal/zk/session":  {"internal/zk", "internal/zk/conn", "internal/zk/layout"},
	"internal/zk/observer": {"internal/zk", "internal/zk/wire"},
	"internal/zk/ensemble": {},
}

// purePackages are the queue rules, and the transitions of a lease's state.
var purePackages = []string{"internal/locks/recipe", "internal/locks/lifecycle"}

// pure is all that purePackages may import: nothing here opens, listens, waits or tells the time. (fmt is for errors; io is
// for the interface of a source of randomness that is given; fault is a constant in what is shipped.)
var pure = []string{
	"bytes", "cmp", "encoding/base32", "encoding/binary", "encoding/hex", "errors", "fmt", "io", "iter", "maps", "math", "math/bits", "net/url",
	"regexp", "slices", "sort", "strconv", "strings", "unicode", "unicode/utf8", "internal/fault",
}

// Violation is one import that breaks a rule.
type Violation struct {
	Package, Import string
	Reason          string
}

func (v Violation) String() string {
	if v.Import == "" {
		return fmt.Sprintf("%s: %s", v.Package, v.Reason)
	}
	return fmt.Sprintf("%s imports %s: %s", v.Package, v.Import, v.Reason)
}

// Check returns every violation in g, in the order of the packages' names.
func Check(g Graph) []Violation {
	var found []Violation
	for _, pkg := range slices.Sorted(maps.Keys(g)) {
		if in(pkg, testSupport) || inAny(pkg, tools) {
			continue
		}
		if _, placed := layerOf(pkg); !placed && !in(pkg, client) {
			found = append(found, Violation{Package: pkg, Reason: "has no place among the layers: give it one in internal/test/deptest/rules.go"})
			continue
		}
		for _, imp := range slices.Sorted(slices.Values(g[pkg])) {
			_, ours := g[imp]
			if reason := refuse(pkg, imp, ours); reason != "" {
				found = append(found, Violation{pkg, imp, reason})
			}
		}
	}
	return found
}

// refuse says why pkg may not import imp; "" when it may. ours says that imp is a package of this module.
func refuse(pkg, imp string, ours bool) string {
	switch {
	case in(imp, zooKeeperClient) && pkg != "internal/zk/conn":
		return "only internal/zk/conn may import go-zookeeper: its traps (silent new sessions, lost events, blind retries) are closed there, once"
	case slices.Contains(purePackages, pkg) && !slices.Contains(pure, imp):
		return "its rules are pure functions: no input, output, clock or other package of ours (the list of what is allowed: internal/test/deptest/rules.go)"
	case !ours:
		return ""
	case imp == "internal/locks/term" && pkg != "internal/locks/manager" && !in(pkg, "cmd"):
		return "only the manager knows under which ZooKeeper session it decides; cmd hands it the store"
	case zkParts[pkg] != nil && in(imp, "internal/zk") && !slices.Contains(zkParts[pkg], imp):
		return "inside internal/zk the arrows are session, layout, conn, nouns; the observer knows the nouns alone"
	case in(imp, testSupport):
		return "it exists for tests; shipped code must not depend on it"
	case inAny(imp, tools):
		return "it is a tool for those who work on the project; shipped code must not depend on it"
	case in(pkg, client):
		if in(imp, client) || in(imp, generatedClient) {
			return ""
		}
		return "programs that use the client must not have to link the server"
	case in(imp, client):
		if in(pkg, "cmd") {
			return ""
		}
		return "the client is for programs outside the gateway"
	}
	from, _ := layerOf(pkg)
	to, placed := layerOf(imp)
	switch {
	case !placed:
		return "it has no place among the layers"
	case from.part == to.part, from.depth < to.depth:
		return ""
	case from.depth == to.depth:
		return fmt.Sprintf("%s and %s are in one layer and must not know each other; what both need belongs below them", from.part, to.part)
	}
	return fmt.Sprintf("imports point down, from cmd to zk/wire: %s is above %s", to.part, from.part)
}

// place is where a package stands: depth 0 is the top.
type place struct {
	part  string
	depth int
}

// layerOf finds the part with the longest path that pkg is in.
func layerOf(pkg string) (place, bool) {
	var best place
	for depth, parts := range layers {
		for _, part := range parts {
			if in(pkg, part) && len(part) > len(best.part) {
				best = place{part, depth}
			}
		}
	}
	return best, best.part != ""
}

// in says whether pkg is path or below it.
func in(pkg, path string) bool {
	rest, ok := strings.CutPrefix(pkg, path)
	return ok && (rest == "" || rest[0] == '/')
}

func inAny(pkg string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return in(pkg, path) })
}
