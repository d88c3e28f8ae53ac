package interop

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// PlainNode is the name of the contender that stands for an ephemeral node in the place of a lock's directory: no child
// has the empty name.
const PlainNode = ""

// What other programs write over a contender's data to ask its holder to release.
const (
	CuratorRevokes = "__REVOKE__"
	recipeRevokes  = "unlock"
)

// AsksToRelease reports whether the data that a program wrote over a record asks the lease to release.
func AsksToRelease(data []byte) bool {
	return string(data) == CuratorRevokes || string(data) == recipeRevokes
}

// The name of another program's contender tells the program and the recipe, and its data something of its client. It is
// only shown: the queue rules do not use it.

var (
	curatorName = regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-`)
	goZKName    = regexp.MustCompile(`^_c_[0-9a-f]{32}-lock-`)
	kazooName   = regexp.MustCompile(`^[0-9a-f]{32}(__r?lock__|-lock-)`)
	hbaseName   = regexp.MustCompile(`^(write|read)-[0-9]{10}$`)
	recipeName  = regexp.MustCompile(`^x--?[0-9]+-[0-9]+$`)
)

// curatorKinds are the recipes of Curator by the base of the names that they make.
var curatorKinds = []struct{ base, kind string }{
	{"lock-", "mutex"}, // LeaderSelector and MultiLock too
	{"__WRIT__", "write lock"},
	{"__READ__", "read lock"},
	{"lease-", "semaphore"},
	{"latch-", "leader latch"},
}

// Recipe tells which program's naming a contender follows, and of which of its
// recipes; "" when none is known.
func Recipe(name string) (program, kind string) {
	switch {
	case recipe.IsKazooLease(name):
		return "kazoo", "semaphore"
	case name == PlainNode:
		return "", locks.KindEphemeralNode
	case curatorName.MatchString(name):
		for _, k := range curatorKinds {
			if strings.HasPrefix(name[len(curatorName.FindString(name)):], k.base) {
				return "curator", k.kind
			}
		}
		return "curator", ""
	case goZKName.MatchString(name):
		return "go-zookeeper", "lock"
	case kazooName.MatchString(name):
		if strings.Contains(name, "__rlock__") {
			return "kazoo", "read lock"
		}
		if strings.Contains(name, "-lock-") {
			return "kazoo", "named lock" // a Lock with Curator's names: docs/operate/interop.md
		}
		return "kazoo", "lock" // Lock, WriteLock, Election
	case recipeName.MatchString(name):
		return "zookeeper-writelock", "lock"
	case hbaseName.MatchString(name):
		kind, _, _ := strings.Cut(name, "-")
		return "hbase", kind + " lock"
	}
	return "", ""
}

// Program is the program alone.
func Program(name string) string {
	program, _ := Recipe(name)
	return program
}

// Revocable reports whether a name is that of Curator's InterProcessMutex or of one of its
// InterProcessReadWriteLock: the contenders that can be asked to release.
func Revocable(name string) bool {
	program, kind := Recipe(name)
	return program == "curator" && (kind == "mutex" || kind == "write lock" || kind == "read lock")
}

// Decode reads what a program wrote into its contender. It is nil when the data is not understood.
func Decode(program, kind string, data []byte) *locks.Decoded {
	if len(data) == 0 || string(data) == CuratorRevokes {
		return nil
	}
	if program == "hbase" {
		return decodeHBase(data)
	}
	if !utf8.Valid(data) {
		return nil
	}
	text := string(data)
	switch {
	case program == "curator" && kind == "leader latch":
		return &locks.Decoded{Participant: text}
	case program == "curator":
		if _, err := netip.ParseAddr(text); err == nil {
			return &locks.Decoded{Address: text} // of the machine, which is what Curator puts there by itself
		}
		return &locks.Decoded{Participant: text} // of a LeaderSelector
	case program == "kazoo":
		return &locks.Decoded{Identifier: text}
	}
	return nil
}
