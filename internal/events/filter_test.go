package events

import (
	"errors"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

func TestAFilterLetsThroughWhatItAsksFor(t *testing.T) {
	granted := &Event{Type: LeaseGranted, NS: "default", Lock: "team:deploy", Owner: "ci"}
	node := &Event{Type: NodeCreated, NS: "default", Lock: "team:deploy"}
	joined := &Event{Type: GatewayJoined, Gateway: "gw-1"}
	resync := &Event{Type: Resync}
	for _, c := range []struct {
		name   string
		filter Filter
		event  *Event
		want   bool
	}{
		{"nothing in particular: a lease event", Filter{Rules: seesAll}, granted, true},
		{"nothing in particular: a gateway event", Filter{Rules: seesAll}, joined, true},
		{"nothing in particular: a node event", Filter{Rules: seesAll}, node, false},
		{"all types: a node event", Filter{Rules: seesAll, Types: AllTypes}, node, true},
		{"another type", Filter{Rules: seesAll, Types: Types(LeaseQueued)}, granted, false},
		{"its type", Filter{Rules: seesAll, Types: Types(LeaseQueued, LeaseGranted)}, granted, true},
		{"no type at all", Filter{Rules: seesAll, Types: Types()}, granted, false},
		{"its namespace", Filter{Rules: seesAll, NS: "default"}, granted, true},
		{"another namespace", Filter{Rules: seesAll, NS: "prod"}, granted, false},
		{"a namespace, of what has none", Filter{Rules: seesAll, NS: "default"}, joined, false},
		{"its lock", Filter{Rules: seesAll, Lock: "team:deploy"}, granted, true},
		{"a lock of which its name begins with", Filter{Rules: seesAll, Lock: "team"}, granted, false},
		{"a pattern", Filter{Rules: seesAll, Lock: "team:*"}, granted, true},
		{"a pattern of single characters", Filter{Rules: seesAll, Lock: "team:d?ploy"}, granted, true},
		{"a pattern of a range", Filter{Rules: seesAll, Lock: "[s-u]eam:deploy"}, granted, true},
		{"a pattern of others", Filter{Rules: seesAll, Lock: "other:*"}, granted, false},
		{"every lock, of what has none", Filter{Rules: seesAll, Lock: "*"}, joined, false},
		{"an invalid pattern", Filter{Rules: seesAll, Lock: "["}, granted, false},
		{"its owner", Filter{Rules: seesAll, Owner: "ci"}, granted, true},
		{"another owner", Filter{Rules: seesAll, Owner: "c"}, granted, false},
		{"an owner is no pattern", Filter{Rules: seesAll, Owner: "*"}, granted, false},
		{"an owner, of what has none", Filter{Rules: seesAll, Owner: "ci", Types: AllTypes}, node, false},
		{"all of it", Filter{Rules: seesAll, Types: Types(LeaseGranted), NS: "default", Lock: "team:*", Owner: "ci"}, granted, true},
		{"all but one", Filter{Rules: seesAll, Types: Types(LeaseGranted), NS: "default", Lock: "team:*", Owner: "me"}, granted, false},
		{"a resync passes every filter", Filter{Rules: seesAll, Types: 1 << LeaseGranted, NS: "prod", Lock: "x", Owner: "y"}, resync, true},
	} {
		assert.Equal(t, c.filter.Match(c.event), c.want, "%s", c.name)
	}
}

func TestAnInvalidLockPatternIsReported(t *testing.T) {
	for _, pattern := range []string{"[", "[a", "a[", "[]", "[^]", "[a-]", "[-a]", `a\`, "x*[", "deploy[a-"} {
		f := Filter{Rules: seesAll, Lock: pattern}
		err := f.Check()
		if !errors.Is(err, path.ErrBadPattern) {
			t.Errorf("%q: %v", pattern, err)
			continue
		}
		assert.That(t, strings.Contains(err.Error(), "lock pattern"), "%q: the error does not say what it is about: %v", pattern, err)
	}
	for _, pattern := range []string{"", "deploy", "team:*", "*", "a?c", "[a-z]*", "[^a]", `\[`, "ü*"} {
		f := (Filter{Rules: seesAll, Lock: pattern})
		assert.That(t, f.Check() == nil, "%q: %v", pattern, f.Check())
	}
}

// Check tries the pattern on one name; it must find what any name would.
func TestACheckedPatternFailsOnNoName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringOfN(rapid.RuneFrom([]rune(`ab*?[]^-\ü`)), 0, 8, -1).Draw(t, "pattern")
		name := rapid.StringOfN(rapid.RuneFrom([]rune(`ab[]-ü`)), 0, 8, -1).Draw(t, "name")
		_, err := path.Match(pattern, name)
		f := Filter{Rules: seesAll, Lock: pattern}
		assert.Must(t, f.Check() != nil || err == nil,
			"Check lets %q through, and it fails on %q: %v", pattern, name, err)
	})
}
