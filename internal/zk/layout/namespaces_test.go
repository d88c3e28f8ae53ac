package layout

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk"
)

func TestConfiguredNamespacesAreRecordedOnceForTheWholeFleet(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Namespaces = map[string]zk.Namespace{"python": {Root: "/kazoo/locks", Dialect: "kazoo"}, "java": {Root: "/curator", Dialect: ""}, "inner": {Root: zk.DefaultRoot + "/inner", Dialect: "all"}}
	want := map[string]zk.Namespace{"default": {Root: zk.DefaultRoot + "/locks", Dialect: "native"}, "python": {Root: "/kazoo/locks", Dialect: "kazoo"},
		"java": {Root: "/curator", Dialect: "native"}, "inner": {Root: zk.DefaultRoot + "/inner", Dialect: "all"}}
	l := opened(t, cfg)
	assert.That(t, reflect.DeepEqual(l.Namespaces, want), "recorded %v, want %v", l.Namespaces, want)
	p := fixture.NewProbe(t, cfg)
	before := p.Stat(zk.DefaultRoot + zk.NodeNamespaces)
	for name, ns := range want {
		assert.That(t, p.Stat(ns.Root) != nil, "the lock root of %s is not there", name)
	}
	// A gateway that configures some of them, or none, finds them all and writes nothing.
	for _, some := range []map[string]zk.Namespace{nil, {"java": {Root: "/curator", Dialect: "native"}}, cfg.Namespaces} {
		cfg.Namespaces, cfg.CreateRoot = some, false
		l := opened(t, cfg)
		assert.That(t, reflect.DeepEqual(l.Namespaces, want), "with %v: %v", some, l.Namespaces)
	}
	after := p.Stat(zk.DefaultRoot + zk.NodeNamespaces)
	assert.That(t, *after == *before, "written to again: %+v, before %+v", after, before)
}

func TestNamespacesThatCannotBeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		add  map[string]zk.Namespace
		says string
	}{
		"another root":                    {map[string]zk.Namespace{"python": {Root: "/other", Dialect: "kazoo"}}, "is recorded with root /kazoo/locks and dialect kazoo, not root /other"},
		"another dialect":                 {map[string]zk.Namespace{"python": {Root: "/kazoo/locks", Dialect: "all"}}, "not root /kazoo/locks and dialect all"},
		"another root for default":        {map[string]zk.Namespace{"default": {Root: "/other", Dialect: "native"}}, "namespace default is recorded"},
		"the root of another":             {map[string]zk.Namespace{"more": {Root: "/kazoo/locks", Dialect: "kazoo"}}, "overlap"},
		"below the root of another":       {map[string]zk.Namespace{"more": {Root: "/kazoo/locks/x", Dialect: "kazoo"}}, "overlap"},
		"above the root of another":       {map[string]zk.Namespace{"more": {Root: "/kazoo", Dialect: "kazoo"}}, "overlap"},
		"two new ones, one in the other":  {map[string]zk.Namespace{"more": {Root: "/a/b", Dialect: "kazoo"}, "less": {Root: "/a", Dialect: "kazoo"}}, "overlap"},
		"the default's root":              {map[string]zk.Namespace{"more": {Root: zk.DefaultRoot + "/locks", Dialect: "native"}}, "overlaps /lockkeeper/locks"},
		"above everything":                {map[string]zk.Namespace{"more": {Root: zk.DefaultRoot, Dialect: "native"}}, "contains --root"},
		"among the settings":              {map[string]zk.Namespace{"more": {Root: zk.DefaultRoot + "/settings/x", Dialect: "native"}}, "no place for locks"},
		"in place of the secret":          {map[string]zk.Namespace{"more": {Root: zk.DefaultRoot + "/secret", Dialect: "native"}}, "no place for locks"},
		"no path":                         {map[string]zk.Namespace{"more": {Root: "locks", Dialect: "native"}}, "does not start with a slash"},
		"the whole tree":                  {map[string]zk.Namespace{"more": {Root: "/", Dialect: "native"}}, "empty or relative"},
		"a name that the API cannot have": {map[string]zk.Namespace{"a,b": {Root: "/x", Dialect: "native"}}, "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := fixture.Config(t)
			cfg.Namespaces = map[string]zk.Namespace{"python": {Root: "/kazoo/locks", Dialect: "kazoo"}}
			made := opened(t, cfg)
			cfg.Namespaces = c.add
			_, err := Open(fixture.Context(t), cfg)
			fixture.MustBeFatal(t, name, err, zk.KindNamespace)
			assert.That(t, err != nil && strings.Contains(err.Error(), c.says), "%v; want %q in it", err, c.says)
			cfg.Namespaces = nil
			l := opened(t, cfg)
			assert.That(t, reflect.DeepEqual(l, made), "it left %v behind", l.Namespaces)
		})
	}
	bare := zk.Config{Root: zk.DefaultRoot}
	assert.That(t, CheckNamespaces(&bare, map[string]zk.Namespace{"more": {Root: "/zookeeper/config", Dialect: ""}}) != nil,
		"ZooKeeper's own tree")
	bare.Chroot = "/x"
	assert.Nil(t, CheckNamespaces(&bare, map[string]zk.Namespace{"more": {Root: "/zookeeper/config", Dialect: ""}}),
		"below a chroot it is a name like any")
}

