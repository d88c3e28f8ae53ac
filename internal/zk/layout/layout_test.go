package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

func TestALayoutIsCreatedOnceAndThenFound(t *testing.T) {
	cfg := fixture.Config(t)
	first := opened(t, cfg)
	if !regexp.MustCompile(`^[a-z2-7]{8}$`).MatchString(first.FleetID) || len(first.Secret.Keys) != 1 || len(first.Secret.Keys[0].Key) != keyBytes || first.Secret.Keys[0].ID == "" {
		t.Errorf("fleet id %q, keys %+v", first.FleetID, first.Secret.Keys)
	}
	assert.That(t, first.PromiseWindow == zk.DefaultPromiseWindow && first.LargestWindow == zk.DefaultPromiseWindow && first.FenceBase == 0,
		"window %v, largest %v, fence base %d", first.PromiseWindow, first.LargestWindow, first.FenceBase)
	if want := map[string]zk.Namespace{"default": {Root: zk.DefaultRoot + "/locks", Dialect: "native"}}; !reflect.DeepEqual(first.Namespaces, want) {
		t.Errorf("namespaces %v, want %v", first.Namespaces, want)
	}
	want := []string{"auth", "fence_base", "gateways", "guards", "keys", "locks", "namespaces", "outbox", "periods", "promise_window",
		"secret", "settings", "succession", "version", "webhooks"}
	got := fixture.NewProbe(t, cfg).Children(zk.DefaultRoot)
	assert.That(t, slices.Equal(got, want), "%v is below the root, want %v", got, want)
	cfg.CreateRoot = false
	second := opened(t, cfg)
	assert.That(t, reflect.DeepEqual(first, second), "found %+v, made %+v", second, first)
}

// A gateway may come to a root that an earlier release made, which had fewer.
func TestWhatALaterReleaseAddedIsCreatedOnARootThatIsThere(t *testing.T) {
	for _, dir := range Directories() {
		cfg := fixture.Config(t)
		made := opened(t, cfg)
		p := fixture.NewProbe(t, cfg)
		for _, name := range p.Children(zk.DefaultRoot + dir) {
			p.Delete(zk.DefaultRoot + dir + "/" + name)
		}
		p.Delete(zk.DefaultRoot + dir)
		cfg.CreateRoot = false
		found := opened(t, cfg)
		assert.That(t, reflect.DeepEqual(found, made), "without %s the layout is %+v, and was %+v", dir, found, made)
		assert.That(t, p.Stat(zk.DefaultRoot+dir) != nil, "%s is not there", dir)
	}
}

func TestGatewaysThatCreateTheLayoutAtOnceFindTheSame(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Chroot += "/made/on/demand"
	layouts := make([]*Layout, 6)
	var running sync.WaitGroup
	for i := range layouts {
		running.Go(func() {
			var err error
			layouts[i], err = Open(fixture.Context(t), cfg)
			assert.Nil(t, err)
		})
	}
	running.Wait()
	for _, l := range layouts[1:] {
		assert.That(t, reflect.DeepEqual(l, layouts[0]), "%+v and %+v", l, layouts[0])
	}
}

// Each request of creating the layout is lost on the way there and on the way
// back; the layout that is found in the end is whole, and the same from then on.
func TestALayoutSurvivesTheLossOfAnyRequest(t *testing.T) {
	requests := netfault.IsOp(netfault.OpCreate, netfault.OpExists, netfault.OpGetData, netfault.OpGetChildren2, netfault.OpMulti)
	for n := 1; ; n += 3 { // every third: the steps repeat themselves
		direct, through, proxy := fixture.Faulty(t)
		var hit *netfault.Trigger
		if n%2 == 0 {
			hit = proxy.FailRequest(n, requests)
		} else {
			hit = proxy.FailReply(n, requests)
		}
		made := opened(t, through)
		direct.CreateRoot = false
		found := opened(t, direct)
		assert.Must(t, reflect.DeepEqual(found, made), "request %d lost: made %+v, found %+v", n, made, found)
		select {
		case <-hit.Fired():
		default:
			assert.That(t, n >= 30, "creating the layout took only %d requests", n)
			return
		}
	}
}

