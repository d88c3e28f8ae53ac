package manager

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// What is known of another program's contender: its name tells the program and the
// recipe, its data says something of who it is. All of it is for people's eyes;
// the queue rules do not ask.

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

// recipeOf tells which program's naming a contender follows, and of which of its
// recipes; "" when none is known.
func recipeOf(name string) (program, kind string) {
	switch {
	case recipe.IsKazooLease(name):
		return "kazoo", "semaphore"
	case name == plainName:
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
			return "kazoo", "named lock" // a Lock with Curator's names: docs/interop.md
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

func programOf(name string) string {
	program, _ := recipeOf(name)
	return program
}

// curatorLock reports whether a name is that of Curator's InterProcessMutex or of
// one of its InterProcessReadWriteLock: the contenders that can be asked to let go.
func curatorLock(name string) bool {
	program, kind := recipeOf(name)
	return program == "curator" && (kind == "mutex" || kind == "write lock" || kind == "read lock")
}

// foreignView is what is shown of another program's contender; i may be nil.
func foreignView(c *recipe.Contender, i *info) *locks.Foreign {
	v := &locks.Foreign{}
	v.Program, v.Kind = recipeOf(c.Name)
	if i != nil {
		v.Session, v.Data = i.session, i.data
		v.Decoded = decodeForeign(v.Program, v.Kind, i.data)
		v.Revocable = curatorLock(c.Name) && !i.ours && (len(i.data) == 0 || i.revoked())
	}
	return v
}

// decodeForeign reads what a program wrote into its contender, nil when it says nothing
// that is understood.
func decodeForeign(program, kind string, data []byte) *locks.Decoded {
	if len(data) == 0 || string(data) == curatorRevokes {
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
