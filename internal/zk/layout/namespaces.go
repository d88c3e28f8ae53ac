package layout

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// MaxNamespaces is how many a fleet may have: each is a watch of every gateway.
const MaxNamespaces = 256

// CheckNamespaceName accepts what the API accepts: 1 to 64 letters, digits, dots,
// underscores and dashes, of which the first is a letter or a digit.
func CheckNamespaceName(name string) error {
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || r != '.' && r != '_' && r != '-') {
			return fmt.Errorf("the namespace name %q has a character that it may not have, or begins with one that it may not begin with", name)
		}
	}
	if name == "" || len(name) > 64 {
		return fmt.Errorf("a namespace name has 1 to 64 characters, %q has %d", name, len(name))
	}
	return nil
}

// ParseNamespace reads the data of a record.
func ParseNamespace(name string, data []byte) (ns zk.Namespace, err error) {
	if err = json.Unmarshal(data, &ns); err == nil {
		err = zk.CheckPath(ns.Root)
	}
	if err != nil {
		return ns, corrupt(zk.NodeNamespaces+"/"+name, err)
	}
	return ns, nil
}

// CheckOverlaps refuses namespaces whose lock roots are equal or one below the other:
// two dialects in one queue do not exclude each other.
func CheckOverlaps(namespaces map[string]zk.Namespace) error {
	names := slices.Sorted(maps.Keys(namespaces))
	for i, a := range names {
		for _, b := range names[i+1:] {
			if overlap(namespaces[a].Root, namespaces[b].Root) {
				return namespaceError("give each namespace a lock root of its own",
					"the lock roots of namespaces %s (%s) and %s (%s) overlap", a, namespaces[a].Root, b, namespaces[b].Root)
			}
		}
	}
	return nil
}

