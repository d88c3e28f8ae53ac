package manager

import (
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const pythonRecord = "/lockkeeper/namespaces/python"

// addNamespace does what a gateway does that starts with one more namespace. Those
// that start later read it with the layout.
func (s *fakeStore) addNamespace(name string, record string) {
	s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/namespaces/" + name, Data: []byte(record)})
}

func (s *fakeStore) addPython() {
	s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/python"}, zk.Op{Kind: zk.OpCreate, Path: pythonRecord, Data: []byte(`{"root":"/python","dialect":"kazoo"}`)})
	s.mu.Lock()
	defer s.mu.Unlock()
	layout := *s.layout
	layout.Namespaces = maps.Clone(layout.Namespaces)
	layout.Namespaces["python"] = zk.Namespace{Root: "/python", Dialect: "kazoo"}
	s.layout = &layout
}

func (s *fakeStore) withNamespaces() *hookedStore {
	s.nodes["/"], s.nodes["/lockkeeper/namespaces"] = &fakeNode{}, &fakeNode{}
	s.nodes["/lockkeeper/namespaces/default"] = &fakeNode{data: []byte(`{"root":"/lockkeeper/locks","dialect":"native"}`)}
	return s.hooked()
}

// Attack 25: gateway A knows two namespaces, its successor one.
func TestATakeoverBeginsOnlyWhenEveryRecordedNamespaceHasBeenRead(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.withNamespaces()
		var unread atomic.Bool
		h.hooks.Store(&hooks{get: func(path string) error {
			if unread.Load() && path == pythonRecord {
				return zk.ErrUnavailable
			}
			return nil
		}})
		successor := h.gateway(t)
		unread.Store(true)
		s.addPython()
		dead := s.gateway(t)
		l := dead.mustHold(locks.AcquireRequest{NS: "python", Lock: "deploy", TTL: time.Minute})
		dead.mustHold(locks.AcquireRequest{Lock: "seen", TTL: time.Minute}) // whence the successor knows of it
		next := dead.begin(locks.AcquireRequest{NS: "python", Lock: "deploy", TTL: time.Minute, Wait: locks.WaitForever})
		next.passed()
		dead.crash()
		time.Sleep(15 * time.Second) // its registration is gone

		_, err := successor.heartbeat(l)
		wantCode(t, err, locks.CodeUnavailable)
		assert.That(t, successor.release(l) != nil, "a release that released nothing was answered with success")
		_, err = successor.m.Acquire(t.Context(), locks.AcquireRequest{Lock: "other"})
		assert.Nil(t, err, "it serves its own namespaces meanwhile")
		assert.Equal(t, len(s.names("/lockkeeper/succession")), 0, "takeovers were begun by a gateway that does not see what it takes over")
		unread.Store(false)
		pass(2 * time.Second)
		b, err := successor.heartbeat(l)
		assert.Must(t, err == nil && b.State == locks.Held, "%+v, %v", b, err)
		assert.Equal(t, len(s.names("/lockkeeper/succession")), 1, "takeovers")
		successor.mustRelease(l)
	})
}

// A namespace that another gateway adds is served by all, and what is in it already is the state, not news.
func TestANamespaceThatIsAddedIsServedByGatewaysThatRun(t *testing.T) {
	for _, lost := range []string{"", "before", "after"} {
		t.Run("connection lost "+lost, in(scene, func(t *testing.T, s *fakeStore) {
			h := s.withNamespaces()
			one := h.gateway(t)
			_, err := one.acquire(locks.AcquireRequest{NS: "python", Lock: "deploy"})
			wantCode(t, err, locks.CodeNamespaceUnknown)
			if lost == "before" {
				one.w.disconnect()
			}
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/python"}, zk.Op{Kind: zk.OpCreate, Path: "/python/deploy"},
				zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/python/deploy/0123456789abcdef0123456789abcdef__lock__"})
			s.addNamespace("python", `{"root":"/python","dialect":"kazoo"}`)
			if lost == "after" {
				one.w.disconnect()
			}
			if lost != "" {
				synctest.Wait()
				one.w.reconnect()
			}
			synctest.Wait()
			time.Sleep(time.Second)
			list, err := one.m.Namespaces(t.Context(), locks.Anonymous)
			if err != nil || len(list) != 2 || list[1] != (locks.NamespaceInfo{Name: "python", Root: "/python", Dialect: "kazoo", Ready: true, Locks: 1}) || !list[0].Swept {
				t.Fatalf("%+v, %v", list, err)
			}
			p := one.begin(locks.AcquireRequest{NS: "python", Lock: "deploy", Wait: locks.WaitForever})
			assert.Must(t, !p.passed(), "granted beside another program's")
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/python/deploy/" + s.names("/python/deploy")[0], Version: -1})
			assert.Must(t, p.passed() && p.err == nil, "%v", p.err)
		}))
	}
}

