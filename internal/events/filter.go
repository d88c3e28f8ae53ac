package events

import (
	"fmt"
	"path"
	"strings"
)

// Filter selects events. The zero value is the default of a subscriber that asks for
// nothing in particular. A Resync passes every filter.
type Filter struct {
	Types TypeSet // 0: DefaultTypes
	NS    string  // "": every namespace
	Lock  string  // a pattern as of path.Match ("deploy", "team:*"); "": every lock
	Owner string  // exactly; "": every owner
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
	case !types.Has(e.Type), f.NS != "" && f.NS != e.NS, f.Owner != "" && f.Owner != e.Owner:
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
