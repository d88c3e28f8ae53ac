package sweep

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	zklayout "lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/session"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// site is a root under test, and another program at its ZooKeeper.
type site struct {
	offlinetest.Site
	cfg    zk.Config
	layout *zklayout.Layout
	// waited is how long the last sweep let pass.
	waited time.Duration
}

// newSite creates a Lockkeeper root on a ZooKeeper of its own.
func newSite(t testing.TB, namespaces map[string]zk.Namespace) *site {
	t.Helper()
	return siteOn(t, zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true, Namespaces: namespaces})
}

func siteOn(t testing.TB, cfg zk.Config) *site {
	t.Helper()
	layout := assert.Value(zklayout.Open(offlinetest.Context(t), cfg))(t)
	return &site{Site: offlinetest.Site{Offline: offlinetest.Open(t, cfg), T: t}, cfg: cfg, layout: layout}
}

func (s *site) lock(name string) string { return s.Root() + zk.NodeLocks + "/" + name }

// stand puts children into a lock's directory, in one transaction for all the directories.
func (s *site) stand(prefix string, dirs ...string) {
	s.T.Helper()
	var ops []zk.Op
	for _, dir := range dirs {
		s.Ensure(dir)
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: dir + "/" + prefix, Data: []byte(`{"v":1,"ttl_ms":60000}`), Sequential: true})
	}
	s.Apply(ops...)
}

// enqueue puts a lease of the fleet into the queues.
func (s *site) enqueue(dirs ...string) recipe.LeaseID {
	s.T.Helper()
	id := offlinetest.NewLease(s.T, recipe.FleetID(s.layout.FleetID))
	var ops []zk.Op
	for k, dir := range dirs {
		s.Ensure(dir)
		c := recipe.Contender{LeaseID: id, Group: uint8(k + 1), Groups: uint8(len(dirs))}
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: dir + "/" + c.Prefix(), Data: []byte(`{"v":1,"ttl_ms":30000}`), Sequential: true})
	}
	s.Apply(ops...)
	return id
}

// gateway registers a gateway.
func (s *site) gateway(address string) *session.Session {
	s.T.Helper()
	id := assert.Value(recipe.NewGatewayID(rand.Reader))(s.T)
	session := assert.Value(session.Open(offlinetest.Context(s.T), s.cfg, s.layout, string(id), fmt.Appendf(nil, `{"address":%q}`, address)))(s.T)
	s.T.Cleanup(func() { end(s.T, session) })
	return session
}

func end(t testing.TB, session *session.Session) {
	err := session.Close(offlinetest.Context(t))
	assert.That(t, err == nil || errors.Is(err, zk.ErrSessionGone), "%v", err)
}

// below is every path below another one, in order.
func (s *site) below(path string) []string {
	s.T.Helper()
	names, _, err := s.Children(offlinetest.Context(s.T), path)
	assert.Must(s.T, err == nil || errors.Is(err, zk.ErrNoNode), "%v", err)
	slices.Sort(names)
	var all []string
	for _, name := range names {
		all = append(append(all, path+"/"+name), s.below(path+"/"+name)...)
	}
	return all
}

func (s *site) sweep(opt Options) (Report, error) {
	s.T.Helper()
	s.waited = 0
	opt.wait = func(_ context.Context, d time.Duration) error { s.waited += d; return nil }
	return Sweep(offlinetest.Context(s.T), s.cfg, opt)
}

