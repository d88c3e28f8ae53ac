package interop

import (
	"regexp"
	"strings"

	"lockkeeper/internal/locks/recipe"
)

// Programs that share a directory wait only for the names that they know. The rules of their sources tell which names
// those are. docs/operate/interop.md has the rules, and a table of what they amount to.

// family is a recipe of another program, as far as the names of its contenders tell.
type family uint8

const (
	unknownFamily    family = iota
	mutexFamily             // Curator's InterProcessMutex, LeaderSelector
	rwWriteFamily           // Curator's InterProcessReadWriteLock
	rwReadFamily            // the same, read
	latchFamily             // Curator's LeaderLatch
	semaphoreFamily         // Curator's SemaphoreV2, Kazoo's Semaphore
	goFamily                // go-zookeeper's Lock
	kazooFamily             // Kazoo's Lock, WriteLock, Election
	kazooReadFamily         // Kazoo's ReadLock
	kazooNamedFamily        // Kazoo's Lock with Curator's names
	hbaseWriteFamily
	hbaseReadFamily
	recipeFamily // ZooKeeper's WriteLock
	families
)

const (
	curatorExample = "_c_12345678-1234-1234-1234-123456789abc-"
	hexExample     = "0123456789abcdef0123456789abcdef"
	waitsNot       = "does not wait for"
	ownRoot        = "keep the locks that it uses below a lock root of their own, in a namespace with the dialect "
)

// known is what is known of each family.
var known = [families]struct {
	id            string // in the API, and in docs/operate/interop.md
	program, kind string // as Recipe tells them
	says          string // who it is, in a sentence
	ignores       string // the verb for what it does about contenders that it does not wait for
	beside        string // what to do when it ignores leases
	example       string // such a name as its contenders have
}{
	mutexFamily:   {"curator-mutex", "curator", "mutex", "Curator's mutex", waitsNot, ownRoot + "native or all", curatorExample + "lock-0000000005"},
	rwWriteFamily: {"curator-write", "curator", "write lock", "Curator's write lock", waitsNot, ownRoot + "curator-rw or all", curatorExample + "__WRIT__0000000005"},
	rwReadFamily:  {"curator-read", "curator", "read lock", "Curator's read lock", waitsNot, ownRoot + "curator-rw or all", curatorExample + "__READ__0000000005"},
	latchFamily: {"curator-latch", "curator", "leader latch", "Curator's LeaderLatch", waitsNot, "watch its queue instead of joining it, " +
		"or use a namespace with its names (custom exclusive={id}-latch- shared={id}-reads-latch-)", curatorExample + "latch-0000000005"},
	semaphoreFamily: {"semaphore", "curator", "semaphore", "another program's semaphore", "loses a permit to", "release them, and use another lock", curatorExample + "lease-0000000005"},
	goFamily:        {"go-zookeeper", "go-zookeeper", "lock", "go-zookeeper's Lock", "fails on the names of", ownRoot + "native or all", "_c_" + hexExample + "-lock-0000000005"},
	kazooFamily: {"kazoo-lock", "kazoo", "lock", "Kazoo's Lock", waitsNot, ownRoot + "kazoo or all, or, where that is native, give Kazoo's Lock " + kazooPatterns,
		hexExample + "__lock__0000000005"},
	kazooReadFamily:  {"kazoo-read", "kazoo", "read lock", "Kazoo's ReadLock", "keeps no order with", "use no ReadLock beside writers: " + kazooReadOrder, hexExample + "__rlock__0000000005"},
	kazooNamedFamily: {"kazoo-lock-named", "kazoo", "named lock", "Kazoo's Lock with Curator's names", waitsNot, ownRoot + "native or all", hexExample + "-lock-0000000005"},
	hbaseWriteFamily: {"hbase-write", "hbase", "write lock", "HBase's write lock", waitsNot, ownRoot + "native or all", "write-0000000005"},
	hbaseReadFamily:  {"hbase-read", "hbase", "read lock", "HBase's read lock", waitsNot, ownRoot + "native or all", "read-0000000005"},
	recipeFamily:     {"zookeeper-writelock", "zookeeper-writelock", "lock", "ZooKeeper's WriteLock", waitsNot, ownRoot + "native or all", "x-72057594037927936-0000000005"},
}

// prefix is what the names of a family's contenders have before the number.
func (f family) prefix() string { return strings.TrimSuffix(known[f].example, "0000000005") }