func TestALockRootThatIsMissingIsAnErrorWhereNothingMayBeCreated(t *testing.T) {
	cfg := fixture.Config(t)
	opened(t, cfg)
	cfg.CreateRoot = false
	cfg.Namespaces = map[string]zk.Namespace{"python": {Root: "/kazoo/locks", Dialect: "kazoo"}}
	_, err := Open(fixture.Context(t), cfg)
	fixture.MustBeFatal(t, "no lock root", err, zk.KindMissingRoot)
	p := fixture.NewProbe(t, cfg)
	p.Create("/kazoo", "")
	p.Create("/kazoo/locks", "")
	assert.Equal(t, opened(t, cfg).Namespaces["python"].Root, "/kazoo/locks")
}

// Of gateways that add overlapping roots at once one wins, and what is recorded can always be read.
func TestGatewaysThatAddOverlappingNamespacesAtOnceDoNotBothSucceed(t *testing.T) {
	for range 5 {
		cfg := fixture.Config(t)
		opened(t, cfg)
		roots := []string{"/a", "/a/b", "/a/b/c", "/a", "/b", "/b/c"}
		errs := make([]error, len(roots))
		var running sync.WaitGroup
		for i, root := range roots {
			running.Go(func() {
				mine := cfg
				mine.Namespaces = map[string]zk.Namespace{string(rune('u' + i)): {Root: root, Dialect: "native"}}
				_, errs[i] = Open(fixture.Context(t), mine)
			})
		}
		running.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
			} else {
				fixture.MustBeFatal(t, roots[i], err, zk.KindNamespace)
			}
		}
		l := opened(t, cfg)
		assert.That(t, won == 2 && len(l.Namespaces) == 3, "%d succeeded, recorded %v", won, slices.Sorted(maps.Keys(l.Namespaces)))
	}
}

// Each request is lost on the way there and on the way back.
func TestNamespacesAreRecordedWithAnyRequestLost(t *testing.T) {
	requests := netfault.IsOp(netfault.OpCreate, netfault.OpExists, netfault.OpGetData, netfault.OpGetChildren2, netfault.OpMulti)
	for n := 1; ; n++ {
		for _, reply := range []bool{false, true} {
			direct, through, proxy := fixture.Faulty(t)
			opened(t, direct)
			through.Namespaces = map[string]zk.Namespace{"one": {Root: "/one", Dialect: "native"}, "two": {Root: "/x/two", Dialect: "kazoo"}}
			fail := proxy.FailRequest
			if reply {
				fail = proxy.FailReply
			}
			hit := fail(n+13, requests) // the first ones look at what is there already
			made := opened(t, through)
			direct.CreateRoot = false
			if found := opened(t, direct); !reflect.DeepEqual(found, made) || len(found.Namespaces) != 3 {
				t.Fatalf("request %d lost (%t): made %+v, found %+v", n, reply, made, found)
			}
			select {
			case <-hit.Fired():
			default:
				assert.That(t, n >= 5, "adding namespaces took only %d requests", n)
				return
			}
		}
	}
}
