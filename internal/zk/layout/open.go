package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// Open checks the root on a connection of its own, and creates what is missing: all of it with cfg.CreateRoot,
// otherwise only what a later release has added to a root that exists. It is idempotent, and several gateways may do it
// at once: each node is created once and then read, so they all find the same. ErrUnavailable means that ZooKeeper
// could not be reached, *FatalError that trying again is useless.
func Open(ctx context.Context, cfg zk.Config) (*Layout, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	c, err := conn.Open(ctx, &cfg, func() {})
	if err != nil {
		return nil, fmt.Errorf("opening the layout: %w", err)
	}
	defer func() {
		c.End(errLayoutRead)
		select {
		case <-c.Gone():
		case <-ctx.Done(): // it goes on closing by itself
		}
	}()
	o := opener{ctx: ctx, cfg: &cfg, c: c}
	layout, err := o.open()
	if err != nil {
		if errors.Is(err, zk.ErrNoAuth) {
			err = conn.AuthRefused(&cfg, err)
		}
		return nil, conn.NotReached(ctx, fmt.Errorf("opening the layout at %s: %w", cfg.Root, err))
	}
	return layout, nil
}

// errLayoutRead is why the connection of Open ends.
var errLayoutRead = fmt.Errorf("%w: the layout has been read", zk.ErrSessionGone)

func (o *opener) open() (*Layout, error) {
	data, _, err := o.read(zk.NodeVersion)
	if errors.Is(err, zk.ErrNoNode) {
		if err := o.refuseImport(); err != nil {
			return nil, err
		}
	}
	switch {
	case errors.Is(err, zk.ErrNoNode) && !o.cfg.CreateRoot:
		return nil, &zk.FatalError{Kind: zk.KindMissingRoot, Hint: "start one gateway with --create-root, or correct --root and the chroot",
			Err: fmt.Errorf("%s does not exist", o.cfg.Full(o.cfg.Root))}
	case errors.Is(err, zk.ErrNoNode):
		o.first = true
		if err := o.createAncestors(); err != nil {
			return nil, err
		}
	case errors.Is(err, zk.ErrNoAuth) && o.cfg.Identified():
		return nil, o.notOurs(o.cfg.Root+zk.NodeVersion, conn.ReadOnly, nil)
	case err != nil:
		return nil, err
	default:
		if err := CheckVersion(data); err != nil {
			return nil, err
		}
	}
	if err := o.adoptable(); err != nil {
		return nil, err
	}
	// The root before everything below it: where others may delete its children, closing those is in vain.
	if err := o.secure("", conn.ReadOnly); err != nil {
		return nil, err
	}
	if err := o.createMissing(); err != nil {
		return nil, err
	}
	if err := o.dropForgedTokens(); err != nil {
		return nil, err
	}
	if err := o.secureNamespaces(); err != nil {
		return nil, err
	}
	if err := o.recordNamespaces(); err != nil {
		return nil, err
	}
	layout, err := o.readAll()
	if err == nil {
		o.report(layout)
	}
	return layout, err
}

// createAncestors creates chroot and root, component by component.
func (o *opener) createAncestors() error {
	whole := o.cfg.Full(o.cfg.Root)
	bare := *o.cfg
	bare.Chroot = ""
	for path := range ancestry(whole) {
		who := conn.Above
		if path == whole {
			who = conn.ReadOnly
		}
		if err := o.create(&bare, path, nil, who); err != nil {
			return err
		}
	}
	return nil
}

// createMissing creates what is not there. The version comes last: where it stands, the rest does.
func (o *opener) createMissing() error {
	window := o.cfg.PromiseWindow
	if window == 0 {
		window = zk.DefaultPromiseWindow
	}
	secret, err := newSecret()
	if err != nil {
		return err
	}
	nodes := []struct {
		name   string
		record any
		who    conn.Access
	}{
		{zk.NodeSecret, secret, conn.Private},
		{zk.NodeFenceBase, 0, conn.ReadOnly},
		{zk.NodePromiseWindow, windowRecord{window.String(), window.String()}, conn.ReadOnly},
		{zk.NodeNamespaces + "/" + defaultNamespace, zk.Namespace{Root: o.cfg.Root + zk.NodeLocks, Dialect: zk.NativeDialect}, conn.ReadOnly},
	}
	for _, d := range conn.Directories {
		if err := o.provide(d.Path, nil, o.c.AccessAt(o.cfg.Root+d.Path)); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		data, err := json.Marshal(n.record)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", n.name, err)
		}
		if err := o.provide(n.name, data, n.who); err != nil {
			return err
		}
	}
	if err := o.createVersion(); err != nil {
		return err
	}
	return o.secure(zk.NodeVersion, conn.ReadOnly)
}

// provide creates a node of the layout unless it is there, and sees to its ACL.
func (o *opener) provide(name string, data []byte, who conn.Access) error {
	if err := o.create(o.cfg, o.cfg.Root+name, data, who); err != nil {
		return err
	}
	return o.secure(name, who)
}

// readAll reads the records that exist now, also those of other gateways.
func (o *opener) readAll() (*Layout, error) {
	l := &Layout{Root: o.cfg.Root}
	data, _, err := o.read(zk.NodeVersion)
	if err == nil {
		err = CheckVersion(data)
	}
	if err != nil {
		return nil, err
	}
	// Before the secret: a step of a rotation moves both, so what is registered at this version has no older secret.
	if l.FenceBaseVersion, err = o.readRecord(zk.NodeFenceBase, &l.FenceBase); err != nil {
		return nil, err
	}
	secret, stat, err := o.read(zk.NodeSecret)
	if err == nil {
		l.Secret, err = ReadSecret(secret, stat, !o.cfg.Identified())
	}
	if err != nil {
		return nil, err
	}
	l.FleetID = l.Secret.FleetID
	if err := o.readWindow(l); err != nil {
		return nil, err
	}
	if err := o.readNamespaces(l); err != nil {
		return nil, err
	}
	return l, nil
}

func (o *opener) readWindow(l *Layout) (err error) {
	var record windowRecord
	if l.PromiseWindowVersion, err = o.readRecord(zk.NodePromiseWindow, &record); err != nil {
		return err
	}
	if l.PromiseWindow, l.LargestWindow, err = record.durations(); err != nil {
		return err
	}
	if want := o.cfg.PromiseWindow; want != 0 && want != l.PromiseWindow {
		return &zk.FatalError{Kind: zk.KindPromiseWindow, Hint: "leave --promise-window out; it changes only while no gateway runs",
			Err: fmt.Errorf("the promise window is %v for the whole fleet, not %v", l.PromiseWindow, want)}
	}
	return nil
}