// Prefixes are such beginnings of a name as each known recipe makes.
func Prefixes() (list []string) {
	for f := unknownFamily + 1; f < families; f++ {
		list = append(list, f.prefix())
	}
	return list
}

// IsContender reports whether a name is that of a contender of a known recipe.
func IsContender(name string) bool { return familyOf(name) != unknownFamily }

// familySet is a set of families.
type familySet uint16

func setOf(list ...family) (s familySet) {
	for _, f := range list {
		s |= 1 << f
	}
	return s
}

func (s familySet) has(f family) bool { return s>>f&1 != 0 }

// readers are the families that let others of their kind in beside them.
var readers = setOf(rwReadFamily, kazooReadFamily, hbaseReadFamily)

var familyByRecipe = func() map[[2]string]family {
	by := map[[2]string]family{{"kazoo", "semaphore"}: semaphoreFamily}
	for f := unknownFamily + 1; f < families; f++ {
		by[[2]string{known[f].program, known[f].kind}] = f
	}
	return by
}()

func familyOf(name string) family {
	program, kind := Recipe(name)
	return familyByRecipe[[2]string{program, kind}]
}

var (
	kazooWaits      = regexp.MustCompile(`__lock__(-?\d{10})$`)
	kazooNamedWaits = regexp.MustCompile(`-lock-(-?\d{10})$`)
)

// ignores reports whether a contender of the family f may hold beside one of the family g that came before it.
func (f family) ignores(g family) bool {
	return f != g && !(readers.has(f) && readers.has(g)) && !f.waitsFor(known[g].example)
}

// waitsFor reports whether a contender of the family waits for an earlier one of that name. The name is a writer's
// where the family reads. A client that fails when it reads a name does not wait, nor does one that waits out of order.
func (f family) waitsFor(name string) bool {
	switch f {
	case mutexFamily:
		return sortsAmongNumbers(name, "lock-")
	case rwWriteFamily:
		return sortsAmongNumbers(name, "__READ__") || sortsAmongNumbers(name, "__WRIT__")
	case rwReadFamily:
		return sortsAmongNumbers(name, "__WRIT__")
	case latchFamily:
		return sortsAmongNumbers(name, "latch-")
	case semaphoreFamily:
		return false // every child counts against its limit
	case goFamily:
		_, rest, ok := cutLast(name, "lock-")
		if !ok {
			_, rest, ok = cutLast(name, "__")
		}
		return ok && isNumber(rest)
	case kazooFamily:
		return kazooWaits.MatchString(name)
	case kazooReadFamily:
		return false // it waits for the last __lock__, also for one that is behind it and waits for it
	case kazooNamedFamily:
		return kazooNamedWaits.MatchString(name)
	case hbaseWriteFamily:
		return true
	case hbaseReadFamily:
		return strings.HasPrefix(name, "write-")
	case recipeFamily:
		_, rest, ok := cutLast(name, "-")
		return ok && isNumber(rest)
	}
	return true // nothing is known of it, and nothing said
}

// sortsAmongNumbers reports whether Curator's recipe with that base compares a child by
// its number. It sorts the others by their whole names, behind every number.
func sortsAmongNumbers(name, base string) bool {
	_, rest, ok := cutLast(name, base)
	return ok && isNumber(rest)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// Ignoring has the families that do not wait for the leases of a namespace: exclusive ones, shared ones.
type Ignoring struct{ exclusive, shared familySet }

// IgnoringOf finds them by the names that the namespace's dialect gives to leases.
func IgnoringOf(n *recipe.Naming) Ignoring {
	return Ignoring{ignoring(n, recipe.Exclusive), ignoring(n, recipe.Shared)}
}

func ignoring(n *recipe.Naming, mode recipe.Mode) (s familySet) {
	names := namesOf(n, mode)
	for f := unknownFamily + 1; f < families && len(names) > 0; f++ {
		waits := mode == recipe.Shared && readers.has(f) // neither has to
		for _, name := range names {
			waits = waits || f.waitsFor(name)
		}
		if !waits {
			s |= setOf(f)
		}
	}
	return s
}

// namesOf are such names as a lease so named and of that mode has in a queue.
func namesOf(n *recipe.Naming, mode recipe.Mode) (names []string) {
	lease := recipe.Contender{LeaseID: recipe.LeaseID("lk" + strings.Repeat("a", recipe.LeaseIDLen-2)), Mode: mode}
	for _, c := range n.Contenders(lease) {
		names = append(names, n.Prefix(&c)+"0000000005")
	}
	return names
}