// What this gateway cannot make sense of may hold leases all the same.
func TestANamespaceThatCannotBeReadKeepsAGatewayFromTakingOver(t *testing.T) {
	for name, record := range map[string]string{
		"of a newer release":         `{"root":"/python","dialect":"etcd"}`,
		"with more behind a dialect": `{"root":"/python","dialect":"custom exclusive={id}-W- semaphore={id}-P-"}`,
		"no JSON":                    `{`,
		"no root":                    `{"dialect":"kazoo"}`,
		"an overlapping one":         `{"root":"/lockkeeper/locks/x","dialect":"kazoo"}`,
	} {
		t.Run(name, in(scene, func(t *testing.T, s *fakeStore) {
			h := s.withNamespaces()
			one, dead := h.gateway(t), s.gateway(t)
			dead.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			s.addNamespace("python", record)
			dead.crash()
			time.Sleep(20 * time.Second)
			assert.Equal(t, len(s.names("/lockkeeper/succession")), 0, "takeovers")
			list, err := one.m.Namespaces(t.Context(), locks.Anonymous)
			assert.That(t, err == nil && len(list) == 2 && !list[1].Ready && list[1].Problem != "", "%+v, %v", list, err)
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: pythonRecord, Version: -1})
			time.Sleep(2 * time.Second)
			assert.Equal(t, len(s.names("/lockkeeper/succession")), 1, "takeovers after it was removed")
		}))
	}
}

// The same with the first reading of a namespace still under way: its record is known, its locks are not.
func TestAnEntryIsNotSweptWhileANamespaceIsBeingRead(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.withNamespaces()
		h.gateway(t)
		dead := s.gateway(t)
		dead.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Second})
		dead.crash()
		time.Sleep(10*time.Second + time.Millisecond) // just taken over
		h.failReads("/lockkeeper/namespaces/")
		s.addPython()
		time.Sleep(2 * time.Minute) // the lease has expired, and no gateway has its id
		assert.Equal(t, len(s.names("/lockkeeper/succession")), 1, "entries")
		h.hooks.Store(&hooks{})
		time.Sleep(time.Minute)
		assert.Equal(t, len(s.names("/lockkeeper/succession")), 0, "entries")
	})
}

func TestTheRecordOfANamespaceThatChangesIsNotFollowed(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.withNamespaces()
		s.addPython()
		one := h.gateway(t)
		l := one.mustHold(locks.AcquireRequest{NS: "python", Lock: "deploy", TTL: time.Minute})
		s.foreignSeen(zk.Op{Kind: zk.OpSetData, Path: pythonRecord, Version: -1, Data: []byte(`{"root":"/elsewhere","dialect":"kazoo"}`)})
		_, err := one.heartbeat(l)
		assert.Nil(t, err)
		list, err := one.m.Namespaces(t.Context(), locks.Anonymous)
		assert.That(t, err == nil && len(list) == 2 && list[1].Root == "/python" && list[1].Problem != "", "%+v, %v", list, err)
		s.foreignSeen(zk.Op{Kind: zk.OpSetData, Path: pythonRecord, Version: -1, Data: []byte(`{"root":"/python","dialect":"kazoo"}`)})
		list, _ = one.m.Namespaces(t.Context(), locks.Anonymous)
		assert.That(t, list[1].Problem == "", "%+v", list)
	})
}

func TestNamespacesAreNotKnownBeforeTheTreeIsRead(t *testing.T) {
	s := newFakeStore(t)
	m := anyone{New(Options{Store: s, Root: "/lockkeeper", Clock: s.clock})}
	_, err := m.Namespaces(t.Context(), locks.Anonymous)
	var e *locks.Error
	assert.That(t, errors.As(err, &e) && e.Code == locks.CodeUnavailable, "%v", err)
}