func TestALayoutThatDoesNotFitIsFatal(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   zk.FatalKind
		change func(p *fixture.Probe)
		cfg    func(*zk.Config)
	}{
		{name: "no root", kind: zk.KindMissingRoot, cfg: func(c *zk.Config) { c.Root, c.CreateRoot = "/elsewhere", false }},
		{name: "no chroot", kind: zk.KindMissingRoot, cfg: func(c *zk.Config) { c.Chroot, c.CreateRoot = c.Chroot+"/x", false }},
		{name: "too new", kind: zk.KindLayoutTooNew, change: func(p *fixture.Probe) {
			p.Set(zk.DefaultRoot+zk.NodeVersion, `{"layout":7,"oldest_reader":2}`)
		}},
		{name: "window contradicts", kind: zk.KindPromiseWindow, cfg: func(c *zk.Config) { c.PromiseWindow = 7 * time.Second }},
		{name: "window not understood", kind: zk.KindLayoutCorrupt, change: func(p *fixture.Probe) { p.Set(zk.DefaultRoot+zk.NodePromiseWindow, "ten") }},
		{name: "window above the largest", kind: zk.KindLayoutCorrupt, change: func(p *fixture.Probe) {
			p.Set(zk.DefaultRoot+zk.NodePromiseWindow, `{"window":"20s","largest":"10s"}`)
		}},
		{name: "secret not understood", kind: zk.KindLayoutCorrupt, change: func(p *fixture.Probe) { p.Set(zk.DefaultRoot+zk.NodeSecret, "") }},
		{name: "secret without keys", kind: zk.KindLayoutCorrupt, change: func(p *fixture.Probe) { p.Set(zk.DefaultRoot+zk.NodeSecret, `{"fleet_id":"abcdefgh"}`) }},
		{name: "fence base not understood", kind: zk.KindLayoutCorrupt, change: func(p *fixture.Probe) { p.Set(zk.DefaultRoot+zk.NodeFenceBase, "x") }},
		{name: "namespaces overlap", kind: zk.KindNamespace, change: func(p *fixture.Probe) {
			p.Create(zk.DefaultRoot+"/namespaces/more", `{"root":"`+zk.DefaultRoot+`/locks/more","dialect":"native"}`)
		}},
		{name: "namespace without a root", kind: zk.KindLayoutCorrupt, change: func(p *fixture.Probe) {
			p.Create(zk.DefaultRoot+"/namespaces/more", `{"dialect":"native"}`)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := fixture.Config(t)
			opened(t, cfg)
			if c.change != nil {
				c.change(fixture.NewProbe(t, cfg))
			}
			if c.cfg != nil {
				c.cfg(&cfg)
			}
			_, err := Open(fixture.Context(t), cfg)
			fixture.MustBeFatal(t, c.name, err, c.kind)
		})
	}
}

func TestANewerLayoutThatWeCanReadIsAccepted(t *testing.T) {
	cfg := fixture.Config(t)
	opened(t, cfg)
	p := fixture.NewProbe(t, cfg)
	p.Set(zk.DefaultRoot+zk.NodeVersion, `{"layout":7,"oldest_reader":1,"more":true}`)
	p.Set(zk.DefaultRoot+zk.NodeFenceBase, "4711")
	p.Set(zk.DefaultRoot+zk.NodePromiseWindow, `{"window":"10s","largest":"40s"}`)
	p.Delete(zk.DefaultRoot + "/webhooks") // as a layout of a release without them
	cfg.CreateRoot = false
	l := opened(t, cfg)
	assert.That(t, l.FenceBase == 4711 && l.LargestWindow == 40*time.Second && l.FenceBaseVersion == 1, "%+v", l)
	assert.That(t, p.Stat(zk.DefaultRoot+"/webhooks") != nil, "what a later release needs was not created")
}

func TestTheSecretSurvivesItsRecord(t *testing.T) {
	made, err := newSecret()
	assert.NoError(t, err)
	data := assert.Value(json.Marshal(made))(t)
	var read secretRecord
	err = json.Unmarshal(data, &read)
	assert.That(t, err == nil && reflect.DeepEqual(read, made), "%v: read %+v, made %+v", err, read, made)
	other, _ := newSecret()
	assert.That(t, other.FleetID != made.FleetID, "two fleets have one id")
}

