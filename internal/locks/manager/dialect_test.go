package manager

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// foreignNames are how other programs' clients name an exclusive contender.
var foreignNames = map[string]string{
	"curator":  "_c_12345678-1234-1234-1234-123456789abc-lock-",
	"rw":       "_c_12345678-1234-1234-1234-123456789abc-__WRIT__",
	"kazoo":    "0123456789abcdef0123456789abcdef__lock__",
	"hbase":    "write-",
	"recipe":   "x-72057594037927936-",
	"go-zk":    "_c_0123456789abcdef0123456789abcdef-lock-",
	"homemade": "host-",
}

func (s *fakeStore) dialects() {
	for _, d := range []recipe.Dialect{recipe.CuratorRW, recipe.Kazoo, recipe.All} {
		root := "/shared/" + string(d)
		s.layout.Namespaces[string(d)] = zk.Namespace{Root: root, Dialect: string(d)}
		s.nodes["/shared"], s.nodes[root] = &fakeNode{}, &fakeNode{}
	}
	for name, dialect := range map[string]string{"hosts": "custom exclusive={id}-W- shared={id}-R-", "writers": "custom exclusive=host_{id}_"} {
		s.layout.Namespaces[name] = zk.Namespace{Root: "/shared/" + name, Dialect: dialect}
		s.nodes["/shared/"+name] = &fakeNode{}
	}
}

// naming is that of the namespace in which a path is.
func (g *gate) naming(path string) *recipe.Naming {
	for s := range g.m.replica.All {
		if strings.HasPrefix(path, s.Root+"/") {
			return s.Naming
		}
	}
	g.t.Fatalf("%s is in no namespace", path)
	return nil
}

// A lease's name decides which programs respect it. Which contenders the lease respects does not depend on its name.
func TestALeaseHasTheNamesOfItsDialectAndWaitsForAllContenders(t *testing.T) {
	want := map[string][]string{
		"default": {"write-%s-lock-"}, "curator-rw": {"write-%s-__WRIT__"}, "kazoo": {"%s__lock__"},
		"all": {"write-%s-lock-", "%s__lock__", "write-%s-__WRIT__"}, "hosts": {"%s-W-"}, "writers": {"host_%s_"},
	}
	for ns, names := range want {
		for program, prefix := range foreignNames {
			t.Run(ns+" "+program, in(scene, func(t *testing.T, s *fakeStore) {
				s.dialects()
				g, other := s.gateway(t), s.gateway(t)
				req := locks.AcquireRequest{NS: ns, Lock: "deploy", TTL: 30 * time.Second, Wait: locks.WaitForever}
				l := g.mustHold(req)
				dir := s.layout.Namespaces[ns].Root + "/deploy"
				there := s.names(dir)
				assert.Must(t, len(there) == len(names), "%d contenders: %v", len(there), there)
				for i, name := range names {
					id := "v1." + l.ID
					if len(names) > 1 {
						id += fmt.Sprintf(".m%dof%d", i+1, len(names))
					}
					want := fmt.Sprintf(name, id) + fmt.Sprintf("%010d", i)
					assert.That(t, strings.Contains(strings.Join(there, " "), want), "%v lacks %s", there, want)
				}
				_, foreign := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: dir + "/" + prefix})
				next := other.begin(req)
				next.passed()
				v, err := g.m.Lock(t.Context(), locks.LockRequest{NS: ns, Lock: "deploy"})
				assert.That(t, err == nil && v.State == locks.LockHeld && len(v.Holders) == 1 && len(v.Waiters) == 2 && v.QueueLength == 2,
					"%+v, %v", v, err)
				if v := g.look(l); v.Lock != "deploy" || len(v.Locks) != 0 || v.Znode == "" {
					t.Errorf("%+v", v)
				}
				g.mustRelease(l)
				assert.Equal(t, len(s.names(dir)), 1+len(names), "contenders are left")
				assert.Must(t, !next.passed(), "granted beside another program's")
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: foreign[0], Version: -1})
				assert.Must(t, next.passed() && next.err == nil, "%v", next.err)
			}))
		}
	}
}

// Attack 12: HBase's master reaps write- and read- children that are too old, one of ours among them.
func TestALeaseOfThreeNamesEndsWithAnyOfThem(t *testing.T) {
	for member := range 3 {
		for _, alive := range []bool{true, false} {
			t.Run(fmt.Sprint(member, alive), in(scene, func(t *testing.T, s *fakeStore) {
				s.dialects()
				g, other := s.gateway(t), s.gateway(t)
				req := locks.AcquireRequest{NS: "all", Lock: "deploy", TTL: 30 * time.Second, Wait: locks.WaitForever}
				l := g.mustHold(req)
				next := other.begin(req)
				next.passed()
				if !alive {
					g.crash()
				}
				for _, name := range s.names("/shared/all/deploy") {
					if strings.Contains(name, l.ID) && strings.Contains(name, fmt.Sprintf(".m%dof3", member+1)) {
						s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/shared/all/deploy/" + name, Version: -1})
					}
				}
				if !alive {
					time.Sleep(10*time.Second + fakeWindow + 5*time.Second)
				}
				assert.Must(t, next.passed() && next.err == nil, "not passed on: %v; %v", next.err, s.names("/shared/all/deploy"))
				assert.Equal(t, len(s.names("/shared/all/deploy")), 3, "contenders")
			}))
		}
	}
}

