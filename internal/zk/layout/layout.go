package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
	"strconv"
	"time"
)

const (
	// layoutVersion is what this release writes, oldestReader the oldest
	// release's layout version that can read it.
	layoutVersion = 1
	oldestReader  = 1

	defaultNamespace = "default"
)

// TokenKey is a key that authenticates lease tokens.
type TokenKey struct {
	ID  string `json:"id"`
	Key []byte `json:"key"`
}

// Layout is what is recorded for the whole fleet.
type Layout struct {
	Root    string
	FleetID string     // 8 characters of base32
	Keys    []TokenKey // the newest first
	// NameKey names the nodes of idempotency keys. It outlives the keys.
	NameKey []byte
	// SecretExposed: others than the fleet can read the secret, or could once. See the package's comment.
	SecretExposed bool
	// FenceBase is added to every czxid to make a fencing token.
	FenceBase        int64
	FenceBaseVersion int32
	// PromiseWindow is W. A successor waits LargestWindow, the largest ever recorded.
	PromiseWindow        time.Duration
	LargestWindow        time.Duration
	PromiseWindowVersion int32
	Namespaces           map[string]zk.Namespace
}

type versionRecord struct {
	Layout       int `json:"layout"`
	OldestReader int `json:"oldest_reader"`
}

type secretRecord struct {
	FleetID string     `json:"fleet_id"`
	Keys    []TokenKey `json:"keys"`
	NameKey []byte     `json:"name_key,omitempty"`
	// Exposed is written by an export of a secret that others could read: the keys are known there, wherever they go.
	Exposed bool `json:"exposed,omitempty"`
}

type windowRecord struct {
	Window  string `json:"window"`
	Largest string `json:"largest"`
}

// OpenLayout checks the root on a connection of its own, and creates what is
// missing: all of it with cfg.CreateRoot, otherwise only what a later release
// has added to a root that exists. It is idempotent, and several gateways may
// do it at once: each node is created once and then read, so they all find the
// same. ErrUnavailable means that ZooKeeper could not be reached, *FatalError
// that trying again is useless.
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

// errLayoutRead is why the connection of OpenLayout ends.
var errLayoutRead = fmt.Errorf("%w: the layout has been read", zk.ErrSessionGone)

// opener is one run of OpenLayout.
type opener struct {
	ctx context.Context
	cfg *zk.Config
	c   *conn.Conn

	first    bool  // the root had no version when we came: whatever is there already must be the fleet's
	aversion int32 // of the secret's ACL
	closed   []string
}

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
	case errors.Is(err, zk.ErrNoAuth) && o.cfg.Auth != nil:
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

// CheckVersion refuses the data of a version node when this release cannot read
// such a layout.
func CheckVersion(data []byte) error {
	var v versionRecord
	if err := json.Unmarshal(data, &v); err != nil {
		return corrupt(zk.NodeVersion, err)
	}
	if v.OldestReader > layoutVersion {
		return &zk.FatalError{Kind: zk.KindLayoutTooNew, Hint: "run the release that the other gateways run",
			Err: fmt.Errorf("the root has layout %d, which needs a reader of at least %d; this release reads %d", v.Layout, v.OldestReader, layoutVersion)}
	}
	return nil
}

// createAncestors creates chroot and root, component by component.
func (o *opener) createAncestors() error {
	whole := o.cfg.Full(o.cfg.Root)
	bare := *o.cfg
	bare.Chroot = ""
	for i := 1; i <= len(whole); i++ {
		if i == len(whole) || whole[i] == '/' {
			who := conn.Above
			if i == len(whole) {
				who = conn.ReadOnly
			}
			if err := o.create(&bare, whole[:i], nil, who); err != nil {
				return err
			}
		}
	}
	return nil
}

// createMissing creates what is not there. The version comes last: where it
// stands, the rest does.
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
		if err := o.provide(d.Path, nil, d.Access); err != nil {
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

// create makes a node unless it is there. It looks first, so that a gateway
// that may only read an old root does not need the right to create. Whether an
// earlier attempt or another gateway was quicker makes no difference.
func (o *opener) create(cfg *zk.Config, path string, data []byte, who conn.Access) error {
	if stat, err := o.exists(cfg, path); err != nil || stat != nil {
		return err
	}
	if data == nil {
		data = []byte{}
	}
	err := o.c.Retry(o.ctx, conn.ReqCreate, func(ctx context.Context) error {
		return o.c.Create(ctx, cfg, path, data, who)
	}, func(ctx context.Context) (bool, error) {
		stat, err := o.c.ExistsBelow(ctx, cfg, path)
		return stat != nil, err
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

func (o *opener) exists(cfg *zk.Config, path string) (stat *zk.Stat, err error) {
	err = o.c.Retry(o.ctx, conn.ReqExists, func(ctx context.Context) (err error) {
		stat, err = o.c.ExistsBelow(ctx, cfg, path)
		return err
	}, nil)
	return stat, err
}

func (o *opener) read(name string) (data []byte, stat zk.Stat, err error) {
	err = o.c.Retry(o.ctx, conn.ReqGet, func(ctx context.Context) (err error) {
		data, stat, err = o.c.Get(ctx, o.cfg.Root+name)
		return err
	}, nil)
	return data, stat, err
}

func (o *opener) readRecord(name string, record any) (version int32, err error) {
	data, stat, err := o.read(name)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(data, record); err != nil {
		return 0, corrupt(name, err)
	}
	return stat.Version, nil
}

// readAll reads the records that exist now, whoever made them.
func (o *opener) readAll() (*Layout, error) {
	l := &Layout{Root: o.cfg.Root}
	data, _, err := o.read(zk.NodeVersion)
	if err == nil {
		err = CheckVersion(data)
	}
	if err != nil {
		return nil, err
	}
	secret, _, err := o.read(zk.NodeSecret)
	if err == nil {
		l.FleetID, l.Keys, err = ParseSecret(secret)
	}
	if err == nil {
		l.NameKey, err = parseNameKey(secret)
	}
	if err != nil {
		return nil, err
	}
	l.SecretExposed = o.cfg.Auth == nil || o.aversion != 0 || SecretExposed(secret)
	if l.FenceBaseVersion, err = o.readRecord(zk.NodeFenceBase, &l.FenceBase); err != nil {
		return nil, err
	}
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

func (r *windowRecord) durations() (window, largest time.Duration, err error) {
	window, err = time.ParseDuration(r.Window)
	if err == nil {
		largest, err = time.ParseDuration(r.Largest)
	}
	if err == nil && (window < zk.MinPromiseWindow || largest < window) {
		err = errors.New("the window is below its minimum or above the largest")
	}
	if err != nil {
		return 0, 0, corrupt(zk.NodePromiseWindow, err)
	}
	return window, largest, nil
}

// ParseWindow reads the data of a promise window's node: the one in force, and the
// largest ever recorded.
func ParseWindow(data []byte) (window, largest time.Duration, err error) {
	var record windowRecord
	if err := json.Unmarshal(data, &record); err != nil {
		return 0, 0, corrupt(zk.NodePromiseWindow, err)
	}
	return record.durations()
}

func corrupt(name string, err error) error {
	return &zk.FatalError{Kind: zk.KindLayoutCorrupt, Hint: "restore the node from a backup, or use another --root",
		Err: fmt.Errorf("cannot understand %s: %w", strconv.Quote(name), err)}
}
