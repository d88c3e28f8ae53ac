package layout

import (
	"errors"
	"fmt"
	"strings"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// secure sees to it that a node of the layout, named relative to the root, has the ACL that a gateway with an identity
// gives it. It does nothing without an identity. The error is a *FatalError when the node is not what it must be, and
// we may not change that.
func (o *opener) secure(name string, who conn.Access) error {
	if !o.cfg.Identified() {
		return nil
	}
	path := o.cfg.Root + name
	// Of the nodes that are there before the first gateway only the root, and the lock roots, may belong to another program.
	early := o.first && name != "" && who != conn.OpenToAll
	s, err := o.c.Secure(o.ctx, path, who, func(have []conn.ACL) error {
		if early {
			return o.taken(path, have)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case s.Refused && early:
		return o.taken(path, s.Have)
	case s.Refused && !conn.Tolerable(s.Have, who):
		return o.notOurs(path, who, s.Have)
	case s.Changed && who != conn.Private && !o.cfg.CloseLocks && conn.SameACL(s.Have, o.c.ACL(conn.Private)):
		o.opened = append(o.opened, path)
	case s.Changed:
		o.closed = append(o.closed, path)
	}
	return nil
}

// parts are the nodes of a complete layout, relative to the root and each after its parent.
func parts() (names []string) {
	names = []string{""}
	for _, d := range conn.Directories {
		names = append(names, d.Path)
	}
	return append(names, zk.NodeSecret, zk.NodeFenceBase, zk.NodePromiseWindow, zk.NodeNamespaces+"/"+defaultNamespace, zk.NodeVersion)
}

// adoptable refuses a root whose version others may have written, unless it is complete. A gateway without an identity
// writes the version last, so a root that lacks a part is not a gateway's. A complete one is taken over with all that is
// in it: no look can tell who made it.
func (o *opener) adoptable() error {
	if !o.cfg.Identified() || o.first {
		return nil
	}
	ours, err := o.isOurs(zk.NodeSecret)
	if errors.Is(err, zk.ErrNoNode) {
		ours, err = o.isOurs("")
	}
	if err != nil || ours {
		return err
	}
	for _, name := range parts() {
		path := o.cfg.Root + name
		if stat, err := o.exists(o.cfg, path); err != nil {
			return err
		} else if stat == nil {
			return &zk.FatalError{Kind: zk.KindTaken,
				Hint: "find out who made the root; if it was a gateway without --zk-auth-file, start one of this release once without it; otherwise delete the root (zkCli.sh deleteall " +
					o.cfg.Full(o.cfg.Root) + "), or choose another --root",
				Err: fmt.Errorf("%s was not made by this fleet's ZooKeeper identity and lacks %s, which every gateway creates", o.cfg.Full(o.cfg.Root), o.cfg.Full(path))}
		}
	}
	return nil
}

// isOurs reports whether a node has the ACL that the fleet gives it.
func (o *opener) isOurs(name string) (ours bool, err error) {
	path := o.cfg.Root + name
	have, _, err := o.c.RetryACL(o.ctx, path)
	if errors.Is(err, zk.ErrNoAuth) {
		return false, nil
	}
	return err == nil && conn.SameACL(have, o.c.ACL(o.c.AccessAt(path))), err
}

// secureAll is secure for every part of a layout that exists but where the locks are, and for the records of its
// namespaces: whether locks are open is up to the gateways. A root without a version has no layout.
func (o *opener) secureAll() error {
	if !o.cfg.Identified() {
		return nil
	}
	if version, err := o.exists(o.cfg, o.cfg.Root+zk.NodeVersion); err != nil || version == nil {
		return err
	}
	if err := o.adoptable(); err != nil {
		return err
	}
	for _, name := range parts() {
		who := o.c.AccessAt(o.cfg.Root + name)
		if who == conn.OpenToAll {
			continue
		}
		if err := o.secure(name, who); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return o.secureNamespaces()
}

// secureNamespaces sees to the records of all namespaces: a client that may write one can move its lock root.
func (o *opener) secureNamespaces() error {
	if !o.cfg.Identified() {
		return nil
	}
	names, err := o.namespaceNames()
	for _, name := range names {
		if err := o.secure(zk.NodeNamespaces+"/"+name, conn.ReadOnly); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return err
}

// taken refuses a node that is there before the first gateway, and that this fleet did not make: its maker may know,
// or have chosen, what is in it.
func (o *opener) taken(path string, have []conn.ACL) error {
	return &zk.FatalError{Kind: zk.KindTaken,
		Hint: "find out who made it; then delete it (zkCli.sh deleteall " + o.cfg.Full(path) + "), or choose another --root",
		Err:  fmt.Errorf("%s was there before the first gateway of this fleet, and does not belong to its ZooKeeper identity (its ACL: %s)", o.cfg.Full(path), conn.DescribeACL(have))}
}

// notOurs refuses a node of which others may do what only the fleet should, or which the fleet may not use.
func (o *opener) notOurs(path string, who conn.Access, have []conn.ACL) error {
	full := o.cfg.Full(path)
	wanted := make([]string, len(o.c.ACL(who)))
	for i, a := range o.c.ACL(who) {
		wanted[i] = conn.DescribeACL([]conn.ACL{a})
		if a.Scheme == "digest" {
			wanted[i] = strings.Replace(wanted[i], ":x:", ":HASH:", 1)
		}
	}
	return &zk.FatalError{Kind: zk.KindAuth,
		Hint: "have ZooKeeper's super user run: setAcl " + full + " " + strings.Join(wanted, ",") + "; if a node of this fleet never had another ACL, check the user and password in the ZooKeeper auth file",
		Err:  fmt.Errorf("the ACL of %s (%s) does not fit, and this fleet's ZooKeeper identity may not change it", full, conn.DescribeACL(have))}
}

// report says once at the start what was closed, and what stays open.
func (o *opener) report(l *Layout) {
	log := o.cfg.Logger
	if len(o.closed) > 0 {
		log.Warn("others had rights on nodes of the layout; they are closed now", "nodes", o.closed)
	}
	if len(o.opened) > 0 {
		log.Warn("a gateway with --auth-file had closed the locks to other programs; this gateway has no --auth-file and has opened them", "nodes", o.opened)
	}
	switch {
	case !o.cfg.Identified():
		log.Warn("every client of ZooKeeper can read the fleet's secret, forge lease tokens and stop the service, "+
			"because this gateway has no ZooKeeper identity; give all gateways one with --zk-auth-file or --zk-cert-file", "root", o.cfg.Full(l.Root))
	case l.Secret.Exposed:
		log.Warn("the fleet's secret is compromised: others could read it, so they can forge lease tokens until it is replaced; "+
			"run gateway secret rotate, then gateway secret drop --now", "secret", o.cfg.Full(l.Root+zk.NodeSecret))
	}
}
