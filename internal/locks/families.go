package locks

import (
	"regexp"
	"strings"

	"lockkeeper/internal/locks/recipe"
)

// Programs that share a directory wait only for the names that they know. Which
// those are follows from the rules of their sources (docs/interop.md has them, and
// the table of what they come to).

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

var familyByRecipe = map[[2]string]family{
	{"curator", "mutex"}: mutexFamily, {"curator", "write lock"}: rwWriteFamily, {"curator", "read lock"}: rwReadFamily,
	{"curator", "leader latch"}: latchFamily, {"curator", "semaphore"}: semaphoreFamily, {"go-zookeeper", "lock"}: goFamily,
	{"kazoo", "lock"}: kazooFamily, {"kazoo", "read lock"}: kazooReadFamily, {"kazoo", "named lock"}: kazooNamedFamily,
	{"kazoo", "semaphore"}:  semaphoreFamily,
	{"hbase", "write lock"}: hbaseWriteFamily, {"hbase", "read lock"}: hbaseReadFamily, {"zookeeper-writelock", "lock"}: recipeFamily,
}

func familyOf(name string) family {
	program, kind := recipeOf(name)
	return familyByRecipe[[2]string{program, kind}]
}

var (
	kazooWaits      = regexp.MustCompile(`__lock__(-?\d{10})$`)
	kazooNamedWaits = regexp.MustCompile(`-lock-(-?\d{10})$`)
)

// waitsFor reports whether a contender of that family waits for one of that name that
// came before it. A reader that shares with the other is said to wait for it where
// the other is a writer; who fails at the sight of a name does not wait.
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
		return true // every child counts
	case goFamily:
		_, rest, ok := cutLast(name, "lock-")
		if !ok {
			_, rest, ok = cutLast(name, "__")
		}
		return ok && isNumber(rest)
	case kazooFamily, kazooReadFamily:
		return kazooWaits.MatchString(name)
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

// ignoring are the families that do not wait for a namespace's leases of that mode.
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