func TestWhatAFleetHasLeftGoesAndNothingElse(t *testing.T) {
	s := newSite(t, map[string]zk.Namespace{"python": {Root: "/app/locks", Dialect: "kazoo"}, "hosts": {Root: "/hosts", Dialect: "custom exclusive={id}-W- shared={id}-R-"}})
	other := cfgAt(s.cfg, "/another")
	neighbour := siteOn(t, other)

	s.enqueue(s.lock("deploy"))
	s.enqueue(s.lock("deploy"), s.lock("billing"), "/app/locks/nightly")
	s.stand("_c_0123456789abcdef0123456789abcdef-lock-", s.lock("deploy"))
	s.stand("0123456789abcdef0123456789abcdef__lock__", "/app/locks/nightly")
	s.stand("write-v1."+string(offlinetest.NewLease(t, recipe.FleetID(neighbour.layout.FleetID)))+"-lock-", s.lock("deploy"))
	s.stand("write-v2."+string(offlinetest.NewLease(t, recipe.FleetID(s.layout.FleetID)))+".new-lock-", s.lock("later")) // of a later release
	s.Put(s.lock("billing")+"/no number", "")
	s.stand("v1."+string(offlinetest.NewLease(t, recipe.FleetID(s.layout.FleetID)))+"-R-", "/hosts/web-1")
	s.stand("other-W-", "/hosts/web-1")
	s.Put(s.Root()+"/namespaces/tomorrow", `{"root":"/tomorrow","dialect":"of a later release"}`)
	s.Put("/tomorrow", "")
	s.stand("<v3."+string(offlinetest.NewLease(t, recipe.FleetID(s.layout.FleetID)))+">", "/tomorrow/x")
	s.Put(s.Root()+"/keys/aaaa", "{}")
	s.Put(s.Root()+"/outbox/x-0000000001", "{}")
	s.Put(s.Root()+"/settings/default,deploy", "")
	s.Put(s.Root()+"/settings/default,deploy/limit-3", "")
	s.Put(s.Root()+"/webhooks/w", "{}")
	s.Put(s.Root()+"/auth/tokens/abcdefgh", "{}")
	s.Put(s.Root()+"/gateways/aaaaaaaaaaaaa", `{}`) // as a copying tool would have left it
	s.Put(s.Root()+"/guards/aaaaaaaaaaaaa", "")
	for from, to := range map[string]string{"aaaaaaaaaaaaa": "ccccccccccccc", "ccccccccccccc": "bbbbbbbbbbbbb", "eeeeeeeeeeeee": "ccccccccccccc"} {
		s.Put(s.Root()+"/succession/"+from, to)
	}
	neighbour.enqueue(neighbour.lock("deploy"))
	neighbour.Put(neighbour.Root()+"/keys/aaaa", "{}")
	neighbour.gateway("10.0.0.9:8080") // one that runs, at another root: not our business

	everything := func() []string {
		return slices.Concat(s.below(s.Root()), s.below("/app"), s.below("/another"), s.below("/hosts"), s.below("/tomorrow"))
	}
	before := everything()
	var listed []string
	report := assert.Value(s.sweep(Options{DryRun: true, Deleted: func(path string) { listed = append(listed, path) }}))(t)
	after := everything()
	assert.That(t, slices.Equal(before, after), "a dry run changed\n%v into\n%v", before, after)
	assert.That(t, s.waited == 0 && report.Transactions == 0, "a dry run waited %v and made %d transactions", s.waited, report.Transactions)

	var order []string
	real := assert.Value(s.sweep(Options{Deleted: func(path string) { order = append(order, path) }}))(t)
	assert.That(t, s.waited == zk.DefaultPromiseWindow, "it let %v pass, and a gateway may speak for %v", s.waited, zk.DefaultPromiseWindow)
	assert.That(t, slices.Equal(slices.Sorted(slices.Values(listed)), slices.Sorted(slices.Values(order))),
		"the dry run listed\n%v and then went\n%v", listed, order)
	want := Report{Leases: 5, Contenders: 7, Locks: 6, Keys: 1, Successions: 3, Outbox: 1, Registrations: 2, Foreign: 4, LongestTTL: time.Minute}
	report.Transactions, want.Transactions = real.Transactions, real.Transactions
	assert.That(t, fmt.Sprint(real) == fmt.Sprint(want) && fmt.Sprint(report) == fmt.Sprint(want),
		"reported\n%+v, and in the dry run\n%+v, want\n%+v", real, report, want)
	after = everything()
	missing := slices.DeleteFunc(slices.Clone(before), func(path string) bool { return slices.Contains(after, path) })
	if !slices.Equal(missing, slices.Sorted(slices.Values(order))) && !slices.Equal(slices.Sorted(slices.Values(missing)), slices.Sorted(slices.Values(order))) {
		t.Errorf("gone are\n%v, told were\n%v", missing, order)
	}
	assert.That(t, len(after)+len(missing) == len(before), "there is something new: %v", after)
	for _, path := range missing {
		if strings.Contains(path, neighbour.layout.FleetID) || strings.HasPrefix(path, "/another") || strings.Contains(path, "_c_") || strings.Contains(path, "/settings/") || strings.Contains(path, "/webhooks/") || strings.Contains(path, "/auth/") {
			t.Errorf("%s is gone, and was none of the sweep's business", path)
		}
	}
	again, err := s.sweep(Options{})
	assert.That(t, err == nil && again.Transactions == 0, "once more: %v, %+v", err, again)
	// A chain goes from its beginning; keys after leases.
	at := func(part string) int {
		return slices.IndexFunc(order, func(path string) bool { return strings.Contains(path, part) })
	}
	if !(at("/nightly/") < at("/keys/") && at("/keys/") < at("/succession/aaaaaaaaaaaaa") &&
		at("/succession/aaaaaaaaaaaaa") < at("/succession/ccccccccccccc") && at("/succession/eeeeeeeeeeeee") < at("/succession/ccccccccccccc")) {
		t.Errorf("the order was %v", order)
	}
}

