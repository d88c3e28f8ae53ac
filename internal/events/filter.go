package events

import (
	"fmt"
	"path"
	"strings"

	"lockkeeper/internal/locks/access"
)

// Filter selects events for a subscriber with certain rules. The zero value selects nothing: it has no rules. A Resync passes
// every filter.
type Filter struct {
	Types TypeSet // 0: DefaultTypes
	NS    string  // "": every namespace
	Lock  string  // a pattern as of path.Match ("deploy", "team:*"); "": every lock
	Owner string  // exactly; "": every owner
	// Purpose is a part of the reason of the lease's acquire, in upper or lower case; "": every one.
	Purpose string

	// Rules let through an event about a lock when they let the lock be read. Events of gateways and of ZooKeeper need rules
	// that give something. Events of the file of rules need the verb admin. Others without a lock need rules that let every
	// lock be read. What the gateway itself does for all its clients says access.Everything().
	Rules *access.Rules
}

// filterKey is all of a filter that decides. Subscribers with equal keys are one group.
type filterKey struct {
	types                           TypeSet
	ns, lock, owner, purpose, rules string
}

func (f *Filter) key() filterKey {
	return filterKey{f.Types, f.NS, f.Lock, f.Owner, f.Purpose, f.Rules.Key()}
}

// readable reports whether the rules let e be read.
func (f *Filter) readable(e *Event) bool {
	switch {
	case e.Lock != "":
		return f.Rules.May(access.Read, e.NS, e.Lock)
	case e.Type == GatewayJoined, e.Type == GatewayLeft, e.Type == ZooKeeperConnected, e.Type == ZooKeeperSuspended, e.Type == ZooKeeperExpired:
		return !f.Rules.Nothing()
	case e.Type == AuthLoaded, e.Type == AuthRefused: // they name roles, principals and files
		return f.Rules.MayAll(access.Admin)
	}
	return f.Rules.MayAll(access.Read)
}

// Check reports what is wrong with the filter.
func (f *Filter) Check() error {
	if _, err := path.Match(f.Lock, ""); err != nil {
		return fmt.Errorf("lock pattern %q: %w; * stands for any characters, ? for one, [a-z] for one of a range", f.Lock, err)
	}
	return nil
}

// Match reports whether the filter lets e through. An event that is about no
// lock, or no owner, does not match a filter that asks for one.
func (f *Filter) Match(e *Event) bool {
	types := f.Types
	if types == 0 {
		types = DefaultTypes
	}
	switch {
	case e.Type == Resync:
		return true
	case !types.Has(e.Type), f.NS != "" && f.NS != e.NS, f.Owner != "" && f.Owner != e.Owner, !f.hasPurpose(e.Purpose), !f.readable(e):
		return false
	case f.Lock == "" || f.Lock == e.Lock:
		return true
	}
	matched, err := path.Match(f.Lock, e.Lock)
	return err == nil && matched && e.Lock != ""
}

func (f *Filter) hasPurpose(purpose string) bool {
	return f.Purpose == "" || strings.Contains(strings.ToLower(purpose), strings.ToLower(f.Purpose))
}

// Literal is the pattern of a Filter's Lock that matches s alone.
func Literal(s string) string {
	if !strings.ContainsAny(s, `*?[\`) {
		return s
	}
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(s)
}