// Attack 44: its own first delete must not end it.
func TestALeaseOfThreeNamesIsDowngraded(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.dialects()
		one, two := s.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{TTL: time.Minute, Group: []locks.Want{{NS: "all", Lock: "a"}, {Lock: "b"}, {NS: "kazoo", Lock: "c"}}})
		writer := two.begin(locks.AcquireRequest{NS: "all", Lock: "a", Wait: locks.WaitForever})
		writer.passed()
		v := assert.Value(one.downgrade(l))(t)
		assert.That(t, len(v.Locks) == 3 && v.State == locks.Held && v.Locks[0].Mode == locks.Shared && v.FencingToken == l.FencingToken,
			"%+v", v)
		reader := two.begin(locks.AcquireRequest{NS: "kazoo", Lock: "c", Mode: locks.Shared, Wait: time.Second})
		assert.Must(t, reader.passed() && reader.err == nil, "%v", reader.err)
		one.crash()
		time.Sleep(11 * time.Second)
		assert.Value(two.heartbeat(l))(t)
		assert.Must(t, !writer.passed(), "a writer beside it")
		two.mustRelease(l)
		assert.Must(t, writer.passed() && writer.err == nil, "%v", writer.err)
	})
}

// What a home-made recipe calls shared is configured, and nothing else is: read- is the name of a host.
func TestReadersOfAHomeMadeRecipeShareWithOurs(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.dialects()
		g, other := s.gateway(t), s.gateway(t)
		const dir = "/shared/hosts/deploy"
		reader := locks.AcquireRequest{NS: "hosts", Lock: "deploy", TTL: 30 * time.Second, Mode: locks.Shared, Wait: locks.WaitForever}
		writer := reader
		writer.Mode = locks.Exclusive
		one := g.mustHold(reader)
		_, made := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: dir + "/db7-R-"})
		assert.Must(t, made[0] != "", "no contender")
		two := other.mustHold(reader)
		_, w := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: dir + "/read-replica-W-"})
		three := other.begin(reader)
		assert.Must(t, !three.passed(), "granted behind another program's writer")
		v, err := g.m.Lock(t.Context(), locks.LockRequest{NS: "hosts", Lock: "deploy"})
		if err != nil || len(v.Holders) != 3 || v.Holders[1].Mode != locks.Shared || len(v.Waiters) != 2 || v.Waiters[0].Mode != locks.Exclusive {
			t.Errorf("%+v, %v", v, err)
		}
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: w[0], Version: -1})
		assert.Must(t, three.passed() && three.err == nil, "%v", three.err)
		last := g.begin(writer)
		g.mustRelease(one)
		other.mustRelease(two)
		other.mustRelease(three.lease)
		assert.Must(t, !last.passed(), "granted beside another program's reader")
		for _, name := range s.names(dir) {
			if strings.HasPrefix(name, "db7-R-") {
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: dir + "/" + name, Version: -1})
			}
		}
		assert.Must(t, last.passed() && last.err == nil, "%v", last.err)
	})
}

// Also its first czxid stands in a home-made name, for the next gateway.
func TestALeaseWithAHomeMadeNameIsDowngradedAndTakenOver(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.dialects()
		one, two := s.gateway(t), s.gateway(t)
		req := locks.AcquireRequest{NS: "hosts", Lock: "deploy", TTL: time.Minute}
		l := one.mustHold(req)
		req.Wait = locks.WaitForever
		writer := two.begin(req)
		v, err := one.downgrade(l)
		assert.Must(t, err == nil && v.Mode == locks.Shared && v.FencingToken == l.FencingToken, "%+v, %v", v, err)
		names := s.names("/shared/hosts/deploy")
		assert.That(t, strings.Contains(strings.Join(names, " "), "-R-0000000000"), "%v", names)
		one.crash()
		time.Sleep(11 * time.Second)
		b, err := two.heartbeat(l)
		assert.Must(t, err == nil && b.FencingToken == l.FencingToken, "%+v, %v", b, err)
		assert.Must(t, !writer.passed(), "a writer beside it")
		two.mustRelease(l)
		assert.Must(t, writer.passed() && writer.err == nil, "%v", writer.err)
	})
}

func TestAHomeMadeRecipeWithoutReadersHasNoSharedLeases(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.dialects()
		g := s.gateway(t)
		for _, mode := range []locks.Mode{locks.Shared, locks.Semaphore} {
			_, err := g.acquire(locks.AcquireRequest{NS: "writers", Lock: "a", Mode: mode})
			assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "mode")
		}
		l := g.mustHold(locks.AcquireRequest{NS: "writers", Lock: "a", TTL: time.Minute})
		_, err := g.downgrade(l)
		wantCode(t, err, locks.CodeNotExclusive)
		b, err := g.heartbeat(l)
		assert.That(t, err == nil && b.State == locks.Held, "%+v, %v", b, err)
	})
}

func TestPermitsHaveNoNamesInOtherDialects(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.dialects()
		g := s.gateway(t)
		_, err := g.acquire(locks.AcquireRequest{NS: "kazoo", Lock: "a", Mode: locks.Semaphore, Limit: 3})
		assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "mode")
	})
}

func TestANamespaceOfAnUnknownDialectIsRefusedAtStart(t *testing.T) {
	s := newFakeStore(t)
	s.layout.Namespaces["new"] = zk.Namespace{Root: "/new", Dialect: "etcd"}
	err := New(Options{Store: s, Root: "/lockkeeper", Clock: s.clock}).Run(t.Context())
	var fatal *zk.FatalError
	assert.That(t, errors.As(err, &fatal) && fatal.Kind == zk.KindNamespace && strings.Contains(err.Error(), "etcd"), "%v", err)
}
