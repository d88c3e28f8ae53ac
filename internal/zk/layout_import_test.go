package zk

import (
	"errors"
	"testing"
)

func TestNoGatewayStartsOnARootThatAnImportHasNotCompleted(t *testing.T) {
	for name, create := range map[string]bool{"may create": true, "may not create": false} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			p := newProbe(t, cfg)
			p.create(DefaultRoot, "")
			p.create(DefaultRoot+NodeImport, "")
			cfg.CreateRoot = create
			_, err := OpenLayout(testContext(t), cfg)
			mustBeFatal(t, "opening", err, KindImportUnfinished)
			if got := p.children(DefaultRoot); len(got) != 1 {
				t.Errorf("it has written: %v", got)
			}
		})
	}
}

// The import begins after the gateway has looked: its node is there when the
// gateway comes to the version, which is the last that it writes.
func TestAnImportThatBeginsWhileAGatewayCreatesTheLayoutKeepsItFromCompleting(t *testing.T) {
	cfg := testConfig(t)
	p := newProbe(t, cfg)
	p.create(DefaultRoot, "")
	p.create(DefaultRoot+NodeImport, "")
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	offline, err := OpenOffline(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer offline.Close()
	o := opener{ctx: testContext(t), cfg: &cfg, c: offline.c}
	mustBeFatal(t, "creating", o.createMissing(), KindImportUnfinished)
	if stat, err := o.exists(&cfg, DefaultRoot+NodeVersion); err != nil || stat != nil {
		t.Errorf("the version: %+v, %v", stat, err)
	}
}

func TestWorkOfflineGivesNodesTheACLsThatGatewaysGiveThem(t *testing.T) {
	cfg := testConfig(t)
	cfg.Auth = &DigestAuth{"fleet", "secret"}
	cfg.Chroot += "/apps"
	ctx := testContext(t)
	o, err := OpenOffline(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.CreateAncestors(ctx, DefaultRoot); err != nil {
		t.Fatal(err)
	}
	paths := []string{"", NodeLocks, NodeLocks + "/a", NodeSecret, NodeNamespaces, NodeNamespaces + "/x",
		NodeWebhooks, NodeWebhooks + "/w", NodeOutbox, NodeOutbox + "/e"}
	var ops []Op
	for _, path := range paths {
		ops = append(ops, Op{Kind: OpCreate, Path: DefaultRoot + path, Data: []byte("x")})
	}
	if culprit, err := o.Commit(ctx, ops); err != nil {
		t.Fatalf("operation %d: %v", culprit, err)
	}
	strangers := cfg
	strangers.Auth = nil
	p := newProbe(t, strangers)
	for i, path := range paths {
		_, readable := p.get(DefaultRoot + path)
		writable := p.trySet(DefaultRoot+path, "")
		who := []access{shown, open, open, private, shown, shown, shown, private, shown, private}[i]
		if (readable == nil) != (who != private) || (writable == nil) != (who == open) {
			t.Errorf("%s: reading %v, writing %v", path, readable, writable)
		}
	}
	culprit, err := o.Commit(ctx, []Op{{Kind: OpCheck, Path: DefaultRoot}, {Kind: OpCreate, Path: DefaultRoot + NodeLocks}})
	if culprit != 1 || !errors.Is(err, ErrNodeExists) {
		t.Errorf("culprit %d, %v", culprit, err)
	}
	if _, err := o.Commit(ctx, []Op{{Kind: OpSetData, Path: DefaultRoot, Data: make([]byte, maxTransaction)}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a transaction that is too large: %v", err)
	}
	before, err := o.Barrier(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := o.Exists(ctx, DefaultRoot)
	if err != nil || before <= stat.Czxid {
		t.Errorf("barrier %d after %+v, %v", before, stat, err)
	}
	if after, err := o.Barrier(ctx); err != nil || after <= before {
		t.Errorf("barriers %d and %d, %v", before, after, err)
	}
}
