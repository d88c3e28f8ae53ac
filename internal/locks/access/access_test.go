package access

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

func rules(t *testing.T, grants ...Grant) *Rules {
	t.Helper()
	return assert.Value(New(grants...))(t)
}

func TestAVerbIsGivenByTheGrantsThatMatch(t *testing.T) {
	shop := rules(t, Grant{NS: "default", Locks: "shop:*", Verbs: []Verb{Acquire}}, Grant{NS: "ci-*", Locks: "*", Verbs: []Verb{Operate}})
	reader := rules(t, Grant{NS: "*", Locks: "*", Verbs: []Verb{Read}})
	admin := rules(t, Grant{NS: "*", Locks: "*", Verbs: []Verb{Admin}})
	for _, c := range []struct {
		who      string
		rules    *Rules
		ns, lock string
		allowed  []Verb
	}{
		{"shop, its lock", shop, "default", "shop:web", []Verb{Read, Acquire}},
		{"shop, a lock with the prefix of its name", shop, "default", "shop", nil},
		{"shop, its lock's name elsewhere", shop, "other", "shop:web", nil},
		{"shop, where it operates", shop, "ci-1", "build", []Verb{Read, Operate}},
		{"shop, what has no lock", shop, "", "", nil},
		{"reader", reader, "any", "lock", []Verb{Read}},
		{"reader, what has no lock", reader, "", "", []Verb{Read}},
		{"admin, a lock", admin, "default", "shop:web", []Verb{Admin}},
		{"admin, what has no lock", admin, "", "", []Verb{Admin}},
		{"everything", Everything(), "default", "shop:web", All()},
		{"everything, what has no lock", Everything(), "", "", All()},
		{"no rules", nil, "default", "shop:web", nil},
		{"no rules, what has no lock", nil, "", "", nil},
		{"the zero value", &Rules{}, "default", "shop:web", nil},
		{"no grants", rules(t), "", "", nil},
	} {
		for _, v := range All() {
			assert.Equal(t, c.rules.May(v, c.ns, c.lock), slices.Contains(c.allowed, v), "%s: %s", c.who, v)
		}
	}
	assert.That(t, !Everything().May(verbs, "a", "b"), "a verb that does not exist is given")
	assert.That(t, shop.MayIn(Acquire, "default") && shop.MayIn(Read, "ci-2") && !shop.MayIn(Acquire, "ci-2") && !shop.MayIn(Read, "x"), "in a namespace")
	assert.That(t, reader.MayAll(Read) && !reader.MayAll(Acquire) && !shop.MayAll(Read), "for all locks")
	var none *Rules
	assert.That(t, !none.MayIn(Read, "default") && !none.MayAll(Read) && none.Limits("default", "a") == Limits{} && none.Rate(7) == 7 && none.Key() == "", "no rules give something")
}

func TestTheWidestBoundOfTheGrantsCounts(t *testing.T) {
	r := rules(t,
		Grant{NS: "*", Locks: "a*", Verbs: []Verb{Acquire}, MaxTTL: time.Minute, Leases: 9, Rate: 5},
		Grant{NS: "*", Locks: "ab*", Verbs: []Verb{Acquire, Read}, MaxTTL: time.Hour, Leases: 2, Rate: 50},
		Grant{NS: "*", Locks: "abc", Verbs: []Verb{Acquire}, MaxTTL: time.Second, Rate: 1},
		Grant{NS: "*", Locks: "*", Verbs: []Verb{Read}, Rate: 1})
	for lock, want := range map[string]Limits{"a": {time.Minute, 9}, "ab": {time.Hour, 9}, "abc": {time.Hour, 0}, "b": {}} {
		assert.Equal(t, r.Limits("default", lock), want, "%s", lock)
	}
	assert.Equal(t, r.Rate(7), 50)
	assert.Equal(t, rules(t, Grant{NS: "a", Locks: "*", Verbs: []Verb{Read}}, Grant{NS: "*", Locks: "*", Verbs: []Verb{Read}, Rate: 3}).Rate(0), 0)
	mixed := rules(t, Grant{NS: "a", Locks: "*", Verbs: []Verb{Read}}, Grant{NS: "*", Locks: "*", Verbs: []Verb{Read}, Rate: 3})
	assert.That(t, mixed.Rate(2) == 3 && mixed.Rate(9) == 9 && rules(t).Rate(4) == 4, "a grant without a rate has the other one")
	assert.Equal(t, Everything().Limits("a", "b"), Limits{})
}

func TestANotifyURLNamesAHostOfAGrantThatGivesTheLock(t *testing.T) {
	of := func(locks string, hosts []string) Grant {
		return Grant{NS: "default", Locks: locks, Verbs: []Verb{Acquire}, NotifyHosts: hosts}
	}
	r := rules(t, of("none:*", []string{}), of("some:*", []string{"Hooks.Example.com", "*.ci.example.com"}), of("some:too*", []string{"b.example"}), of("all:*", nil), of("none:but", nil),
		Grant{NS: "*", Locks: "*", Verbs: []Verb{Operate}})
	for lock, want := range map[string]string{"none:a": "", "none:but": "hooks.example.com a.ci.example.com b.example x", "some:a": "hooks.example.com a.ci.example.com",
		"some:too": "hooks.example.com a.ci.example.com b.example", "all:a": "hooks.example.com a.ci.example.com b.example x", "else": ""} {
		for _, host := range []string{"hooks.example.com", "a.ci.example.com", "b.example", "x", ""} {
			assert.Equal(t, r.MayNotify("default", lock, host), slices.Contains(strings.Fields(want), host) || host == "" && strings.Contains(want, " x"), "%s for %q", lock, host)
		}
	}
	var none *Rules
	assert.That(t, !none.MayNotify("default", "a", "x") && Everything().MayNotify("default", "a", ""), "no rules, and all")
	again := rules(t, r.Grants()...)
	assert.Equal(t, again.Key(), r.Key(), "the grants that rules are made of")
}

