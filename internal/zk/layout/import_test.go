package layout

import (
	"errors"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

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
	if culprit, err := o.Commit(ctx, ops); err != nil {
		t.Fatalf("operation %d: %v", culprit, err)
	}
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
	culprit, err := o.Commit(ctx, []zk.Op{{Kind: zk.OpCheck, Path: zk.DefaultRoot}, {Kind: zk.OpCreate, Path: zk.DefaultRoot + zk.NodeLocks}})
	assert.That(t, culprit == 1 && errors.Is(err, zk.ErrNodeExists), "culprit %d, %v", culprit, err)
	_, err = o.Commit(ctx, []zk.Op{{Kind: zk.OpSetData, Path: zk.DefaultRoot, Data: make([]byte, conn.MaxTransaction)}})
	assert.That(t, errors.Is(err, zk.ErrTooLarge), "a transaction that is too large: %v", err)
	before := assert.Value(o.Barrier(ctx))(t)
	stat, err := o.Exists(ctx, zk.DefaultRoot)
	assert.That(t, err == nil && before > stat.Czxid, "barrier %d after %+v, %v", before, stat, err)
	after, err := o.Barrier(ctx)
	assert.That(t, err == nil && after > before, "barriers %d and %d, %v", before, after, err)
}