func cfgAt(cfg zk.Config, root string) zk.Config {
	cfg.Root, cfg.Namespaces = root, nil
	return cfg
}

func TestWhileAGatewayIsRegisteredNothingIsSwept(t *testing.T) {
	s := newSite(t, nil)
	s.enqueue(s.lock("deploy"))
	session := s.gateway("10.0.0.1:8080")
	for _, dry := range []bool{true, false} {
		_, err := s.sweep(Options{DryRun: dry})
		offlinetest.WantKind(t, err, KindInUse, "10.0.0.1:8080", session.ID(), "stop every gateway")
	}
	left := s.below(s.lock("deploy"))
	assert.That(t, len(left) == 1, "left: %v", left)
	end(t, session)
	_, err := s.sweep(Options{})
	assert.Nil(t, err)
	_, err = Sweep(offlinetest.Context(t), cfgAt(s.cfg, "/nowhere"), Options{})
	offlinetest.WantKind(t, err, KindNoRoot)
}

// A gateway registers between the look and the deletion, stays or is gone again; after each
// transaction of a sweep that takes several. The rest is a state in which gateways go on:
// each queue has lost of its tail alone, and each lease over several locks is whole or gone.
func TestAGatewayThatStartsInTheMiddleIsRobbedOfNothing(t *testing.T) {
	for _, stays := range []bool{true, false} {
		for after := range 3 {
			t.Run(fmt.Sprintf("stays=%v after %d", stays, after), func(t *testing.T) {
				s := newSite(t, nil)
				var queues []string
				var order []recipe.LeaseID
				for i := range 5 {
					queues = append(queues, s.lock(fmt.Sprint("lock-", i)))
				}
				for i := range 60 {
					order = append(order, s.enqueue(queues[i%5], queues[(i+1)%5]))
				}
				transactions, present := 0, map[string]bool{}
				start := func() {
					session := s.gateway("10.0.0.7:8080")
					for _, path := range s.below(s.Root() + zk.NodeLocks) {
						present[path] = true
					}
					if !stays {
						end(t, session)
					}
				}
				opt := Options{piece: 5 << 10, looked: func() { // some three transactions
					if after == 0 {
						start()
					}
				}, committed: func() {
					if transactions++; transactions == after {
						start()
					}
				}}
				report, err := s.sweep(opt)
				assert.That(t, transactions == after, "%d transactions were committed, and a gateway came after %d", transactions, after)
				if stays {
					offlinetest.WantKind(t, err, KindInUse, "10.0.0.7:8080")
				} else {
					offlinetest.WantKind(t, err, KindInUse, "was started meanwhile")
				}
				assert.That(t, report.Transactions == after && report.Contenders == 2*report.Leases, "the report says %+v", report)
				left := map[recipe.LeaseID]int{}
				for _, path := range s.below(s.Root() + zk.NodeLocks) {
					delete(present, path)
					if c, ok := recipe.Parse(recipe.FleetID(s.layout.FleetID), path[strings.LastIndexByte(path, '/')+1:]); ok {
						left[c.LeaseID]++
					}
				}
				if len(present) > 0 {
					t.Errorf("%d nodes went after the gateway had come: %v", len(present), slices.Collect(maps.Keys(present))[0])
				}
				for i, id := range order {
					if want := map[bool]int{true: 2}[i < len(order)-report.Leases]; left[id] != want {
						t.Fatalf("lease %d of %d has %d contenders, want %d; %d went", i, len(order), left[id], want, report.Leases)
					}
				}
			})
		}
	}
}