func TestAWrongGrantIsRefusedByItsNumber(t *testing.T) {
	good := Grant{NS: "*", Locks: "*", Verbs: []Verb{Read}}
	for word, g := range map[string]Grant{
		"ns must be given":      {Locks: "*", Verbs: []Verb{Read}},
		"locks must be given":   {NS: "*", Verbs: []Verb{Read}},
		"no wildcard but":       {NS: "*", Locks: "a?", Verbs: []Verb{Read}},
		"at least one of":       {NS: "*", Locks: "*"},
		"verbs are":             {NS: "*", Locks: "*", Verbs: []Verb{verbs}},
		"what has no lock":      {NS: "*", Locks: "shop:*", Verbs: []Verb{Read, Admin}},
		"bound the verb":        {NS: "*", Locks: "*", Verbs: []Verb{Operate}, MaxTTL: time.Hour},
		"without scheme":        {NS: "*", Locks: "*", Verbs: []Verb{Acquire}, NotifyHosts: []string{"https://a.example"}},
		"leases and notify_url": {NS: "*", Locks: "*", Verbs: []Verb{Read}, NotifyHosts: []string{}},
		"at least 1s":           {NS: "*", Locks: "*", Verbs: []Verb{Acquire}, MaxTTL: time.Millisecond},
		"not be negative":       {NS: "*", Locks: "*", Verbs: []Verb{Acquire}, Leases: -1},
	} {
		_, err := New(good, g)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "grant 2: ") && strings.Contains(err.Error(), word), "%+v: %v", g, err)
		assert.That(t, g.Check() != nil, "%+v: Check lets it through", g)
	}
	for _, v := range All() {
		assert.Equal(t, assert.Value(ParseVerb(v.String()))(t), v)
	}
	_, err := ParseVerb("write")
	assert.That(t, err != nil && strings.Contains(err.Error(), "read, acquire, operate, admin"), "%v", err)
}

// may is the plainest reading of the grants.
func may(grants []Grant, v Verb, ns, lock string) bool {
	glob := func(glob, name string) bool {
		return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, ".*") + "$").MatchString(name)
	}
	for _, g := range grants {
		given := slices.Contains(g.Verbs, v) || v == Read && (slices.Contains(g.Verbs, Acquire) || slices.Contains(g.Verbs, Operate))
		if given && glob(g.NS, ns) && glob(g.Locks, lock) {
			return true
		}
	}
	return false
}

func TestRulesDecideAsTheirGrantsReadAndEqualKeysDecideAlike(t *testing.T) {
	grants := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Grant {
		g := Grant{NS: rapid.SampledFrom([]string{"*", "a", "a*", "b", "**"}).Draw(t, "ns"), Locks: rapid.SampledFrom([]string{"*", "x", "x*", "*y", "xy", "**"}).Draw(t, "locks"),
			Verbs: rapid.SliceOfN(rapid.SampledFrom([]Verb{Read, Acquire, Operate}), 1, 3).Draw(t, "verbs")}
		if slices.Contains(g.Verbs, Acquire) {
			g.MaxTTL = time.Duration(rapid.IntRange(0, 2).Draw(t, "ttl")) * time.Minute
			g.NotifyHosts = rapid.SampledFrom([][]string{nil, {}, {"a.example"}, {"*.example", "b"}, {"b", "*.example"}}).Draw(t, "hosts")
		}
		return g
	}), 0, 3)
	name := rapid.SampledFrom([]string{"a", "ab", "b", "x", "xy", "y", "c"})
	rapid.Check(t, func(t *rapid.T) {
		one, two := grants.Draw(t, "one"), grants.Draw(t, "two")
		if rapid.Bool().Draw(t, "the same in another order") {
			two = slices.Concat(one, one)
			slices.Reverse(two)
		}
		a, b := assert.Value(New(one...))(t), assert.Value(New(two...))(t)
		for range 8 {
			v, ns, lock := rapid.SampledFrom(All()).Draw(t, "verb"), name.Draw(t, "ns"), name.Draw(t, "lock")
			assert.MustEqual(t, a.May(v, ns, lock), may(one, v, ns, lock), "%+v: may %s %s/%s", one, v, ns, lock)
			assert.Must(t, a.Key() != b.Key() || b.May(v, ns, lock) == a.May(v, ns, lock) && a.Limits(ns, lock) == b.Limits(ns, lock) && a.MayNotify(ns, lock, "a.example") == b.MayNotify(ns, lock, "a.example"), "equal keys: %+v, %+v", one, two)
			assert.Must(t, !a.May(v, ns, lock) || a.MayIn(v, ns), "more than in its namespace")
		}
		reversed := slices.Clone(one)
		slices.Reverse(reversed)
		assert.MustEqual(t, assert.Value(New(reversed...))(t).Key(), a.Key(), "the order of grants")
	})
}

func TestADecisionAllocatesNothing(t *testing.T) {
	r := rules(t, Grant{NS: "default", Locks: "shop:*", Verbs: []Verb{Acquire}, MaxTTL: time.Hour}, Grant{NS: "ci-*", Locks: "*:deploy:*", Verbs: []Verb{Read}})
	allocated := testing.AllocsPerRun(100, func() {
		_ = r.May(Acquire, "default", "shop:web") && r.May(Read, "ci-1", "web:deploy:1") && r.MayIn(Read, "ci-2")
		_ = r.Limits("default", "shop:web")
		_ = r.Key()
	})
	assert.Equal(t, allocated, 0)
}