func overlap(a, b string) bool {
	a, b = a+"/", b+"/"
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

func namespaceError(hint, format string, args ...any) error {
	return &zk.FatalError{Kind: zk.KindNamespace, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// CheckNamespaces refuses what the namespaces of a fleet cannot be together, and lock roots that are, contain or lie in
// a part of the layout that is no place for locks, or ZooKeeper's own tree.
func CheckNamespaces(c *zk.Config, namespaces map[string]zk.Namespace) error {
	if len(namespaces) > MaxNamespaces {
		return namespaceError("use fewer", "%d namespaces; a fleet has at most %d", len(namespaces), MaxNamespaces)
	}
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		root := namespaces[name].Root
		if err := CheckNamespaceName(name); err != nil {
			return &zk.FatalError{Kind: zk.KindNamespace, Hint: "use another name", Err: err}
		}
		if err := zk.CheckPath(root); err != nil {
			return &zk.FatalError{Kind: zk.KindNamespace, Hint: "a lock root is an absolute path such as /app/locks, below the chroot",
				Err: fmt.Errorf("the lock root of namespace %s: %w", name, err)}
		}
		if overlap(c.Full(root), "/zookeeper") {
			return namespaceError("use another lock root", "the lock root %s of namespace %s is ZooKeeper's own", root, name)
		}
		if overlap(root, c.Root) && !strings.HasPrefix(root, c.Root+"/") {
			return namespaceError("use another lock root", "the lock root %s of namespace %s contains --root %s", root, name, c.Root)
		}
		for _, own := range ownParts(c, name) {
			if overlap(root, c.Root+own) {
				return namespaceError("use another lock root", "the lock root %s of namespace %s overlaps %s, which is no place for locks", root, name, c.Root+own)
			}
		}
	}
	return CheckOverlaps(namespaces)
}

// ownParts are the parts of the layout in which the namespace may not have locks.
func ownParts(c *zk.Config, namespace string) []string {
	parts := []string{zk.NodeVersion, zk.NodeSecret, zk.NodeFenceBase, zk.NodePromiseWindow, zk.NodeImport}
	for _, d := range conn.Directories {
		if d.Path != zk.NodeLocks || namespace != defaultNamespace {
			parts = append(parts, d.Path)
		}
	}
	return parts
}

// recordNamespaces adds the configured namespaces that are not recorded yet. The parent's data version is in the
// transaction, so of gateways that add overlapping roots at the same time one finds the other's.
func (o *opener) recordNamespaces() error {
	for attempt := 1; len(o.cfg.Namespaces) > 0; attempt++ {
		_, stat, err := o.read(zk.NodeNamespaces)
		if err != nil {
			return err
		}
		var l Layout
		if err := o.readNamespaces(&l); err != nil {
			return err
		}
		missing, err := o.missingNamespaces(l.Namespaces)
		if err != nil || len(missing) == 0 {
			return err
		}
		// The root first: who reads the record may use it at once.
		for _, name := range missing {
			if err := o.createLockRoot(name, o.cfg.Namespaces[name].Root); err != nil {
				return err
			}
		}
		switch err := o.addNamespaces(missing, stat.Version); {
		case err == nil:
			return nil
		case attempt == conn.RetryAttempts:
			return fmt.Errorf("recording namespaces, after %d attempts: %w", attempt, err)
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
			// Another gateway was quicker: what it has recorded decides.
		case errors.Is(err, zk.ErrUnavailable):
			// It may have been done; what is recorded then tells.
			if err := o.c.Await(o.ctx, conn.NewBackoff(o.cfg.Random).NextBackOff()); err != nil {
				return err
			}
		default:
			return fmt.Errorf("recording namespaces: %w", err)
		}
	}
	return nil
}

// missingNamespaces are the configured ones that are not recorded, in order.
func (o *opener) missingNamespaces(recorded map[string]zk.Namespace) (missing []string, err error) {
	all := maps.Clone(recorded)
	for _, name := range slices.Sorted(maps.Keys(o.cfg.Namespaces)) {
		want := o.cfg.Namespaces[name]
		have, known := recorded[name]
		if known && !have.Equal(want) {
			return nil, namespaceError("correct --namespace, or use another name: a recorded namespace does not change, because there may be leases in it",
				"namespace %s is recorded with root %s and dialect %s, not root %s and dialect %s", name,
				have.Root, cmp.Or(have.Dialect, zk.NativeDialect), want.Root, cmp.Or(want.Dialect, zk.NativeDialect))
		}
		if !known {
			missing = append(missing, name)
			all[name] = want
		}
	}
	return missing, CheckNamespaces(o.cfg, all)
}

// createLockRoot makes a lock root that is missing, open to the programs that share it. With Config.CreateRoot off it
// has to be there: a wrong one would be an empty lock service.
func (o *opener) createLockRoot(name, root string) error {
	stat, err := o.exists(o.cfg, root)
	if err != nil || stat != nil {
		return err
	}
	if !o.cfg.CreateRoot {
		return &zk.FatalError{Kind: zk.KindMissingRoot, Hint: "create it, or correct --namespace, or allow its creation with --create-root",
			Err: fmt.Errorf("%s, the lock root of namespace %s, does not exist", o.cfg.Full(root), name)}
	}
	for path := range ancestry(root) {
		who := conn.Above
		if path == root {
			who = conn.OpenToAll
		}
		switch err := o.create(o.cfg, path, nil, who); {
		case errors.Is(err, zk.ErrNoAuth):
			return namespaceError("create it with the identity that owns its parent, open to this fleet's identity (--zk-auth-file)",
				"%s, the lock root of namespace %s, does not exist, and this gateway may not create it: %w", o.cfg.Full(root), name, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// addNamespaces writes records in one transaction, unless another gateway has
// written one since the parent had that version.
func (o *opener) addNamespaces(names []string, version int32) error {
	ops := []conn.Op{o.c.Op(&zk.Op{Kind: zk.OpSetData, Path: o.cfg.Root + zk.NodeNamespaces, Version: version})}
	for _, name := range names {
		ns := o.cfg.Namespaces[name]
		ns.Dialect = cmp.Or(ns.Dialect, zk.NativeDialect)
		data, err := json.Marshal(ns)
		if err != nil {
			return fmt.Errorf("encoding the record of namespace %s: %w", name, err)
		}
		ops = append(ops, o.c.Op(&zk.Op{Kind: zk.OpCreate, Path: o.cfg.Root + zk.NodeNamespaces + "/" + name, Data: data}))
	}
	a, err := o.c.Transact(o.ctx, ops)
	if err == nil && !a.Committed {
		err = a.Err
	}
	return err
}

func (o *opener) namespaceNames() (names []string, err error) {
	names, _, err = o.c.RetryChildren(o.ctx, o.cfg.Root+zk.NodeNamespaces)
	return names, err
}

func (o *opener) readNamespaces(l *Layout) error {
	names, err := o.namespaceNames()
	if err != nil {
		return err
	}
	l.Namespaces = make(map[string]zk.Namespace, len(names))
	for _, name := range names {
		data, _, err := o.read(zk.NodeNamespaces + "/" + name)
		if errors.Is(err, zk.ErrNoNode) { // removed since the listing
			continue
		}
		if err != nil {
			return err
		}
		if l.Namespaces[name], err = ParseNamespace(name, data); err != nil {
			return err
		}
	}
	return CheckNamespaces(o.cfg, l.Namespaces)
}