// What a rotation keeps is the fleet's id and the names of idempotency keys, also of a secret that was made without a key for them.
func TestARenewedSecretKeepsIDAndNames(t *testing.T) {
	made := assert.Value(newSecret())(t)
	older := made
	older.Keys = append([]TokenKey{{ID: "aaaa", Key: []byte("in front")}}, made.Keys...)
	older.NameKey = nil
	for name, c := range map[string]struct {
		secret secretRecord
		names  []byte
	}{"with a name key": {made, made.NameKey}, "without": {older, made.Keys[0].Key}} {
		data := assert.Value(json.Marshal(c.secret))(t)
		for range 2 { // renewed once more
			data = assert.Value(RenewSecret(data))(t)
			s := assert.Value(ParseSecret(data))(t)
			assert.That(t, s.FleetID == made.FleetID && len(s.Keys) == 1 && bytes.Equal(s.NameKey, c.names),
				"%s: fleet %s, %d keys, names by %x, want %x", name, s.FleetID, len(s.Keys), s.NameKey, c.names)
			for _, old := range c.secret.Keys {
				assert.That(t, !bytes.Equal(s.Keys[0].Key, old.Key) && s.Keys[0].ID != old.ID, "%s: an old key goes on", name)
			}
		}
	}
}

// opened is the layout at a root.
func opened(t testing.TB, cfg zk.Config) *Layout {
	t.Helper()
	layout := assert.Value(Open(fixture.Context(t), cfg))(t, "OpenLayout")
	return layout
}

// TestMain ends the shared ZooKeeper and refuses tests that leave goroutines
// behind. zkreal ends its own with the server.
func TestMain(m *testing.M) {
	embeddedtest.StandIn()
	os.Exit(testkit.Run(zkreal.Wrap(m)))
}

func TestNoGatewayStartsOnARootThatAnImportHasNotCompleted(t *testing.T) {
	for name, create := range map[string]bool{"may create": true, "may not create": false} {
		t.Run(name, func(t *testing.T) {
			cfg := fixture.Config(t)
			p := fixture.NewProbe(t, cfg)
			p.Create(zk.DefaultRoot, "")
			p.Create(zk.DefaultRoot+zk.NodeImport, "")
			cfg.CreateRoot = create
			_, err := Open(fixture.Context(t), cfg)
			fixture.MustBeFatal(t, "opening", err, zk.KindImportUnfinished)
			got := p.Children(zk.DefaultRoot)
			assert.That(t, len(got) == 1, "it has written: %v", got)
		})
	}
}

// The import begins after the gateway has looked: its node is there when the
// gateway comes to the version, which is the last that it writes.
func TestAnImportThatBeginsWhileAGatewayCreatesTheLayoutKeepsItFromCompleting(t *testing.T) {
	cfg := fixture.Config(t)
	p := fixture.NewProbe(t, cfg)
	p.Create(zk.DefaultRoot, "")
	p.Create(zk.DefaultRoot+zk.NodeImport, "")
	cfg = assert.Value(cfg.WithDefaults())(t)
	offline := assert.Value(OpenOffline(fixture.Context(t), cfg))(t)
	defer offline.Close()
	o := opener{ctx: fixture.Context(t), cfg: &cfg, c: offline.c}
	fixture.MustBeFatal(t, "creating", o.createMissing(), zk.KindImportUnfinished)
	stat, err := o.exists(&cfg, zk.DefaultRoot+zk.NodeVersion)
	assert.That(t, err == nil && stat == nil, "the version: %+v, %v", stat, err)
}

