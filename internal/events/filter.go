package events

import (
	"fmt"
	"path"
	"strings"

	"lockkeeper/internal/locks/access"
)

// Filter selects events. The zero value is the default of a subscriber that asks for
// nothing in particular. A Resync passes every filter.
type Filter struct {
	Types TypeSet // 0: DefaultTypes
	NS    string  // "": every namespace
	Lock  string  // a pattern as of path.Match ("deploy", "team:*"); "": every lock
	Owner string  // exactly; "": every owner

	limited  bool // see LimitTo
	rules    *access.Rules
	rulesKey string
}

// LimitTo lets through only what may be read by the rules: an event about a lock when the lock may be read. Those of gateways
// and of ZooKeeper are for who may read something; others without a lock are for who may read every lock. With nil rules nothing
// but Resync passes.
func (f *Filter) LimitTo(rules *access.Rules) {
	f.limited, f.rules, f.rulesKey = true, rules, rules.Key()
}

// key is the filter without the rules themselves: subscribers whose rules have equal keys are one group.
func (f Filter) key() Filter {
	f.rules = nil
	return f
}

// readable reports whether the rules that the filter is limited to let e be read.
func (f *Filter) readable(e *Event) bool {
	switch {
	case !f.limited:
		return true
	case e.Lock != "":
		return f.rules.May(access.Read, e.NS, e.Lock)
	case e.Type == GatewayJoined, e.Type == GatewayLeft, e.Type == ZooKeeperConnected, e.Type == ZooKeeperSuspended, e.Type == ZooKeeperExpired:
		return f.rulesKey != ""
	}
	return f.rules.MayAll(access.Read)
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
	case !types.Has(e.Type), f.NS != "" && f.NS != e.NS, f.Owner != "" && f.Owner != e.Owner, !f.readable(e):
		return false
	case f.Lock == "" || f.Lock == e.Lock:
		return true
	}
	matched, err := path.Match(f.Lock, e.Lock)
	return err == nil && matched && e.Lock != ""
}

// Literal is the pattern of a Filter's Lock that matches s alone.
func Literal(s string) string {
	if !strings.ContainsAny(s, `*?[\`) {
		return s
	}
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(s)
}
