package recipe

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// The rules by which other clients read the children of a lock, from their
// sources. They have no part in the package: they check its names.

// goZooKeeperSeq is parseSeq of go-zookeeper's lock.go.
func goZooKeeperSeq(name string) (int, error) {
	parts := strings.Split(name, "lock-")
	if len(parts) == 1 {
		parts = strings.Split(name, "__")
	}
	return strconv.Atoi(parts[len(parts)-1])
}

// curatorKey is StandardLockInternalsDriver.standardFixForSorting: children are sorted by this text.
func curatorKey(name, base string) string {
	if i := strings.LastIndex(name, base); i >= 0 {
		return name[i+len(base):]
	}
	return name
}

// curatorRWKey is the key of InterProcessReadWriteLock.
func curatorRWKey(name string) string { return curatorKey(curatorKey(name, "__READ__"), "__WRIT__") }

// kazooSeq is the pattern of kazoo.recipe.lock: the number of a contender with
// one of the given patterns, compared as text.
func kazooSeq(name string, patterns ...string) (string, bool) {
	m := regexp.MustCompile("(?:" + strings.Join(patterns, "|") + `)(-?\d{10})$`).FindStringSubmatch(name)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// hbaseSeq is ZKInterProcessLockBase.getLockSequenceId; a child that it cannot read is an exception for every client.
func hbaseSeq(name string) (int64, error) { return strconv.ParseInt(name[len(name)-10:], 10, 64) }

// writeLockSeq is ZNodeName of ZooKeeper's lock recipe: what follows the last dash.
func writeLockSeq(name string) (int64, error) {
	return strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 32)
}

// awkward ids come from random bytes that spell, as far as the alphabet allows, what other clients look for, where it
// comes to stand next to a dash or to the tag.
func awkward(t *testing.T) (ids []LeaseID) {
	t.Helper()
	for _, spelled := range []string{
		"234567abcdefghij", "2222222222222222", "aaaaaaaaaaaalock", "aaaaaaaaaaalease", "aaaaaaaaaaalatch",
		"aaaaaaaaaaawrite", "aaaaaaaaaaaaread", "aaaaaaaaaapermit", "aaaalocklocklock",
	} {
		random := assert.Value(encoding.DecodeString(spelled))(t)
		for _, fleet := range []FleetID{testFleet, "writeaaa"} {
			id := assert.Value(NewLeaseID(fleet, "readaaaaalock", bytes.NewReader(random)))(t)
			ids = append(ids, id)
		}
	}
	return ids
}

// everyName calls f with a contender of every shape and the number at its end.
func everyName(t *testing.T, numbers []int32, f func(t *testing.T, c Contender, name, number string)) {
	for _, id := range awkward(t) {
		for _, dialect := range []Dialect{Native, CuratorRW, Kazoo, All} {
			for _, mode := range []Mode{Exclusive, Shared, Permit} {
				for attributes := range 4 {
					base := Contender{LeaseID: id, Mode: mode, Ephemeral: attributes&1 == 1, FirstCzxid: int64(attributes&2) << 33}
					if mode == Permit {
						base.Permits, base.Limit = 1, 10
					}
					for _, c := range naming(dialect).Contenders(base) {
						for _, n := range numbers {
							c.Number = n
							f(t, c, c.Format(), fmt.Sprintf("%010d", n))
						}
					}
				}
			}
		}
	}
}

var (
	positive = []int32{0, 5, 999999999, 1000000000, 2147483647}
	wrapped  = []int32{-1, -999999999, -1000000000, -2147483648}
)

func TestGoZooKeeperReadsOurNumbers(t *testing.T) {
	everyName(t, append(positive, wrapped...), func(t *testing.T, c Contender, name, _ string) {
		got, err := goZooKeeperSeq(name)
		assert.That(t, err == nil && got == int(c.Number), "go-zookeeper reads %d from %q: %v", got, name, err)
	})
}

func TestCuratorSortsOurNamesByNumberOrBehindEveryNumber(t *testing.T) {
	everyName(t, positive, func(t *testing.T, c Contender, name, number string) {
		keys := map[string]string{
			"mutex": curatorKey(name, "lock-"), "semaphore": curatorKey(name, "lease-"), "latch": curatorKey(name, "latch-"),
			"read-write": curatorRWKey(name),
		}
		want := "mutex" // the recipe that the form is for
		switch c.Form {
		case FormCurator:
			want = "read-write"
		case FormKazoo:
			want = ""
		}
		for recipe, key := range keys {
			assert.That(t, recipe != want || key == number, "Curator's %s sorts %q by %q", recipe, name, key)
			// What sorts before a digit starves Curator for ever.
			assert.That(t, recipe == want || key != "" && key[0] > '9',
				"Curator's %s sorts %q by %q, before the numbers", recipe, name, key)
		}
	})
}

func TestKazooReadsOurNumbers(t *testing.T) {
	// Kazoo's pattern takes no number of nine digits, its own neither: between -1 and -999999999 it sees no contender.
	numbers := append([]int32{-1000000000, -2147483648}, positive...)
	everyName(t, numbers, func(t *testing.T, c Contender, name, number string) {
		kazoo := c.Form == FormKazoo
		for _, rule := range []struct {
			lock     string
			patterns []string
			sees     bool
		}{
			{"Lock", []string{"__lock__"}, kazoo && c.Mode == Exclusive},
			{"ReadLock", []string{"__rlock__", "__lock__"}, kazoo},
			{"WriteLock", []string{"__lock__", "__rlock__"}, kazoo},
			{`Lock with extra_lock_patterns=["-lock-"]`, []string{"__lock__", "-lock-"}, kazoo && c.Mode == Exclusive || c.Form == FormNative},
		} {
			got, sees := kazooSeq(name, rule.patterns...)
			assert.That(t, sees == rule.sees && (!sees || got == number),
				"Kazoo's %s sees %q: %v, number %q; want %v, %q", rule.lock, name, sees, got, rule.sees, number)
		}
	})
}

func TestHBaseReadsOurNumbersAndModes(t *testing.T) {
	everyName(t, append(positive, -1, -999999999), func(t *testing.T, c Contender, name, _ string) {
		got, err := hbaseSeq(name)
		assert.That(t, err == nil && got == int64(c.Number), "HBase reads %d from %q: %v", got, name, err)
		if c.Form == FormKazoo || c.Mode == Permit {
			return
		}
		if write := strings.HasPrefix(name, "write-"); write != (c.Mode == Exclusive) || !write && !strings.HasPrefix(name, "read-") {
			t.Errorf("to HBase %q is no %s lock", name, c.Mode)
		}
	})
}

func TestZooKeepersWriteLockReadsOurNativeNumbers(t *testing.T) {
	everyName(t, positive, func(t *testing.T, c Contender, name, _ string) {
		if c.Form != FormNative {
			return
		}
		got, err := writeLockSeq(name)
		assert.That(t, err == nil && got == int64(c.Number), "ZooKeeper's WriteLock reads %d from %q: %v", got, name, err)
	})
}

func TestOurNamesStartWithALetterAndNeverAsCuratorsProtectedOnes(t *testing.T) {
	everyName(t, positive, func(t *testing.T, c Contender, name, _ string) {
		assert.That(t, name[0] >= 'a' && name[0] <= 'z', "%q", name)
	})
}