// Each request of a sweep is lost on the way there, or its answer on the way back. What comes of it
// is an error that says to run it again, or nothing; run again, it ends as if nothing had happened.
func TestASweepThatLosesAnAnswerGoesOnWhenItIsRunAgain(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("persisted=%v %d", persisted, n), func(t *testing.T) {
				t.Parallel()
				direct := newSite(t, nil)
				proxy := netfault.NewT(t, direct.cfg.Servers[0], netfault.Framed())
				for range 3 {
					direct.enqueue(direct.lock("deploy"))
				}
				direct.Put(direct.Root()+"/keys/aaaa", "{}")
				direct.Put(direct.Root()+"/succession/aaaaaaaaaaaaa", "bbbbbbbbbbbbb")
				through := *direct
				through.cfg.Servers = []string{proxy.Addr()}
				if persisted {
					proxy.FailReply(n, netfault.IsOp(netfault.OpMulti))
				} else {
					proxy.FailRequest(n, netfault.IsOp(netfault.OpMulti))
				}
				report, err := through.sweep(Options{})
				if n > 1 || err != nil { // the first one is the barrier, which is repeated
					offlinetest.WantKind(t, err, KindUnknown, "run it again")
				}
				assert.Value(direct.sweep(Options{}))(t)
				left := slices.Concat(direct.below(direct.lock("deploy")), direct.below(direct.Root()+"/keys"), direct.below(direct.Root()+"/succession"), direct.below(direct.Root()+"/gateways"))
				assert.That(t, len(left) <= 0, "after %+v there is left: %v", report, left)
			})
		}
	}
}

func TestWhatOthersDoToALeaseMeanwhileIsNoObstacle(t *testing.T) {
	s := newSite(t, nil)
	for range 3 {
		s.enqueue(s.lock("deploy"))
	}
	paths := s.below(s.lock("deploy"))
	opt := Options{looked: func() {
		s.Apply(zk.Op{Kind: zk.OpSetData, Path: paths[0], Data: []byte("__REVOKE__"), Version: -1})
		s.Apply(zk.Op{Kind: zk.OpDelete, Path: paths[1], Version: -1})
		s.Put(paths[2]+"/child", "")
	}}
	s.Put(s.Root()+"/keys/aaaa", "{}")
	report := assert.Value(s.sweep(opt))(t)
	if left := s.below(s.lock("deploy")); len(left) != 2 || !slices.Equal(report.Kept, paths[2:]) || report.Leases != 1 || report.Keys != 0 {
		t.Errorf("left: %v, report %+v", left, report)
	}
}

// ZooKeeper numbers a sequential node by the children that its parent has ever had; that is what the proof is made of.
func TestARegistrationThatCameAndWentIsCounted(t *testing.T) {
	s := newSite(t, nil)
	count := func() int32 {
		_, stat, err := s.Children(offlinetest.Context(t), s.Root()+zk.NodeGateways)
		assert.NoError(t, err)
		return creations(stat)
	}
	before := count()
	one := s.gateway("10.0.0.1:8080")
	two := s.gateway("10.0.0.2:8080")
	got := count()
	assert.That(t, got == before+2, "with two gateways: %d after %d", got, before)
	end(t, one)
	end(t, two)
	got = count()
	assert.That(t, got == before+2, "when they have gone: %d after %d", got, before)
	s.Apply(zk.Op{Kind: zk.OpCreate, Path: s.Root() + zk.NodeGateways + "/sweep-", Sequential: true},
		zk.Op{Kind: zk.OpDelete, Path: fmt.Sprintf("%s/sweep-%010d", s.Root()+zk.NodeGateways, before+2), Version: -1})
	got = count()
	assert.That(t, got == before+3, "after a proof: %d after %d", got, before)
}
