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
		{"nothing in particular: a lease event", Filter{}, granted, true},
		{"nothing in particular: a gateway event", Filter{}, joined, true},
		{"nothing in particular: a node event", Filter{}, node, false},
		{"all types: a node event", Filter{Types: AllTypes}, node, true},
		{"another type", Filter{Types: Types(LeaseQueued)}, granted, false},
		{"its type", Filter{Types: Types(LeaseQueued, LeaseGranted)}, granted, true},
		{"no type at all", Filter{Types: Types()}, granted, false},
		{"its namespace", Filter{NS: "default"}, granted, true},
		{"another namespace", Filter{NS: "prod"}, granted, false},
		{"a namespace, of what has none", Filter{NS: "default"}, joined, false},
		{"its lock", Filter{Lock: "team:deploy"}, granted, true},
		{"a lock of which its name begins with", Filter{Lock: "team"}, granted, false},
		{"a pattern", Filter{Lock: "team:*"}, granted, true},
		{"a pattern of single characters", Filter{Lock: "team:d?ploy"}, granted, true},
		{"a pattern of a range", Filter{Lock: "[s-u]eam:deploy"}, granted, true},
		{"a pattern of others", Filter{Lock: "other:*"}, granted, false},
		{"every lock, of what has none", Filter{Lock: "*"}, joined, false},
		{"an invalid pattern", Filter{Lock: "["}, granted, false},
		{"its owner", Filter{Owner: "ci"}, granted, true},
		{"another owner", Filter{Owner: "c"}, granted, false},
		{"an owner is no pattern", Filter{Owner: "*"}, granted, false},
		{"an owner, of what has none", Filter{Owner: "ci", Types: AllTypes}, node, false},
		{"all of it", Filter{Types: Types(LeaseGranted), NS: "default", Lock: "team:*", Owner: "ci"}, granted, true},
		{"all but one", Filter{Types: Types(LeaseGranted), NS: "default", Lock: "team:*", Owner: "me"}, granted, false},
		{"a resync passes every filter", Filter{Types: 1 << LeaseGranted, NS: "prod", Lock: "x", Owner: "y"}, resync, true},
	} {
		assert.Equal(t, c.filter.Match(c.event), c.want, "%s", c.name)
	}
}

func TestAnInvalidLockPatternIsReported(t *testing.T) {
	for _, pattern := range []string{"[", "[a", "a[", "[]", "[^]", "[a-]", "[-a]", `a\`, "x*[", "deploy[a-"} {
		f := Filter{Lock: pattern}
		err := f.Check()
		if !errors.Is(err, path.ErrBadPattern) {
			t.Errorf("%q: %v", pattern, err)
			continue
		}
		assert.That(t, strings.Contains(err.Error(), "lock pattern"), "%q: the error does not say what it is about: %v", pattern, err)
	}
	for _, pattern := range []string{"", "deploy", "team:*", "*", "a?c", "[a-z]*", "[^a]", `\[`, "ü*"} {
		f := (Filter{Lock: pattern})
		assert.That(t, f.Check() == nil, "%q: %v", pattern, f.Check())
	}
}

// Check tries the pattern on one name; it must find what any name would.
func TestACheckedPatternFailsOnNoName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringOfN(rapid.RuneFrom([]rune(`ab*?[]^-\ü`)), 0, 8, -1).Draw(t, "pattern")
		name := rapid.StringOfN(rapid.RuneFrom([]rune(`ab[]-ü`)), 0, 8, -1).Draw(t, "name")
		_, err := path.Match(pattern, name)
		f := Filter{Lock: pattern}
		assert.Must(t, f.Check() != nil || err == nil,
			"Check lets %q through, and it fails on %q: %v", pattern, name, err)
	})
}
