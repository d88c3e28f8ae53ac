package zk

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/netfault"
)

func TestConfiguredNamespacesAreRecordedOnceForTheWholeFleet(t *testing.T) {
	cfg := testConfig(t)
	cfg.Namespaces = map[string]Namespace{"python": {"/kazoo/locks", "kazoo"}, "java": {"/curator", ""}, "inner": {DefaultRoot + "/inner", "all"}}
	want := map[string]Namespace{"default": {DefaultRoot + "/locks", "native"}, "python": {"/kazoo/locks", "kazoo"},
		"java": {"/curator", "native"}, "inner": {DefaultRoot + "/inner", "all"}}
	if l := opened(t, cfg); !reflect.DeepEqual(l.Namespaces, want) {
		t.Errorf("recorded %v, want %v", l.Namespaces, want)
	}
	p := newProbe(t, cfg)
	before := p.stat(DefaultRoot + NodeNamespaces)
	for name, ns := range want {
		if p.stat(ns.Root) == nil {
			t.Errorf("the lock root of %s is not there", name)
		}
	}
	// Whoever configures some of them, or none, finds them all and writes nothing.
	for _, some := range []map[string]Namespace{nil, {"java": {"/curator", "native"}}, cfg.Namespaces} {
		cfg.Namespaces, cfg.CreateRoot = some, false
		if l := opened(t, cfg); !reflect.DeepEqual(l.Namespaces, want) {
			t.Errorf("with %v: %v", some, l.Namespaces)
		}
	}
	if after := p.stat(DefaultRoot + NodeNamespaces); *after != *before {
		t.Errorf("written to again: %+v, before %+v", after, before)
	}
}

func TestNamespacesThatCannotBeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		add  map[string]Namespace
		says string
	}{
		"another root":                    {map[string]Namespace{"python": {"/other", "kazoo"}}, "is recorded with root /kazoo/locks and dialect kazoo, not root /other"},
		"another dialect":                 {map[string]Namespace{"python": {"/kazoo/locks", "all"}}, "not root /kazoo/locks and dialect all"},
		"another root for default":        {map[string]Namespace{"default": {"/other", "native"}}, "namespace default is recorded"},
		"the root of another":             {map[string]Namespace{"more": {"/kazoo/locks", "kazoo"}}, "overlap"},
		"below the root of another":       {map[string]Namespace{"more": {"/kazoo/locks/x", "kazoo"}}, "overlap"},
		"above the root of another":       {map[string]Namespace{"more": {"/kazoo", "kazoo"}}, "overlap"},
		"two new ones, one in the other":  {map[string]Namespace{"more": {"/a/b", "kazoo"}, "less": {"/a", "kazoo"}}, "overlap"},
		"the default's root":              {map[string]Namespace{"more": {DefaultRoot + "/locks", "native"}}, "overlaps /lockkeeper/locks"},
		"above everything":                {map[string]Namespace{"more": {DefaultRoot, "native"}}, "contains --root"},
		"among the settings":              {map[string]Namespace{"more": {DefaultRoot + "/settings/x", "native"}}, "no place for locks"},
		"in place of the secret":          {map[string]Namespace{"more": {DefaultRoot + "/secret", "native"}}, "no place for locks"},
		"no path":                         {map[string]Namespace{"more": {"locks", "native"}}, "does not start with a slash"},
		"the whole tree":                  {map[string]Namespace{"more": {"/", "native"}}, "empty or relative"},
		"a name that the API cannot have": {map[string]Namespace{"a,b": {"/x", "native"}}, "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			cfg.Namespaces = map[string]Namespace{"python": {"/kazoo/locks", "kazoo"}}
			made := opened(t, cfg)
			cfg.Namespaces = c.add
			_, err := OpenLayout(testContext(t), cfg)
			mustBeFatal(t, name, err, KindNamespace)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %q in it", err, c.says)
			}
			cfg.Namespaces = nil
			if l := opened(t, cfg); !reflect.DeepEqual(l, made) {
				t.Errorf("it left %v behind", l.Namespaces)
			}
		})
	}
	bare := Config{Root: DefaultRoot}
	if err := CheckNamespaces(&bare, map[string]Namespace{"more": {"/zookeeper/config", ""}}); err == nil {
		t.Error("ZooKeeper's own tree")
	}
	bare.Chroot = "/x"
	if err := CheckNamespaces(&bare, map[string]Namespace{"more": {"/zookeeper/config", ""}}); err != nil {
		t.Errorf("below a chroot it is a name like any: %v", err)
	}
}

func TestALockRootThatIsMissingIsAnErrorWhereNothingMayBeCreated(t *testing.T) {
	cfg := testConfig(t)
	opened(t, cfg)
	cfg.CreateRoot = false
	cfg.Namespaces = map[string]Namespace{"python": {"/kazoo/locks", "kazoo"}}
	_, err := OpenLayout(testContext(t), cfg)
	mustBeFatal(t, "no lock root", err, KindMissingRoot)
	p := newProbe(t, cfg)
	p.create("/kazoo", "")
	p.create("/kazoo/locks", "")
	if l := opened(t, cfg); l.Namespaces["python"].Root != "/kazoo/locks" {
		t.Errorf("%v", l.Namespaces)
	}
}

// Of gateways that add overlapping roots at once one wins, and what is recorded
// can always be read.
func TestGatewaysThatAddOverlappingNamespacesAtOnceDoNotBothSucceed(t *testing.T) {
	for range 5 {
		cfg := testConfig(t)
		opened(t, cfg)
		roots := []string{"/a", "/a/b", "/a/b/c", "/a", "/b", "/b/c"}
		errs := make([]error, len(roots))
		var running sync.WaitGroup
		for i, root := range roots {
			running.Go(func() {
				mine := cfg
				mine.Namespaces = map[string]Namespace{string(rune('u' + i)): {root, "native"}}
				_, errs[i] = OpenLayout(testContext(t), mine)
			})
		}
		running.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
			} else {
				mustBeFatal(t, roots[i], err, KindNamespace)
			}
		}
		l := opened(t, cfg)
		if won != 2 || len(l.Namespaces) != 3 {
			t.Errorf("%d succeeded, recorded %v", won, slices.Sorted(maps.Keys(l.Namespaces)))
		}
	}
}

// Each request is lost on the way there and on the way back.
func TestNamespacesAreRecordedWhateverRequestIsLost(t *testing.T) {
	requests := netfault.IsOp(netfault.OpCreate, netfault.OpExists, netfault.OpGetData, netfault.OpGetChildren2, netfault.OpMulti)
	for n := 1; ; n++ {
		for _, reply := range []bool{false, true} {
			direct, through, proxy := faulty(t)
			opened(t, direct)
			through.Namespaces = map[string]Namespace{"one": {"/one", "native"}, "two": {"/x/two", "kazoo"}}
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
				if n < 5 {
					t.Errorf("adding namespaces took only %d requests", n)
				}
				return
			}
		}
	}
}