func TestWorkOfflineGivesNodesTheACLsThatGatewaysGiveThem(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "secret"}
	cfg.Chroot += "/apps"
	ctx := fixture.Context(t)
	o := assert.Value(OpenOffline(ctx, cfg))(t)
	defer o.Close()
	assert.NoError(t, o.CreateAncestors(ctx, zk.DefaultRoot))
	paths := []string{"", zk.NodeLocks, zk.NodeLocks + "/a", zk.NodeSecret, zk.NodeNamespaces, zk.NodeNamespaces + "/x",
		zk.NodeWebhooks, zk.NodeWebhooks + "/w", zk.NodeOutbox, zk.NodeOutbox + "/e"}
	var ops []zk.Op
	for _, path := range paths {
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + path, Data: []byte("x")})
	}
	culprit, err := o.Commit(ctx, ops)
	assert.NoError(t, err, "operation %d", culprit)
	strangers := cfg
	strangers.Auth = nil
	p := fixture.NewProbe(t, strangers)
	for i, path := range paths {
		_, readable := p.Get(zk.DefaultRoot + path)
		writable := p.TrySet(zk.DefaultRoot+path, "")
		who := []conn.Access{conn.ReadOnly, conn.OpenToAll, conn.OpenToAll, conn.Private, conn.ReadOnly, conn.ReadOnly, conn.ReadOnly, conn.Private, conn.ReadOnly, conn.Private}[i]
		assert.That(t, (readable == nil) == (who != conn.Private) && (writable == nil) == (who == conn.OpenToAll),
			"%s: reading %v, writing %v", path, readable, writable)
	}
	culprit, err = o.Commit(ctx, []zk.Op{{Kind: zk.OpCheck, Path: zk.DefaultRoot}, {Kind: zk.OpCreate, Path: zk.DefaultRoot + zk.NodeLocks}})
	assert.That(t, culprit == 1 && errors.Is(err, zk.ErrNodeExists), "culprit %d, %v", culprit, err)
	_, err = o.Commit(ctx, []zk.Op{{Kind: zk.OpSetData, Path: zk.DefaultRoot, Data: make([]byte, conn.MaxTransaction)}})
	assert.That(t, errors.Is(err, zk.ErrTooLarge), "a transaction that is too large: %v", err)
	before := assert.Value(o.Barrier(ctx))(t)
	stat, err := o.Exists(ctx, zk.DefaultRoot)
	assert.That(t, err == nil && before > stat.Czxid, "barrier %d after %+v, %v", before, stat, err)
	after, err := o.Barrier(ctx)
	assert.That(t, err == nil && after > before, "barriers %d and %d, %v", before, after, err)
}

// What lives for a short time is accepted by the old key for that long after nothing makes it any more.
func TestAnOldKeyIsGoodForWhatItHasMade(t *testing.T) {
	now := time.Now()
	keys := []TokenKey{{ID: "newk"}, {ID: "oldk"}}
	count := func(signed *time.Time, life time.Duration) int {
		var k Keyring
		assert.That(t, k.Living(life)() == nil, "keys that are not known")
		k.Take(&Secret{Keys: keys, Rotation: &Rotation{SignedAt: signed}})
		return len(k.Living(life)())
	}
	hourAgo := now.Add(-time.Hour)
	assert.Equal(t, count(nil, time.Minute), 2, "while it may still sign")
	assert.Equal(t, count(&hourAgo, 2*time.Hour), 2, "what lives longer")
	assert.Equal(t, count(&hourAgo, time.Minute), 1, "what has ended")
}

// An export of a fleet whose secret is being rotated goes on from where no zxid matters.
func TestARotationGoesOnOnAnotherZooKeeper(t *testing.T) {
	at := time.Now().UTC()
	made := assert.Value(newSecret())(t)
	made.ACLChanges = 3
	for phase, want := range map[Phase]Phase{Accepting: Accepting, Signing: Signing, Retiring: Signing, Dropping: Signing} {
		made.Rotation = &Rotation{Key: made.Keys[0].ID, Phase: phase, Begun: at, Cut: 7, SignedAt: &at, DropAt: &at}
		data := assert.Value(json.Marshal(made))(t)
		s := assert.Value(ParseSecret(assert.Value(MarkSecret(data, false, true))(t)))(t)
		r := s.Rotation
		assert.That(t, r.Phase == want && s.ACLChanges == 0, "%s moves on as %+v, %d", phase, r, s.ACLChanges)
		assert.That(t, phase == want || r.Cut == 0 && r.SignedAt == nil && r.DropAt == nil, "%+v", r)
	}
}
